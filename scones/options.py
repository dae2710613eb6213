"""Options: plain dataclasses that recipes and the command line fill.

A section of a recipe, a TOML file (`[prepare]`, `[model]`, `[output]`, `[train]`), fills one
dataclass; one whose entries have names of their own (`[systems]`, `[tests]`) fills a dataclass an
entry. A field that is a flag too is declared by `option` or `argument`, with its help text and its
bounds, so that recipe key, command-line flag and documentation are one thing (`scones.cli.commands`
makes the flags). All problems of a section are said at once.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from scones.errors import SconesError

Options = TypeVar("Options")

SECTIONS = (
    "prepare",
    "model",
    "output",
    "train",
    "systems",
    "tests",
    "search",
    "speed",
    "left_out",
)


REQUIRED = dataclasses.MISSING
"""The default of an option that has to be given."""


def option(
    default: Any,
    help: str,
    group: str | None = None,
    *,
    flags: tuple[str, ...] = (),
    metavar: str | None = None,
    values: tuple[str, ...] = (),
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    shared: bool = False,
    only: tuple[str, ...] = (),
    positional: bool = False,
) -> Any:
    """A dataclass field with its default, its help text and its bounds; a list default is copied.

    `group` is a heading in `--help`: of this field and those behind it, up to the next heading.
    `flags` are its names on the command line where they are not `--field-name`, or for a bool that
    is not off by default `--field-name/--no-field-name`. `values` are offered, but others are taken
    too; a field that takes nothing else has a `Literal` type. What is `shared` by many commands
    stands last in `--help`. A flag that means something for some values of another field alone
    names that field and those values in `only`. `positional` is what `argument` makes.
    """
    bounds = {"least": least, "most": most, "above": above, "below": below}
    metadata: dict[str, Any] = {"help": help, "group": group, "bounds": bounds}
    metadata |= {"flags": flags, "metavar": metavar, "values": values, "shared": shared}
    metadata |= {"only": only, "positional": positional}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def argument(help: str, metavar: str, default: Any = REQUIRED) -> Any:
    """A dataclass field that stands on the command line without a flag; a list takes them all."""
    return option(default, help, metavar=metavar, positional=True)


class Given(Generic[Options]):
    """The options of a dataclass that were given on the command line, and those alone.

    A default would hide what a recipe says, so the rest is left open until `over` is called.
    """

    def __init__(self, cls: type[Options], values: Mapping[str, Any]) -> None:
        self.cls = cls
        self.values = dict(values)

    def over(self, section: Mapping[str, Any], origin: str) -> Options:
        """Fill the dataclass from a recipe's section, over which what was given wins."""
        return from_section(self.cls, _merged(section, self.values), origin)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**below, **above}
    for name, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(name), dict):
            merged[name] = _merged(below[name], value)
    return merged


def out_of_bounds(options: Any) -> list[str]:
    """What is wrong with the numbers of an options dataclass, by the bounds at its `option`s."""
    problems = []
    for field in dataclasses.fields(options):
        problems += bounds_broken(field, getattr(options, field.name), field.name)
    return problems


class Checked:
    """Options that refuse what makes no sense as soon as they are made, all of it at once."""

    def __post_init__(self) -> None:
        if problems := self.problems():
            raise SconesError(f"{'; '.join(problems)}.")

    def problems(self) -> list[str]:
        return out_of_bounds(self)


def bounds_broken(field: dataclasses.Field[Any], value: Any, name: str) -> list[str]:
    """What is wrong with a value, or with each of a list, by the bounds at its `option`."""
    bounds = field.metadata.get("bounds", {})
    values = value if isinstance(value, list) else [value]
    rules = [(one, _broken_bound(one, bounds)) for one in values]
    return [f"{name} must be {rule}, not {one}" for one, rule in rules if rule is not None]


def _broken_bound(value: Any, bounds: Mapping[str, Any]) -> str | None:
    if value is None:
        return None
    least, most, above, below = map(bounds.get, ("least", "most", "above", "below"))
    # Written so that NaN, of which every comparison is false, breaks any bound.
    if least is not None and below is not None:
        return None if least <= value < below else f"in [{least:g}, {below:g})"
    if least is not None and not value >= least:
        return f"at least {least:,}"
    if above is not None and not value > above:
        return f"above {above:,}"
    if most is not None and not value <= most:
        return f"at most {most:,}"
    return None


