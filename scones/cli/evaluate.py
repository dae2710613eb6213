"""`scones evaluate`: score translations against references, and compare systems."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scones.cli.flags import ReferencesFlag, answer, named_paths, table
from scones.evaluation.metrics import (
    LEARNED_METRICS,
    METRIC_NAMES,
    SACREBLEU_METRICS,
    TOKENIZERS,
)
from scones.options import argument, option

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, kw_only=True)
class Evaluate(ReferencesFlag):
    """What `scones evaluate` takes."""

    hypotheses: list[str] = argument(
        "Translations, one file per system, as FILE or NAME=FILE; - is standard input. With two or "
        "more, each is tested against the first.",
        "HYP",
    )
    metrics: list[str] = option(
        list(SACREBLEU_METRICS),
        "What to compute; may be repeated.",
        flags=("--metric", "-m"),
        values=tuple(METRIC_NAMES),
    )
    source: Path | None = option(None, "The source text, which COMET reads.")
    bleurt_checkpoint: Path | None = option(None, "The folder of a BLEURT checkpoint.")
    comet_checkpoint: Path | None = option(None, "The file of a COMET checkpoint.")
    tokenize: str = option("13a", "BLEU's tokenizer.", values=TOKENIZERS)
    # The smallest p-value is 1 / (resamples + 1); with fewer, none could fall below 0.01.
    resamples: int = option(1000, "How often the bootstrap draws.", least=100)
    seed: int = option(12345, "The seed of the bootstrap.", least=0)


def evaluate(options: Evaluate) -> None:
    """Score translations: BLEU, chrF, TER; systems by paired bootstrap.

    In: one file of translations a system, and references, as many lines each. Out: a table with a
    signature for every metric, as sacreBLEU writes them; with two systems or more also intervals
    and whether each differs from the first.

        scones evaluate -r test.en output.en
        scones evaluate -r test.en base=softmax.en scones.en -m bleu -m chrf
        scones translate runs/de < test.de | scones evaluate -r test.en - --json
    """
    from rich.console import Console

    from scones.evaluation.metrics import bleu, check_metric
    from scones.text.reading import read_aligned

    for metric in options.metrics:
        check_metric(metric)
    files = _system_files(options.hypotheses)
    source = [options.source] if options.source else []
    paths = list(dict.fromkeys([*files.values(), *options.references, *source]))
    texts = dict(zip(paths, read_aligned(paths), strict=True))
    systems = {name: texts[file] for name, file in files.items()}
    references = [texts[file] for file in options.references]
    sources = texts[options.source] if options.source else None
    rows: list[dict[str, Any]] = []
    with Console(stderr=True).status("") as status:  # TER may take ten seconds per system
        for metric in dict.fromkeys(options.metrics):
            status.update(METRIC_NAMES[metric])
            rows += _rows(metric, systems, references, sources, options)
        ratios = {
            name: bleu(lines, references, tokenize=options.tokenize).length_ratio or 0.0
            for name, lines in systems.items()
        }
    facts = {"results": rows, "length_ratios": ratios}
    answer(options.as_json, facts, *_shown(rows, ratios, options))


def _system_files(arguments: Sequence[str]) -> dict[str, Path]:
    named = ["stdin=-" if argument == "-" else argument for argument in arguments]
    files = named_paths(named, "systems", "FILE")
    standard_input = Path("/dev/stdin")
    return {name: standard_input if str(path) == "-" else path for name, path in files.items()}


def _rows(
    metric: str,
    systems: dict[str, list[str]],
    references: list[list[str]],
    sources: list[str] | None,
    options: Evaluate,
) -> list[dict[str, Any]]:
    """Score one system, or compare several; one row per system, ready for JSON."""
    from scones.evaluation.metrics import score
    from scones.evaluation.significance import paired_bootstrap

    checkpoints = {"bleurt": options.bleurt_checkpoint, "comet": options.comet_checkpoint}
    checkpoint = checkpoints.get(metric)
    settings: Any = {"tokenize": options.tokenize, "sources": sources, "checkpoint": checkpoint}
    if len(systems) == 1:
        ((system, texts),) = systems.items()
        alone = score(metric, texts, references, **settings)
        facts = {"score": alone.value, "signature": alone.signature}
        return [{"system": system, "metric": alone.name, **facts}]
    compared = paired_bootstrap(
        metric, systems, references, resamples=options.resamples, seed=options.seed, **settings
    )
    return [asdict(result) | {"mark": result.mark} for result in compared]


def _shown(
    rows: Sequence[dict[str, Any]], ratios: dict[str, float], options: Evaluate
) -> Iterator[str | Table]:
    compares = len(ratios) > 1
    columns = ["Metric", "System", "Score"]
    if compares:
        columns += ["95 % interval", "p"]
    signatures: dict[str, str] = {}
    shown: list[list[str] | None] = []
    for row in rows:
        if compares and signatures and row["metric"] not in signatures:
            shown.append(None)
        signatures[row["metric"]] = row["signature"]
        shown.append([row["metric"], row["system"], *_cells(row, compares)])
    if compares:
        shown.append(None)
    shown += [["length ratio", system, f"{ratio:.3f} "] for system, ratio in ratios.items()]
    yield table(columns, shown, text=(0, 1))
    for metric, signature in signatures.items():
        yield f"{metric}|{signature}"
    yield f"length ratio|tok:{options.tokenize}"
    if "TER" in signatures:
        yield "TER counts edits: less is better. Of the other metrics more is."
    if compares:
        yield (
            f"† p < 0.05, ‡ p < 0.01: differs from {next(iter(ratios))} "
            f"(paired bootstrap, {options.resamples:,} resamples, seed {options.seed}); without a "
            "mark it may be chance."
        )


def _cells(row: dict[str, Any], compares: bool) -> list[str]:
    # BLEURT and COMET run from about 0 to 1, the others to 100.
    digits = 4 if row["metric"] in LEARNED_METRICS.values() else 2
    # A place is kept for the mark, so that the decimal points stand below each other.
    score = f"{row['score']:.{digits}f}{row.get('mark') or ' '}"
    if not compares:
        return [score]
    return [
        score,
        f"[{row['low']:.{digits}f}, {row['high']:.{digits}f}]",
        "" if row["p"] is None else f"{row['p']:.4f}",
    ]
