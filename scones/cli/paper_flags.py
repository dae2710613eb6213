"""Flags that commands share, and flags made from the dataclasses that recipes fill."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import math
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from scones.errors import SconesError


def choice(*names: str, values: Iterable[str], help: str, heading: str | None = None) -> Any:
    """Make an option of a few values, which its help page shows and a shell completes.

    Values are checked where they are used: a recipe and a program may be wrong about them too.
    """
    values = tuple(values)

    def complete(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    return typer.Option(
        *names,
        metavar="|".join(values),
        help=help,
        autocompletion=complete,
        rich_help_panel=heading,
    )


DosFlag = Annotated[
    bool, typer.Option("--dos", help="Accept Windows line ends and byte-order marks.")
]
DeviceFlag = Annotated[
    str, choice(values=("auto", "cpu", "cuda"), help="Where to compute; cuda:N for a certain GPU.")
]
PrecisionFlag = Annotated[
    str, choice(values=("float32", "bf16"), help="Of matrix products; bf16 is less exact.")
]
ModelsArgument = Annotated[
    list[str], typer.Argument(metavar="MODEL", help="Model folders as FOLDER or NAME=FOLDER.")
]
SourceFlag = Annotated[Path, typer.Option("--source", help="The test set's source text.")]
ReferencesFlag = Annotated[
    list[Path],
    typer.Option("--reference", "-r", metavar="FILE", help="References; may be repeated."),
]
JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print JSON, and nothing else, to standard output.")
]


def bytes_of(gigabytes: float | None) -> int | None:
    """Give a limit of memory in bytes."""
    if gigabytes is None:
        return None
    if not math.isfinite(gigabytes):
        raise SconesError(f"max_memory must be above 0 and finite, not {gigabytes}.")
    return int(gigabytes * 1e9)


def print_json(value: Any) -> None:
    """Print a value for another program to read; JSON knows no NaN, which becomes null."""
    finite = json.loads(json.dumps(value), parse_constant=lambda _: None)
    typer.echo(json.dumps(finite, indent=2, ensure_ascii=False))


def flags_of(*classes: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command a flag for every field of `classes`; those given arrive as `flags`.

    The command takes `flags`, a dictionary from the class to {field: value}, after its own
    parameters.
    """
    generated = {field.name: cls for cls in classes for field in dataclasses.fields(cls)}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in inspect.signature(command, eval_str=True).parameters.values()
            if parameter.name != "flags"
        ]
        for cls in classes:
            parameters += _parameters(cls)

        @functools.wraps(command)
        def wrapped(**values: Any) -> None:
            flags: dict[type, dict[str, Any]] = {cls: {} for cls in classes}
            for name, cls in generated.items():
                value = values.pop(name)
                if value is not None:
                    flags[cls][name] = value
            command(**values, flags=flags)

        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
        return wrapped

    return decorate


def _parameters(cls: type) -> list[inspect.Parameter]:
    """Make a parameter of each field, under the heading that begins with it or before it."""
    types = typing.get_type_hints(cls)
    parameters = []
    heading = None
    for field in dataclasses.fields(cls):
        heading = field.metadata.get("group") or heading
        parameters.append(_parameter(field, types[field.name], heading))
    return parameters


def _parameter(
    field: dataclasses.Field[Any], annotation: Any, heading: str | None
) -> inspect.Parameter:
    help_text = field.metadata["help"]
    if field.default is not None:
        help_text += f" [{_shown(field.default)}]"
    parts = typing.get_args(annotation)
    choices = parts if typing.get_origin(annotation) is typing.Literal else ()
    kinds = {bool: bool, int: int, float: float, Path: Path, str: str}
    kind = next((kinds[part] for part in (annotation, *parts) if part in kinds), str)
    if choices:
        option = choice(values=choices, help=help_text, heading=heading)
    else:
        option = typer.Option(help=help_text, rich_help_panel=heading, show_default=False)
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[Optional[kind], option],  # noqa: UP045 - built at run time
    )


def _shown(default: Any) -> str:
    return {True: "yes", False: "no"}[default] if isinstance(default, bool) else str(default)
