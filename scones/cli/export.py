"""`scones export`: a model for another engine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from scones.cli.flags import DosFlag, JsonFlag, choice, print_json
from scones.errors import SconesError


def export(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder.")],
    out: Annotated[
        Path | None,
        typer.Argument(metavar="[OUT]", help="The folder to write [MODEL-ctranslate2, beside it]"),
    ] = None,
    to: Annotated[str, choice(values=("ctranslate2",), help="The engine.")] = "ctranslate2",
    quantization: Annotated[
        str,
        choice(
            values=("float32", "int8", "float16", "bfloat16"),
            help="How to store the weights; int8: a quarter of the size, faster, not quite exact.",
        ),
    ] = "float32",
    check: Annotated[
        Path | None,
        typer.Option(help="Sentences, one a line, to compare translations of; else random pieces."),
    ] = None,
    dos: DosFlag = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an export that is there.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Write a model for another engine, checked against the model itself.

    In: a model folder. Out: a folder that scones translate and, without scones, CTranslate2 open;
    and how many greedy translations are those of the model. In float32 it is written only if
    rounding explains every difference.

        scones export runs/de-en --to ctranslate2 --check test.de
        scones export runs/de-en exports/de-en --quantization int8
        scones translate exports/de-en < input.de > output.en
    """
    from scones.bridges.ctranslate2 import export as export_model
    from scones.text.reading import read_texts

    if to != "ctranslate2":
        raise SconesError(f"--to {to} is not known; use ctranslate2.")
    if out is None:
        suffix = "" if quantization == "float32" else f"-{quantization}"
        out = model.with_name(f"{model.name}-{to}{suffix}")
    sentences = read_texts(check, dos=dos) if check else []
    done = export_model(model, out, quantization, sentences, overwrite=overwrite)
    if as_json:
        print_json({**asdict(done), "folder": str(done.folder)})
        return
    found = done.check
    kind = "sentences" if check else "random sentences (--check takes real ones)"
    typer.echo(
        f"{out}: CTranslate2, {quantization}, {done.bytes / 1e6:.1f} MB. Greedy translations of "
        f"{found.sentences:,} {kind}: {found.equal:,} are the model's own, {found.near_ties:,} "
        f"differ by a near tie; largest logit difference {found.largest_logit_difference:.2g}."
    )
