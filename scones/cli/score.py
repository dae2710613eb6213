"""`scones score`: the log-probability of given translations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from scones.cli.flags import DeviceFlag, DosFlag


def score(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A model folder, or a pocket model's name.")
    ],
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="Sentences, one a line.")],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="Their translations.")],
    max_tokens: Annotated[int, typer.Option(help="Padded tokens of a batch.")] = 8192,
    device: DeviceFlag = "auto",
    dos: DosFlag = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object a line, with every token's term.")
    ] = False,
) -> None:
    """Print the log-probability of given translations, one a line.

    In: SOURCE and TARGET, as many lines each. Out: log P(z = 1 | x) of each pair, in order; with
    --json an object a line, which holds the terms of all tokens too.

        scones score runs/de-en test.de test.en > scores.txt
        scones score runs/de-en test.de test.en --json > scores.jsonl
    """
    import math

    from scones.text.reading import read_aligned
    from scones.translator import load

    sources, targets = read_aligned([source, target], dos=dos)
    translator = load(model, device)
    for terms in translator.score_tokens(list(zip(sources, targets, strict=True)), max_tokens):
        log_prob = math.fsum(terms)
        if as_json:
            facts = {
                "log_prob": log_prob,
                "probability": math.exp(log_prob),
                "token_log_probs": terms,
            }
            typer.echo(json.dumps(facts))
        else:
            typer.echo(f"{log_prob:.6f}")
