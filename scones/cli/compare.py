"""`scones compare`: the paper's comparison for two or more models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scones.cli.paper_flags import (
    DeviceFlag,
    DosFlag,
    JsonFlag,
    ModelsArgument,
    ReferencesFlag,
    SourceFlag,
    print_json,
)
from scones.errors import SconesError

if TYPE_CHECKING:
    from rich.table import Table

    from scones.analysis.compare import Comparison, Judged


def compare(
    models: ModelsArgument,
    source: SourceFlag,
    reference: ReferencesFlag,
    judged: Annotated[
        Path | None, typer.Option(help="JSON with all valid translations (test.json of creamtea).")
    ] = None,
    judged_dev: Annotated[
        Path | None, typer.Option(help="The same for the development set, to choose thresholds.")
    ] = None,
    dos: DosFlag = False,
    show: Annotated[int, typer.Option(help="Translations to show.")] = 5,
    device: DeviceFlag = "auto",
    output: Annotated[
        Path | None, typer.Option(help="Write all figures to this JSON file.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Compare models as the paper does: BLEU, significance, speed.

    In: models, the first of them the baseline, and a test set, which each translates greedily and
    with a beam of 4. Out: tables and some translations. Where all valid translations are known,
    also: how many of the outputs are valid, and which valid and invalid translations a model
    accepts.

        scones compare base=runs/softmax runs/scones --source test.de -r test.en
        scones compare softmax=runs/compare/softmax SCONES=runs/compare/scones \\
            --source tea/test.de -r tea/test.en \\
            --judged tea/test.json --judged-dev tea/dev.json --json
    """
    from rich.console import Console

    from scones.analysis.compare import compare as compare_models
    from scones.analysis.compare import read_judged
    from scones.files import write_json
    from scones.text.reading import read_aligned

    if output and not output.parent.is_dir():
        raise SconesError(f"{output.parent} is not a folder, so {output.name} cannot go there.")
    if judged_dev and not judged:
        raise SconesError("--judged-dev chooses thresholds for --judged; give both.")
    sources, *references = read_aligned([source, *reference], dos=dos)
    known = read_judged(judged) if judged else []
    known_dev = read_judged(judged_dev) if judged_dev else []
    result = compare_models(
        named_models(models),
        sources,
        references,
        known,
        known_dev,
        device,
        say=lambda text: typer.echo(text, err=True),
    )
    if output:
        write_json(output, result.to_json())
    if as_json:
        print_json(result.to_json())
        return
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = 120
    for table in _tables(result):
        console.print(table)
    console.print("† p < .05, ‡ p < .01 against the first system (paired bootstrap)")
    console.print(next(iter(result.bleu.values()))[0].signature)
    for index in range(min(show, len(sources))):
        _show(console.print, result, index, sources, known)


def named_models(models: list[str]) -> dict[str, Path]:
    """Name model folders: NAME=FOLDER by NAME, FOLDER by its own name."""
    named: dict[str, Path] = {}
    for argument in models:
        name, equals, path = argument.partition("=")
        if not equals or Path(argument).exists():
            name, path = Path(argument).name, argument
        if name in named:
            raise SconesError(f"Two models are called '{name}'; name them with NAME=FOLDER.")
        named[name] = Path(path)
    return named


def _tables(result: Comparison) -> list[Table]:
    from rich.table import Table

    quality = Table(title="BLEU and speed")
    quality.add_column("system")
    for search in result.bleu:
        for title in (f"BLEU, {search}", "gain", "sentences/s"):
            quality.add_column(title, justify="right")
    for index, (name, report) in enumerate(result.systems.items()):
        cells = []
        for search, scores in result.bleu.items():
            gain = 100 * (scores[index].score / max(scores[0].score, 1e-9) - 1)
            shown = "" if index == 0 else f"{gain:+.1f} %{scores[index].mark}"
            speed = report.sentences_per_second[search]
            cells += [f"{scores[index].score:.2f}", shown, f"{speed:,.0f}"]
        quality.add_row(name, *cells)
    tables = [quality]
    if any(report.valid for report in result.systems.values()):
        tables.append(_validity(result))
    return tables


def _validity(result: Comparison) -> Table:
    from rich.table import Table

    table = Table(title="All valid translations are known")
    table.add_column("system")
    for search in result.bleu:
        table.add_column(f"valid outputs, {search}", justify="right")
    for title in ("valid ones found", "invalid ones believed", "threshold P", "ROC area"):
        table.add_column(title, justify="right")
    for name, report in result.systems.items():
        cells = [f"{report.valid[search]:.1%}" for search in result.bleu]
        if (judged := report.acceptance) is not None:
            import math

            cells += [f"{judged.found:.1%}", f"{judged.believed:.1%}"]
            cells += [f"{math.exp(judged.threshold):.2g}", f"{judged.area:.4f}"]
        table.add_row(name, *cells)
    return table


def _show(
    write: Any, result: Comparison, index: int, sources: list[str], judged: list[Judged]
) -> None:
    write(f"\n{sources[index]}")
    for name, report in result.systems.items():
        text = report.hypotheses["greedy"][index]
        verdict = ""
        if index < len(judged):
            count = len(judged[index].references)
            right = text in judged[index].references
            which = "the only valid one" if count == 1 else f"one of {count} valid ones"
            verdict = f"   ({which})" if right else "   (not valid)"
        write(f"  {name:10} {text}{verdict}")
