"""`scones prepare`: parallel text to a cleaned, subword-split store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scones.cli.paper_flags import JsonFlag, print_json
from scones.errors import SconesError

if TYPE_CHECKING:
    from scones.text.prepare import PrepareConfig, Progress


_TEXT, _SUBWORDS, _CLEANING = "Text", "Subwords", "Cleaning"


def prepare(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The folder to make.")],
    source_language: Annotated[
        str | None,
        typer.Option("--source-language", "-s", help="Such as de.", rich_help_panel=_TEXT),
    ] = None,
    target_language: Annotated[
        str | None,
        typer.Option("--target-language", "-t", help="Such as en.", rich_help_panel=_TEXT),
    ] = None,
    source: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Source text, one sentence a line; may be repeated to pool corpora.",
            rich_help_panel=_TEXT,
        ),
    ] = None,
    target: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Target text, once for every --source.", rich_help_panel=_TEXT
        ),
    ] = None,
    tsv: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Text in two columns, source TAB target.", rich_help_panel=_TEXT
        ),
    ] = None,
    times: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N",
            help="How often its pairs are in the store, once for every corpus [1]",
            rich_help_panel=_TEXT,
        ),
    ] = None,
    trusted: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A source or TSV file with right pairs alone: equal texts, any language.",
            rich_help_panel=_TEXT,
        ),
    ] = None,
    dev_source: Annotated[
        Path | None, typer.Option(help="Development set, source.", rich_help_panel=_TEXT)
    ] = None,
    dev_target: Annotated[
        Path | None, typer.Option(help="Development set, target.", rich_help_panel=_TEXT)
    ] = None,
    held_out: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Text (a test set) that must not be trained on.",
            rich_help_panel=_TEXT,
        ),
    ] = None,
    dos: Annotated[
        bool | None,
        typer.Option(
            "--dos", help="Accept Windows line ends and byte-order marks.", rich_help_panel=_TEXT
        ),
    ] = None,
    pieces: Annotated[
        int | None,
        typer.Option(help="Subword pieces of both languages [32,000]", rich_help_panel=_SUBWORDS),
    ] = None,
    subwords: Annotated[
        Path | None,
        typer.Option(
            help="A SentencePiece model to use instead of learning one.",
            rich_help_panel=_SUBWORDS,
        ),
    ] = None,
    sample_megabytes: Annotated[
        int | None,
        typer.Option(
            help="Megabytes of text to learn subwords from [32]", rich_help_panel=_SUBWORDS
        ),
    ] = None,
    max_pieces: Annotated[
        int | None,
        typer.Option(help="Drop pairs with more pieces on a side [512]", rich_help_panel=_CLEANING),
    ] = None,
    max_words: Annotated[
        int | None,
        typer.Option(help="Drop pairs with more words on a side [200]", rich_help_panel=_CLEANING),
    ] = None,
    max_ratio: Annotated[
        float | None,
        typer.Option(
            help="Drop pairs with a side so many times longer [3.0]", rich_help_panel=_CLEANING
        ),
    ] = None,
    identify_language: Annotated[
        bool | None,
        typer.Option(
            "--identify-language/--any-language",
            help="Whether to drop text in other languages [yes]",
            rich_help_panel=_CLEANING,
        ),
    ] = None,
    drop_duplicates: Annotated[
        bool | None,
        typer.Option(
            "--drop-duplicates/--keep-duplicates",
            help="Whether to keep one of equal pairs only [yes]",
            rich_help_panel=_CLEANING,
        ),
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that clean [all cores]")] = None,
    overwrite: Annotated[
        bool | None, typer.Option("--overwrite", help="Replace the store if it exists.")
    ] = None,
    other: Annotated[
        Path | None,
        typer.Option(
            "--reversed",
            metavar="STORE",
            help="Take a store that is there, source and target exchanged, instead of text.",
        ),
    ] = None,
    recipe: Annotated[
        Path | None,
        typer.Option(help="A TOML file whose section [prepare] gives what no flag gives."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Clean parallel text and split it into subwords, for training.

    In: text, one sentence a line, plain or compressed (.gz, .xz, .zst). Out: STORE, what scones
    train reads, and a report of the pairs that were dropped and why, which STORE/report.json keeps.

        scones prepare store -s de -t en --source train.de --target train.en \\
            --dev-source dev.de --dev-target dev.en --held-out test.de
        scones prepare store -s de -t en --tsv pairs.tsv.gz --pieces 8000 --json
        scones prepare store --recipe recipes/multi30k.toml --overwrite
        scones prepare en-de --reversed de-en
    """
    from rich.console import Console

    from scones.text.prepare import prepare as prepare_store

    flags = {
        "source_language": source_language,
        "target_language": target_language,
        "source": source,
        "target": target,
        "tsv": tsv,
        "times": times,
        "trusted": trusted,
        "dev_source": dev_source,
        "dev_target": dev_target,
        "held_out": held_out,
        "pieces": pieces,
        "subwords": subwords,
        "sample_megabytes": sample_megabytes,
        "max_pieces": max_pieces,
        "workers": workers,
        "dos": dos,
        "overwrite": overwrite,
    }
    cleaning_flags = {
        "max_words": max_words,
        "max_ratio": max_ratio,
        "identify_language": identify_language,
        "drop_duplicates": drop_duplicates,
    }
    if other is not None:
        given = {**_given(flags), **_given(cleaning_flags), **_given({"recipe": recipe})}
        _reverse(other, store, given, as_json)
        return
    config = _config(recipe, flags, cleaning_flags)
    with _progress() as progress:
        report = prepare_store(config, store, progress)
    if as_json:
        print_json(report.to_json())
        return
    # No markup: square brackets in a sentence of the corpus are not a style.
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = 160
    console.print(report.table())


