"""The dial for ambiguity as a plot: a curve of every measure against the temperature."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from scones.paper.analysis_plots import COLOURS, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    save(path, _draw, rows)


def _draw(rows: list[dict[str, Any]]) -> Figure:
    # Not by way of pyplot, which keeps figures, and asks for a screen.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 6.5), layout="constrained")
    panels = figure.subplot_mosaic("EET;BLR")
    _draw_entropy(panels["E"], rows)
    for panel, (name, label) in _MEASURES.items():
        axes, values = panels[panel], [row[name] for row in rows]
        axes.plot([row["temperature"] for row in rows], values, "o-", color=_SUM)
        axes.set(xlabel="temperature γ", ylabel=label)
        axes.set_ylim(0, 1.1 * max(values) or 1)
    return figure


def _draw_entropy(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """Draw what the entropy is made of, one on another, the sum uppermost."""
    temperatures = [row["temperature"] for row in rows]
    parts = [[row["entropy"][kind] for row in rows] for kind in _KINDS]
    axes.stackplot(temperatures, parts, labels=_KINDS.values(), colors=COLOURS, alpha=0.75)
    axes.plot(temperatures, [row["entropy"]["total"] for row in rows], "o-", color=_SUM)
    axes.set(xlabel="temperature γ", ylabel="entropy, bits a target word")
    handles, names = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], names[::-1], loc="upper left")
