"""`scones ibm3 fit` and `scones ibm3 import`: text, or the tables of GIZA++, to a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scones.cli.paper_flags import DosFlag, JsonFlag, flags_of, print_json
from scones.errors import SconesError
from scones.ibm3.parameters import Cut, FitOptions

if TYPE_CHECKING:
    from scones.ibm3.fitting import FilePairs, Progress, StorePairs
    from scones.ibm3.report import Example, FitReport

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="The folder to make.")]
SubwordsFlag = Annotated[
    Path | None, typer.Option(help="The SentencePiece model whose pieces are the words.")
]
ShowFlag = Annotated[
    int, typer.Option(help="Show the translations of so many frequent source words.")
]
OverwriteFlag = Annotated[
    bool, typer.Option("--overwrite", help="Replace the folder if it exists.")
]


@flags_of(FitOptions)
def fit(
    model: ModelArgument,
    store: Annotated[
        Path | None, typer.Option(help="A store of scones prepare, whose pieces are the words.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option(help="Without a store: source text, one sentence a line.")
    ] = None,
    target: Annotated[Path | None, typer.Option(help="And its translation.")] = None,
    subwords: SubwordsFlag = None,
    dos: DosFlag = False,
    pairs: Annotated[
        int | None, typer.Option(help="Fit to so many pairs, taken evenly from all.")
    ] = None,
    show: ShowFlag = 20,
    overwrite: OverwriteFlag = False,
    as_json: JsonFlag = False,
    *,
    flags: dict[type, dict[str, Any]],
) -> None:
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
    from scones.ibm3.report import frequent_words

    options = FitOptions(**flags[FitOptions])
    _check_new(model, overwrite)
    corpus = _corpus(store, source, target, subwords, pairs, dos)
    with _progress() as progress:
        parameters, report = fit_model(
            corpus, corpus.source_words, corpus.target_words, options, progress, corpus.subwords
        )
    parameters.save(model, overwrite=overwrite)
    _show(model, frequent_words(parameters, report.source_counts, show), as_json, report)


def import_tables(
    prefix: Annotated[
        Path, typer.Argument(metavar="PREFIX", help="What the tables' names begin with.")
    ],
    model: ModelArgument,
    source_vocabulary: Annotated[
        Path, typer.Option(help="The .vcb file of the language of GIZA's flag -S.")
    ],
    target_vocabulary: Annotated[
        Path, typer.Option(help="The .vcb file of the language of GIZA's flag -T.")
    ],
    subwords: SubwordsFlag = None,
    threshold: Annotated[float, typer.Option(help="Least probability of t and n kept.")] = 1e-4,
    best: Annotated[int, typer.Option(help="Translations of a word kept at most.")] = 200,
    show: ShowFlag = 20,
    overwrite: OverwriteFlag = False,
    as_json: JsonFlag = False,
) -> None:
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
    from scones.ibm3.report import frequent_words
    from scones.text.subwords import Subwords

    _check_new(model, overwrite)
    pieces = Subwords.load(subwords) if subwords else None
    cut = Cut(threshold, best)
    parameters, counts = read_tables(prefix, source_vocabulary, target_vocabulary, pieces, cut)
    parameters.save(model, overwrite=overwrite)
    _show(model, frequent_words(parameters, counts, show), as_json)


def _corpus(
    store: Path | None,
    source: Path | None,
    target: Path | None,
    subwords: Path | None,
    pairs: int | None,
    dos: bool,
) -> StorePairs | FilePairs:
    from scones.ibm3.fitting import FilePairs, StorePairs
    from scones.text.store import TokenStore
    from scones.text.subwords import Subwords

    if pairs is not None and pairs < 1:
        raise SconesError(f"--pairs is {pairs}; it must be at least 1.")
    if store and not source and not target and not subwords:
        return StorePairs(TokenStore.open(store), pairs)
    if source and target and not store:
        pieces = Subwords.load(subwords) if subwords else None
        return FilePairs(source, target, pieces, pairs, dos)
    raise SconesError("Give either --store, or --source and --target (and --subwords).")


def _check_new(model: Path, overwrite: bool) -> None:
    # Before the work, which takes long; saving checks again.
    if model.exists() and not overwrite:
        raise SconesError(f"{model} exists already; choose another name or pass --overwrite.")


def _show(
    model: Path, words: list[Example], as_json: bool, report: FitReport | None = None
) -> None:
    from rich.console import Console

    from scones.ibm3.report import word_table

    if as_json:
        facts = report.to_json() if report else {}
        print_json({"model": str(model), **facts, "words": dict(words)})
        return
    # No markup: square brackets in a word are not a style.
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = 160
    if report:
        console.print(report.tables())
    if words:
        console.print(word_table(words))


@contextmanager
def _progress() -> Iterator[Progress]:
    """A moving line on a terminal, plain lines in a log; both on standard error."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:

        def say(stage: str, done: int, total: int) -> None:
            if total:
                typer.echo(f"{stage}: iteration {done} of {total}", err=True)

        yield say
        return
    with console.status("read") as status:

        def move(stage: str, done: int, total: int) -> None:
            status.update(
                f"{stage}  iteration {done + 1} of {total}" if total else f"{stage}  {done:,} pairs"
            )

        yield move
