"""`scones creamtea`: write the built-in corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scones.cli.paper_flags import JsonFlag, print_json


def creamtea(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to make.")],
    train: Annotated[int, typer.Option(help="Training pairs, one reference each.")] = 20_000,
    dev: Annotated[int, typer.Option(help="Development sentences, all references.")] = 500,
    test: Annotated[int, typer.Option(help="Test sentences, all references.")] = 1_000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same corpus.")] = 1,
    as_json: JsonFlag = False,
) -> None:
    """Write the built-in corpus, which knows all valid translations.

    Out: FOLDER with the files .de and .en of train, dev and test, German and English, one
    sentence a line, and dev.json and test.json, which list all valid translations of each
    sentence and some near misses.

        scones creamtea tea
        scones creamtea tea --train 100000 --seed 2
    """
    from scones.text.creamtea import write_corpus

    write_corpus(folder, train, dev, test, seed)
    if as_json:
        facts = {"folder": str(folder), "train": train, "dev": dev, "test": test, "seed": seed}
        print_json(facts)
        return
    typer.echo(f"{folder}: {train:,} training pairs, {dev:,} dev and {test:,} test sentences.")
