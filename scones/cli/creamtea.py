"""`scones creamtea`: write the built-in corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def creamtea(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to make.")],
    train: Annotated[int, typer.Option(help="Training pairs, one reference each.")] = 20_000,
    dev: Annotated[int, typer.Option(help="Development sentences, all references.")] = 500,
    test: Annotated[int, typer.Option(help="Test sentences, all references.")] = 1_000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same corpus.")] = 1,
) -> None:
    """Write the built-in German–English corpus, which knows all valid translations.

    It makes train, dev and test .de/.en files and dev.json and test.json, which list for each
    sentence all valid translations and some near misses.
    """
    from scones.text.creamtea import write_corpus

    write_corpus(folder, train, dev, test, seed)
    typer.echo(f"{folder}: {train:,} training pairs, {dev:,} dev and {test:,} test sentences.")
