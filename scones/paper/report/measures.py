"""Tables 4 and 5: other measures than BLEU, and the choice of α."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from scones.paper.report import published
from scones.paper.report.document import Cell, Row, Table, nothing, ours, paper
from scones.paper.report.rows import ROWS, by_search, paper_row, score_row
from scones.paper.report.study import NEWS, SOFTMAX, TESTS, DirectionStudy, Study
from scones.paper.results import RunResult


def table_4(study: Study, learned: Mapping[str, float] | None) -> Iterator[Table]:
    """Give table 4: BLEURT where weights were given, else chrF and TER."""
    if learned is not None:
        yield _bleurt_table(study, learned)
        return
    for metric, name, better in (("chrf", "chrF", "higher"), ("ter", "TER", "lower")):
        for test in TESTS:
            yield _metric_table(study, metric, name, better, test)


def _metric_table(study: Study, metric: str, name: str, better: str, test: str) -> Table:
    columns, layout = by_search(study, test)

    def value(direction: DirectionStudy, run: RunResult, test: str, search: str) -> Cell:
        return direction.score(run, test, search, metric)

    return Table(
        f"table-4-{metric}-{test}",
        f"Table 4, {name} on {test}",
        f"{name}, {better} is better. The paper's table 4 is BLEURT, for which no weights were "
        "given to this report (--bleurt CHECKPOINT); its scores cannot be compared with these.",
        rows=[
            score_row(title, columns, test, kind.pick, value, kind.system)
            for title, kind in ROWS.items()
        ],
        **layout,
    )


def _bleurt_table(study: Study, learned: Mapping[str, float]) -> Table:
    columns, layout = by_search(study, NEWS)

    def value(direction: DirectionStudy, run: RunResult, test: str, search: str) -> Cell:
        cell = direction.score(run, test, search)
        if cell.origin is None:
            return cell
        found = learned.get(cell.origin.key)
        if found is None:
            return direction.missing("no references for BLEURT")
        return ours(f"{100 * found:.2f}", cell.origin)

    rows = []
    for title, kind in ROWS.items():
        rows.append(score_row(title, columns, NEWS, kind.pick, value, kind.system))
        if kind.published:
            rows.append(paper_row(columns, published.BLEURT, kind.published))
    return Table("table-4", "Table 4", f"BLEURT on {NEWS}.", rows=rows, **layout)


def table_5(study: Study) -> Table:
    """Show the chosen α, and all that it was chosen from."""
    systems = {
        run.system: run
        for direction in study.done
        for run in direction.systems.values()
        if run.alpha is not None and not run.label_smoothing
    }
    ordered = sorted(systems.values(), key=lambda run: run.alpha or 0.0)
    directions = list(study.directions.values())
    rows = [Row("Chosen α", [_chosen(direction) for direction in directions])]
    rows.append(
        Row("the paper", [paper(published.ALPHA.get(one.name)) for one in directions], "paper")
    )
    for run in ordered:
        cells = [_dev(direction, run.system) for direction in directions]
        rows.append(Row(f"dev BLEU, α = {run.alpha:g}", cells, system=run.system))
    rows.append(
        Row(
            "dev BLEU, softmax",
            [_dev(direction, SOFTMAX) for direction in directions],
            system=SOFTMAX,
        )
    )
    sets = sorted({direction.choice.dev for direction in study.done if direction.choice})
    on = f" ({', '.join(sets)})" if sets else ""
    return Table(
        "table-5",
        "Table 5",
        f"The α with the best greedy BLEU on the development set{on}, and all that it was chosen "
        "from.",
        ["", *study.directions],
        rows,
    )


def _chosen(direction: DirectionStudy) -> Cell:
    choice, run = direction.choice, direction.tuned
    if choice is None or run is None:
        return direction.not_translated(None)
    return ours(f"{choice.alpha:g}", direction.origin(run, choice.dev, "greedy"), strong=True)


def _dev(direction: DirectionStudy, system: str) -> Cell:
    run = direction.systems.get(system)
    if run is None:
        return nothing() if direction.runs else direction.not_translated(None)
    cell = direction.score(run, run.dev, "greedy")
    best = direction.choice is not None and direction.choice.system == system
    return cell if cell.origin is None else ours(cell.text, cell.origin, strong=best)
