"""The figures of the experiment with synthetic languages as Markdown: a row a model, γ across."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from scones.analysis.tables import limits_sentence, percent, table_lines
from scones.evaluation.significance import mark
from scones.paper.synthetic_verdict import verdict_sentences

Row = dict[str, Any]


def labels(result: dict[str, Any]) -> dict[str, str]:
    """Name the systems for readers."""
    return {
        name: "softmax" if alpha is None else f"SCONES (α = {alpha})"
        for name, alpha in result["systems"].items()
    }


def markdown(result: dict[str, Any]) -> str:
    """Show the figures of `Synthetic.run`."""
    lines = ["# Synthetic languages: softmax and SCONES at several temperatures of IBM Model 3", ""]
    for sentence in verdict_sentences(result["verdict"], labels(result)):
        lines += [sentence, ""]
    lines += [f"{_size(result)} {limits_sentence(result['limits'], result['first_beam'])}", ""]
    for title, note, cell in _tables(result["beam"]):
        lines += [f"## {title}", "", *([note, ""] if note else []), *_by_temperature(result, cell)]
        lines.append("")
    lines += ["## Languages", "", *_languages(result), "", *_facts(result), ""]
    return "\n".join(lines)


def _size(result: dict[str, Any]) -> str:
    counts = sorted({row["sentences"] for row in result["temperatures"].values()})
    shown = " to ".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1])))
    return f"Everything was tested on {shown} sentences a temperature, with one sampled reference."


def _tables(beam: int) -> Iterator[tuple[str, str, Callable[[Row], str]]]:
    """Give titles, notes, and what stands in a cell."""
    size = str(beam)
    yield f"BLEU, beam {beam}", "", lambda row: f"{row['beams'][size]['outputs']['bleu']:.2f}"
    yield (
        "BLEU, exact search",
        "† p < .05, ‡ p < .01 against exact search of softmax (paired bootstrap).",
        lambda row: f"{row['exact']['outputs']['bleu']:.2f}{mark(row['p'] or 1)}",
    )
    yield (
        "Exact search, relative",
        f"Its BLEU over that of softmax with beam {beam} at the same temperature.",
        lambda row: "–" if row["relative"] is None else f"{row['relative']:.1%}",
    )
    yield (
        "Unfinished",
        "Share of the sentences whose mode was not proved within the limits.",
        lambda row: percent(row["exact"]["unproved"]),
    )
    yield (
        "Length ratio, exact search",
        "Tokens of the output over tokens of the reference.",
        lambda row: f"{row['exact']['outputs']['length_ratio']:.3f}",
    )
    yield (
        "Empty outputs of exact search",
        "Share of the sentences.",
        lambda row: percent(row["exact"]["outputs"]["empty"]),
    )
    yield (
        f"Search errors of beam {beam}",
        "Share of the sentences with a proved mode for which the beam did not find it.",
        lambda row: percent(row["beams"][size]["errors"]["share"]),
    )


def _by_temperature(result: dict[str, Any], cell: Callable[[Row], str]) -> list[str]:
    temperatures = result["temperatures"]
    rows = [
        [label, *(cell(row["systems"][name]) for row in temperatures.values())]
        for name, label in labels(result).items()
    ]
    return table_lines(["model", *(f"γ = {temperature}" for temperature in temperatures)], rows)


def _languages(result: dict[str, Any]) -> list[str]:
    rows = [
        [
            temperature,
            f"{row['training_pairs']:,}",
            f"{row['sentences']:,}",
            f"{row['empty_test_references']:,}",
            f"`{row['data_digest'][:16]}`",
        ]
        for temperature, row in result["temperatures"].items()
    ]
    heads = ["γ", "training pairs", "test sentences", "left out: empty reference", "data digest"]
    return table_lines(heads, rows)


def _facts(result: dict[str, Any]) -> Iterator[str]:
    systems = [row for at in result["temperatures"].values() for row in at["systems"].values()]
    made_with = next(iter(result["temperatures"].values()))["made_with"]
    steps = sorted({row["training"]["steps"] for row in systems})
    devices = sorted({device for row in systems for device in row["devices"]})
    commits = sorted({commit for row in systems for commit in row["commits"]})
    yield f"- BLEU: `{systems[0]['exact']['outputs']['signature']}`"
    yield (
        f"- trained with `{result['recipe']}`, seed {result['seed']}: models of "
        f"{' to '.join(f'{count:,}' for count in dict.fromkeys((steps[0], steps[-1])))} steps"
    )
    yield (
        f"- sampled from `{result['models']['ibm3']}` (digest `{made_with['IBM Model 3']}`) for "
        f"the sources of `{result['store']}` (digest `{str(made_with['store'])[:16]}`)"
    )
    yield f"- searched on {', '.join(devices)}, commit `{', '.join(commits)}`"
    yield f"- scones {result['scones']}, PyTorch {result['torch']}, Python {result['python']}"
    yield f"- command: `{result['command']}`"
