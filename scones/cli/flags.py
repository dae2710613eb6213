"""Command-line flags made from the dataclasses that recipes fill, so that both are one thing."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from scones.recipes import describe_type

DosFlag = Annotated[
    bool, typer.Option("--dos", help="Accept Windows line ends and byte-order marks.")
]


def flags_of(*classes: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command a flag for every field of `classes`; those given arrive as `flags`.

    The command takes `flags`, a dictionary from the class to {field: value}, after its own
    parameters.
    """
    generated = {field.name: cls for cls in classes for field in dataclasses.fields(cls)}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in inspect.signature(command, eval_str=True).parameters.values()
            if parameter.name != "flags"
        ]
        parameters = own + [
            _parameter(field, typing.get_type_hints(cls)[field.name])
            for cls in classes
            for field in dataclasses.fields(cls)
        ]

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


def _parameter(field: dataclasses.Field[Any], annotation: Any) -> inspect.Parameter:
    help_text = field.metadata["help"]
    if typing.get_origin(annotation) is typing.Literal:
        help_text += f"; {describe_type(annotation)}".replace("'", "")
    if field.default is not None:
        help_text += f" [{field.default}]"
    kinds = {bool: bool, int: int, float: float, Path: Path, str: str}
    kind = next(
        (kinds[part] for part in (annotation, *typing.get_args(annotation)) if part in kinds), str
    )
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[
            Optional[kind],  # noqa: UP045 - built at run time
            typer.Option(help=help_text, show_default=False),
        ],
    )
