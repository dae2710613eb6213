"""Table 7: sentences for which exact search came to its limit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from scones.paper.report import published
from scones.paper.report.document import Cell, Origin, Row, Table, missing, nothing, ours, paper
from scones.paper.report.study import SOFTMAX, DirectionStudy, Study, label_by_name

Json = dict[str, Any]


def table_7(study: Study) -> Table:
    """Make the table: all directions, the synthetic languages below."""
    rows = [row for direction in study.directions.values() for row in _direction_rows(direction)]
    return Table(
        "table-7",
        "Table 7",
        "Sentences whose most probable translation was not proved within the limit of exact "
        "search. The paper lists only runs that had such sentences: a dash there means none, or "
        "that it has no such run.",
        [
            "",
            "unfinished",
            "sentences",
            "limit of states",
            f"the paper ({published.MAX_STATES:,} states)",
        ],
        [*rows, *_synthetic_rows(study)],
    )


def _direction_rows(direction: DirectionStudy) -> Iterator[Row]:
    systems = direction.searched_systems
    limits = (direction.analysis or {}).get("limits") or {}
    theirs = published.UNFINISHED.get(direction.name, {})
    for system in ordered(systems, theirs):
        exact = systems.get(system, {}).get("exact")
        if exact is None:
            cells = [direction.not_searched(system), nothing(), nothing()]
        else:
            cells = _cells(exact, limits, direction.searched_origin(system, exact))
        name = f"{direction.name}, {label_by_name(system)}"
        yield Row(name, [*cells, paper(theirs.get(system))], system=system)


def _synthetic_rows(study: Study) -> Iterator[Row]:
    result = study.synthetic
    found = {} if result is None else result["temperatures"]
    limits = {} if result is None else result["limits"]
    languages = [name for name in published.UNFINISHED if name.startswith("synthetic-")]
    temperatures = dict.fromkeys([*(name.partition("-")[2] for name in languages), *found])
    for temperature in sorted(temperatures, key=float):
        theirs = published.UNFINISHED.get(f"synthetic-{temperature}", {})
        systems = found.get(temperature, {"systems": {}})["systems"]
        for system in ordered(systems, theirs):
            if system in systems:
                origin = study.synthetic_origin(temperature, system)
                cells = _cells(systems[system]["exact"], limits, origin)
            else:
                cells = [missing(f"γ = {temperature}", "not run yet"), nothing(), nothing()]
            name = f"synthetic, γ = {temperature}, {label_by_name(system)}"
            yield Row(name, [*cells, paper(theirs.get(system))], system=system)


def ordered(*systems: Mapping[str, object]) -> list[str]:
    """Give all systems, softmax first."""
    return sorted(
        {name for some in systems for name in some}, key=lambda one: (one != SOFTMAX, one)
    )


def _cells(exact: Json, limits: Json, origin: Origin) -> list[Cell]:
    states, share = limits.get("max_states"), exact["unproved"]
    return [
        nothing() if share is None else ours(f"{100 * share:.2f} %", origin),
        ours(f"{exact['outputs']['searched']:,}", origin),
        ours("none" if states is None else f"{states:,}", origin),
    ]
