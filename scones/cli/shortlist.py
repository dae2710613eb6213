"""`scones shortlist`: which target pieces go with which source pieces."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from scones.cli.paper_flags import JsonFlag, print_json
from scones.errors import SconesError


def shortlist(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="A store of scones prepare.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write.")],
    per_token: Annotated[
        int, typer.Option(help="Target pieces for each different piece of a source sentence.")
    ] = 100,
    frequent: Annotated[
        int, typer.Option(help="Target pieces for every sentence, the most frequent ones.")
    ] = 500,
    pairs: Annotated[
        int, typer.Option(help="Sentence pairs to learn from, taken evenly from the store.")
    ] = 500_000,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a file that is there.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Make a shortlist, with which a model computes few target pieces and translates sooner.

    In: the store that the model was trained on. Out: a file for scones translate --shortlist, and
    how much of the development set's translations it holds. A SCONES model gives the pieces on
    the list the scores that they have without it; a softmax model shares the whole probability
    among them, so that its scores change.

        scones shortlist data/de-en data/de-en.shortlist
        scones shortlist data/de-en short.list --per-token 50 --frequent 300
        scones translate runs/de-en --shortlist data/de-en.shortlist < input.de
    """
    from scones.search.shortlist import Shortlist
    from scones.text.store import TokenStore

    if out.is_dir():
        raise SconesError(f"{out} is a folder; name a file in it.")
    if out.exists() and not overwrite:
        raise SconesError(f"{out} exists already; choose another name or pass --overwrite.")
    opened = TokenStore.open(store)
    made = Shortlist.make(opened, per_token, frequent, pairs)
    out.parent.mkdir(parents=True, exist_ok=True)
    made.save(out)
    coverage = None
    if opened.dev_texts:
        dev = opened.split("dev")
        coverage = made.coverage((dev.source(i), dev.target(i)) for i in range(len(dev)))
    if as_json:
        facts = {"file": str(out), "bytes": out.stat().st_size, "vocabulary": made.vocabulary}
        print_json({**facts, "coverage": coverage and asdict(coverage)})
        return
    text = f"{out}: {made.vocabulary:,} pieces, {out.stat().st_size / 1e6:.1f} MB."
    if coverage:
        text += (
            f" A sentence of the development set has {coverage.size:,.0f} pieces on its list, and "
            f"{coverage.tokens:.1%} of its translation's are among them."
        )
    typer.echo(text)
