"""Plots: what the paper's figures 3 to 7 show, for any models, and the dial for ambiguity.

Plots are drawn from the JSON of an analysis, so that they can be drawn again. matplotlib is no part
of an installation; without it there are no plots, and all else is the same.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from importlib.util import find_spec
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
    sizes = [int(size) for size in next(iter(systems.values()))["beams"]]
    end = 4 * sizes[-1]  # exact search is a beam that never drops anything
    exact = exact and all(row["exact"] for row in systems.values())
    for (name, row), colour in zip(systems.items(), _colours(systems), strict=True):
        values = [value(row["beams"][str(size)]) for size in sizes]
        axes.plot(sizes, values, "o-", color=colour, label=name)
        if exact:
            last = value(row["exact"])
            axes.plot([sizes[-1], end], [values[-1], last], ":", color=colour)
            axes.plot([end], [last], "D", color=colour)
    axes.set(xscale="log", xlabel="beam size", ylabel=label)
    axes.set_xticks([*sizes, *([end] if exact else [])])
    axes.set_xticklabels([*(f"{size:,}" for size in sizes), *(["exact"] if exact else [])])
    axes.minorticks_off()
    axes.legend()
    return figure


def _draw_exact(systems: dict[str, Row]) -> Figure:
    """BLEU and length ratio of exact search, a bar per model."""
    figure, (left, right) = new_figure(panels=2)
    for axes, label, value in ((left, "BLEU", _bleu), (right, "length ratio", _length_ratio)):
        values = [value(row["exact"]) for row in systems.values()]
        bars = axes.bar(list(systems), values, color=_colours(systems))
        axes.bar_label(bars, fmt="%.1f" if axes is left else "%.2f")
        axes.set_ylabel(f"{label}, exact search")
        axes.tick_params(axis="x", rotation=20)
        axes.grid(visible=False, axis="x")
    return figure


def _draw_log_probs(systems: dict[str, Row]) -> Figure:
    """The mean log-probabilities of modes and empty translations, with their deviations."""
    figure, (axes,) = new_figure()
    exact = [row["exact"] for row in systems.values()]
    modes = [found["outputs"]["log_probs"] for found in exact]
    empty = [found["empty_log_probs"] for found in exact]
    for label, summaries, shift, colour in (
        ("best translation", modes, -0.2, "#374151"),
        ("empty translation", empty, 0.2, "#d1d5db"),
    ):
        # A model of which nothing was searched has no summary, and keeps its place.
        known = [(index, one) for index, one in enumerate(summaries) if one is not None]
        axes.bar(
            [index + shift for index, _ in known],
            [summary["mean"] for _, summary in known],
            0.36,
            yerr=[summary["deviation"] for _, summary in known],
            capsize=4,
            color=colour,
            label=label,
        )
    axes.set_xticks(range(len(systems)), list(systems))
    axes.set_ylabel("log-probability, mean and deviation")
    axes.grid(visible=False, axis="x")
    figure.legend(loc="outside upper right", ncols=2)  # bars hang down from the top
    return figure


def _colours(systems: dict[str, Row]) -> list[str]:
    return [COLOURS[index % len(COLOURS)] for index in range(len(systems))]


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


def draw_ambiguity(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw the rows of `Ambiguity.to_json` as an SVG file."""
    save(path, _draw_ambiguity, rows)


def _draw_ambiguity(rows: list[dict[str, Any]]) -> Figure:
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
