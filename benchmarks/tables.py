"""Write the tables of docs/performance.md from the JSON files of the benchmarks.

    python benchmarks/tables.py

No number on that page is typed: what stands between `<!-- table NAME -->` or `<!-- plot NAME -->`
and `<!-- end -->` is replaced. A file may be in parts (`decoding.json`, `decoding-growth.json`);
they are put together. Where numbers come from stands below the first table that has them.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from common import number

from scones.files import read_json, write_file

DOCS = Path(__file__).resolve().parent.parent / "docs"
RESULTS, PAGE = DOCS / "results" / "performance", DOCS / "performance.md"
NOTHING = "Not measured yet."

Result = dict[str, Any]

_MARKED = re.compile(r"(<!-- (table|plot) (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    """Write the page anew."""
    parser = argparse.ArgumentParser(description="Write the tables of the page on performance.")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the JSON files")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()

    told: set[str] = set()

    def fill(match: re.Match[str]) -> str:
        begin, kind, name, end = match.groups()
        text = table(name, options.results, told) if kind == "table" else plot(name, options)
        return f"{begin}{text}\n{end}"

    write_file(options.page, _MARKED.sub(fill, options.page.read_text()))


def table(name: str, folder: Path, told: set[str]) -> str:
    """Give a table as the JSON files in `folder` have it, and where it comes from, if untold."""
    kind, write = TABLES[name]
    results = read_results(kind, folder)
    lines = write(results)
    sources = {origin(result): None for result in results if write([result])}
    new = [source for source in sources if source not in told]
    told.update(new)
    return "\n".join([*lines, *([""] if new else []), *new]) if lines else NOTHING


def plot(name: str, options: argparse.Namespace) -> str:
    """Give the link to a plot."""
    path = options.results / f"{name}.svg"
    if not path.exists():
        return NOTHING
    return f"![{name.replace('_', ' ')}]({os.path.relpath(path, options.page.parent)})"


def read_results(kind: str, folder: Path) -> list[Result]:
    """Read what a benchmark wrote, in one file or in parts."""
    return [read_json(path) for path in sorted(folder.glob(f"{kind}*.json"))]


def origin(result: Result) -> str:
    """Say where a table comes from."""
    names = {"torch": "PyTorch", "triton": "Triton", "transformers": "transformers"}
    versions = [f"{name} {result[key]}" for key, name in names.items() if result.get(key)]
    commit = f"commit {result['commit']}"
    device = result.get("device") or result["processor"]
    return f"`{result['command']}`, {', '.join([device, commit, *versions])}."


def entries(results: Iterable[Result], key: str) -> list[dict[str, Any]]:
    """Put the lists of all parts together."""
    return [entry for result in results for entry in result[key]]


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Give the lines of a table; nothing where it would have no rows."""
    if not rows:
        return []
    lines = [list(head), ["---", *["---:"] * (len(head) - 1)], *map(list, rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def head_table(results: list[Result]) -> list[str]:
    """Compare all output layers at the sizes that are asked about."""
    asked = [(16_384, 512, 32_000), (65_536, 512, 32_000), (16_384, 512, 256_000)]
    cases = entries(results, "cases")
    chosen = [case for size in asked for case in cases if size_of(case) == size] or cases[:1]
    if not chosen:
        return []
    head = [
        "ms, × the products, MB beyond",
        *(" × ".join(f"{number:,}" for number in size_of(case)) for case in chosen),
    ]

    def cell(row: dict[str, Any]) -> str:
        if "note" in row:
            return str(row["note"])
        times, memory = number(row["times_products"], 2), number(row.get("megabytes"))
        return f"{number(row['milliseconds'], 2)} · {times}× · {memory}"

    names = chosen[0]["rows"]
    return markdown(
        head, [[name, *(cell(case["rows"][name]) for case in chosen)] for name in names]
    )


def error_table(results: list[Result]) -> list[str]:
    """Give the largest errors of all cases."""
    cases = entries(results, "cases")
    parts = ("loss", "hidden_gradient", "weight_gradient", "bias_gradient")

    def worst(name: str, part: str) -> float:
        return max(case["rows"][name].get(f"{part}_error", 0.0) for case in cases)

    names = [name for name in (cases[0]["rows"] if cases else ()) if worst(name, "loss")]
    rows = [[name, *(f"{worst(name, part):.1e}" for part in parts)] for name in names]
    head = ("largest relative error", "loss", "to hidden", "to weight", "to bias")
    return markdown(head, rows)


def vocabulary_table(results: list[Result]) -> list[str]:
    """Show how time and memory grow with the vocabulary."""
    cases = same_tokens(entries(results, "cases"))
    names = [name for name in (cases[0]["rows"] if cases else ()) if "plain" not in name]

    def cell(row: dict[str, Any]) -> str:
        if "note" in row:
            return str(row["note"])
        return f"{number(row['milliseconds'], 2)} · {number(row.get('megabytes'))}"

    rows = [
        [f"{case['vocabulary']:,}", *(cell(case["rows"][name]) for name in names)] for case in cases
    ]
    return markdown(("ms · MB beyond", *names), rows)


def training_table(results: list[Result]) -> list[str]:
    """Give the target tokens a second."""
    rows = []
    for result in results:
        ours = result["results"]["SCONES, ours"].get("tokens_per_second")
        for name, row in result["results"].items():
            speed, size = row.get("tokens_per_second"), row.get("batch_tokens")
            ratio = ours / speed if ours and speed else None
            warm_up = row["warm_up_seconds"].get(str(size))
            cells = [number(speed), number(ratio, 2), number(size), number(warm_up, 1)]
            rows.append([name, *cells])
    head = ("", "target tokens/s", "SCONES is faster by", "batch, tokens", "warm-up, s")
    return markdown(head, rows)


def decoding_table(results: list[Result]) -> list[str]:
    """Compare ours with the peer, question by question."""
    searches = {"greedy": "greedy, best batch", "single": "greedy, batch 1", "beam": "beam 4"}
    rows = []
    for entry in entries(results, "results"):
        if entry["question"] in searches:
            ours, theirs = entry["systems"].values()
            scores = [number(row.get("bleu"), 2) for row in (ours, theirs)]
            gaps = [abs(gap) for gap in entry["score_gaps"]]
            to_exact = entry.get("ours_equal_to_float32")
            rows.append(
                [
                    f"{searches[entry['question']]}, {entry['model']}, {entry['precision']}",
                    number(ours["sentences_per_second"], 1),
                    number(theirs["sentences_per_second"], 1),
                    f"{entry['ratio']:.2f}",
                    percent(entry["equal"]),
                    f"{median(gaps):.2g} / {max(gaps):.2g}" if gaps else "–",
                    "–" if to_exact is None else percent(to_exact),
                    " / ".join(scores),
                ]
            )
    head = (
        "sentences/s", "ours", "Hugging Face", "ratio", "equal lines",
        "score gap, median / largest", "ours equal to float32", "BLEU",
    )  # fmt: skip
    return markdown(head, rows)


def paper_table(results: list[Result]) -> list[str]:
    """Give the paper's comparison."""
    rows = []
    for entry in entries(results, "results"):
        if entry["question"] == "paper":
            greedy, beam = (row["sentences_per_second"] for row in entry["systems"].values())
            name = f"batch {entry['batch']}, {entry['precision']}"
            rows.append([name, number(greedy, 1), number(beam, 1), f"{entry['ratio']:.2f}"])
    return markdown(("sentences/s", "SCONES, greedy", "softmax, beam 4", "ratio"), rows)


def growth_table(by: str) -> Callable[[list[Result]], list[str]]:
    """Make the table of how speed grows with something."""

    def table(results: list[Result]) -> list[str]:
        rows = []
        for entry in entries(results, "results"):
            if entry["question"] == f"growth with the {by}":
                speeds = [row["tokens_per_second"] for row in entry["systems"].values()]
                cells = [*map(number, speeds), f"{entry['ratio']:.2f}"]
                rows.append([str(entry["x"]), *cells])
        return markdown((f"{by}; target tokens/s", "ours", "Hugging Face", "ratio"), rows)

    return table


def cpu_table(results: list[Result]) -> list[str]:
    """Compare ways to translate on a CPU: sentences a CPU second, and the ratio to the others."""
    rows = []
    for entry in entries(results, "results"):
        speeds = {
            name: entry["n"] / median(cpu for cpu, _ in times)
            for name, times in entry["of"].items()
        }
        cells = [
            f"{speeds[name]:,.1f} · {speeds['ours'] / speeds[name]:.2f}" if name in speeds else "–"
            for name in ("ours", "float32", "peer", "old")
        ]
        rows.append([f"{entry['task']}, {entry['text']}", *cells])
    head = ("sentences / CPU s · ours is faster by", "ours", "float32", "CTranslate2", "before")
    return markdown(head, rows)


def cpu_head_table(results: list[Result]) -> list[str]:
    """Compare the fused with the plain output layer on a CPU."""
    rows = []
    for entry in entries(results, "results"):
        cells = [
            f"{number(entry[name]['seconds'], 2)} · {number(entry[name]['peak_megabytes'])}"
            for name in ("plain", "fused")
        ]
        ratios = entry["plain/fused"]
        cells += [f"{ratios['seconds']:.2f} · {ratios['peak_megabytes']:.2f}"]
        rows.append([f"{entry['case']}, {entry['precision']}", *cells])
    return markdown(("seconds · MB", "plain", "fused", "plain / fused"), rows)


def exact_table(results: list[Result]) -> list[str]:
    """Compare exact search with one prefix at a time."""
    rows = []
    for result in results:
        device = result.get("device") or result["processor"]
        for entry in result["results"]:
            speeds = entry["states_per_second"].values()
            proved = entry["proved"].values()
            apart = entry["largest_difference"]
            rows.append(
                [
                    f"{entry['model']}, {device}",
                    *map(number, speeds),
                    f"{entry['ratio']:.1f}",
                    " / ".join(map(str, proved)),
                    "–" if apart is None else f"{apart:.1e}",
                ]
            )
    head = (
        "states/s", "expanded together", "one at a time", "ratio", "proved, of each",
        "scores differ by",
    )  # fmt: skip
    return markdown(head, rows)


def quality_table(results: list[Result]) -> list[str]:
    """Compare the development losses of training with and without what makes it fast."""
    keys = ("fast", "plain", "apart", "spread")
    rows = [
        [str(row["step"]), *(f"{row[key]:.3f}" for key in keys)]
        for row in entries(results, "comparison")
    ]
    head = ("step", "fast", "plain", "means apart", "standard deviation over seeds")
    return markdown(head, rows)


def size_of(case: dict[str, Any]) -> tuple[int, int, int]:
    """Give tokens, size and vocabulary of a case."""
    return case["tokens"], case["size"], case["vocabulary"]


def same_tokens(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give the cases with the tokens of the first, by vocabulary."""
    series = [case for case in cases if size_of(case)[:2] == size_of(cases[0])[:2]]
    return sorted(series, key=lambda case: int(case["vocabulary"]))


def percent(share: float) -> str:
    """Write a share."""
    return f"{100 * share:.1f} %"


TABLES: dict[str, tuple[str, Callable[[list[Result]], list[str]]]] = {
    "head": ("output_layer", head_table),
    "errors": ("output_layer", error_table),
    "vocabulary": ("output_layer", vocabulary_table),
    "training": ("training", training_table),
    "decoding": ("decoding", decoding_table),
    "quality": ("quality", quality_table),
    "cpu_decoding": ("cpu_decoding", decoding_table),
    "paper": ("decoding", paper_table),
    "batch": ("decoding", growth_table("batch")),
    "beam": ("decoding", growth_table("beam")),
    "length": ("decoding", growth_table("length")),
    "cpu": ("cpu_translating", cpu_table),
    "exact": ("exact", exact_table),
    "cpu_head": ("cpu_head", cpu_head_table),
}


if __name__ == "__main__":
    main()
