"""`scones export`: a model in another form, for another engine or for little room."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from scones.cli.paper_flags import DosFlag, JsonFlag, choice, print_json
from scones.errors import SconesError

_FORMS = ("ctranslate2", "pocket", "huggingface")


def export(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A model folder, or a pocket model's name.")
    ],
    out: Annotated[
        Path | None,
        typer.Argument(metavar="[OUT]", help="The folder to write [MODEL-ctranslate2, beside it]"),
    ] = None,
    to: Annotated[
        str,
        choice(
            values=_FORMS,
            help="The form; pocket: a quarter of the size, for scones alone; huggingface: a model "
            "folder in full, also of a pocket model.",
        ),
    ] = "ctranslate2",
    quantization: Annotated[
        str | None,
        choice(
            values=("float32", "int8", "float16", "bfloat16"),
            help="How CTranslate2 stores the weights [float32]; int8: a quarter of the size, "
            "faster, not quite exact.",
        ),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(
            help="Sentences, one a line, whose translations by CTranslate2 to compare; else "
            "random pieces."
        ),
    ] = None,
    card: Annotated[
        Path | None,
        typer.Option(
            help="A JSON file of what the model card tells (pocket, huggingface): name, licence, "
            "data, tests, signature, limits."
        ),
    ] = None,
    dos: DosFlag = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an export that is there.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Write a model for another engine, or small, and compare it with the model itself.

    In: a model folder. Out: a folder that scones translate opens. For CTranslate2, which opens it
    without scones too: how many greedy translations are those of the model; in float32 it is
    written only if rounding explains every difference. As a pocket model: its size, and how far a
    weight is off at most.

        scones export runs/de-en --to ctranslate2 --check test.de
        scones export runs/de-en exports/de-en --quantization int8
        scones translate exports/de-en < input.de > output.en
        scones export runs/de-en pocket/de-en --to pocket
    """
    if to not in _FORMS:
        raise SconesError(f"--to {to} is not known; use {', '.join(_FORMS)}.")
    suffix = f"-{quantization}" if quantization not in (None, "float32") else ""
    out = out or model.with_name(f"{model.name}-{to}{suffix}")
    if to == "ctranslate2":
        if card:
            raise SconesError("--card goes with --to pocket and huggingface; leave it out.")
        _for_ctranslate2(model, out, quantization or "float32", check, dos, overwrite, as_json)
        return
    if quantization or check:
        raise SconesError(f"--quantization and --check go with CTranslate2, not with --to {to}.")
    _as_folder(model, out, to, card, overwrite, as_json)


def _for_ctranslate2(
    model: Path,
    out: Path,
    quantization: str,
    check: Path | None,
    dos: bool,
    overwrite: bool,
    as_json: bool,
) -> None:
    from scones.bridges.ctranslate2 import export as export_model
    from scones.text.reading import read_texts

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


def _as_folder(
    model: Path, out: Path, to: str, card: Path | None, overwrite: bool, as_json: bool
) -> None:
    from scones.files import read_json
    from scones.model.card import check_told
    from scones.model.folder import store_again

    told = check_told(read_json(card), str(card)) if card else {}
    storage = "int8" if to == "pocket" else "float32"
    done = store_again(model, out, storage, told, overwrite=overwrite)  # type: ignore[arg-type]
    if as_json:
        print_json({**asdict(done), "folder": str(done.folder)})
        return
    typer.echo(
        f"{out}: {done.parameters:,} weights in {storage}, {done.bytes / 1e6:.2f} MB on disk; "
        f"largest error of a weight {done.largest_error:.2g}."
    )
