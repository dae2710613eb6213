"""What a reader wants to know first: the paper's findings, ours beside them, in one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from scones.paper.report import published
from scones.paper.report.document import MINUS, Cell, Row, Section, Table, ours, paper
from scones.paper.report.published import Published
from scones.paper.report.quality import gain
from scones.paper.report.rows import softmax
from scones.paper.report.searching import FIRST_BEAM, bleu
from scones.paper.report.significance import Marks
from scones.paper.report.speed import SPEED_UP, ratio
from scones.paper.report.study import NEWS, SMALL_ALPHA, SOFTMAX, DirectionStudy, Study


def summary(study: Study, marks: Marks) -> Section:
    """Make the section."""
    directions = list(study.directions.values())
    rows: list[Row] = []
    for title, show, theirs in _findings(marks):
        rows.append(Row(title, [show(direction) for direction in directions]))
        cells = [paper(theirs(one.name)) for one in directions]
        whose = "the paper, not by direction" if theirs is _speed_up else "the paper"
        rows.append(Row(whose, cells, "paper"))
    table = Table(
        "summary",
        "The paper's findings, and ours",
        f"BLEU on {NEWS}. The paper's training sets are much larger (table 2), so that not the "
        "scores but the differences can be compared. Those of exact search are, for us, of the "
        "first sentences of the set (table 6).",
        ["", *study.directions],
        rows,
    )
    return Section("results", "Results at a glance", list(_sentences(study, marks)), [table])


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
        lambda one: gain(marks, one, one.tuned, NEWS, "greedy"),
        greedy[published.GAIN].get,
    )
    yield (
        "Gain of SCONES, beam 4, %",
        lambda one: gain(marks, one, one.tuned, NEWS, "beam4"),
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
    run, scores = direction.tuned, _scores(direction)
    if run is None or scores is None:
        return direction.not_translated(run)
    text = _signed(scores.greedy - scores.softmax_beam)
    return ours(text, direction.origin(run, NEWS, "greedy"))


def _exact_against_beam(system: str, direction: DirectionStudy) -> Cell:
    row = direction.searched_systems.get(system)
    if row is None or not row["exact"] or FIRST_BEAM not in row["beams"]:
        return direction.missing(f"{system} was not searched exactly")
    difference = (bleu(row["exact"]) or 0.0) - (bleu(row["beams"][FIRST_BEAM]) or 0.0)
    return ours(_signed(difference), direction.searched_origin(system, row["exact"]))


def _sentences(study: Study, marks: Marks) -> Iterator[str]:
    """Count in how many directions a finding of the paper is seen."""
    all_of_them = len(published.DIRECTIONS)
    done = [one for one in study.done if one.tuned is not None and softmax(one) is not None]
    named = f": {', '.join(one.name for one in done)}" if done else ""
    yield f"{len(done)} of the paper's {all_of_them} directions have results{named}."
    better = significant = reached = compared = 0
    for one in done:
        run, scores = one.tuned, _scores(one)
        if run is None or scores is None:
            continue
        compared += 1
        better += scores.greedy > scores.softmax_greedy
        reached += scores.greedy >= scores.softmax_beam
        marked = bool(marks.mark(one.name, run.name, NEWS, "greedy"))
        significant += marked and scores.greedy > scores.softmax_greedy
    if compared:
        yield (
            f"With greedy search, tuned SCONES is better than softmax in {better} of {compared}, "
            f"significantly (p < .05) in {significant}; in the paper in {all_of_them} of "
            f"{all_of_them}, significantly in {_paper_marks()}."
        )
        yield (
            f"SCONES with greedy search reaches softmax with beam search (4) in {reached} of "
            f"{compared}; in the paper in {_paper_reaches()} of {all_of_them}."
        )
    yield from _exact_sentence(study)


class _Scores(NamedTuple):
    """BLEU on the paper's test set: tuned SCONES with greedy search, and softmax."""

    greedy: float
    softmax_greedy: float
    softmax_beam: float


def _scores(direction: DirectionStudy) -> _Scores | None:
    """Give the scores to compare; None where one is not known."""
    run, baseline = direction.tuned, softmax(direction)
    if run is None or baseline is None:
        return None
    asked = ((run, "greedy"), (baseline, "greedy"), (baseline, "beam4"))
    found = [one.score(NEWS, search) for one, search in asked]
    known = [score for score in found if score is not None]
    return _Scores(*known) if len(known) == len(found) else None


def _paper_marks() -> int:
    gains = published.BLEU["greedy"][published.GAIN].values()
    return sum(gain.text.endswith(("†", "‡")) for gain in gains)


def _paper_reaches() -> int:
    greedy = published.BLEU["greedy"][published.TUNED]
    beam = published.BLEU["beam4"][published.SOFTMAX]
    return sum(float(greedy[name].text) >= float(beam[name].text) for name in greedy)


def _exact_sentence(study: Study) -> Iterator[str]:
    kept = compared = 0
    for direction in study.done:
        rows = direction.searched_systems
        if not all(name in rows and rows[name]["exact"] for name in (SOFTMAX, SMALL_ALPHA)):
            continue
        first, second = (bleu(rows[name]["exact"]) or 0.0 for name in (SMALL_ALPHA, SOFTMAX))
        compared += 1
        kept += first > second
    if compared:
        yield (
            f"The most probable translation of SCONES (α = 0.2) is better than that of softmax in "
            f"{kept} of {compared}; in the paper in all {len(published.DIRECTIONS)}."
        )
