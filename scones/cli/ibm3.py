"""Make languages with a dial for ambiguity: IBM Model 3.

It tells how a sentence of one language comes from one of another, word by word. Fitted to real text
it can be asked for translations that are only like English, at a temperature that decides how many
ways there are to say the same:

    scones ibm3 fit de-en.ibm3 --store data/de-en
    scones ibm3 measure de-en.ibm3 --store data/de-en -o de-en.ambiguity
    scones ibm3 sample de-en.ibm3 --temperature 0.3 < input.de > output.txt
    scones ibm3 sample de-en.ibm3 -T 0.3 --store data/de-en --output data/new
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from scones.cli.flags import (
    CommandGroup,
    JsonFlag,
    OverwriteFlag,
    answer,
    check_publishable,
    progress,
    publish,
    table,
)
from scones.errors import SconesError
from scones.ibm3.options import GRID, Cut, FitOptions, MeasureOptions, SampleOptions
from scones.options import REQUIRED, argument, option

if TYPE_CHECKING:
    from rich.table import Table

    from scones.ibm3.fitting import FilePairs, FitReport, StorePairs
    from scones.ibm3.parameters import Parameters
    from scones.ibm3.sampling import Sampler


@dataclass(frozen=True, kw_only=True)
class NewModel(OverwriteFlag, JsonFlag):
    """What both commands take that make a model."""

    subwords: Path | None = option(None, "The SentencePiece model whose pieces are the words.")
    show: int = option(20, "Show the translations of so many frequent source words.")


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """What both commands take that use a model."""

    model: Path = argument("A folder of scones ibm3 fit or import.", "MODEL")


@dataclass(frozen=True, kw_only=True)
class Fit(NewModel):
    """What `scones ibm3 fit` takes."""

    model: Path = argument("The folder to make.", "MODEL")
    store: Path | None = option(None, "A store of scones prepare, whose pieces are the words.")
    source: Path | None = option(None, "Without a store: source text, one sentence per line.")
    target: Path | None = option(None, "And its translation.")
    pairs: int | None = option(None, "Fit to so many pairs, taken evenly from all.", least=1)
    fit: FitOptions


def fit(options: Fit) -> None:
    """Fit IBM Model 3: how target words come from source words.

    In: a store, or two text files, plain or compressed, that are split by --subwords, or at
    spaces if they are tokenised already. Out: MODEL, what scones ibm3 sample reads; how long each
    stage took, and how probable the text was after each iteration; the most probable translations
    of frequent words, for a look. OMP_NUM_THREADS limits the cores.

        scones ibm3 fit de-en.ibm3 --store data/de-en
        scones ibm3 fit de-en.ibm3 --source train.de --target train.en \\
            --subwords subwords.model
        scones ibm3 fit de-en.ibm3 --store data/de-en --pairs 500000 --ibm3 10
    """
    from scones.ibm3.fitting import fit as fit_model
    from scones.ibm3.parameters import KIND

    KIND.check(options.model, options.overwrite)  # before the work, which takes long
    corpus = _corpus(options)
    with progress("done") as show:

        def show_stage(stage: str, done: int, total: int) -> None:
            show(f"{stage} iterations" if total else "pairs read", done, total)

        words = corpus.source_words, corpus.target_words
        parameters, report = fit_model(corpus, *words, options.fit, show_stage, corpus.subwords)
    parameters.save(options.model, overwrite=options.overwrite)
    _show(options, parameters, report.source_counts, report)


@dataclass(frozen=True, kw_only=True)
class Import(NewModel):
    """What `scones ibm3 import` takes."""

    prefix: Path = argument("What the tables' names begin with.", "PREFIX")
    model: Path = argument("The folder to make.", "MODEL")
    source_vocabulary: Path = option(REQUIRED, "The .vcb file of the language of GIZA's flag -S.")
    target_vocabulary: Path = option(REQUIRED, "The .vcb file of the language of GIZA's flag -T.")
    cut: Cut


def import_tables(options: Import) -> None:
    """Make an IBM Model 3 of the tables of GIZA++ or MGIZA.

    In: PREFIX.t3.final, PREFIX.n3.final, PREFIX.d3.final and PREFIX.p0_3.final, and the two
    vocabularies. The language that is given, that of scones ibm3 sample's input, is GIZA's source.
    Out: MODEL, what scones ibm3 sample reads.

        scones ibm3 import run/de-en de-en.ibm3 \\
            --source-vocabulary de.vcb --target-vocabulary en.vcb
        scones ibm3 import run/de-en de-en.ibm3 --source-vocabulary de.vcb \\
            --target-vocabulary en.vcb --subwords subwords.model
    """
    from scones.ibm3.giza import import_tables as read_tables
    from scones.ibm3.parameters import KIND
    from scones.text.subwords import Subwords

    KIND.check(options.model, options.overwrite)
    vocabularies = options.source_vocabulary, options.target_vocabulary
    subwords = Subwords.load(options.subwords) if options.subwords else None
    parameters, counts = read_tables(options.prefix, *vocabularies, subwords, options.cut)
    parameters.save(options.model, overwrite=options.overwrite)
    _show(options, parameters, counts)


def _corpus(options: Fit) -> StorePairs | FilePairs:
    from scones.ibm3.fitting import FilePairs, StorePairs
    from scones.text.store import TokenStore
    from scones.text.subwords import Subwords

    source, target, subwords = options.source, options.target, options.subwords
    if options.store and not source and not target and not subwords:
        return StorePairs(TokenStore.open(options.store), options.pairs)
    if source and target and not options.store:
        pieces = Subwords.load(subwords) if subwords else None
        return FilePairs(source, target, pieces, options.pairs)
    raise SconesError("Give either --store, or --source and --target (and --subwords).")


def _show(
    options: Fit | Import, parameters: Parameters, counts: Any, report: FitReport | None = None
) -> None:
    words = parameters.frequent_words(counts, options.show)
    facts = report.to_json() if report else {}
    facts = {"model": str(options.model), **facts, "words": dict(words)}
    tables = list(_report_tables(report)) if report else []
    if words:
        shown = [
            (word, "  ".join(f"{text} {prob:.3f}" for text, prob in translations))
            for word, translations in words
        ]
        tables.append(table(("source word", "most probable translations"), shown, text=(0, 1)))
    answer(options.as_json, facts, *tables)


def _report_tables(report: FitReport) -> Iterator[Table]:
    stages = [
        (stage.name, f"{stage.seconds:,.1f}", "  ".join(f"{p:.3f}" for p in stage.log_probs))
        for stage in report.stages
    ]
    total = sum(stage.seconds for stage in report.stages)
    heads = "stage", "seconds", "log-probability a word, after each iteration"
    yield table(heads, [*stages, ("total", f"{total:,.1f}", "")], total=True)
    left_out = {f"left out, {reason}": count for reason, count in report.left_out.items()}
    numbers = {"pairs": report.pairs, **left_out, **report.sizes}
    facts = [(name, f"{number:,}") for name, number in numbers.items()]
    facts += [(f"pruned of {name}", f"{share:.3%}") for name, share in report.lost.items()]
    facts.append(("peak memory", f"{report.peak_memory / 1e6:,.0f} MB"))
    yield table(("of the fit", ""), facts)


@dataclass(frozen=True, kw_only=True)
class Sample(Fitted, OverwriteFlag):
    """What `scones ibm3 sample` takes."""

    temperature: float = option(
        1.0,
        "γ: near 0 only what is most probable; 1 is the model.",
        flags=("--temperature", "-T"),
    )
    sampling: SampleOptions
    store: Path | None = option(None, "Translate the sources of a store instead of a text.")
    output: Path | None = option(
        None, "The store to make.", flags=("--output", "-o"), metavar="STORE"
    )
    pairs: int | None = option(
        None, "Take only so many training pairs of the store, the first.", least=1
    )
    report: Path | None = option(None, "Write what became of all sentences here.", metavar="FILE")


def sample(options: Sample) -> None:
    """Sample translations from IBM Model 3, as random as the temperature says.

    In: one sentence per line, split as the model's text was: by its subwords, or at spaces. Out: a
    translation a line, empty where there is none. Or in: a store with the model's pieces; out: a
    store with the same sources, their translations sampled, for scones train; pairs without a
    translation are left out. How many had none, and why, is said at the end.

        scones ibm3 sample de-en.ibm3 --temperature 0.5 < input.de > output.en
        scones ibm3 sample de-en.ibm3 -T 0.3 --store data/de-en --output data/new
    """
    from scones.files import check_result, write_json
    from scones.ibm3.parameters import Parameters
    from scones.ibm3.sampling import Sampler, sample_store

    store, output, pairs = options.store, options.output, options.pairs
    if (store is None) != (output is None):
        raise SconesError("--store and --output belong together; give both or neither.")
    if store is None and (options.overwrite or pairs is not None):
        raise SconesError("--pairs and --overwrite are for a store; give --store and --output.")
    if options.report is not None:
        check_result(options.report, "splits")
    parameters = Parameters.load(options.model)
    sampler = Sampler(parameters, options.temperature, **asdict(options.sampling))
    if store is None or output is None:
        found = _sample_text(sampler)
    else:
        with progress("pairs") as show:
            found = sample_store(
                store, sampler, output, pairs=pairs, overwrite=options.overwrite, progress=show
            )
    if options.report is not None:
        options.report.parent.mkdir(parents=True, exist_ok=True)
        write_json(options.report, found)
    for name, counts in found["splits"].items():
        typer.echo(f"{name}: {_sentence(counts)}", err=True)


def _sample_text(sampler: Sampler) -> dict[str, Any]:
    """Translate standard input to standard output; gives the report."""
    from scones.ibm3.sampling import Counts
    from scones.text.reading import chunks_of_lines

    counts = Counts()
    for lines in chunks_of_lines(sys.stdin.buffer, sampler.chunk):
        texts = sampler.sample_texts([text for _, text in lines], lines[0][0] - 1, counts)
        sys.stdout.buffer.write("".join(f"{text}\n" for text in texts).encode())
        sys.stdout.flush()
    return sampler.facts() | {"splits": {"text": asdict(counts)}}


def _sentence(counts: dict[str, int]) -> str:
    """Say what became of the sentences, in words; what did not happen is not said."""
    reasons = {
        "source_too_long": "{:,} too long",
        "target_too_long": "{:,} with a translation that is always too long",
        "empty": "{:,} without a word to translate",
    }
    said = f"{counts['translated']:,} of {counts['sentences']:,} sentences translated"
    why = [text.format(counts[name]) for name, text in reasons.items() if counts[name]]
    said += f" ({', '.join(why)})" if why else ""
    copied, dropped = counts["never_seen_and_copied"], counts["never_seen_and_dropped"]
    if copied or dropped:
        said += (
            f"; of {counts['source_words']:,} words {copied + dropped:,} were never seen, "
            f"{copied:,} of them copied, {dropped:,} dropped"
        )
    return f"{said}."


@dataclass(frozen=True, kw_only=True)
class Measure(Fitted, JsonFlag):
    """What `scones ibm3 measure` takes."""

    output: Path = option(
        REQUIRED, "Where table and plot go.", flags=("--output", "-o"), metavar="FOLDER"
    )
    source: Path | None = option(None, "Source text to translate, one sentence per line.")
    store: Path | None = option(
        None, "Or a store: its development set, or its training set without one."
    )
    temperature: list[float] = option(
        list(GRID), "May be repeated.", flags=("--temperature", "-T"), metavar="NUMBER"
    )
    sentences: int = option(2000, "Take so many sentences, the first.", least=1)
    measuring: MeasureOptions


def measure(options: Measure) -> None:
    """Measure how ambiguous the translations of IBM Model 3 are at each temperature.

    In: a model, and source text or a store with its pieces. Out: for each temperature the entropy
    of all choices in bits a target word, the different target words that a source word became,
    BLEU between two samples, length ratio, and the share of words that changed their order; as
    ambiguity.md (also on standard output), ambiguity.json and ambiguity.svg in the output folder.

        scones ibm3 measure de-en.ibm3 --source dev.de -o runs/ambiguity
        scones ibm3 measure de-en.ibm3 --store data/de-en -T 0.1 -T 1 -o out
    """
    from scones.analysis.figures import ambiguity, save
    from scones.files import versions
    from scones.ibm3.ambiguity import markdown, measure_over
    from scones.ibm3.parameters import Parameters

    measuring, stem = options.measuring, options.output / "ambiguity"
    check_publishable(stem, "rows")
    parameters = Parameters.load(options.model)
    measured = measure_over(
        parameters,
        _sources(options, parameters),
        options.temperature,
        measuring,
        lambda now: typer.echo(f"γ = {now:g}", err=True),
    )
    result: dict[str, Any] = {
        "model": str(options.model),
        "sources": str(options.source or options.store),
        "sentences": measured[0].counts.sentences // measuring.samples,
        "samples": measuring.samples,
        "seed": measuring.seed,
        "max_length": measuring.max_length,
        "versions": versions(),
        "rows": [row.to_json() for row in measured],
    }
    options.output.mkdir(parents=True, exist_ok=True)
    sizes = f"{result['sentences']:,} sentences, {measuring.samples} samples"
    tables = markdown(measured, f"Ambiguity by temperature, {sizes}")
    plot = stem.with_suffix(".svg")
    publish(stem, result, tables, lambda: save(plot, ambiguity, result["rows"]), options.as_json)


def _sources(options: Measure, parameters: Parameters) -> Any:
    """The first sentences, as text or as numbers."""
    import numpy as np

    from scones.ibm3.sampling import check_pieces
    from scones.text.reading import read_texts
    from scones.text.store import TokenStore

    source, store = options.source, options.store
    if source is not None and store is None:
        return read_texts(source)[: options.sentences]
    if store is None or source is not None:
        raise SconesError("Give the sentences to measure by --source or by --store.")
    opened = TokenStore.open(store)
    check_pieces(opened, parameters)
    split = opened.split("train" if opened.dev_texts is None else "dev")
    return split.sources.gather(np.arange(min(options.sentences, len(split))))


ibm3 = CommandGroup(
    __doc__, {"fit": fit, "import": import_tables, "sample": sample, "measure": measure}
)
