"""BLEU cells of the report computed again from their translations, and compared with the stored."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scones.errors import SconesError
from scones.evaluation.metrics import bleu
from scones.paper.report.references import References
from scones.paper.report.study import DirectionStudy, Study
from scones.paper.results import reading

SAME = 1e-4
"""Scores that are nearer than this are the same."""


@dataclass(frozen=True)
class BleuCell:
    """A BLEU of the report, and the translations that it is the score of."""

    direction: DirectionStudy
    title: str
    run: str
    test: str
    stored: float
    file: str
    sentences: int
    """The first ones of the test set; an analysis has fewer than all."""

    @property
    def path(self) -> Path:
        """Where the translations are."""
        return self.direction.direction.folder / self.file


@dataclass(frozen=True)
class Checked:
    """A cell that was computed again."""

    cell: BleuCell
    again: float
    same: bool
    """Whether the stored number is right."""


def bleu_cells(study: Study) -> list[BleuCell]:
    """Give all BLEU cells whose translations are kept."""
    return [
        cell
        for direction in study.stored
        for cell in (*_translated(direction), *_searched(direction), *_timed(direction))
    ]


def check(study: Study, references: References, cells: int, seed: int) -> Iterator[Checked]:
    """Compute so many cells again, chosen at random; the same ones for the same seed."""
    with reading(study.results.folder):
        known = bleu_cells(study)
    if not known:
        raise SconesError(f"{study.results.folder} has no BLEU cell whose translations are kept.")
    chosen = random.Random(seed).sample(known, min(cells, len(known)))
    for cell in chosen:
        with reading(study.results.folder):
            again = _again(cell, references)
            checked = Checked(cell, again, abs(again - cell.stored) <= SAME)
        yield checked


def _again(cell: BleuCell, references: References) -> float:
    result = cell.direction.runs[cell.run].tests[cell.test]
    texts = references.of(cell.direction.name, cell.test, result)
    hypotheses = cell.direction.direction.hypotheses(cell.file)
    return bleu(hypotheses, [texts[: cell.sentences]]).value


def _translated(direction: DirectionStudy) -> Iterator[BleuCell]:
    for run in direction.runs.values():
        for test, result in run.tests.items():
            for search, found in result.searches.items():
                title = f"{run.name}, {test}, {search}"
                stored, sentences = found.scores["bleu"], result.sentences
                yield BleuCell(direction, title, run.name, test, stored, found.file, sentences)


def _searched(direction: DirectionStudy) -> Iterator[BleuCell]:
    """Give the cells of analysis.json, whose translations are of a test set's first sentences."""
    for system, row in (direction.analysis or {"systems": {}})["systems"].items():
        found = {f"beam {size}": beam for size, beam in row["beams"].items()}
        found |= {} if row["exact"] is None else {"exact search": row["exact"]}
        for search, figures in found.items():
            stored = figures["outputs"]["bleu"]
            yield from _first(direction, direction.analysis, system, search, stored, figures)


def _timed(direction: DirectionStudy) -> Iterator[BleuCell]:
    """Give the cells of speed.json."""
    for system, row in (direction.speed or {"systems": {}})["systems"].items():
        for size, figures in row["beams"].items():
            stored, search = figures["bleu"], f"beam {size} while timed"
            yield from _first(direction, direction.speed, system, search, stored, figures)


def _first(
    direction: DirectionStudy,
    result: dict[str, Any] | None,
    run: str,
    search: str,
    stored: float,
    figures: dict[str, Any],
) -> Iterator[BleuCell]:
    """Give a cell about the first sentences of a test set, whose references the run knows."""
    if result is None or "file" not in figures or run not in direction.runs:
        return
    test, sentences = result["test"], result["sentences"]
    if test in direction.runs[run].tests:
        title = f"{run}, first {sentences:,} of {test}, {search}"
        yield BleuCell(direction, title, run, test, stored, figures["file"], sentences)
