"""Models that were trained a second time from their recipe, beside the first ones."""

from __future__ import annotations

from dataclasses import replace

from scones.paper.report.document import Cell, Origin, Row, Table, missing, ours
from scones.paper.report.study import SEARCHES, DirectionStudy, Study
from scones.paper.results import RunResult


def retrained(study: Study) -> Table:
    """Put stored and new BLEU beside each other, set by set."""
    rows = [
        row
        for again in study.retrained
        for run in again.runs.values()
        for row in _rows(study.directions[again.name], again, run)
    ]
    if not rows:
        cell = missing("all", "no system was trained a second time")
        rows = [Row("–", [cell] * (2 * len(SEARCHES) + 1))]
    return Table(
        "retrained",
        "Trained again",
        "Systems that were trained once more, from nothing but their recipe and their seed: BLEU "
        "of the stored run and of the new one.",
        ["", *["stored", "again"] * len(SEARCHES), "weights"],
        rows,
        [*((title, 2) for title in SEARCHES.values()), ("", 1)],
    )


def _rows(stored: DirectionStudy, again: DirectionStudy, run: RunResult) -> list[Row]:
    first = stored.runs.get(run.name)
    return [
        Row(
            f"{stored.name}, {run.name}: {test}",
            [
                cell
                for search in SEARCHES
                for cell in (
                    stored.score(first, test, search),
                    _marked(again.score(run, test, search)),
                )
            ]
            + [_weights(first, run, _again(again.run_origin(run)))],
            system=run.system,
        )
        for test in run.tests
    ]


def _weights(first: RunResult | None, run: RunResult, origin: Origin) -> Cell:
    if first is None:
        return missing(run.name, "the first run is not stored")
    same = run.model_digest == first.model_digest
    return ours("the same, bit by bit" if same else "others", origin)


def _marked(cell: Cell) -> Cell:
    return cell if cell.origin is None else replace(cell, origin=_again(cell.origin))


def _again(origin: Origin) -> Origin:
    """Tell the second run's numbers from the first one's, whose names they share."""
    return replace(
        origin,
        key=f"again.{origin.key}",
        title=f"{origin.title}, trained again",
        file=f"retrained/{origin.file}",
        made_from=None if origin.made_from is None else _again(origin.made_from),
    )
