"""The paper's findings in numbers, ours beside them, in one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from scones.paper.report import published
from scones.paper.report.document import MINUS, Cell, Row, Table, ours, paper
from scones.paper.report.published import Published
from scones.paper.report.quality import gain
from scones.paper.report.rows import softmax
from scones.paper.report.searching import FIRST_BEAM, bleu
from scones.paper.report.significance import Marks
from scones.paper.report.speed import SPEED_UP, ratio
from scones.paper.report.study import NEWS, SMALL_ALPHA, SOFTMAX, DirectionStudy, Study


def summary(study: Study, marks: Marks) -> Table:
    """Make the table."""
    directions = list(study.directions.values())
    rows: list[Row] = []
    for title, show, theirs in _findings(marks):
        rows.append(Row(title, [show(direction) for direction in directions]))
        cells = [paper(theirs(one.name)) for one in directions]
        whose = "the paper, not by direction" if theirs is _speed_up else "the paper"
        rows.append(Row(whose, cells, "paper"))
    return Table(
        "summary",
        "The paper's findings in numbers, and ours",
        f"BLEU on {NEWS}, the recipe's first seed. The paper's training sets are much larger "
        "(table 2), so that not the scores but the differences can be compared. Those of exact "
        "search are, for us, of the first sentences of the set (table 6).",
        ["", *study.directions],
        rows,
    )


Finding = tuple[str, Callable[[DirectionStudy], Cell], Callable[[str], Published | None]]


def _findings(marks: Marks) -> Iterator[Finding]:
    """Give titles, our cells, and the paper's numbers."""
    greedy, beam = published.BLEU["greedy"], published.BLEU["beam4"]
    yield (
        "Softmax, greedy",
        lambda one: one.score(softmax(one), NEWS, "greedy"),
        greedy[published.SOFTMAX].get,
    )
    yield (
        "SCONES (tuned α), greedy",
        lambda one: one.score(one.tuned, NEWS, "greedy"),
        greedy[published.TUNED].get,
    )
    yield (
        "Gain of SCONES, greedy, %",
        lambda one: gain(marks, one, one.tuned, softmax(one), NEWS, "greedy"),
        greedy[published.GAIN].get,
    )
    yield (
        "Gain of SCONES, beam 4, %",
        lambda one: gain(marks, one, one.tuned, softmax(one), NEWS, "beam4"),
        beam[published.GAIN].get,
    )
    yield (
        "SCONES greedy minus softmax beam 4, BLEU",
        _greedy_against_beam,
        partial(_minus, greedy[published.TUNED], beam[published.SOFTMAX]),
    )
    yield (
        "Speed, SCONES greedy over softmax beam 4",
        lambda one: ratio(one, *SPEED_UP),
        _speed_up,
    )
    for system, title in ((SOFTMAX, "softmax"), (SMALL_ALPHA, "SCONES (α = 0.2)")):
        found = {search: rows[system] for search, rows in published.SEARCHED.items()}
        yield (
            f"Exact search minus beam 4, BLEU: {title}",
            partial(_exact_against_beam, system),
            partial(_minus, found["exact"], found["beam4"]),
        )


def _speed_up(name: str) -> Published:
    return published.SPEED_UP


def _minus(
    first: published.ByDirection, second: published.ByDirection, name: str
) -> Published | None:
    if name not in first:
        return None
    difference = float(first[name].text) - float(second[name].text)
    places = ", ".join(dict.fromkeys((first[name].place, second[name].place)))
    return Published(_signed(difference), f"the difference of two numbers of {places}")


def _signed(difference: float) -> str:
    return f"{difference:+.1f}".replace("-", MINUS)


def _greedy_against_beam(direction: DirectionStudy) -> Cell:
    run, baseline = direction.tuned, softmax(direction)
    greedy = None if run is None else run.score(NEWS, "greedy")
    beam = None if baseline is None else baseline.score(NEWS, "beam4")
    if run is None or greedy is None or beam is None:
        return direction.not_translated(run)
    return ours(_signed(greedy - beam), direction.origin(run, NEWS, "greedy"))


def _exact_against_beam(system: str, direction: DirectionStudy) -> Cell:
    row = direction.searched_systems.get(system)
    if row is None or not row["exact"] or FIRST_BEAM not in row["beams"]:
        return direction.not_searched(system)
    difference = (bleu(row["exact"]) or 0.0) - (bleu(row["beams"][FIRST_BEAM]) or 0.0)
    return ours(_signed(difference), direction.searched_origin(system, row["exact"]))
