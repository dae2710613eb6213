"""`scones evaluate`: score translations against references, and compare systems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from scones.cli.paper_flags import DosFlag, JsonFlag, ReferencesFlag, choice, print_json
from scones.errors import SconesError
from scones.evaluation.metrics import METRIC_NAMES, SACREBLEU_METRICS, TOKENIZERS

_DEFAULT_METRICS = list(SACREBLEU_METRICS)


def evaluate(
    hypotheses: Annotated[
        list[str],
        typer.Argument(
            metavar="HYP",
            help="Translations, one file a system, as FILE or NAME=FILE; - is standard input. "
            "With two or more, each is tested against the first.",
        ),
    ],
    reference: ReferencesFlag,
    metric: Annotated[
        list[str],
        choice("--metric", "-m", values=METRIC_NAMES, help="What to compute; may be repeated."),
    ] = _DEFAULT_METRICS,
    source: Annotated[Path | None, typer.Option(help="The source text, which COMET reads.")] = None,
    bleurt_checkpoint: Annotated[
        Path | None, typer.Option(help="The folder of a BLEURT checkpoint.")
    ] = None,
    comet_checkpoint: Annotated[
        Path | None, typer.Option(help="The file of a COMET checkpoint.")
    ] = None,
    tokenize: Annotated[str, choice(values=TOKENIZERS, help="BLEU's tokenizer.")] = "13a",
    resamples: Annotated[int, typer.Option(help="How often the bootstrap draws.")] = 1000,
    seed: Annotated[int, typer.Option(help="The seed of the bootstrap.")] = 12345,
    dos: DosFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Score translations: BLEU, chrF, TER; systems by paired bootstrap.

    In: one file of translations a system, and references, as many lines each. Out: a table with a
    signature for every metric, as sacreBLEU writes them; with two systems or more also intervals
    and whether each differs from the first.

        scones evaluate -r test.en output.en
        scones evaluate -r test.en base=softmax.en scones.en -m bleu -m chrf
        scones translate runs/de < test.de | scones evaluate -r test.en - --json
    """
    from rich.console import Console

    from scones.evaluation.metrics import check_metric, length_ratio
    from scones.text.reading import read_aligned

    for key in metric:
        check_metric(key)
    files = _system_files(hypotheses)
    paths = list(dict.fromkeys([*files.values(), *reference, *([source] if source else [])]))
    texts = dict(zip(paths, read_aligned(paths, dos=dos), strict=True))
    systems = {name: texts[file] for name, file in files.items()}
    references = [texts[file] for file in reference]
    checkpoints = {"bleurt": bleurt_checkpoint, "comet": comet_checkpoint}
    rows: list[dict[str, Any]] = []
    with Console(stderr=True).status("") as status:  # TER may take ten seconds a system
        for key in dict.fromkeys(metric):
            status.update(METRIC_NAMES[key])
            rows += _rows(
                key,
                systems,
                references,
                resamples=resamples,
                seed=seed,
                tokenize=tokenize,
                sources=texts[source] if source else None,
                checkpoint=checkpoints.get(key),
            )
        ratios = {
            name: length_ratio(lines, references, tokenize=tokenize)
            for name, lines in systems.items()
        }
    if as_json:
        print_json({"results": rows, "length_ratios": ratios})
        return
    _print_table(rows, ratios, tokenize)
    if len(systems) > 1:
        typer.echo(
            f"† p < 0.05, ‡ p < 0.01: differs from {next(iter(systems))} "
            f"(paired bootstrap, {resamples:,} resamples, seed {seed})"
        )


def _system_files(arguments: Sequence[str]) -> dict[str, Path]:
    """Name the systems: NAME=FILE by NAME, FILE by its file name."""
    files: dict[str, Path] = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not equals or not name or Path(argument).exists():
            name, path = "stdin" if argument == "-" else Path(argument).name, argument
        if path == "-":
            path = "/dev/stdin"
        if name in files:
            raise SconesError(
                f"Two systems are called {name!r}; tell them apart with NAME=FILE, "
                f"for example second={path}."
            )
        files[name] = Path(path)
    return files


def _rows(
    metric: str,
    systems: dict[str, list[str]],
    references: list[list[str]],
    *,
    resamples: int,
    seed: int,
    tokenize: str,
    sources: list[str] | None,
    checkpoint: Path | None,
) -> list[dict[str, Any]]:
    """Score one system, or compare several; one row a system, ready for JSON."""
    from scones.evaluation.metrics import score
    from scones.evaluation.significance import paired_bootstrap

    if len(systems) == 1:
        ((system, texts),) = systems.items()
        alone = score(
            metric, texts, references, tokenize=tokenize, sources=sources, checkpoint=checkpoint
        )
        return [
            {
                "system": system,
                "metric": alone.name,
                "score": alone.value,
                "signature": alone.signature,
            }
        ]
    compared = paired_bootstrap(
        metric,
        systems,
        references,
        resamples=resamples,
        seed=seed,
        tokenize=tokenize,
        sources=sources,
        checkpoint=checkpoint,
    )
    return [asdict(result) | {"mark": result.mark} for result in compared]


def _print_table(rows: Sequence[dict[str, Any]], ratios: dict[str, float], tokenize: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    compares = len(ratios) > 1
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("Metric")
    table.add_column("System", overflow="fold")
    table.add_column("Score", justify="right")
    if compares:
        table.add_column("95 % interval", justify="right")
        table.add_column("p", justify="right")
    signatures: dict[str, str] = {}
    for row in rows:
        if compares and signatures and row["metric"] not in signatures:
            table.add_section()
        signatures[row["metric"]] = row["signature"]
        table.add_row(row["metric"], row["system"], *_cells(row, compares))
    if compares:
        table.add_section()
    for system, ratio in ratios.items():
        table.add_row("length ratio", system, f"{ratio:.3f} ")

    # No markup: a file name or an interval in square brackets is not a style.
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = 200
    console.print(table)
    for metric, signature in signatures.items():
        typer.echo(f"{metric}|{signature}")
    typer.echo(f"length ratio|tok:{tokenize}")


def _cells(row: dict[str, Any], compares: bool) -> list[str]:
    from scones.evaluation.metrics import LEARNED_METRICS

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
