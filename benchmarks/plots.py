"""Draw the plots of docs/performance.md from the JSON files of the benchmarks.

    python benchmarks/plots.py

A plot whose numbers were not measured is left out. Needs matplotlib.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tables import RESULTS, Result, entries, read_results, same_tokens

from scones.analysis.figures import STYLE

PRODUCTS = "three products"
COLOURS = {
    "SCONES, ours": "#c2410c",
    "SCONES, ours, without graphs": "#fdba74",
    "SCONES, compiled": "#f59e0b",
    "softmax, ours": "#0f766e",
    "cross-entropy, ours": "#0f766e",
    "cross-entropy, compiled": "#2563eb",
    "cross-entropy, Liger": "#9333ea",
    "Hugging Face": "#6b7280",
    "Hugging Face, compiled": "#1f2937",
    PRODUCTS: "#000000",
}
"""One colour a system, in all plots; what has none is not drawn."""


def main() -> None:
    """Draw what there are numbers for."""
    parser = argparse.ArgumentParser(description="Draw the plots of the page on performance.")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the JSON files")
    options = parser.parse_args()
    mpl.use("Agg")
    mpl.rcParams |= STYLE
    draw = {
        "output_layer": draw_output_layer,
        "training": draw_training,
        "decoding": draw_decoding,
        "exact": draw_exact,
    }
    for kind, how in draw.items():
        results = read_results(kind, options.results)
        if results and (figure := how(results)) is not None:
            figure.savefig(options.results / f"{kind}.svg", metadata={"Date": None})
            pyplot.close(figure)


def draw_output_layer(results: list[Result]) -> Figure:
    """Draw time and memory of the output layer against the vocabulary."""
    cases = same_tokens(entries(results, "cases"))
    tokens, size = cases[0]["tokens"], cases[0]["size"]
    figure, (time, memory) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    figure.suptitle(f"Output layer, forward and backward, {tokens:,} tokens of {size}")
    for name, colour in COLOURS.items():
        for axes, key in ((time, "milliseconds"), (memory, "megabytes")):
            if name == PRODUCTS and axes is memory:
                continue  # they hold the logits and nothing else
            rows = [(case["vocabulary"], case["rows"].get(name, {}).get(key)) for case in cases]
            # On a logarithmic scale there is no 0; what is below 1 MB is drawn as 1 MB.
            points = [(x, max(y, 1.0) if axes is memory else y) for x, y in rows if y is not None]
            if points:
                style = "--" if name == PRODUCTS else "o-"
                axes.plot(*zip(*points, strict=True), style, color=colour, label=name)
    _label(time, "vocabulary", "milliseconds")
    _label(memory, "vocabulary", "MB beyond inputs, gradients, accumulator")
    for axes in (time, memory):
        axes.set(xscale="log", yscale="log")
        axes.set_xticks(ticks := [case["vocabulary"] for case in cases])
        axes.set_xticklabels([f"{tick / 1000:g}K" for tick in ticks])
        axes.minorticks_off()
    time.legend()
    return figure


def draw_training(results: list[Result]) -> Figure:
    """Draw target tokens a second as bars."""
    rows = {
        name: row["tokens_per_second"]
        for result in results
        for name, row in result["results"].items()
        if "tokens_per_second" in row
    }
    figure, axes = pyplot.subplots(figsize=(8, 0.6 + 0.6 * len(rows)), layout="constrained")
    names = list(rows)[::-1]
    bars = axes.barh(names, [rows[name] for name in names], color=[COLOURS[n] for n in names])
    axes.bar_label(bars, fmt="{:,.0f}", padding=4)
    axes.margins(x=0.15)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(visible=False)
    _label(axes, "target tokens a second", "")
    return figure


def draw_decoding(results: list[Result]) -> Figure | None:
    """Draw speed against batch, beam and length."""
    found = entries(results, "results")
    asked = {"batch": "sentences in a batch", "beam": "beam", "length": "longest source, pieces"}
    groups = {
        by: [entry for entry in found if entry["question"] == f"growth with the {by}"]
        for by in asked
    }
    known = {by: group for by, group in groups.items() if group}
    if not known:
        return None
    width = 4 * len(known)
    figure, panels = pyplot.subplots(
        1, len(known), figsize=(width, 4), layout="constrained", squeeze=False
    )
    for axes, (by, group) in zip(panels[0], known.items(), strict=True):
        _draw_growth(axes, group)
        _label(axes, asked[by], "target tokens a second")
        axes.legend()
    return figure


def draw_exact(results: list[Result]) -> Figure | None:
    """Draw speed, and memory where it is known, against prefixes expanded together."""
    found = [
        {"device": result.get("device") or result["processor"], **row}
        for result in results
        for row in result["growth"]
    ]
    if not found:
        return None
    panels = ["states_per_second"]
    panels += ["megabytes"] if any("megabytes" in row for row in found) else []
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(5 * len(panels), 4), layout="constrained", squeeze=False
    )
    for place, key in zip(axes[0], panels, strict=True):
        for name in dict.fromkeys((row["device"], row["model"]) for row in found):
            rows = [row for row in found if (row["device"], row["model"]) == name and key in row]
            if rows:
                widths = [row["width"] for row in rows]
                place.plot(widths, [row[key] for row in rows], "o-", label=", ".join(name))
        place.set(xscale="log", yscale="log")
        labels = {"states_per_second": "states a second", "megabytes": "MB in use"}
        _label(place, "prefixes expanded together", labels[key])
        place.legend()
    return figure


def _draw_growth(axes: Axes, group: list[dict[str, Any]]) -> None:
    ours = "SCONES, ours" if group[0]["model"] == "scones" else "softmax, ours"
    places = range(len(group))
    for system, name in (("ours", ours), ("Hugging Face", "Hugging Face")):
        speeds = [entry["systems"][system]["tokens_per_second"] for entry in group]
        axes.plot(places, speeds, "o-", color=COLOURS[name], label=name)
    axes.set(yscale="log")
    axes.set_xticks(list(places), [str(entry["x"]) for entry in group])


def _label(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)


if __name__ == "__main__":
    main()
