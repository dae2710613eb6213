"""The figures of an analysis as Markdown tables, one row a model, with the limits beside them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from scones.files import file_digest
from scones.model.folder import SUBWORDS, FolderConfig

# Short digests by which results say what they were made of.


def texts_digest(texts: Sequence[str]) -> str:
    """Give the digest of sentences."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def model_digest(folder: Path) -> str:
    """The digest of all that decides what a model says: weights, pieces, output layer."""
    config = FolderConfig.read(folder)
    output = json.dumps(config.facts.output, sort_keys=True)
    digest = hashlib.sha256(output.encode())
    for path in (config.weights, config.folder / SUBWORDS):
        digest.update(bytes.fromhex(file_digest(path)))
    return digest.hexdigest()[:16]


Row = dict[str, Any]


def markdown(result: dict[str, Any]) -> str:
    """Show the figures of `Analyzer.run`."""
    lines = [f"# Beam search and exact search, {result['sentences']:,} sentences", ""]
    if result["limits"] is not None:
        lines += [limits_sentence(result["limits"], result["first_beam"]), ""]
    for title, note, table in _tables(result["systems"]):
        lines += [f"## {title}", "", *([note, ""] if note else []), *table, ""]
    lines += [*_facts(result), ""]
    return "\n".join(lines)


def limits_sentence(limits: dict[str, Any], first_beam: int) -> str:
    """Say when exact search gave up."""
    shown = {
        "max_states": "{:,} states a sentence",
        "sentence_seconds": "{:g} s a sentence",
        "max_seconds": "{:g} s for all sentences",
        "max_memory": "{:g} GB of memory",
    }
    known = {key: value for key, value in limits.items() if value is not None}
    if "max_memory" in known:
        known["max_memory"] /= 10**9
    said = [text.format(known[key]) for key, text in shown.items() if key in known]
    return (
        f"Limits of exact search: {', '.join(said)}, and the length limit of every sentence. It "
        f"began with the results of a beam of {first_beam}. Of a sentence that is not proved, the "
        "best translation found counts."
    )


def _tables(systems: dict[str, Row]) -> Iterator[tuple[str, str, list[str]]]:
    """Give titles, notes and tables."""
    has_exact = any(row["exact"] for row in systems.values())
    yield "BLEU", "", _by_search(systems, lambda found: f"{found['outputs']['bleu']:.2f}")
    ratio = _by_search(systems, lambda found: f"{found['outputs']['length_ratio']:.3f}")
    yield "Length ratio", "Tokens of the output over tokens of the reference.", ratio
    if has_exact:
        note = "Share of the sentences with a proved mode for which a beam did not find it."
        yield "Search errors", note, _error_table(systems)
    empty = _by_search(systems, lambda found: percent(found["outputs"]["empty"]))
    yield "Empty outputs", "Share of the sentences.", empty
    yield "Log-probabilities", "Mean ± deviation of the outputs.", _log_prob_table(systems)
    if has_exact:
        yield "Exact search: proofs", "", _proof_table(systems)
        note = "Mean, median and largest of a sentence."
        yield "Exact search: work", note, _work_table(systems)
    seconds = _by_search(systems, lambda found: _seconds(found["seconds"]), exact=False)
    yield (
        "Seconds of beam search",
        "For all sentences together; the first has to get ready.",
        seconds,
    )


def _by_search(
    systems: dict[str, Row], cell: Callable[[Row], str], exact: bool = True
) -> list[str]:
    """Make a table with a column for every beam size, and one for exact search."""
    sizes = _sizes(systems)
    exact = exact and any(row["exact"] for row in systems.values())
    heads = [f"beam {size}" for size in sizes] + ["exact"] * exact
    rows = []
    for name, row in systems.items():
        found = [row["beams"][size] for size in sizes] + [row["exact"]] * exact
        rows.append([name, *map(cell, found)])
    return table_lines(["model", *heads], rows)


