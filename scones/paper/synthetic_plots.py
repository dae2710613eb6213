"""The paper's figures 8 and 9: BLEU against the temperature, with beam search and exact search."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scones.analysis.figures import COLOURS, new_figure, save
from scones.paper.synthetic_tables import labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]


def draw(result: dict[str, Any], folder: Path) -> list[Path]:
    """Draw the figures of `Synthetic.run` into a folder; gives the files."""
    return [
        save(folder / "beam.svg", _draw_beam, result),
        save(folder / "exact.svg", _draw_exact, result),
    ]


def _draw_beam(result: dict[str, Any]) -> Figure:
    """Draw figure 8."""
    figure, (axes,) = new_figure()
    size = str(result["beam"])
    _curves(axes, result, lambda row: float(row["beams"][size]["outputs"]["bleu"]))
    axes.set_ylim(bottom=0)
    axes.set_ylabel(f"BLEU, beam {size}")
    return figure


def _draw_exact(result: dict[str, Any]) -> Figure:
    """Draw figure 9."""
    figure, (axes,) = new_figure()
    axes.axhline(100, color="black", linewidth=1, linestyle="--")

    def share(row: Row) -> float:
        return float("nan") if row["relative"] is None else 100 * row["relative"]

    _curves(axes, result, share)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(f"BLEU of exact search, % of softmax with beam {result['beam']}")
    return figure


def _curves(axes: Axes, result: dict[str, Any], value: Callable[[Row], float]) -> None:
    """Draw a curve a model against the temperature; a model has its colour in all plots."""
    rows = sorted(result["temperatures"].items(), key=lambda row: float(row[0]))
    temperatures = [float(temperature) for temperature, _ in rows]
    for place, (name, label) in enumerate(labels(result).items()):
        values = [value(row["systems"][name]) for _, row in rows]
        colour = COLOURS[place % len(COLOURS)]
        axes.plot(temperatures, values, "o-", color=colour, label=label)
    axes.set_xlabel("temperature γ of IBM Model 3")
    axes.set_xticks(temperatures)
    axes.legend()
