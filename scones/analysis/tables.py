"""The figures of an analysis as Markdown tables, one row per model, with the limits beside them.

Also the short digests by which results say what they were made of.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from scones.files import file_digest
from scones.model.folder import SUBWORDS, FolderConfig


def texts_digest(texts: Sequence[str]) -> str:
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
Cell = Callable[[Row], str]
"""Shows a number of a model, or of one of its searches."""


def markdown(result: dict[str, Any]) -> str:
    """The figures of `Analyzer.run`."""
    lines = [f"# Beam search and exact search, {result['sentences']:,} sentences", ""]
    if result["limits"] is not None:
        lines += [limits_sentence(result["limits"], result["first_beam"]), ""]
    for title, note, columns in _tables(result["systems"]):
        rows = [
            [name, *(cell(row) for cell in columns.values())]
            for name, row in result["systems"].items()
        ]
        table = table_lines(["model", *columns], rows)
        lines += [f"## {title}", "", *([note, ""] if note else []), *table, ""]
    lines += [*_provenance(result), ""]
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


def _tables(systems: dict[str, Row]) -> Iterator[tuple[str, str, dict[str, Cell]]]:
    """Titles, notes, and columns: a heading and how to show what stands below it."""
    first = next(iter(systems.values()))
    sizes, has_exact = list(first["beams"]), first["exact"] is not None

    def by_search(cell: Cell, exact: bool = has_exact) -> dict[str, Cell]:
        """A column for every beam size, and one for exact search."""
        columns: dict[str, Cell] = {
            f"beam {size}": lambda row, size=size: cell(row["beams"][size])  # type: ignore[misc]
            for size in sizes
        }
        return columns | ({"exact": lambda row: cell(row["exact"])} if exact else {})

    yield "BLEU", "", by_search(lambda found: f"{found['outputs']['bleu']:.2f}")
    ratio = by_search(lambda found: f"{found['outputs']['length_ratio']:.3f}")
    yield "Length ratio", "Tokens of the output over tokens of the reference.", ratio
    if has_exact:
        note = "Share of the sentences with a proved mode for which a beam did not find it."
        errors = by_search(lambda found: percent(found["errors"]["share"]), exact=False)
        errors |= {"sentences": _proved, "outputs above the mode": _above}
        yield "Search errors", note, errors
    empty = by_search(lambda found: percent(found["outputs"]["empty"]))
    yield "Empty outputs", "Share of the sentences.", empty
    log_probs = by_search(lambda found: _spread(found["outputs"]["log_probs"]))
    if has_exact:
        log_probs["the empty translation"] = lambda row: _spread(row["exact"]["empty_log_probs"])
    yield "Log-probabilities", "Mean ± deviation of the outputs.", log_probs
    if has_exact:
        yield "Exact search: proofs", "", _proofs()
        yield "Exact search: work", "Mean, median and largest of a sentence.", _work()
    note = "For all sentences together; the first has to get ready."
    yield "Seconds of beam search", note, by_search(lambda found: _seconds(found["seconds"]), False)


def _proved(row: Row) -> str:
    return f"{row['exact']['proved']:,}"


def _above(row: Row) -> str:
    return f"{sum(found['errors']['above'] for found in row['beams'].values()):,}"


def _proofs() -> dict[str, Cell]:
    def stopped_by(limit: str) -> Cell:
        return lambda row: f"{row['exact']['stopped_by'].get(limit, 0):,}"

    return {
        "searched": lambda row: f"{row['exact']['outputs']['searched']:,}",
        "proved": _proved,
        "unfinished": lambda row: percent(row["exact"]["unproved"]),
        **{f"stopped by {one}": stopped_by(one) for one in ("states", "time", "memory", "length")},
        "empty among proved modes": lambda row: percent(row["exact"]["empty_modes"]),
    }


def _work() -> dict[str, Cell]:
    def summary(kind: str, key: str, shown: Callable[[float], str]) -> Cell:
        return lambda row: shown(row["exact"][kind][key]) if row["exact"][kind] else "–"

    return {
        f"{kind}, {key}": summary(kind, key, shown)
        for kind, shown in (("states", "{:,.0f}".format), ("seconds", _seconds))
        for key in ("mean", "median", "largest")
    }


def _provenance(result: dict[str, Any]) -> Iterator[str]:
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
    """The lines of a table whose columns, but the first, are numbers or `words`."""
    ruler = "|---|" + ("---|" if words else "---:|") * (len(heads) - 1)
    return [_row(heads), ruler, *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def percent(share: float | None) -> str:
    """A share; a dash where there is none."""
    return "–" if share is None else f"{share:.2%}"


def _seconds(seconds: float) -> str:
    return f"{seconds:,.3g}" if seconds < 1000 else f"{seconds:,.0f}"


def _spread(summary: Row | None) -> str:
    return "–" if summary is None else f"{summary['mean']:.2f} ± {summary['deviation']:.2f}"
