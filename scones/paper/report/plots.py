"""The figures of the report: panels for directions, one colour a system throughout.

Drawn by matplotlib as SVG with real text. For a page, ink and the systems' colours become CSS
variables, so that the same drawing is legible on a light and on a dark ground; as a file it keeps
the colours for print.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scones.analysis.figures import STYLE, can_draw
from scones.paper.report.document import MINUS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#1f2933"
_PIXELS_A_POINT = 1.4


@dataclass(frozen=True)
class Look:
    """How a system looks in every plot."""

    light: str
    dark: str
    """Its colour on a dark ground."""
    marker: str


_LOOKS: Mapping[str, Look] = {
    "softmax": Look("#0f766e", "#2dd4bf", "o"),
    "softmax-ls": Look("#65a30d", "#a3e635", "v"),
    "scones-0.2": Look("#7e22ce", "#c084fc", "D"),
    "scones-0.5": Look("#c2410c", "#fb923c", "s"),
    "scones-0.7": Look("#ca8a04", "#facc15", "P"),
    "scones-1.0": Look("#2563eb", "#60a5fa", "^"),
    "scones-ls": Look("#be185d", "#f472b6", "X"),
}
_OTHERS = (
    Look("#475569", "#94a3b8", "*"),
    Look("#92400e", "#d6a77a", "h"),
    Look("#4d7c0f", "#bef264", "<"),
    Look("#9f1239", "#fda4af", ">"),
)


def look(system: str) -> Look:
    """Give the look of a system, the same wherever it appears."""
    if system in _LOOKS:
        return _LOOKS[system]
    return _OTHERS[sum(system.encode()) % len(_OTHERS)]


def all_looks() -> list[Look]:
    """Give all looks there are."""
    return [*_LOOKS.values(), *_OTHERS]


@dataclass(frozen=True)
class Curve:
    """A line of a panel."""

    system: str
    label: str
    x: Sequence[float]
    y: Sequence[float]
    notes: Sequence[str] = ()
    """Written at its points."""
    ends_apart: bool = False
    """Whether the last point is something else than those before it."""


def curves(
    panels: Mapping[str, Sequence[Curve]],
    x_label: str,
    y_label: str,
    log: bool = False,
    ticks: Mapping[float, str] | None = None,
    line: float | None = None,
) -> str | None:
    """Draw a panel of curves for every title; `line` is a level to compare with."""

    def draw(axes: Axes, found: Sequence[Curve]) -> None:
        if line is not None:
            axes.axhline(line, color=INK, linewidth=1, linestyle="--")
        for curve in found:
            style = look(curve.system)
            like: dict[str, Any] = {"marker": style.marker, "markersize": 5, "color": style.light}
            last = len(curve.x) - curve.ends_apart
            axes.plot(curve.x[:last], curve.y[:last], label=curve.label, **like)
            if curve.ends_apart:
                axes.plot(curve.x[last - 1 :], curve.y[last - 1 :], linestyle=":", **like)
            for x, y, note in zip(curve.x, curve.y, curve.notes, strict=False):
                axes.annotate(
                    note,
                    (x, y),
                    xytext=(0, 6),
                    textcoords="offset points",
                    ha="center",
                    fontsize=8,
                    color=style.light,
                )
        axes.margins(y=0.12)
        if log:
            axes.set_xscale("log")
        if ticks is not None:
            axes.set_xticks(list(ticks), list(ticks.values()))
            axes.minorticks_off()

    return _panels(panels, draw, x_label, y_label)


@dataclass(frozen=True)
class Bar:
    """A bar of a panel."""

    system: str
    label: str
    value: float
    deviation: float | None = None
    pale: bool = False
    """The second of a system."""


def bars(panels: Mapping[str, Sequence[Bar]], y_label: str) -> str | None:
    """Draw a panel of bars for every title, each bar with its value."""

    def draw(axes: Axes, found: Sequence[Bar]) -> None:
        for place, bar in enumerate(found):
            axes.bar(
                place,
                bar.value,
                0.8,
                yerr=bar.deviation,
                capsize=3,
                color=look(bar.system).light,
                alpha=0.45 if bar.pale else 1.0,
                ecolor=INK,
                hatch="///" if bar.pale else None,
                label=None if bar.pale else bar.label,
            )
            low = bar.value < 0
            edge = bar.value + (bar.deviation or 0.0) * (-1 if low else 1)
            axes.annotate(
                f"{bar.value:.1f}".replace("-", MINUS),
                (place, edge),
                xytext=(0, -3 if low else 3),
                textcoords="offset points",
                ha="center",
                va="top" if low else "bottom",
                fontsize=8,
            )
        axes.set_xticks([])
        axes.margins(y=0.15)
        axes.grid(visible=False, axis="x")

    return _panels(panels, draw, "", y_label)


def _panels(
    panels: Mapping[str, Sequence[Any]],
    draw: Callable[[Axes, Any], None],
    x_label: str,
    y_label: str,
) -> str | None:
    """Draw panels in two columns with one legend above; None where there is nothing to draw."""
    if not panels or not can_draw():
        return None
    import matplotlib as mpl
    from matplotlib.figure import Figure

    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    ink = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    style = {
        **STYLE,
        **dict.fromkeys(ink, INK),
        "svg.fonttype": "none",
        "hatch.linewidth": 0.6,
        "axes.axisbelow": True,
    }
    with mpl.rc_context(style):
        figure = Figure(
            figsize=(4.4 * columns if columns > 1 else 6.4, 3.2 * rows + 0.5), layout="constrained"
        )
        grid = figure.subplots(rows, columns, squeeze=False)
        for place, axes in enumerate(grid.flat):
            if place >= len(panels):
                axes.set_visible(False)
        for axes, (title, found) in zip(grid.flat, panels.items(), strict=False):
            draw(axes, found)
            axes.set_title(title, fontsize=10, fontweight="bold")
            axes.set(xlabel=x_label, ylabel=y_label)
        _legend(figure, list(grid.flat))
        content = io.BytesIO()
        figure.savefig(content, format="svg", metadata={"Date": None})
    return content.getvalue().decode()


def _legend(figure: Figure, panels: Sequence[Axes]) -> None:
    """Put one legend above all panels; a system is named once."""
    handles: dict[str, Any] = {}
    for axes in panels:
        found, names = axes.get_legend_handles_labels()
        handles.update(zip(names, found, strict=True))
    if handles:
        columns = min(len(handles), 3)
        figure.legend(handles.values(), handles, loc="outside upper center", ncols=columns)


def inline(drawing: str, key: str, label: str) -> str:
    """Turn an SVG file into a part of a page: no header, names of its own, colours of the page.

    `label` is for those who hear the page; it comes escaped.
    """
    svg = drawing[drawing.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r'(id="|xlink:href="#|url\(#)', rf"\g<1>{key}-", svg)
    svg = re.sub(r"<svg [^>]*>", lambda found: _opened(found[0], label), svg, count=1)
    svg = svg.replace("xlink:href", "href").replace("#ffffff", "none").replace(INK, "currentColor")
    for number, one in enumerate(all_looks()):
        svg = svg.replace(one.light, f"var(--look-{number})")
    return svg


def _opened(tag: str, label: str) -> str:
    """Give the first tag for a page: as wide as there is room, but no wider than it was drawn."""
    view = re.search(r'viewBox="([^"]*)"', tag)
    size = view[1] if view else "0 0 600 400"
    width = round(_PIXELS_A_POINT * float(size.split()[2]))
    return f'<svg viewBox="{size}" style="max-width:{width}px" role="img" aria-label="{label}">'
