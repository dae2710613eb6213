"""The report's figures: panels for directions, one colour a system throughout.

Curves and bars of searches are those of `scones analyze`. A figure is SVG with real text; on the
page its ink and colours become CSS variables, so that the same drawing is legible on light and on
dark ground.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from replication.claims import LANGUAGES, SEARCHES, Temperature, kept, mark_name, temperatures
from replication.significance import BootstrapTest
from replication.table import (
    CAPTIONS,
    CONVERGED,
    DIRECTIONS,
    LARGE,
    MAIN,
    NEWS,
    SMALL,
    SOFTMAX,
    Json,
    Key,
    Number,
    Table,
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
_MARKERS = "o^sDvPX*"
"""One for each beam size that is timed."""


class Drawn(NamedTuple):
    """A drawing, and the numbers that it shows."""

    svg: str | None
    """None where there is nothing to draw, or nothing to draw with."""
    keys: list[Key]


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
                handles.values(), names, loc="outside upper center", ncols=7 if columns > 1 else 2
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
        curves: dict[str, dict[int, float]] = {}
        ends: dict[str, float] = {}
        for one in table.of(variant, direction):
            if (one.set, one.metric) != (table.part(variant, direction), metric):
                continue
            if one.search.startswith("beam"):
                curves.setdefault(one.run, {})[int(one.search[4:])] = scale * one.value
                keys.append(one.key)
            elif exact and one.search == "exact":
                ends[one.run] = scale * one.value
                keys.append(one.key)

        def draw(axes: Axes, curves: Any = curves, ends: Any = ends) -> None:
            beam_curves(axes, curves, ends, {run: colour(run) for run in curves}, _shown, 3.0)
            axes.set_ylabel(axis)

        drawings[title] = draw
    return Drawn(panels(drawings), keys)


def _exact(table: Table, variant: str, direction: str, metric: str) -> dict[str, Number]:
    """Give a number of exact search of every system."""
    found = table.of(variant, direction)
    return {one.run: one for one in found if (one.search, one.metric) == ("exact", metric)}


def exact_search(table: Table) -> Drawn:
    """Figure 5: BLEU of exact search, and its length ratio."""
    drawings: dict[str, Draw] = {}
    keys: list[Key] = []
    for title, variant, direction in _places(table):
        for metric, said, shown in (("bleu", "BLEU", "%.1f"), ("length_ratio", "length", "%.2f")):
            found = _exact(table, variant, direction, metric)
            keys += [one.key for one in found.values()]

            def draw(axes: Axes, found: Any = found, shown: str = shown) -> None:
                values = {_short(run): one.value for run, one in found.items()}
                system_bars(axes, values, {_short(run): colour(run) for run in found}, shown)
                axes.margins(y=0.15)
                axes.tick_params(axis="x", labelsize=8)

            drawings[f"{title}: {said}"] = draw
    return Drawn(panels(drawings, columns=4, height=2.05), keys)


def _short(run: str) -> str:
    return run.replace("scones-", "α ")


def log_probs(table: Table) -> Drawn:
    """Figure 6: log-probabilities of the mode and of the empty translation."""
    drawings: dict[str, Draw] = {}
    keys: list[Key] = []
    for title, variant, direction in _places(table):
        spreads = []
        for metric in ("log_prob", "empty_log_prob"):
            names = (metric, f"{metric}.deviation")
            means, deviations = (_exact(table, variant, direction, name) for name in names)
            spreads.append({_short(r): (means[r].value, deviations[r].value) for r in means})
            keys += [one.key for found in (means, deviations) for one in found.values()]

        def draw(axes: Axes, spreads: Any = spreads) -> None:
            log_prob_bars(axes, *spreads)
            axes.tick_params(axis="x", labelsize=8)
            axes.set_ylabel("log-probability")

        drawings[title] = draw
    return Drawn(panels(drawings), keys)


def speed(table: Table) -> Drawn:
    """Figure 2: BLEU against speed, a mark for each beam size."""
    drawings: dict[str, Draw] = {}
    keys: list[Key] = []
    for variant, direction in product((MAIN, CAPTIONS), table.directions(MAIN)):
        curves: dict[str, dict[int, tuple[float, float]]] = {}
        for one in table.of(variant, direction):
            timed = one.search.startswith("speed.") and one.search[6:].isdigit()
            quality = table.get(one.key._replace(metric="bleu"))
            if timed and quality is not None and one.metric == "sentences_per_second":
                curves.setdefault(one.run, {})[int(one.search[6:])] = one.value, quality.value
                keys += [one.key, quality.key]

        def draw(axes: Axes, curves: Any = curves) -> None:
            sizes = sorted({size for points in curves.values() for size in points})
            markers = dict(zip(sizes, _MARKERS, strict=False))
            for run, points in curves.items():
                x, y = zip(*(points[size] for size in sorted(points)), strict=True)
                axes.plot(x, y, color=colour(run), label=_shown(run))
                for size, place in points.items():
                    axes.plot(*place, markers[size], color=colour(run), markersize=8)
            for size, marker in markers.items():
                axes.plot([], [], marker, color=INK, label=f"beam {size}")
            axes.set(xlabel="sentences a second", ylabel="BLEU")
            axes.margins(x=0.1, y=0.15)

        if curves:
            device = "H200" if variant == MAIN else "captions, one CPU core"
            drawings[f"{direction}, {device}, batches of 4"] = draw
    return Drawn(panels(drawings, height=3.6), keys)


def synthetic(table: Table, search: str) -> Drawn:
    """Figures 8 and 9: BLEU by temperature; exact search in per cent of softmax with beam 4."""
    drawings: dict[str, Draw] = {}
    for variant, title in LANGUAGES.items():
        found, worst = (temperatures(table, variant, one) for one in (False, True))
        if found:
            drawings[title] = partial(_by_temperature, found, worst, search == "exact")
    keys = [
        one.key
        for one in table.numbers
        if one.direction.startswith("synthetic-") and (one.search, one.metric) == (search, "bleu")
    ]
    return Drawn(panels(drawings, height=3.4), keys)


def _by_temperature(
    found: Sequence[Temperature], worst: Sequence[Temperature], exact: bool, axes: Axes
) -> None:
    """Draw a point a language; bars go down to where the unproved modes of α = 0.2 are empty."""
    gammas = [one.gamma for one in found]
    for run in (SOFTMAX, LARGE, SMALL):
        values = [
            100 * one.bleu[run] / one.beam[SOFTMAX] if exact else one.beam[run] for one in found
        ]
        axes.plot(gammas, values, "o-", color=colour(run), label=_shown(run))
    if exact:
        for one, value in zip(found, values, strict=True):
            said, at = f"{one.proved[SMALL]:.1%} proved", (one.gamma, value)
            like = {"ha": "center", "fontsize": 9, "color": colour(SMALL)}
            axes.annotate(said, at, (0, 8), textcoords="offset points", **like)  # type: ignore[arg-type]
        for one in worst:
            ends = [one.kept(SMALL), values[gammas.index(one.gamma)]]
            axes.plot([one.gamma] * 2, ends, "_-", color=colour(SMALL))
        axes.axhline(100, color=INK, linewidth=1, linestyle="--")
    axes.margins(x=0.12, y=0.12)
    axes.set_ylim(0, 130 if exact else None)
    axes.set_xticks(gammas, [f"{gamma:g}" for gamma in gammas])
    axes.set(xlabel="temperature γ", ylabel="% of softmax, beam 4" if exact else "BLEU")


# The two figures of the summary.


def gains(table: Table, tests: Mapping[str, BootstrapTest], published: Json) -> Drawn:
    """What SCONES gains over softmax, with intervals, the paper's gains beside."""
    keys: list[Key] = []
    points: dict[str, list[tuple[float, float, float, float]]] = {search: [] for search in SEARCHES}
    for place, direction in enumerate(DIRECTIONS):
        for search in SEARCHES:
            key = Key(MAIN, direction, table.tuned(MAIN, direction) or "", NEWS, search, "bleu")
            test = tests.get(mark_name(key, SOFTMAX))
            base = table.get(key._replace(run=SOFTMAX))
            if test is not None and base is not None:
                value, low, high = (
                    100 * one / base.value for one in (test.value, test.low, test.high)
                )
                points[search].append((place, value, low, high))
                keys += [key, base.key]

    def draw(axes: Axes) -> None:
        axes.axhline(0, color=INK, linewidth=1)
        for shift, search, marker in ((-0.15, "greedy", "o"), (0.15, "beam4", "s")):
            for place, value, low, high in points[search]:
                label = f"ours, {SEARCHES[search]}" if place == points[search][0][0] else None
                like: Any = {"fmt": marker, "color": colour(SMALL), "capsize": 3, "label": label}
                axes.errorbar(place + shift, value, [[value - low], [high - value]], **like)
            theirs = [float(text.strip("+†‡")) for text in published["bleu"][search]["gain"]]
            at = [place + shift for place in range(len(theirs))]
            _theirs(axes, at, theirs, marker, f"the paper, {SEARCHES[search]}")
        _by_direction(axes, "gain over softmax, % of BLEU")

    return Drawn(panels({"": draw}, height=3.0), keys)


