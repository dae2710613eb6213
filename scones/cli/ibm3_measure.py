"""`scones ibm3 measure`: how ambiguous translations are, by temperature."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scones.cli.flags import publish
from scones.cli.ibm3_sample import MaxLengthFlag, ModelArgument, SeedFlag, ThreadsFlag
from scones.cli.paper_flags import DosFlag, JsonFlag
from scones.errors import SconesError

if TYPE_CHECKING:
    from scones.ibm3.parameters import Parameters

_GRID = [0.1, 0.2, 0.3, 0.5, 0.7, 1.0]


def measure(
    model: ModelArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where table and plot go.")
    ],
    source: Annotated[
        Path | None, typer.Option(help="Source text to translate, one sentence a line.")
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(help="Or a store: its development set, or its training set without one."),
    ] = None,
    temperature: Annotated[
        list[float], typer.Option("--temperature", "-T", help="May be repeated.")
    ] = _GRID,
    sentences: Annotated[int, typer.Option(help="Take so many sentences, the first.")] = 2000,
    samples: Annotated[int, typer.Option(help="Translations of each sentence.")] = 10,
    seed: SeedFlag = 0,
    max_length: MaxLengthFlag = 250,
    threads: ThreadsFlag = None,
    dos: DosFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Measure how ambiguous the translations of IBM Model 3 are at each temperature.

    In: a model, and source text or a store with its pieces. Out: for each temperature the entropy
    of all choices in bits a target word, the different target words that a source word became,
    BLEU between two samples, length ratio, and the share of words that changed their order; as
    ambiguity.md (also on standard output), ambiguity.json and ambiguity.svg in the output folder.

        scones ibm3 measure de-en.ibm3 --source dev.de -o runs/ambiguity
        scones ibm3 measure de-en.ibm3 --store data/de-en -T 0.1 -T 1 -o out
    """
    from scones.analysis.figures import draw_ambiguity
    from scones.ibm3.ambiguity import Measure, markdown
    from scones.ibm3.parameters import Parameters
    from scones.version import versions

    if sentences < 1:
        raise SconesError(f"--sentences must be at least 1, not {sentences}.")
    parameters = Parameters.load(model)
    sources = _sources(parameters, source, store, sentences, dos)
    measured = Measure(parameters, sources, seed, samples, max_length, threads).over(
        temperature, lambda now: typer.echo(f"γ = {now:g}", err=True)
    )
    result: dict[str, Any] = {
        "model": str(model),
        "sources": str(source or store),
        "sentences": measured[0].counts.sentences // samples,
        "samples": samples,
        "seed": seed,
        "max_length": max_length,
        "versions": versions(),
        "rows": [row.to_json() for row in measured],
    }
    output.mkdir(parents=True, exist_ok=True)
    title = f"Ambiguity by temperature, {result['sentences']:,} sentences, {samples} samples"
    publish(
        output / "ambiguity",
        result,
        markdown(measured, title),
        lambda: draw_ambiguity(result["rows"], output / "ambiguity.svg"),
        as_json,
    )


def _sources(
    parameters: Parameters, source: Path | None, store: Path | None, sentences: int, dos: bool
) -> Any:
    """Give the first sentences, as text or as numbers."""
    import numpy as np

    from scones.ibm3.sampling import check_pieces
    from scones.text.reading import read_texts
    from scones.text.store import TokenStore

    if source is not None and store is None:
        return read_texts(source, dos=dos)[:sentences]
    if store is None or source is not None:
        raise SconesError("Give the sentences to measure by --source or by --store.")
    opened = TokenStore.open(store)
    check_pieces(opened, parameters)
    split = opened.split("train" if opened.dev_texts is None else "dev")
    return split.sources.gather(np.arange(min(sentences, len(split))))
