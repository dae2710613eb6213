"""`scones creamtea` and `scones prepare`: text, and from it a cleaned, subword-split store."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scones.cli.flags import JsonFlag, answer, progress, table
from scones.errors import SconesError
from scones.options import Given, argument, load_recipe, option
from scones.text.cleaning import PrepareConfig


@dataclass(frozen=True, kw_only=True)
class CreamTea(JsonFlag):
    """What `scones creamtea` takes."""

    folder: Path = argument("The folder to make.", "FOLDER")
    train: int = option(20_000, "Training pairs, one reference each.", least=0)
    dev: int = option(500, "Development sentences, all references.", least=0)
    test: int = option(1_000, "Test sentences, all references.", least=0)
    seed: int = option(1, "The same seed gives the same corpus.")


def creamtea(options: CreamTea) -> None:
    """Write the built-in corpus, which knows all valid translations.

    Out: FOLDER with the files .de and .en of train, dev and test, German and English, one
    sentence per line, and dev.json and test.json, which list all valid translations of each
    sentence and some near misses.

        scones creamtea tea
        scones creamtea tea --train 100000 --seed 2
    """
    from scones.text.creamtea import write_corpus

    write_corpus(options.folder, options.train, options.dev, options.test, options.seed)
    facts = dataclasses.asdict(options) | {"folder": str(options.folder)}
    del facts["as_json"]
    text = (
        f"{options.folder}: {options.train:,} training pairs, {options.dev:,} dev and "
        f"{options.test:,} test sentences."
    )
    answer(options.as_json, facts, text)


@dataclass(frozen=True, kw_only=True)
class Prepare(JsonFlag):
    """What `scones prepare` takes."""

    store: Path = argument("The folder to make.", "STORE")
    config: Given[PrepareConfig]
    reversed_store: Path | None = option(
        None,
        "Take a store that is there, source and target exchanged, instead of text.",
        "Options",
        flags=("--reversed",),
        metavar="STORE",
    )
    recipe: Path | None = option(
        None, "A TOML file whose section [prepare] gives what no flag gives."
    )
    like: Path | None = option(
        None,
        "Take subwords and, unless they are given, languages of a model, to train it further.",
        metavar="MODEL",
    )


def prepare(options: Prepare) -> None:
    """Clean parallel text and split it into subwords, for training.

    In: text, one sentence per line, plain or compressed (.gz, .xz, .zst). Out: STORE, what scones
    train reads, and a report of the pairs that were dropped and why, which STORE/report.json keeps.

        scones prepare store -s de -t en --source train.de --target train.en \\
            --dev-source dev.de --dev-target dev.en --held-out test.de
        scones prepare store -s de -t en --tsv pairs.tsv.gz --pieces 8000 --json
        scones prepare store --recipe recipes/multi30k.toml --overwrite
        scones prepare en-de --reversed de-en
        scones prepare shop --like pocket-de-en --tsv shop.tsv
    """
    from scones.text.prepare import prepare as prepare_store

    if options.reversed_store is not None:
        _reverse(options.reversed_store, options)
        return
    section = load_recipe(options.recipe, "prepare")["prepare"]
    if options.like is not None:
        section = {**section, **_like(options.like, options.config.values)}
    origin = f"{options.recipe}, section [prepare]" if options.recipe else "The command line"
    config = options.config.over(section, origin)
    with progress("pairs") as show:
        report = prepare_store(config, options.store, show)
    answer(
        options.as_json,
        report.to_json(),
        table(*report.pair_table(), text=(0, 3), total=True),
        table(*report.stage_table(), total=True),
        *report.notes,
    )


def _like(model: Path, given: dict[str, Any]) -> dict[str, Any]:
    """What a store shares with the one that a model was trained on."""
    from scones.model.folder import SUBWORDS, FolderConfig

    for name in given.keys() & {"pieces", "subwords"}:
        raise SconesError(f"--like takes its subwords from {model}; leave out --{name}.")
    config = FolderConfig.read(model)
    languages = config.facts.source_language, config.facts.target_language
    shared = {"subwords": config.folder / SUBWORDS}
    return shared | dict(zip(("source_language", "target_language"), languages, strict=True))


def _reverse(other: Path, options: Prepare) -> None:
    """Make the store of the other direction, which nothing but --overwrite goes with."""
    from scones.text.store import reverse_store

    given = dict(options.config.values)
    given |= {name: True for name in ("recipe", "like") if getattr(options, name)}
    given |= given.pop("cleaning", {})
    overwrite = given.pop("overwrite", False)
    if given:
        flag = next(iter(given)).replace("_", "-")
        raise SconesError(f"--reversed takes everything from {other}; leave out --{flag}.")
    facts = reverse_store(other, options.store, overwrite=overwrite)
    pairs = f"{facts['splits']['train']['pairs']:,}"
    text = (
        f"{options.store}: {facts['source_language']} → {facts['target_language']}, the {pairs} "
        f"training pairs of {other} exchanged."
    )
    answer(options.as_json, facts, text)