def _theirs(axes: Axes, at: list[float], values: list[float], marker: str, label: str) -> None:
    """Draw the paper's numbers: hollow."""
    like: Any = {"markerfacecolor": "none", "color": colour("paper"), "linestyle": "none"}
    axes.plot(at, values, marker, label=label, **like)


def _by_direction(axes: Axes, axis: str) -> None:
    axes.set_xticks(range(len(DIRECTIONS)), DIRECTIONS)
    axes.set_ylabel(axis)
    axes.grid(visible=False, axis="x")


def modes(table: Table, published: Json) -> Drawn:
    """How much of beam 4's BLEU exact search keeps, the paper's share beside."""
    keys: list[Key] = []

    shares = {}
    for run, variant in product((SOFTMAX, SMALL), (MAIN, CONVERGED)):
        found = [kept(table, variant, direction, run) for direction in DIRECTIONS]
        shares[run, variant] = [share for share, _ in found]
        keys += [key for _, made_of in found for key in made_of]

    def draw(axes: Axes) -> None:
        for shift, run in ((-0.2, SOFTMAX), (0.2, SMALL)):
            at, last = [place + shift for place in range(len(DIRECTIONS))], run == SMALL
            name = "α = 0.2" if last else "softmax"
            axes.bar(at, shares[run, MAIN], 0.36, color=colour(run), label=f"ours, {name}")
            like: Any = {"color": INK, "markersize": 9, "label": "converged" if last else None}
            axes.plot(at, shares[run, CONVERGED], "*", **like)
            exact, beam = (published["searched"][search][run] for search in ("exact", "beam4"))
            theirs = [100 * float(e) / float(b) for e, b in zip(exact, beam, strict=True)]
            _theirs(axes, at, theirs, "D", "the paper" if last else "")
        axes.axhline(90, color=INK, linewidth=1, linestyle="--")
        _by_direction(axes, "exact search, % of beam 4's BLEU")

    return Drawn(panels({"": draw}, height=3.0), keys)
