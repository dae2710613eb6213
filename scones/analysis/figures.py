"""Plots: what the paper's figures 3 to 7 show, for any models, and the dial for ambiguity.

Plots are drawn from the JSON of an analysis, so that they can be drawn again. matplotlib is no part
of an installation; without it there are no plots, and all else is the same.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from scones.files import write_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]
Data = TypeVar("Data")

STYLE: dict[Any, Any] = {
    "svg.hashsalt": "scones",  # the same numbers, the same file
    "font.size": 10,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}
"""How all plots of the project look."""
COLOURS = ("#0f766e", "#c2410c", "#7e22ce", "#2563eb", "#ca8a04", "#be185d", "#374151")
"""Of the systems of a plot, in their order."""


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def draw(result: dict[str, Any], folder: Path) -> list[Path]:
    """Draw the figures of `Analyzer.run` into a folder and return the files."""
    systems: dict[str, Row] = result["systems"]
    plots: dict[str, Callable[[dict[str, Row]], Figure]] = {
        "bleu": lambda rows: _curves(rows, "BLEU", _bleu),
        "length-ratio": lambda rows: _curves(rows, "length ratio", _length_ratio),
    }
    if result["limits"] is not None:
        plots |= {
            "search-errors": lambda rows: _curves(rows, "search errors, %", _errors, exact=False),
            "exact": _draw_exact,
            "log-probs": _draw_log_probs,
        }
    return [save(folder / f"{name}.svg", plot, systems) for name, plot in plots.items()]


def save(path: Path, plot: Callable[[Data], Figure], data: Data) -> Path:
    """Draw data in the style of all plots, write an SVG file and return its path."""
    import matplotlib as mpl

    content = io.BytesIO()
    with mpl.rc_context(STYLE):
        # A date would make every drawing of the same numbers another file.
        plot(data).savefig(content, format="svg", metadata={"Date": None})
    write_file(path, content.getvalue())
    return path


def new_figure(panels: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels side by side, and the panels."""
    figure = _empty_figure(7, 4)
    return figure, list(figure.subplots(1, panels, squeeze=False)[0])


def _empty_figure(width: float, height: float) -> Figure:
    # Not by way of pyplot, which keeps figures, and asks for a screen.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _bleu(found: Row) -> float:
    return float(found["outputs"]["bleu"])


def _length_ratio(found: Row) -> float:
    return float(found["outputs"]["length_ratio"])


def _errors(found: Row) -> float:
    share = found["errors"]["share"]
    return float("nan") if share is None else 100 * share


def _curves(
    systems: dict[str, Row], label: str, value: Callable[[Row], float], exact: bool = True
) -> Figure:
    """A curve per model against the beam size; exact search is the point at its end."""
    figure, (axes,) = new_figure()
    curves = {
        name: {int(size): value(found) for size, found in row["beams"].items()}
        for name, row in systems.items()
    }
    ends = {name: value(row["exact"]) for name, row in systems.items() if exact and row["exact"]}
    beam_curves(axes, curves, ends, _colours(systems))
    axes.set_ylabel(label)
    axes.legend()
    return figure


def beam_curves(
    axes: Axes,
    curves: Mapping[str, Mapping[int, float]],
    exact: Mapping[str, float],
    colours: Mapping[str, str],
    names: Callable[[str], str] = str,
    apart: float = 1.0,
) -> None:
    """Draw numbers by beam size, a curve a system, and at its end that of exact search.

    On the axis, sizes are named that are at least a factor `apart`.
    """
    sizes = sorted({size for curve in curves.values() for size in curve})
    end = 4 * sizes[-1]  # exact search is a beam that never drops anything
    for system, curve in curves.items():
        colour, places = colours[system], sorted(curve)
        values = [curve[size] for size in places]
        axes.plot(places, values, "o-", color=colour, label=names(system))
        if system in exact:
            axes.plot([places[-1], end], [values[-1], exact[system]], ":", color=colour)
            axes.plot([end], [exact[system]], "D", color=colour)
    ticks = {size: f"{size:,}" for size in sizes} | ({end: "exact"} if exact else {})
    kept: list[int] = []
    for size in sorted(ticks, reverse=True):
        if not kept or kept[-1] >= apart * size:
            kept.append(size)
    axes.set(xscale="log", xlabel="beam size")
    kept.reverse()
    axes.set_xticks(kept, [ticks[size] for size in kept])
    axes.minorticks_off()