def _reverse(other: Path, store: Path, given: dict[str, Any], as_json: bool) -> None:
    """Make the store of the other direction, which nothing but --overwrite goes with."""
    from scones.text.store import reverse_store

    overwrite = given.pop("overwrite", False)
    if given:
        flag = next(iter(given)).replace("_", "-")
        raise SconesError(f"--reversed takes everything from {other}; leave out --{flag}.")
    facts = reverse_store(other, store, overwrite=overwrite)
    if as_json:
        print_json(facts)
        return
    pairs = f"{facts['splits']['train']['pairs']:,}"
    typer.echo(
        f"{store}: {facts['source_language']} → {facts['target_language']}, the {pairs} training "
        f"pairs of {other} exchanged."
    )


def _config(
    recipe: Path | None, flags: dict[str, Any], cleaning_flags: dict[str, Any]
) -> PrepareConfig:
    """What the recipe says, and over it what the flags say."""
    from scones.options import from_section, load_recipe
    from scones.text.cleaning import CleaningConfig
    from scones.text.prepare import PrepareConfig

    section = load_recipe(recipe, "prepare")["prepare"] if recipe else {}
    place = f"{recipe}, section [prepare]" if recipe else "The flags of scones prepare"
    cleaning = section.get("cleaning", {})
    if not isinstance(cleaning, dict):
        raise SconesError(f"{place}: 'cleaning' must be a section [prepare.cleaning].")
    cleaning = cleaning | _given(cleaning_flags)
    rules = from_section(CleaningConfig, cleaning, f"{place}.cleaning" if recipe else place)
    return from_section(PrepareConfig, section | _given(flags) | {"cleaning": rules}, place)


def _given(flags: dict[str, Any]) -> dict[str, Any]:
    # Typer gives an empty list for a repeatable flag that was not given.
    return {name: value for name, value in flags.items() if value not in (None, [])}


@contextmanager
def _progress() -> Iterator[Progress]:
    """A moving line on a terminal, plain lines in a log; both on standard error."""
    import time

    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if console.is_terminal:
        columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
        with Bar(*columns, console=console, transient=True) as bar:
            tasks: dict[str, Any] = {}

            def move(stage: str, pairs: int) -> None:
                if stage not in tasks:
                    for earlier in tasks.values():
                        bar.stop_task(earlier)
                    tasks[stage] = bar.add_task(stage, total=None)
                bar.update(tasks[stage], description=f"{stage}  {pairs:,} pairs")

            yield move
        return

    said = ("", 0.0)

    def say(stage: str, pairs: int) -> None:
        nonlocal said
        now = time.monotonic()
        if stage != said[0] or now - said[1] >= 10:
            said = (stage, now)
            typer.echo(f"{stage}: {pairs:,} pairs", err=True)

    yield say