def load_recipe(
    path: Path | None, *names: str, variables: Mapping[str, str] | None = None
) -> dict[str, dict[str, Any]]:
    """Read the named sections of a recipe file, with ${VARIABLES} in their strings expanded.

    `variables` go before those of the environment. No recipe at all has empty sections.
    """
    if path is None:
        return {name: {} for name in names}
    path = Path(path)
    try:
        recipe = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SconesError(f"The recipe {path} does not exist.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise SconesError(f"The recipe {path} is not valid TOML: {problem}.") from None
    except OSError as problem:
        raise SconesError(f"The recipe {path} cannot be read: {problem.strerror}.") from None
    for name, section in recipe.items():
        if name not in SECTIONS or not isinstance(section, dict):
            known = ", ".join(f"[{known}]" for known in SECTIONS)
            raise SconesError(f"{path}: '{name}' is not a section of a recipe; there are {known}.")
    known_values = {**os.environ, **(variables or {})}
    return {name: _expand(recipe.get(name, {}), path, known_values) for name in names}


def from_section(cls: type[Options], section: Mapping[str, Any], origin: str) -> Options:
    """Fill the dataclass `cls` from `section`; `origin` names the source in error messages."""
    problems: list[str] = []
    types_by_name = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, value in section.items():
        if name not in fields:
            near = difflib.get_close_matches(name, fields, n=1)
            hint = f" (did you mean '{near[0]}'?)" if near else ""
            problems.append(f"'{name}' is not known{hint}")
            continue
        inner = dataclass_in(types_by_name[name])
        if inner is not None and isinstance(value, dict):
            values[name] = from_section(inner, value, f"{origin}.{name}")
            continue
        try:
            values[name] = _convert(value, types_by_name[name])
        except (TypeError, ValueError):
            wanted = describe_type(types_by_name[name])
            problems.append(f"'{name}' must be {wanted}, not {value!r}")
    for name, field in fields.items():
        if name not in section and field.default is field.default_factory is REQUIRED:
            problems.append(f"'{name}' is missing")
    if problems:
        raise SconesError(f"{origin}: {'; '.join(problems)}.")
    return cls(**values)


def dataclass_in(annotation: Any) -> Any:
    """The dataclass whose options stand in place of a field of this type; None for any other."""
    if typing.get_origin(annotation) is Given:
        (annotation,) = typing.get_args(annotation)
    _, annotation = without_none(annotation)
    return annotation if dataclasses.is_dataclass(annotation) else None


def entries(section: Mapping[str, Any], origin: str) -> dict[str, dict[str, Any]]:
    """Give the entries of a section that names them itself; each must be a table of its own."""
    for name, entry in section.items():
        if not isinstance(entry, dict):
            raise SconesError(
                f"{origin}: '{name}' must be a table, {{ key = value }}, not {entry!r}."
            )
    return dict(section)


def from_entries(cls: type[Options], section: Mapping[str, Any], origin: str) -> dict[str, Options]:
    """Fill the dataclass `cls` from every entry of a section that names its entries itself."""
    return {
        name: from_section(cls, entry, f"{origin} {name}")
        for name, entry in entries(section, origin).items()
    }


def describe_type(annotation: Any) -> str:
    """Say in words what values a field takes."""
    optional, inner = without_none(annotation)
    if optional:
        return describe_type(inner)
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return "one of " + ", ".join(repr(choice) for choice in typing.get_args(annotation))
    if origin is list:
        return f"a list, each {describe_type(typing.get_args(annotation)[0])}"
    if dataclasses.is_dataclass(annotation):
        return "a section of its own"
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
    return names.get(annotation, "a path" if annotation is Path else str(annotation))


def without_none(annotation: Any) -> tuple[bool, Any]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        inner = [part for part in typing.get_args(annotation) if part is not type(None)]
        if len(inner) == 1:
            return True, inner[0]
    return False, annotation


def _convert(value: Any, annotation: Any) -> Any:
    optional, annotation = without_none(annotation)
    if isinstance(value, Given) or (optional and value is None):
        return value
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        if value not in typing.get_args(annotation):
            raise ValueError
        return value
    if origin is list:
        (inner,) = typing.get_args(annotation)
        items = value if isinstance(value, list) else [value]
        return [_convert(item, inner) for item in items]
    if dataclasses.is_dataclass(annotation):
        if not isinstance(value, annotation):  # type: ignore[arg-type]
            raise TypeError
        return value
    taken = isinstance(value, _TAKEN.get(annotation, object))
    if not taken or (isinstance(value, bool) and annotation is not bool):
        raise TypeError
    return annotation(value)


_TAKEN: dict[Any, Any] = {bool: bool, int: int, float: int | float, str: str | Path}
_TAKEN[Path] = _TAKEN[str]
"""What a field of a type takes; for Python a bool is a number too, for us it is none."""


def _expand(value: Any, origin: Path, variables: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _expand(item, origin, variables) for name, item in value.items()}
    if isinstance(value, list):
        return [_expand(item, origin, variables) for item in value]
    if not isinstance(value, str):
        return value

    def variable(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in variables:
            raise SconesError(f"{origin} uses ${{{name}}}, which is not set in the environment.")
        return variables[name]

    return re.sub(r"\$\{(\w+)\}", variable, value)
