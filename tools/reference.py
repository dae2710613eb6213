"""The reference of the documentation site, written from the code: commands, names, recipe keys.

Commands come from the command line itself, recipe keys from the dataclasses that they fill. Names
of Python are read and not imported: JAX and transformers need not be there.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
import textwrap
import typing
from collections.abc import Iterable, Iterator
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

import typer.main

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # for the commands of the paper's experiments

import scones  # noqa: E402
from replication.plan import EvaluationSet, SearchSettings, SpeedSettings  # noqa: E402
from scones.cli.commands import app  # noqa: E402
from scones.model.config import ModelOptions  # noqa: E402
from scones.options import SECTIONS, dataclass_in, describe_type  # noqa: E402
from scones.outputs import DEFAULT, layer_names, output_layer  # noqa: E402
from scones.text.cleaning import PrepareConfig  # noqa: E402
from scones.training.options import TrainOptions  # noqa: E402

MORE = {
    "scones.outputs": ("OutputLayer", "register"),
    "scones.options": ("option",),
    "scones.bridges.huggingface": (),
    "scones.bridges.jax": (),
}
"""What is public beside `scones` itself; no names: all that a module defines for others."""


def pages() -> dict[str, str]:
    """Give the Markdown of all pages by their places in the site."""
    return {
        "reference/commands.md": commands(),
        "reference/python.md": python(),
        "reference/recipes.md": recipes(),
    }


def definitions(entries: Iterable[tuple[str, str]]) -> str:
    """A list of names and what they mean."""
    items = (
        f"<dt><code>{escape(name)}</code></dt><dd>{words(said)}</dd>" for name, said in entries
    )
    return "\n".join(["<dl>", *items, "</dl>\n"])


def words(text: str) -> str:
    """A text in HTML."""
    paragraphs = escape(inspect.cleandoc(text)).split("\n\n")
    return re.sub("`([^`]+)`", r"<code>\1</code>", "<br>".join(paragraphs))


# Commands.


def commands() -> str:
    """All commands with all flags, as `--help` knows them."""
    group = typer.main.get_command(app)
    about = "Each part is what `scones COMMAND --help` says."
    return "\n".join(["# Commands\n", f"{about}\n", *command_parts("scones", group, 2)])


def command_parts(before: str, group: Any, level: int) -> Iterator[str]:
    """The commands of a group, those of groups inside it too."""
    for name, command in group.commands.items():
        yield f"{'#' * level} {before} {name}\n"
        yield prose(command.help)
        if hasattr(command, "commands"):
            yield from command_parts(f"{before} {name}", command, level + 1)
            continue
        context = command.make_context(name, [], resilient_parsing=True)
        for heading, flags in groupby(command.params, _heading):
            yield f"**{heading}**\n" if heading else ""
            records = [flag.get_help_record(context) for flag in flags]
            yield definitions(records)


def _heading(parameter: Any) -> str | None:
    return getattr(parameter, "rich_help_panel", None)


def prose(text: str | None) -> str:
    """A docstring as Markdown: what is indented are lines for a shell, or Python."""
    found = []
    for paragraph in inspect.cleandoc(text or "").split("\n\n"):
        if not paragraph.startswith("    "):
            found.append(paragraph)
            continue
        kind = (
            "sh" if re.search(r"^ +(\w+ .*\| *)?(scones|torchrun) ", paragraph, re.M) else "python"
        )
        found.append(f"```{kind}\n{textwrap.dedent(paragraph)}\n```")
    return "\n\n".join(found) + "\n"


# Names of Python.


def python() -> str:
    """Public functions and classes with what their docstrings say."""
    parts = ["# Python\n", prose(scones.__doc__)]
    for name in scones.__all__:
        home = getattr(getattr(scones, name), "__module__", None)
        if home is None:
            parts.append(f"## `scones.{name}`\n\nThe version, such as `{getattr(scones, name)}`.\n")
        else:
            parts += described(f"scones.{name}", defined(home)[name])
    for module, names in MORE.items():
        known = defined(module)
        for name in names or public(known):
            parts += described(f"{module}.{name}", known[name])
    return "\n".join(parts)


def defined(module: str) -> dict[str, Any]:
    """The functions and classes of a module, read from its file."""
    path = ROOT.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    kinds = ast.FunctionDef | ast.ClassDef
    return {node.name: node for node in ast.parse(path.read_text()).body if isinstance(node, kinds)}


def public(nodes: dict[str, Any]) -> list[str]:
    return [name for name, node in nodes.items() if name[0] != "_" and ast.get_docstring(node)]


def described(name: str, node: Any, level: int = 2) -> Iterator[str]:
    """A heading, the signature, the docstring; of a class its fields and methods too."""
    yield f"{'#' * level} `{name}`\n"
    if isinstance(node, ast.FunctionDef):
        yield f"```python\n{signature(node)}\n```\n"
    yield prose(ast.get_docstring(node))
    if not isinstance(node, ast.ClassDef):
        return
    fields = []
    for field, following in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            said = text_of(following)
            fields.append((f"{field.target.id}: {ast.unparse(field.annotation)}", said))
    if fields:
        yield definitions(fields)
    methods = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}
    for method in public(methods):
        yield from described(f"{node.name}.{method}", methods[method], level + 1)


def text_of(node: ast.stmt | None) -> str:
    """The docstring of a field, which stands behind it."""
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return str(node.value.value) if is_text else ""  # type: ignore[union-attr]


def signature(node: ast.FunctionDef) -> str:
    """How a function is called, an argument a line where it is long."""
    decorators = [ast.unparse(one) for one in node.decorator_list]
    if any("property" in one for one in decorators):
        return f"{node.name}: {ast.unparse(node.returns) if node.returns else ''}"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    line = f"{node.name}({ast.unparse(node.args)}){returns}"
    if len(line) <= 88:
        return line
    arguments = re.sub(r", (?=\*?\w+(?::|,|$|=))", ",\n    ", ast.unparse(node.args))
    return f"{node.name}(\n    {arguments},\n){returns}"


# Recipe keys.


def recipes() -> str:
    """Every key of every section."""
    written: dict[str, list[str]] = {
        "prepare": keys(PrepareConfig, "prepare"),
        "model": keys(ModelOptions, "model"),
        "output": layers(),
        "train": keys(TrainOptions, "train"),
        "systems": ["Systems by name, each with the keys of `[output]`.\n"],
        "tests": [
            "Development and test sets by name, each with these keys:\n",
            *keys(EvaluationSet),
        ],
        "search": keys(SearchSettings),
        "speed": keys(SpeedSettings),
        "left_out": ["Systems that are not run, by name, and why.\n"],
    }
    about = (
        "A recipe is a TOML file that fills options of `scones prepare` and `scones train`, such "
        "as `recipes/creamtea.toml`; flags win over it. Variables of the environment stand in its "
        "texts as `${NAME}`. From `[systems]` on the sections are those of `scones paper` alone.\n"
    )
    parts = ["# Recipe keys\n", about]
    for section in SECTIONS:
        parts += [f"## [{section}] {{ #{section} }}\n", *written[section]]
    return "\n".join(parts)


def keys(cls: Any, section: str = "") -> list[str]:
    """The keys that fill a dataclass, their defaults and bounds; sections inside it behind them."""
    found: list[tuple[str, str]] = []
    inside: list[str] = []
    types = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        inner = dataclass_in(types[field.name])
        if inner is not None:
            inside += [f"### [{section}.{field.name}]\n", *keys(inner)]
            continue
        said = field.metadata.get("help", "").rstrip(".")
        parts = [said, describe_type(types[field.name]), *bounds(field)]
        parts += [f"default `{default(field)}`"] if default(field) is not None else []
        found.append((field.name, "; ".join(filter(None, parts))))
    return [definitions(found), *inside]


def bounds(field: dataclasses.Field[Any]) -> Iterator[str]:
    given = field.metadata.get("bounds", {})
    for name in ("least", "above", "most", "below"):
        if given.get(name) is not None:
            yield f"{'at ' if name in ('least', 'most') else ''}{name} {given[name]:,}"


def default(field: dataclasses.Field[Any]) -> str | None:
    """A default as a recipe would write it; None where there is none to tell."""
    if field.default_factory is not dataclasses.MISSING:
        value: Any = field.default_factory()
    else:
        value = field.default
    if value in (None, dataclasses.MISSING, "", []):
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def layers() -> list[str]:
    """The keys of every output layer."""
    found = [definitions([("layer", f"which output layer; default `{DEFAULT}`")])]
    for name in layer_names():
        found += [f'With `layer = "{name}"`:\n', *keys(type(output_layer({"layer": name})))]
    return found
