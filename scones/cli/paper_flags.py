"""Flags of the paper's commands, which are functions whose parameters Typer reads."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from scones.cli.commands import completion


def choice(*names: str, values: Iterable[str], help: str) -> Any:
    """An option of a few values, which its help page shows and a shell completes."""
    values = tuple(values)
    return typer.Option(
        *names, metavar="|".join(values), help=help, autocompletion=completion(values)
    )


DosFlag = Annotated[
    bool, typer.Option("--dos", help="Accept Windows line ends and byte-order marks.")
]
DeviceFlag = Annotated[
    str, choice(values=("auto", "cpu", "cuda"), help="Where to compute; cuda:N for a certain GPU.")
]
SourceFlag = Annotated[Path, typer.Option("--source", help="The test set's source text.")]
JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print JSON, and nothing else, to standard output.")
]
