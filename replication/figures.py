"""The report's figures: panels for directions, one colour a system throughout.

Curves and bars of searches are those of `scones analyze`. A figure is SVG with real text; on the page
its ink and colours become CSS variables, so that the same drawing is legible on light and dark ground.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from replication.claims import SEARCHES, mark_name, temperatures
from replication.significance import Test
from replication.table import (
    CONVERGED,
    DIRECTIONS,
    LARGE,
    MAIN,
    NEWS,
    SMALL,
    SOFTMAX,
    Json,
    Key,
    Table,
    label,
)
from scones.analysis.figures import STYLE, beam_curves, can_draw, log_prob_bars, system_bars

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK = "#1f2933"
COLOURS: Mapping[str, tuple[str, str]] = {
    "softmax": ("#0f766e", "#2dd4bf"),
    "scones-0.2": ("#7e22ce", "#c084fc"),
    "scones-0.5": ("#c2410c", "#fb923c"),
    "scones-0.7": ("#ca8a04", "#facc15"),
    "scones-1.0": ("#2563eb", "#60a5fa"),
    "paper": ("#b45309", "#fbbf24"),
    "mode": ("#374151", "#9aa5b1"),
    "empty": ("#d1d5db", "#4b5563"),
}
"""On a light and on a dark ground."""
_OTHER = ("#475569", "#94a3b8")

Drawn = tuple[str | None, list[Key]]
"""SVG, None where there is nothing to draw with; and the numbers that it shows."""


def colour(system: str) -> str:
    return COLOURS.get(system, _OTHER)[0]


def _shown(run: str) -> str:
    """Name a system where only its name is known."""
    return run.replace("scones-", "SCONES, α = ") if run != SOFTMAX else "Softmax"


Draw = Callable[["Axes"], None]


def panels(drawings: Mapping[str, Draw], columns: int = 3, height: float = 2.6) -> str | None:
    """Draw panels beside and below each other, with one legend above them."""
    if not drawings or not can_draw():
        return None
    import matplotlib as mpl
    from matplotlib.figure import Figure

    columns = min(columns, len(drawings))
    rows = -(-len(drawings) // columns)
    ink = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    style = {**STYLE, **dict.fromkeys(ink, INK), "svg.fonttype": "none", "axes.axisbelow": True}
    with mpl.rc_context(style):
        width = 10.0 if columns > 1 else 5.0
        figure = Figure(figsize=(width, height * rows + 0.4), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False)
        handles: dict[str, Any] = {}
        for axes in grid.flat[len(drawings) :]:
            axes.set_visible(False)
        for axes, (title, draw) in zip(grid.flat, drawings.items(), strict=False):
            draw(axes)
            axes.set_title(title, fontsize=10, fontweight="bold")
            found, names = axes.get_legend_handles_labels()
            handles.update(zip(names, found, strict=True))
        if handles:
            names = list(handles)
            figure.legend(
                handles.values(), names, loc="outside upper center", ncols=min(len(names), 5)
            )
        content = io.BytesIO()
        figure.savefig(content, format="svg", metadata={"Date": None})
    return content.getvalue().decode()


def inline(drawing: str, key: str, said: str) -> str:
    """Turn an SVG file into a part of a page: no header, names of its own, colours of the page."""
    svg = drawing[drawing.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r'(id="|xlink:href="#|url\(#)', rf"\g<1>{key}-", svg)
    view = re.search(r'viewBox="([^"]*)"', svg)
    size = view[1] if view else "0 0 600 400"
    width = round(1.4 * float(size.split()[2]))
    opened = f'<svg viewBox="{size}" style="max-width:{width}px" role="img" '
    svg = re.sub(r"<svg [^>]*>", lambda _: f'{opened}aria-label="{escape(said)}">', svg, count=1)
    svg = svg.replace("xlink:href", "href").replace("#ffffff", "none").replace(INK, "currentColor")
    for name, (light, _) in COLOURS.items():
        svg = svg.replace(light, f"var(--{css(name)})")
    return svg


def css(name: str) -> str:
    """Name the variable of a colour."""
    return re.sub(r"\W", "-", name)


# The figures of the paper.


def _places(table: Table) -> list[tuple[str, str, str]]:
    """Give what was searched: a title, the variant and the direction."""
    found = [(one, MAIN, one) for one in table.directions(MAIN)]
    found += [(f"{one}, converged", CONVERGED, one) for one in table.directions(CONVERGED)]
    return [place for place in found if table.beams(place[1], place[2], SOFTMAX)]


def by_beam(table: Table, metric: str, axis: str, exact: bool = True, scale: float = 1.0) -> Drawn:
    """Figures 3, 4 and 7: a number against the beam size."""
    drawings: dict[str, Draw] = {}
    keys: list[Key] = []
    for title, variant, direction in _places(table):
        part = table.part(variant, direction)
        runs = [
            run for run in table.runs(variant, direction) if table.beams(variant, direction, run)
        ]
        curves: dict[str, dict[int, float]] = {}
        ends: dict[str, float] = {}
        for run in runs:
            for size in table.beams(variant, direction, run):
                key = Key(variant, direction, run, part, f"beam{size}", metric)
                if number := table.get(key):
                    curves.setdefault(run, {})[size] = scale * number.value
                    keys.append(key)
            key = Key(variant, direction, run, part, "exact", metric)
            if exact and (number := table.get(key)):
                ends[run] = scale * number.value
                keys.append(key)

        def draw(axes: Axes, curves: Any = curves, ends: Any = ends) -> None:
            colours = {run: colour(run) for run in curves}
            beam_curves(axes, curves, ends, colours, _shown, apart=3.0)
            axes.set_ylabel(axis)

        if curves:
            drawings[title] = draw
    return panels(drawings), keys


def exact_search(table: Table) -> Drawn:
    """Figure 5: BLEU of exact search, and its length ratio."""
    drawings: dict[str, Draw] = {}
    keys: list[Key] = []
    for title, variant, direction in _places(table):
        part = table.part(variant, direction)
        for metric, said in (("bleu", "BLEU"), ("length_ratio", "length ratio")):
            asked = [
                Key(variant, direction, run, part, "exact", metric)
                for run in table.runs(variant, direction)
            ]
            found = {key.run: number.value for key in asked if (number := table.get(key))}
            keys += [key for key in asked if key.run in found]

            def draw(axes: Axes, found: Any = found, metric: str = metric) -> None:
                shown = "%.1f" if metric == "bleu" else "%.2f"
                names = {_short(run): value for run, value in found.items()}
                system_bars(axes, names, {_short(run): colour(run) for run in found}, shown)
                axes.margins(y=0.15)
                axes.tick_params(axis="x", labelsize=8)

            drawings[f"{title}: {said}"] = draw
    return panels(drawings, columns=4, height=2.05), keys


def _short(run: str) -> str:
    return run.replace("scones-", "α ")


def log_probs(table: Table) -> Drawn:
    """Figure 6: log-probabilities of the mode and of the empty translation."""
    drawings: dict[str, Draw] = {}
    keys: list[Key] = []
    for title, variant, direction in _places(table):
        part = table.part(variant, direction)
        found: dict[str, dict[str, Any]] = {"log_prob": {}, "empty_log_prob": {}}
        for run in table.runs(variant, direction):
            for metric, spreads in found.items():
                key = Key(variant, direction, run, part, "exact", metric)
                both = table.get(key), table.get(key._replace(metric=f"{metric}.deviation"))
                if both[0] and both[1]:
                    spreads[_short(run)] = (both[0].value, both[1].value)
                    keys += [both[0].key, both[1].key]

        def draw(axes: Axes, found: Any = found) -> None:
            log_prob_bars(axes, found["log_prob"], found["empty_log_prob"])
            axes.tick_params(axis="x", labelsize=8)
            axes.set_ylabel("log-probability")

        drawings[title] = draw
    return panels(drawings), keys


def speed(table: Table) -> Drawn:
    """Figure 2: BLEU against speed, beam sizes at the points."""
    drawings: dict[str, Draw] = {}
    keys: list[Key] = []
    for direction in table.directions(MAIN):
        curves: dict[str, list[tuple[float, float, str]]] = {}
        for one in table.of(MAIN, direction):
            timed = one.search.startswith("speed.") and one.search[6:].isdigit()
            if (
                one.key[:2] != (MAIN, direction)
                or one.metric != "sentences_per_second"
                or not timed
            ):
                continue
            quality = table.get(one.key._replace(metric="bleu"))
            assert quality is not None
            curves.setdefault(one.run, []).append((one.value, quality.value, one.search[6:]))
            keys += [one.key, quality.key]

        def draw(axes: Axes, curves: Any = curves) -> None:
            for run, points in curves.items():
                places = sorted(points, key=lambda point: int(point[2]))
                x, y = [one[0] for one in places], [one[1] for one in places]
                axes.plot(x, y, "o-", color=colour(run), label=_shown(run))
            axes.set(xlabel="sentences a second", ylabel="BLEU")
            axes.margins(x=0.1, y=0.15)
            _name_points(axes, curves)

        if curves:
            drawings[f"{direction}, H200, batches of 4"] = draw
    return panels(drawings, height=3.6), keys


_OFFSETS = (
    (0, 9),
    (0, -9),
    (11, 0),
    (-11, 0),
    (9, 8),
    (-9, 8),
    (9, -8),
    (-9, -8),
    (0, 18),
    (0, -18),
)


def _name_points(axes: Axes, curves: Mapping[str, Sequence[tuple[float, float, str]]]) -> None:
    """Write names at points, each at the first place that is free of points and other names."""
    scale = axes.figure.dpi / 72
    places = {
        (run, name): tuple(axes.transData.transform((x, y)) / scale)
        for run, points in curves.items()
        for x, y, name in points
    }
    taken = list(places.values())
    for run, points in curves.items():
        for x, y, name in points:
            at = places[run, name]
            free = [
                offset
                for offset in _OFFSETS
                if all(
                    math.dist((at[0] + offset[0], at[1] + offset[1]), other) > 7.5
                    for other in taken
                )
            ]
            offset = free[0] if free else _OFFSETS[-1]
            taken.append((at[0] + offset[0], at[1] + offset[1]))
            axes.annotate(
                name,
                (x, y),
                xytext=offset,
                textcoords="offset points",
                ha="center",
                va="center",
                fontsize=9,
                color=colour(run),
            )


def synthetic(table: Table, search: str) -> Drawn:
    """Figures 8 and 9: BLEU by temperature; exact search in per cent of softmax with beam 4."""
    found = temperatures(table)
    if not found:
        return None, []
    keys = [
        one.key
        for one in table.numbers
        if one.direction.startswith("synthetic-") and (one.search, one.metric) == (search, "bleu")
    ]
    gammas = [one.gamma for one in found]

    def value(run: str, place: int) -> float:
        if search == "exact":
            return 100 * found[place].bleu[run] / found[place].beam
        number = table.get(
            next(k for k in keys if (k.run, k.direction) == (run, f"synthetic-{gammas[place]}"))
        )
        return float("nan") if number is None else number.value

    def draw(axes: Axes) -> None:
        for run in (SOFTMAX, LARGE, SMALL):
            values = [value(run, place) for place in range(len(gammas))]
            axes.plot(gammas, values, "o-", color=colour(run), label=_shown(run))
            if search == "exact":
                for place, one in enumerate(found):
                    said = f"{one.proved[run]:.0%}"
                    if run == SMALL:
                        axes.annotate(
                            f"{said} proved",
                            (gammas[place], values[place]),
                            xytext=(6, 6),
                            textcoords="offset points",
                            fontsize=8,
                            color=colour(run),
                        )
        if search == "exact":
            axes.axhline(100, color=INK, linewidth=1, linestyle="--")
        axes.margins(x=0.12, y=0.12)
        axes.set_xticks(gammas, [f"{gamma:g}" for gamma in gammas])
        axes.set(
            xlabel="temperature γ of IBM Model 3",
            ylabel="% of softmax, beam 4" if search == "exact" else "BLEU",
        )

    return panels({"German to synthetic English": draw}, height=3.4), keys


# The two figures of the summary.


def gains(table: Table, tests: Mapping[str, Test], published: Json) -> Drawn:
    """What SCONES gains over softmax, with intervals, the paper's gains beside."""
    keys: list[Key] = []
    points: dict[str, list[tuple[float, float, float, float]]] = {search: [] for search in SEARCHES}
    for place, direction in enumerate(DIRECTIONS):
        for search in SEARCHES:
            key = Key(MAIN, direction, table.tuned(MAIN, direction) or "", NEWS, search, "bleu")
            test = tests.get(mark_name(key, SOFTMAX))
            base = table.get(key._replace(run=SOFTMAX))
            if test is not None and base is not None:
                ends = (100 * value / base.value for value in (test.value, test.low, test.high))
                points[search].append((place, *ends))
                keys += [key, base.key]

    def draw(axes: Axes) -> None:
        axes.axhline(0, color=INK, linewidth=1)
        for shift, (search, marker) in zip(
            (-0.15, 0.15), (("greedy", "o"), ("beam4", "s")), strict=True
        ):
            if points[search]:
                x, y, low, high = zip(*points[search], strict=True)
                errors = [
                    [value - end for value, end in zip(y, low, strict=True)],
                    [end - value for value, end in zip(y, high, strict=True)],
                ]
                at = [place + shift for place in x]
                axes.errorbar(
                    at, y, errors, fmt=marker, color=colour(SMALL), capsize=3, markersize=6,
                    label=f"ours, {SEARCHES[search]}",
                )  # fmt: skip
            theirs = [float(text.strip("+†‡")) for text in published["bleu"][search]["gain"]]
            axes.plot(
                [place + shift for place in range(len(theirs))], theirs, marker, markersize=6,
                markerfacecolor="none", color=colour("paper"), linestyle="none",
                label=f"the paper, {SEARCHES[search]}",
            )  # fmt: skip
        axes.set_xticks(range(len(DIRECTIONS)), DIRECTIONS)
        axes.set_ylabel("gain over softmax, % of BLEU")
        axes.grid(visible=False, axis="x")

    return _one(draw), keys