def _error_table(systems: dict[str, Row]) -> list[str]:
    sizes = _sizes(systems)
    rows = []
    for name, row in systems.items():
        errors = [row["beams"][size]["errors"] for size in sizes]
        shares = [percent(found["share"]) for found in errors]
        above = sum(found["above"] for found in errors)
        rows.append([name, *shares, f"{row['exact']['proved']:,}", f"{above:,}"])
    heads = [f"beam {size}" for size in sizes]
    return table_lines(["model", *heads, "sentences", "outputs above the mode"], rows)


def _log_prob_table(systems: dict[str, Row]) -> list[str]:
    table = _by_search(systems, lambda found: _spread(found["outputs"]["log_probs"]))
    if not any(row["exact"] for row in systems.values()):
        return table
    empty = [_spread(row["exact"]["empty_log_probs"]) for row in systems.values()]
    added = [" the empty translation |", "---:|", *(f" {cell} |" for cell in empty)]
    return [line + more for line, more in zip(table, added, strict=True)]


def _proof_table(systems: dict[str, Row]) -> list[str]:
    limits = ("states", "time", "memory", "length")
    rows = []
    for name, row in systems.items():
        exact = row["exact"]
        counts = [f"{exact['stopped_by'].get(limit, 0):,}" for limit in limits]
        modes = [percent(exact["unproved"]), *counts, percent(exact["empty_modes"])]
        rows.append([name, f"{exact['outputs']['searched']:,}", f"{exact['proved']:,}", *modes])
    stopped = [f"stopped by {limit}" for limit in limits]
    heads = ["model", "searched", "proved", "unfinished", *stopped, "empty among proved modes"]
    return table_lines(heads, rows)


def _work_table(systems: dict[str, Row]) -> list[str]:
    rows = []
    for name, row in systems.items():
        states, seconds = row["exact"]["states"], row["exact"]["seconds"]
        cells = [name]
        for about, shown in ((states, "{:,.0f}".format), (seconds, _seconds)):
            cells += [shown(about[key]) if about else "–" for key in ("mean", "median", "largest")]
        rows.append(cells)
    heads = [
        f"{kind}, {key}" for kind in ("states", "seconds") for key in ("mean", "median", "largest")
    ]
    return table_lines(["model", *heads], rows)


def _facts(result: dict[str, Any]) -> Iterator[str]:
    systems = result["systems"]
    first = next(iter(systems.values()))
    search = first["exact"] or next(iter(first["beams"].values()))
    yield f"- BLEU: `{search['outputs']['signature']}`"
    yield f"- logits in {result['precision']}"
    for name, row in systems.items():
        layer = ", ".join(f"{key} {value}" for key, value in row["output"].items())
        yield (
            f"- {name}: `{result['models'][name]}` ({layer}; digest `{row['model_digest']}`), "
            f"searched on {', '.join(row['devices'])}, commit `{', '.join(row['commits'])}`"
        )
    references = ", ".join(f"`{digest}`" for digest in result["reference_digests"])
    yield f"- digest of the source `{result['source_digest']}`, of the references {references}"
    yield f"- scones {result['scones']}, PyTorch {result['torch']}, Python {result['python']}"
    yield f"- command: `{result['command']}`"


def table_lines(
    heads: Sequence[str], rows: Sequence[Sequence[str]], words: bool = False
) -> list[str]:
    """Give the lines of a table whose columns, but the first, are numbers or `words`."""
    ruler = "|---|" + ("---|" if words else "---:|") * (len(heads) - 1)
    return [_row(heads), ruler, *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _sizes(systems: dict[str, Row]) -> list[str]:
    return list(next(iter(systems.values()))["beams"])


def percent(share: float | None) -> str:
    """Show a share; a dash where there is none."""
    return "–" if share is None else f"{share:.2%}"


def _seconds(seconds: float) -> str:
    return f"{seconds:,.3g}" if seconds < 1000 else f"{seconds:,.0f}"


def _spread(summary: Row | None) -> str:
    return "–" if summary is None else f"{summary['mean']:.2f} ± {summary['deviation']:.2f}"
