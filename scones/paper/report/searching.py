"""Figures 3 to 7 and tables 6 and 7: what becomes of a translation when search gets better."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scones.analysis.tables import limits_sentence
from scones.paper.report import published
from scones.paper.report.document import (
    MINUS,
    Cell,
    Figure,
    Row,
    Section,
    Table,
    nothing,
    ours,
    paper,
    said_once,
)
from scones.paper.report.plots import Bar, Curve, bars, curves
from scones.paper.report.study import DirectionStudy, Study, absent, label, label_by_name
from scones.paper.report.unfinished import ordered, table_7

Json = dict[str, Any]
Value = Callable[[Json], float | None]

FIRST_BEAM = "4"
EXACT_PLACE = 4
"""Exact search stands at this many times the widest beam: a beam that never drops anything."""
NO_SEARCH = "no direction was searched yet"


def searching(study: Study) -> Section:
    """Make the section."""
    searched = {one.name: one for one in study.directions.values() if one.analysis is not None}
    limits = said_once(
        (name, _limits(one.analysis)) for name, one in searched.items() if one.analysis
    )
    return Section(
        "search",
        "The beam search curse, and exact search",
        [
            "Larger beams find translations that the model believes to be better. Whether they "
            "are better is what figures 3 to 7 show; the last point, exact search, is the most "
            "probable translation of all. Figures 3 to 7 of the paper give no numbers to stand "
            "beside ours.",
            *limits,
        ],
        [
            _curve_figure(searched, "3", "BLEU", "BLEU against the beam size.", bleu, "{:.1f}"),
            _curve_figure(
                searched,
                "4",
                "length ratio",
                "Length ratio (tokens of the output over tokens of the reference) against the "
                "beam size.",
                length_ratio,
                "{:.3f}",
            ),
            _table_6(study),
            _figure_5(searched),
            _figure_6(searched),
            _figure_7(searched),
            table_7(study),
        ],
    )


def _limits(analysis: Json) -> str:
    said = f"the first {analysis['sentences']:,} sentences of {analysis['test']}."
    if analysis["limits"] is None:
        return said
    return f"{said} {limits_sentence(analysis['limits'], analysis['first_beam'])}"


def bleu(found: Json) -> float | None:
    """Give BLEU of a beam, or of exact search."""
    return float(found["outputs"]["bleu"])


def length_ratio(found: Json) -> float | None:
    """Give the length ratio of a beam, or of exact search."""
    return float(found["outputs"]["length_ratio"])


def errors(found: Json) -> float | None:
    """Give the share of search errors of a beam in per cent."""
    known = found.get("errors")
    return None if known is None or known["share"] is None else 100 * float(known["share"])


def searched_cell(
    direction: DirectionStudy, system: str, found: Json | None, value: Value, shown: str
) -> Cell:
    """Show a figure of a search; `found` is what a beam gave, or exact search."""
    number = None if found is None else value(found)
    if found is None or number is None:
        return direction.not_searched(system)
    return ours(shown.format(number), direction.searched_origin(system, found))


def _figure(
    number: str,
    caption: str,
    drawing: str | None,
    tables: list[Table],
    searched: Mapping[str, DirectionStudy],
) -> Figure:
    why = "matplotlib is not installed (scones[plots])" if searched else NO_SEARCH
    caption += absent(searched)
    return Figure(f"figure-{number}", f"Figure {number}", caption, drawing, tables, why)


def _curve_figure(
    searched: Mapping[str, DirectionStudy],
    number: str,
    axis: str,
    caption: str,
    value: Value,
    shown: str,
    exact: bool = True,
) -> Figure:
    """Make a figure of curves against the beam size, a panel a direction, all on one scale."""
    panels, tables = {}, []
    all_sizes = sorted({size for direction in searched.values() for size in _sizes(direction)})
    end = EXACT_PLACE * all_sizes[-1] if exact and all_sizes else None
    for name, direction in searched.items():
        systems = direction.searched_systems
        ends_exact = exact and any(row["exact"] for row in systems.values())
        panels[name] = [_curve(system, row, value, end) for system, row in systems.items()]
        sizes = _sizes(direction)
        tables.append(
            _by_beam(f"figure-{number}-{name}", direction, sizes, value, shown, ends_exact, axis)
        )
    ticks: dict[float, str] = {size: f"{size:,}" for size in _apart(all_sizes)}
    if end is not None:
        ticks[end] = "exact"
    drawing = curves(panels, "beam size", axis, log=True, ticks=ticks or None)
    return _figure(number, caption, drawing, tables, searched)


def _sizes(direction: DirectionStudy) -> list[int]:
    """Give all beam sizes that a direction was searched with."""
    rows = direction.searched_systems.values()
    return sorted({int(size) for row in rows for size in row["beams"]})


def _apart(sizes: list[int]) -> list[int]:
    """Take the beam sizes whose names have room beside each other, the largest among them."""
    taken: list[int] = []
    for size in reversed(sizes):
        if not taken or taken[-1] >= 1.9 * size:
            taken.append(size)
    return taken[::-1]


def _curve(system: str, row: Json, value: Value, end: float | None) -> Curve:
    """Give the curve of a system; `end` is the place of exact search, None: without it."""
    places: list[float] = sorted(map(int, row["beams"]))
    found = [row["beams"][str(size)] for size in places]
    ends_apart = False
    if end is not None and row["exact"]:
        places, found, ends_apart = [*places, end], [*found, row["exact"]], True
    numbers = [value(one) for one in found]
    values = [float("nan") if number is None else number for number in numbers]
    return Curve(system, label(row["output"]), places, values, ends_apart=ends_apart)


def _by_beam(
    key: str,
    direction: DirectionStudy,
    sizes: list[int],
    value: Value,
    shown: str,
    exact: bool,
    axis: str,
) -> Table:
    rows = []
    for system, row in direction.searched_systems.items():
        found = [row["beams"].get(str(size)) for size in sizes] + [row["exact"]] * exact
        cells = [searched_cell(direction, system, one, value, shown) for one in found]
        rows.append(Row(label(row["output"]), cells, system=system))
    heads = ["", *(f"{size:,}" for size in sizes), *(["exact"] if exact else [])]
    return Table(key, f"{axis}, {direction.name}", "By beam size.", heads, rows)


def _table_6(study: Study) -> Table:
    """Beam search and exact search, all systems, directions side by side."""
    directions = list(study.directions.values())
    names = {system: label_by_name(system) for system in published.SEARCHED["exact"]}
    for direction in directions:
        names |= {name: label(row["output"]) for name, row in direction.searched_systems.items()}
    rows = []
    for system in ordered(names):
        cells = [
            _beam_or_exact(direction, system, search)
            for search in ("beam4", "exact")
            for direction in directions
        ]
        rows.append(Row(names[system], cells, system=system))
        if system in published.SEARCHED["exact"]:
            numbers = [published.SEARCHED[search][system] for search in ("beam4", "exact")]
            cells = [paper(row.get(one.name)) for row in numbers for one in directions]
            rows.append(Row("the paper", cells, "paper"))
    return Table(
        "table-6",
        "Table 6",
        "BLEU of beam search (4) and of exact search, on the same sentences: ours on the first "
        "sentences of newstest2019 within the limits above, the paper on all of them within "
        f"{published.MAX_STATES:,} states.",
        ["", *(one.name for _ in range(2) for one in directions)],
        rows,
        [("Beam search (4)", len(directions)), ("Exact search", len(directions))],
    )


def _beam_or_exact(direction: DirectionStudy, system: str, search: str) -> Cell:
    row = direction.searched_systems.get(system, {"exact": None, "beams": {}})
    found = row["exact"] if search == "exact" else row["beams"].get(FIRST_BEAM)
    return searched_cell(direction, system, found, bleu, "{:.1f}")


def _figure_5(searched: Mapping[str, DirectionStudy]) -> Figure:
    """BLEU and length ratio of exact search, a bar a system."""
    panels, tables = {}, []
    for name, direction in searched.items():
        rows = {one: row for one, row in direction.searched_systems.items() if row["exact"]}
        panels[f"{name}: BLEU of exact search"] = [
            Bar(one, label(row["output"]), bleu(row["exact"]) or 0.0) for one, row in rows.items()
        ]
        panels[f"{name}: length ratio, %"] = [
            Bar(one, label(row["output"]), 100 * (length_ratio(row["exact"]) or 0.0))
            for one, row in rows.items()
        ]
        table_rows = [
            Row(
                label(row["output"]),
                [
                    searched_cell(direction, one, row["exact"], bleu, "{:.1f}"),
                    searched_cell(direction, one, row["exact"], length_ratio, "{:.3f}"),
                    searched_cell(direction, one, row["exact"], _empty, "{:.1f} %"),
                ],
                system=one,
            )
            for one, row in rows.items()
        ]
        heads = ["", "BLEU", "length ratio", "empty"]
        tables.append(Table(f"figure-5-{name}", name, "Exact search.", heads, table_rows))
    return _figure(
        "5",
        "BLEU and length ratio of the most probable translation, or of the best found, by system.",
        bars(panels, ""),
        tables,
        searched,
    )


def _empty(found: Json) -> float | None:
    share = found["outputs"]["empty"]
    return None if share is None else 100 * float(share)


def _figure_6(searched: Mapping[str, DirectionStudy]) -> Figure:
    """Log-probabilities of the most probable and of the empty translation."""
    panels, tables = {}, []
    for name, direction in searched.items():
        found, rows = [], []
        for system, row in direction.searched_systems.items():
            if not row["exact"]:
                continue
            mode, empty = row["exact"]["outputs"]["log_probs"], row["exact"]["empty_log_probs"]
            for summary, pale in ((mode, False), (empty, True)):
                if summary is not None:
                    spread = summary["mean"], summary["deviation"]
                    found.append(Bar(system, label(row["output"]), *spread, pale))
            cells = [_spread(direction, system, row["exact"], one) for one in (mode, empty)]
            rows.append(Row(label(row["output"]), cells, system=system))
        panels[name] = found
        heads = ["", "most probable translation", "empty translation"]
        tables.append(Table(f"figure-6-{name}", name, "Mean ± deviation.", heads, rows))
    return _figure(
        "6",
        "Log-probabilities of the most probable translation, or of the best found (full), and of "
        "the empty one (hatched): "
        "mean and standard deviation over the sentences.",
        bars(panels, "log-probability"),
        tables,
        searched,
    )


def _spread(direction: DirectionStudy, system: str, exact: Json, summary: Json | None) -> Cell:
    if summary is None:
        return nothing()
    text = f"{summary['mean']:.2f} ± {summary['deviation']:.2f}".replace("-", MINUS)
    return ours(text, direction.searched_origin(system, exact))


def _figure_7(searched: Mapping[str, DirectionStudy]) -> Figure:
    proved = ", ".join(
        f"{name} {_range(counts)}"
        for name, direction in searched.items()
        if (
            counts := [
                r["exact"]["proved"] for r in direction.searched_systems.values() if r["exact"]
            ]
        )
    )
    of = f" Sentences whose mode is proved: {proved}." if proved else ""
    return _curve_figure(
        searched,
        "7",
        "search errors, %",
        f"Share of the sentences with a proved mode for which a beam did not find it.{of} The "
        f"paper has softmax at {published.SOFTMAX_SEARCH_ERRORS.text} even with very large beams.",
        errors,
        "{:.1f}",
        exact=False,
    )


def _range(counts: list[int]) -> str:
    return " to ".join(f"{count:,}" for count in dict.fromkeys((min(counts), max(counts))))
