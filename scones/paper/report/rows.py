"""Which runs and which columns tables 3 and 4 have: systems below each other, searches beside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scones.paper.report import published
from scones.paper.report.document import Cell, Row, paper
from scones.paper.report.study import SEARCHES, SOFTMAX, DirectionStudy, Study
from scones.paper.results import RunResult

Pick = Callable[[DirectionStudy], RunResult | None]
Value = Callable[[DirectionStudy, RunResult, str, str], Cell]
"""Shows a number of a run, given a test and a search."""


def softmax(direction: DirectionStudy) -> RunResult | None:
    """Give the baseline."""
    return direction.systems.get(SOFTMAX)


def tuned(direction: DirectionStudy) -> RunResult | None:
    """Give SCONES with the best α."""
    return direction.tuned


def smoothed(layer: str) -> Pick:
    """Give the run of an output layer with label smoothing."""

    def pick(direction: DirectionStudy) -> RunResult | None:
        runs = direction.systems.values()
        found = (run for run in runs if run.output["layer"] == layer and run.label_smoothing)
        return next(found, None)

    return pick


@dataclass(frozen=True)
class Kind:
    """A row of tables 3 and 4."""

    published: str
    """The key of the paper's numbers; none: it has none."""
    system: str
    """What recipes call it, to say that it is missing."""
    pick: Pick
    """Which run it is."""


ROWS: Mapping[str, Kind] = {
    "Softmax": Kind(published.SOFTMAX, SOFTMAX, softmax),
    "Softmax with label smoothing": Kind("", "softmax-ls", smoothed("softmax")),
    "SCONES, tuned α": Kind(published.TUNED, "scones", tuned),
    "SCONES with label smoothing": Kind("", "scones-ls", smoothed("scones")),
}


def directions_of(study: Study, test: str) -> list[DirectionStudy]:
    """Give the directions that a test set exists for."""
    return [one for one in study.directions.values() if one.is_tested_on(test)]


def by_search(study: Study, test: str) -> tuple[list[tuple[str, DirectionStudy]], dict[str, Any]]:
    """Give the columns of a table with a group for every search, and the table's heads."""
    directions = directions_of(study, test)
    columns = [(search, direction) for search in SEARCHES for direction in directions]
    heads = ["", *(direction.name for _, direction in columns)]
    groups = [(title, len(directions)) for title in SEARCHES.values()]
    return columns, {"heads": heads, "groups": groups}


def score_row(
    title: str,
    columns: Sequence[tuple[str, DirectionStudy]],
    test: str,
    pick: Pick,
    value: Value,
    system: str,
) -> Row:
    """Make a row with a number of a run, which recipes call `system`, in every column."""

    def cell(search: str, direction: DirectionStudy) -> Cell:
        run = pick(direction)
        if run is None:
            return direction.not_trained(system)
        return value(direction, run, test, search)

    return Row(title, [cell(*column) for column in columns], system=system)


def paper_row(
    columns: Sequence[tuple[str, DirectionStudy]],
    numbers: Mapping[str, Mapping[str, published.ByDirection]],
    key: str,
) -> Row:
    """Make a row with the paper's numbers."""
    cells = [paper(numbers[search][key].get(direction.name)) for search, direction in columns]
    return Row("the paper", cells, "paper")
