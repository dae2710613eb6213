"""`scones compare` and `scones analyze`: what models make of a test set, and what search misses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from scones.cli.flags import (
    DeviceFlag,
    ReferencesFlag,
    TranslatingFlags,
    answer,
    check_publishable,
    named_paths,
    progress,
    publish,
    table,
)
from scones.errors import SconesError
from scones.options import REQUIRED, argument, option

if TYPE_CHECKING:
    from rich.table import Table

    from scones.analysis.compare import Comparison, Judged


@dataclass(frozen=True, kw_only=True)
class OnTestSet(ReferencesFlag, DeviceFlag):
    """What both commands take."""

    models: list[str] = argument("Model folders as FOLDER or NAME=FOLDER.", "MODEL")
    source: Path = option(REQUIRED, "The test set's source text.")

    def folders(self) -> dict[str, Path]:
        return named_paths(self.models, "models", "FOLDER")

    def texts(self) -> list[list[str]]:
        """The sources, and behind them the references, set by set."""
        from scones.text.reading import read_aligned

        return read_aligned([self.source, *self.references])


@dataclass(frozen=True, kw_only=True)
class Compare(OnTestSet):
    """What `scones compare` takes."""

    judged: Path | None = option(None, "JSON with all valid translations (test.json of creamtea).")
    judged_dev: Path | None = option(
        None, "The same for the development set, to choose thresholds."
    )
    show: int = option(5, "Translations to show.")
    output: Path | None = option(None, "Write all figures to this JSON file.")


def compare(options: Compare) -> None:
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
    from scones.analysis.compare import compare as compare_models
    from scones.analysis.compare import read_judged
    from scones.files import check_result, write_json

    output = options.output
    if output and not output.parent.is_dir():
        raise SconesError(f"{output.parent} is not a folder, so {output.name} cannot go there.")
    if output:
        check_result(output, "systems")
    if options.judged_dev and not options.judged:
        raise SconesError("--judged-dev chooses thresholds for --judged; give both.")
    sources, *references = options.texts()
    judged = read_judged(options.judged) if options.judged else []
    judged_dev = read_judged(options.judged_dev) if options.judged_dev else []
    say = partial(typer.echo, err=True)
    result = compare_models(
        options.folders(), sources, references, judged, judged_dev, options.device, say
    )
    if output:
        write_json(output, result.to_json())
    shown: list[str | Table] = [*_tables(result)]
    shown.append("† p < .05, ‡ p < .01 against the first system (paired bootstrap)")
    shown.append(next(iter(result.bleu.values()))[0].signature)
    for index in range(min(options.show, len(sources))):
        shown += ["", sources[index], *_translations(result, index, judged)]
    answer(options.as_json, result.to_json(), *shown)


def _tables(result: Comparison) -> list[Table]:
    columns = ["system"]
    for search in result.bleu:
        columns += [f"BLEU, {search}", "gain", "sentences/s"]
    rows = []
    for index, (name, report) in enumerate(result.systems.items()):
        cells = [name]
        for search, scores in result.bleu.items():
            gain = 100 * (scores[index].score / max(scores[0].score, 1e-9) - 1)
            shown = "" if index == 0 else f"{gain:+.1f} %{scores[index].mark}"
            speed = report.sentences_per_second[search]
            cells += [f"{scores[index].score:.2f}", shown, f"{speed:,.0f}"]
        rows.append(cells)
    tables = [table(columns, rows, title="BLEU and speed")]
    if any(report.valid for report in result.systems.values()):
        tables.append(_validity(result))
    return tables


def _validity(result: Comparison) -> Table:
    columns = ["system", *(f"valid outputs, {search}" for search in result.bleu)]
    columns += ["valid ones found", "invalid ones believed", "threshold P", "ROC area"]
    rows = []
    for name, report in result.systems.items():
        cells = [name, *(f"{report.valid[search]:.1%}" for search in result.bleu)]
        if (accepted := report.acceptance) is not None:
            cells += [f"{accepted.found:.1%}", f"{accepted.believed:.1%}"]
            cells += [f"{math.exp(accepted.threshold):.2g}", f"{accepted.area:.4f}"]
        rows.append(cells)
    return table(columns, rows, title="All valid translations are known")


def _translations(result: Comparison, index: int, judged: list[Judged]) -> Iterator[str]:
    for name, report in result.systems.items():
        text = report.hypotheses["greedy"][index]
        verdict = ""
        if index < len(judged):
            count = len(judged[index].references)
            right = text in judged[index].references
            which = "the only valid one" if count == 1 else f"one of {count} valid ones"
            verdict = f"   ({which})" if right else "   (not valid)"
        yield f"  {name:10} {text}{verdict}"


@dataclass(frozen=True, kw_only=True)
class Analyze(OnTestSet, TranslatingFlags):
    """What `scones analyze` takes."""

    output: Path = option(
        REQUIRED, "Where all results go.", flags=("--output", "-o"), metavar="FOLDER"
    )
    beam_size: list[int] = option(
        [1, 2, 4, 8, 16, 32, 64],
        "May be repeated; the work grows with it, so that beams of 1,000 are for a GPU or a few "
        "sentences.",
    )
    precision: Literal["float32", "bf16"] = option(
        "float32", "Of matrix products; bf16 is less exact.", shared=True
    )
    no_exact: bool = option(False, "Beams alone, no exact search.")
    sentences: int | None = option(
        None, "Take only so many sentences, the first of the text.", least=1
    )


def analyze(options: Analyze) -> None:
    """Analyze search: beams of many sizes against exact search.

    In: models and a test set. Out: BLEU, length ratio, search errors, empty outputs,
    log-probabilities and proofs, as analysis.md (also on standard output), analysis.json and plots
    in the output folder, beside what every search gave. The same command goes on where it was
    stopped; another beam size or model can be added.

        scones analyze runs/de-en --source test.de -r test.en -o runs/analysis
        scones analyze softmax=runs/softmax SCONES=runs/scones \\
            --source test.de -r test.en --sentences 200 --max-states 100000 \\
            --beam-size 1 --beam-size 4 --beam-size 100 -o runs/analysis
    """
    from scones.analysis.analyze import Analyzer
    from scones.analysis.figures import draw
    from scones.analysis.tables import markdown

    stem = options.output / "analysis"
    check_publishable(stem, "systems")
    sources, *references = options.texts()
    with progress("sentences") as show:
        result = Analyzer(
            models=options.folders(),
            sources=sources[: options.sentences],
            references=[texts[: options.sentences] for texts in references],
            folder=options.output,
            beam_sizes=options.beam_size,
            limits=None if options.no_exact else options.exact_options(),
            device=options.device,
            precision=options.precision,
            too_long=options.too_long,
            progress=show,
        ).run()
    publish(stem, result, markdown(result), lambda: draw(result, options.output), options.as_json)