def modes(table: Table, published: Json) -> Drawn:
    """How much of beam 4's BLEU exact search keeps, the paper's share beside."""
    keys: list[Key] = []

    def kept(variant: str, direction: str, run: str) -> float:
        part = table.part(variant, direction)
        asked = [Key(variant, direction, run, part, s, "bleu") for s in ("exact", "beam4")]
        exact, beam = (table.get(key) for key in asked)
        if exact is None or beam is None:
            return float("nan")
        keys.extend(asked)
        return 100 * exact.value / beam.value

    shares = {
        (run, variant): [kept(variant, direction, run) for direction in DIRECTIONS]
        for run in (SOFTMAX, SMALL)
        for variant in (MAIN, CONVERGED)
    }

    def draw(axes: Axes) -> None:
        for shift, run in ((-0.2, SOFTMAX), (0.2, SMALL)):
            at = [place + shift for place in range(len(DIRECTIONS))]
            name = "softmax" if run == SOFTMAX else "α = 0.2"
            axes.bar(at, shares[run, MAIN], 0.36, color=colour(run), label=f"ours, {name}")
            axes.plot(
                at, shares[run, CONVERGED], "*", color=INK, markersize=9,
                label="converged" if run == SMALL else None,
            )  # fmt: skip
            exact, beam = (published["searched"][search][run] for search in ("exact", "beam4"))
            theirs = [100 * float(e) / float(b) for e, b in zip(exact, beam, strict=True)]
            axes.plot(
                at, theirs, "D", markersize=6, markerfacecolor="none", color=colour("paper"),
                label="the paper" if run == SMALL else None,
            )  # fmt: skip
        axes.axhline(90, color=INK, linewidth=1, linestyle="--")
        axes.set_xticks(range(len(DIRECTIONS)), DIRECTIONS)
        axes.set_ylabel("exact search, % of beam 4's BLEU")
        axes.grid(visible=False, axis="x")

    return _one(draw), keys


def _one(draw: Draw) -> str | None:
    return panels({"": draw}, height=3.0)


def names(table: Table) -> dict[str, str]:
    """Name all systems for readers."""
    return {one.run: label(one) for one in table.numbers if one.run}