def _draw_exact(systems: dict[str, Row]) -> Figure:
    """BLEU and length ratio of exact search, a bar per model."""
    figure, (left, right) = new_figure(panels=2)
    for axes, label, value in ((left, "BLEU", _bleu), (right, "length ratio", _length_ratio)):
        values = {name: value(row["exact"]) for name, row in systems.items()}
        system_bars(axes, values, _colours(systems), "%.1f" if axes is left else "%.2f")
        axes.set_ylabel(f"{label}, exact search")
        axes.tick_params(axis="x", rotation=20)
    return figure


def system_bars(
    axes: Axes, values: Mapping[str, float], colours: Mapping[str, str], shown: str
) -> None:
    """Draw a bar a system with its number on it."""
    bars = axes.bar(list(values), list(values.values()), color=[colours[name] for name in values])
    axes.bar_label(bars, fmt=shown)
    axes.grid(visible=False, axis="x")


def _draw_log_probs(systems: dict[str, Row]) -> Figure:
    """The mean log-probabilities of modes and empty translations, with their deviations."""
    figure, (axes,) = new_figure()

    def spreads(summary: Callable[[Row], Row | None]) -> dict[str, Spread | None]:
        return {
            one: (s["mean"], s["deviation"]) if (s := summary(row["exact"])) else None
            for one, row in systems.items()
        }

    modes = spreads(lambda exact: exact["outputs"]["log_probs"])
    log_prob_bars(axes, modes, spreads(lambda exact: exact["empty_log_probs"]))
    axes.set_ylabel("log-probability, mean and deviation")
    figure.legend(loc="outside upper right", ncols=2)  # bars hang down from the top
    return figure


Spread = tuple[float, float]
"""A mean and a deviation."""


def log_prob_bars(
    axes: Axes, modes: Mapping[str, Spread | None], empty: Mapping[str, Spread | None]
) -> None:
    """Draw the log-probabilities of the best and of the empty translation, two bars a system."""
    for label, spreads, shift, colour in (
        ("best translation", modes, -0.2, "#374151"),
        ("empty translation", empty, 0.2, "#d1d5db"),
    ):
        # A model of which nothing was searched has no summary, and keeps its place.
        places = [(index, one) for index, one in enumerate(spreads.values()) if one is not None]
        axes.bar(
            [index + shift for index, _ in places],
            [mean for _, (mean, _) in places],
            0.36,
            yerr=[deviation for _, (_, deviation) in places],
            capsize=4,
            color=colour,
            label=label,
        )
    axes.set_xticks(range(len(modes)), list(modes))
    axes.grid(visible=False, axis="x")


def _colours(systems: dict[str, Row]) -> dict[str, str]:
    return dict(zip(systems, cycle(COLOURS), strict=False))


# The dial for ambiguity (`scones ibm3 measure`): a curve of every measure against the temperature.

_MEASURES = {
    "T": ("translations", "different translations a word"),
    "B": ("self_bleu", "self-BLEU"),
    "L": ("length_ratio", "length ratio"),
    "R": ("reordering", "reordering"),
}
"""By the letter of their panels; E is the entropy's."""
_KINDS = {
    "words": "words",
    "places": "places",
    "fertilities": "fertilities",
    "null": "number of NULL’s words",
}
_SUM = COLOURS[-1]


def ambiguity(rows: list[dict[str, Any]]) -> Figure:
    """The figure of the rows of `Ambiguity.to_json`."""
    figure = _empty_figure(12, 6.5)
    panels = figure.subplot_mosaic("EET;BLR")
    temperatures = [row["temperature"] for row in rows]
    # What the entropy is made of, one on another, the sum uppermost.
    axes = panels["E"]
    parts = [[row["entropy"][kind] for row in rows] for kind in _KINDS]
    axes.stackplot(temperatures, parts, labels=_KINDS.values(), colors=COLOURS, alpha=0.75)
    axes.plot(temperatures, [row["entropy"]["total"] for row in rows], "o-", color=_SUM)
    axes.set(xlabel="temperature γ", ylabel="entropy, bits a target word")
    handles, names = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], names[::-1], loc="upper left")
    for panel, (name, label) in _MEASURES.items():
        axes, values = panels[panel], [row[name] for row in rows]
        axes.plot(temperatures, values, "o-", color=_SUM)
        axes.set(xlabel="temperature γ", ylabel=label)
        axes.set_ylim(0, 1.1 * max(values) or 1)
    return figure
