"""Models that were trained a second time from their recipe, or with more steps than it has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from scones.paper.report.document import Cell, Origin, Row, Table, missing, ours
from scones.paper.report.quality import gain, marked
from scones.paper.report.rows import softmax
from scones.paper.report.significance import Marks
from scones.paper.report.study import SEARCHES, TESTS, DirectionStudy, Study, label
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
                for cell in (stored.score(first, test, search), again.score(run, test, search))
            ]
            + [_weights(first, run, again.run_origin(run))],
            system=run.system,
        )
        for test in run.tests
    ]


def _weights(first: RunResult | None, run: RunResult, origin: Origin) -> Cell:
    if first is None:
        return missing(run.name, "the first run is not stored")
    same = run.model_digest == first.model_digest
    return ours("the same, bit by bit" if same else "others", origin)


def trained_longer(study: Study, marks: Marks) -> Iterator[Table]:
    """Give a table for every direction that was also trained with more steps."""
    for longer in study.longer:
        yield _longer_table(study.directions[longer.name], longer, marks)


def longer_tables(study: Study) -> list[tuple[str, str]]:
    """Give texts and keys of these tables."""
    return [(f"{one.name} trained longer", _longer_key(one)) for one in study.longer]


def _longer_key(longer: DirectionStudy) -> str:
    return f"longer-{longer.name}"


def _longer_table(stored: DirectionStudy, longer: DirectionStudy, marks: Marks) -> Table:
    columns = [(search, direction) for search in SEARCHES for direction in (stored, longer)]

    def score(system: str, direction: DirectionStudy, test: str, search: str) -> Cell:
        run = direction.systems.get(system)
        if run is None:
            return direction.not_trained(system)
        return marked(marks, direction, run, test, search)

    rows = []
    for test in TESTS:
        if not any(test in run.tests for run in longer.runs.values()):
            continue
        for system, run in longer.systems.items():
            scores = [score(system, direction, test, search) for search, direction in columns]
            rows.append(Row(f"{test}: {label(run.output)}", scores, system=system))
        gains = [gain(marks, one, one.tuned, softmax(one), test, search) for search, one in columns]
        rows.append(Row(f"{test}: gain of tuned SCONES, %", gains))
    return Table(
        _longer_key(longer),
        f"Trained longer, {longer.name}",
        f"BLEU after {_steps(stored.systems.values())} steps, as in the other tables, and "
        f"after {_steps(longer.systems.values())}, the recipe otherwise the same. Tuned: the best "
        f"on the development set, {_alpha(stored)}; longer {_alpha(longer)}. Marks: differs from "
        "softmax of as many steps with the same search.",
        ["", *["stored", "longer"] * len(SEARCHES)],
        rows,
        [(title, 2) for title in SEARCHES.values()],
    )


def _alpha(direction: DirectionStudy) -> str:
    if direction.choice is None:
        return "none"
    only = " (no other was trained)" if len(direction.choice.bleu) == 1 else ""
    return f"α = {direction.choice.alpha:g}{only}"


def _steps(runs: Iterable[RunResult]) -> str:
    found = sorted({run.training["steps"] for run in runs})
    return " or ".join(f"{steps:,}" for steps in found)
