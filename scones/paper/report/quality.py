"""Table 3: BLEU of all systems, what SCONES gains, and several seeds."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from scones.paper.report import published
from scones.paper.report.document import MINUS, Cell, Row, Section, Table, ours
from scones.paper.report.measures import table_4, table_5
from scones.paper.report.rows import ROWS, Pick, by_search, paper_row, score_row, smoothed, softmax
from scones.paper.report.significance import Marks, Side, comparison
from scones.paper.report.study import NEWS, SEARCHES, SOFTMAX, TESTS, DirectionStudy, Study
from scones.paper.results import RunResult


def quality(study: Study, marks: Marks, learned: Mapping[str, float] | None) -> Section:
    """Make the section; `learned` are BLEURT scores by the key of their origin, if there are."""
    blocks = [
        *(_bleu_table(study, marks, test) for test in TESTS),
        *(_all_systems(study, marks, test) for test in TESTS),
        *_seed_tables(study, marks),
        *table_4(study, learned),
        table_5(study),
    ]
    return Section(
        "quality",
        "Translation quality",
        [
            "Softmax against SCONES with the α that is best on the development set, the same "
            "recipe and budget for both. The paper trained on far more text (table 2), so that "
            "the rows to compare with it are the gains, not the scores.",
            marks.sentence,
        ],
        [block for block in blocks if block is not None],
    )


def _bleu_table(study: Study, marks: Marks, test: str) -> Table:
    columns, layout = by_search(study, test)
    rows = []
    for title, kind in ROWS.items():
        rows.append(score_row(title, columns, test, kind.pick, DirectionStudy.score, kind.system))
        if test == NEWS and kind.published:
            rows.append(paper_row(columns, published.BLEU, kind.published))

    def gains(over: Pick) -> list[Cell]:
        return [gain(marks, one, one.tuned, over(one), test, search) for search, one in columns]

    rows.append(Row("Gain of tuned SCONES, %", gains(softmax)))
    if test == NEWS:
        rows.append(paper_row(columns, published.BLEU, published.GAIN))
        rows.append(Row("Gain over softmax with label smoothing, %", gains(smoothed(SOFTMAX))))
    return Table(
        f"table-3-{test}",
        f"Table 3, {test}",
        f"BLEU on {test} ({TESTS[test]}), and the relative gain of SCONES with tuned α (table 5) "
        "over softmax with the same search. † p < .05, ‡ p < .01 (paired bootstrap).",
        rows=rows,
        **layout,
    )


def gain(
    marks: Marks,
    direction: DirectionStudy,
    run: RunResult | None,
    baseline: RunResult | None,
    test: str,
    search: str,
) -> Cell:
    """Show by how many per cent a run is better than a baseline, with the mark of its test."""
    if run is None or baseline is None:
        return direction.not_translated(None)
    ours_, theirs = run.score(test, search), baseline.score(test, search)
    if ours_ is None or not theirs:
        return direction.not_translated(run)
    key = comparison(Side(run, search), Side(baseline, search))
    mark = marks.mark(direction.place, run.name, test, key)
    text = f"{100 * (ours_ / theirs - 1):+.1f}{mark}".replace("-", MINUS)
    about = marks.about(direction.place, run.name, test, key)
    return ours(text, direction.origin(run, test, search), about, strong=True)


def marked(marks: Marks, direction: DirectionStudy, run: RunResult, test: str, search: str) -> Cell:
    """Show BLEU with the mark of its test against softmax."""
    cell = direction.score(run, test, search)
    if cell.origin is None:
        return cell
    mark = marks.mark(direction.place, run.name, test, search)
    about = marks.about(direction.place, run.name, test, search)
    return ours(cell.text + mark, cell.origin, about)


def _all_systems(study: Study, marks: Marks, test: str) -> Table | None:
    systems = study.systems()
    if not systems:
        return None
    columns, layout = by_search(study, test)

    rows = [
        score_row(name, columns, test, partial(_system, system), partial(marked, marks), system)
        for system, name in systems.items()
    ]
    return Table(
        f"table-3-{test}-all",
        f"Table 3, {test}, every system",
        f"BLEU on {test} of all systems. Marks: differs from softmax with the same search.",
        rows=rows,
        **layout,
    )


def _system(name: str, direction: DirectionStudy) -> RunResult | None:
    return direction.systems.get(name)


def _seed_tables(study: Study, marks: Marks) -> Iterator[Table]:
    """Give a table for every direction some system of which was trained with several seeds."""
    for direction in study.done:
        tests = [test for test in TESTS if direction.is_tested_on(test)]
        columns = [(test, search) for test in tests for search in SEARCHES]
        several = [one for one in direction.systems if len(direction.seeds(one)) > 1]
        rows = [row for system in several for row in _seed_rows(direction, marks, system, columns)]
        if rows:
            yield Table(
                f"seeds-{direction.name}",
                f"Several seeds, {direction.name}",
                "BLEU of the same recipe with several seeds; mean ± standard deviation. Marks: "
                "differs from softmax with the same seed and search.",
                ["", *(_short(search) for _, search in columns)],
                rows,
                [(test, len(SEARCHES)) for test in tests],
            )


def _short(search: str) -> str:
    return {"greedy": "greedy", "beam4": "beam 4"}[search]


def _seed_rows(
    direction: DirectionStudy, marks: Marks, system: str, columns: Sequence[tuple[str, str]]
) -> Iterator[Row]:
    runs = direction.seeds(system)
    for run in runs:
        cells = [marked(marks, direction, run, test, search) for test, search in columns]
        yield Row(f"{system}, seed {run.seed}", cells, system=system)
    yield Row(
        f"{system}, mean of {len(runs)}",
        [_mean(direction, runs, test, search) for test, search in columns],
        system=system,
    )


def _mean(direction: DirectionStudy, runs: Sequence[RunResult], test: str, search: str) -> Cell:
    known = [(run, run.score(test, search)) for run in runs]
    scores = [score for _, score in known if score is not None]
    if len(scores) < 2:
        return direction.missing("fewer than two seeds translated")
    text = f"{statistics.fmean(scores):.1f} ± {statistics.stdev(scores):.1f}"
    if len(scores) < len(runs):
        text += f" (of {len(scores)})"
    return Cell(text, "ours", about="of the rows above", strong=True)
