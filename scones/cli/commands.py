"""All commands put together, their flags and their help pages.

A command is a function of one dataclass, whose fields `option` and `argument` declare. Each field
becomes a flag of the same name; a field that is a dataclass itself, or `Given` one, stands for the
flags of all its fields. No flag has a default here: what was not given is left to the dataclass, or
to a recipe.

A command's module is imported when the command is asked for, and heavy libraries when it runs, so
that `scones --help` answers at once.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from itertools import pairwise
from typing import Any, Literal

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup
from typer.models import ParamMeta

from scones.cli.flags import CommandGroup
from scones.errors import SconesError
from scones.options import REQUIRED, Given, bounds_broken, dataclass_in, from_section, without_none

_NEXT = """\
Where to go next: `scones COMMAND --help` says what goes in and what comes out, with examples;
`scones --install-completion` lets Tab complete commands, flags and values; in Python,
`import scones; help(scones)`.
"""

# Headings, and below each the modules of `scones.cli` with the commands that they have.
_COMMANDS = (
    ("From text to a model", "prepare", ("creamtea", "prepare")),
    ("From text to a model", "train", ("train", "tune", "mine")),
    ("Use a model", "translate", ("translate", "score")),
    ("Use a model", "serve", ("serve",)),
    ("Use a model", "bulk", ("bulk",)),
    ("Use a model", "info", ("info",)),
    ("Use a model", "export", ("export", "convert", "shortlist")),
    ("Judge", "evaluate", ("evaluate",)),
    ("Judge", "calibrate", ("calibrate",)),
    ("Judge", "analyze", ("compare", "analyze")),
    ("Experiments", "replication", ("replicate", "synthetic")),
    ("Experiments", "ibm3", ("ibm3",)),
    ("Experiments", "replication", ("paper",)),
)
_PLACES = {name: (module, heading) for heading, module, names in _COMMANDS for name in names}

# A wrong flag, command or value. Newer versions of Typer bring their own copy of click, older ones
# import it: this is the way to the class that is right for both.
_UsageError: Any = typer.BadParameter.__base__


# Flags.


@dataclass(frozen=True)
class Flag:
    """A field that is a flag or an argument, and where it stands among the options."""

    field: dataclasses.Field[Any]
    annotation: Any
    heading: str | None
    path: tuple[str, ...]
    """The fields that lead to it; its own name is the last."""

    @property
    def names(self) -> tuple[str, ...]:
        """How it is written on the command line."""
        dashed = self.field.name.replace("_", "-")
        # What is off unless it is given needs no flag that turns it off.
        both = self.annotation is bool and self.field.default is not False
        usual = f"--{dashed}/--no-{dashed}" if both else f"--{dashed}"
        return self.field.metadata["flags"] or (usual,)

    @property
    def written(self) -> str:
        """The name that a message calls it."""
        return self.field.metadata["metavar"] if self.is_argument else self.names[0].split("/")[0]

    @property
    def is_argument(self) -> bool:
        return self.field.metadata["positional"]

    @property
    def rank(self) -> int:
        """Arguments stand first in `--help`, and what many commands have last."""
        return 0 if self.is_argument else 2 if self.field.metadata["shared"] else 1

    def parameter(self) -> Any:
        """Make the parameter of the command."""
        about = self.field.metadata
        # A flag of options that a recipe may fill is missed by whoever puts the two together.
        alone = len(self.path) == 1
        required = alone and self.field.default is self.field.default_factory is REQUIRED
        default = ... if required else None
        info: Any
        if self.is_argument:
            info = typer.Argument(default, metavar=about["metavar"], help=about["help"])
        else:
            choices = _choices(self.annotation) or about["values"]
            info = typer.Option(
                default,
                *self.names,
                metavar=about["metavar"] or "|".join(choices) or self._metavar(),
                help=about["help"] + self._shown_default(),
                autocompletion=(lambda: choices) if choices else None,
                rich_help_panel=self.heading,
                show_default=False,
            )
        # What a Literal takes is checked by `problems`, in our own words.
        annotation = str if _choices(self.annotation) else self.annotation
        annotation = annotation if required else annotation | None
        meta = ParamMeta(name=self.field.name, default=info, annotation=annotation)
        # Typer makes parameters of signatures, which it takes apart into these; the function that
        # does it with one of them has no public name in newer versions.
        if hasattr(typer.main, "get_click_param"):
            return typer.main.get_click_param(meta)[0]
        return typer.main._get_param(meta)

    def problems(self, value: Any) -> list[str]:
        """What is wrong with a value that was given."""
        choices = _choices(self.annotation)
        if choices and value not in choices:
            return [f"{self.written} must be one of {', '.join(choices)}, not {value}"]
        return bounds_broken(self.field, value, self.written)

    def _metavar(self) -> str | None:
        """What stands for each value of a list, as Typer would write it of one alone."""
        if typing.get_origin(self.annotation) is not list:
            return None
        return f"<{typing.get_args(self.annotation)[0].__name__.lower()}>"

    def _shown_default(self) -> str:
        default = self.field.default
        if default is REQUIRED and self.field.default_factory is not REQUIRED:
            default = " ".join(map(str, self.field.default_factory()))
        on_only = self.annotation is bool and "/" not in self.names[0]
        if default in (None, REQUIRED, "") or on_only or self.field.metadata["help"].endswith("]"):
            return ""
        return f" [{('no', 'yes')[default]}]" if self.annotation is bool else f" [{default}]"


def flags_in(cls: type, heading: str | None = None, path: tuple[str, ...] = ()) -> Iterator[Flag]:
    """The flags of a dataclass and of those inside it, under the headings that begin with them."""
    types = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        heading = field.metadata.get("group") or heading
        here = (*path, field.name)
        inner = dataclass_in(types[field.name])
        if inner is not None:
            yield from flags_in(inner, heading, here)
        elif "help" in field.metadata:
            _, annotation = without_none(types[field.name])
            yield Flag(field, annotation, heading, here)


def filled(cls: type, flags: Sequence[Flag], parsed: Mapping[str, Any]) -> Any:
    """Fill a command's options with what was given, which has to make sense in itself."""
    given: dict[str, Any] = {}
    problems: list[str] = []
    for flag in flags:
        value = parsed[flag.field.name]
        value = list(value) if isinstance(value, tuple) else value
        if value is None or value == []:
            continue
        problems += flag.problems(value) + _out_of_place(flag, flags, parsed)
        inside = given
        for name in flag.path[:-1]:
            inside = inside.setdefault(name, {})
        inside[flag.field.name] = value
    if problems:
        raise SconesError(f"{'; '.join(problems)}.")
    for name, annotation in typing.get_type_hints(cls).items():
        if typing.get_origin(annotation) is Given:
            given[name] = Given(typing.get_args(annotation)[0], given.get(name, {}))
        elif dataclass_in(annotation):
            given.setdefault(name, {})
    return from_section(cls, given, "The command line")


def _out_of_place(flag: Flag, flags: Sequence[Flag], parsed: Mapping[str, Any]) -> list[str]:
    """What is wrong with a flag that means nothing beside the value of another."""
    name, *values = flag.field.metadata["only"] or (None,)
    for other in flags:
        chosen = parsed[other.field.name] or other.field.default
        if other.field.name == name and chosen not in values:
            wanted = f"{other.written} {' or '.join(values)}"
            remedy = f"give that or leave out {flag.written}"
            return [f"{flag.written} goes with {wanted}, not {chosen}; {remedy}"]
    return []


def _choices(annotation: Any) -> tuple[str, ...]:
    return typing.get_args(annotation) if typing.get_origin(annotation) is Literal else ()


# Help pages: examples as they were written, options and commands under headings, 80 columns.
#
# Typer groups options only in its boxes of Rich, which take longer to import than all the rest; the
# headings here are its `rich_help_panel`, in plain text.

_NAME_COLUMN = 30


class _Page:
    """The help page of a command: what its docstring says, then its flags under headings."""

    def format_help_text(self: Any, ctx: Any, formatter: Any) -> None:
        _write_text(self.help, formatter)

    def format_options(self: Any, ctx: Any, formatter: Any) -> None:
        rows: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
            heading = getattr(parameter, "rich_help_panel", None) or usual
            row = parameter.get_help_record(ctx)
            if row is not None:
                name = re.sub(r"list\[(\w+)\]", lambda kind: kind[1].lower(), row[0])
                rows.setdefault(heading, []).append((name, row[1]))
        _write_lists(rows, formatter)


class Command(_Page, TyperCommand):
    """A command whose help page has headings and examples."""


class Group(_Page, TyperGroup):
    """Several commands; its help page shows them under headings, before its own options."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names alone: whoever looks at the commands imports them."""
        return list(self.commands)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        rows: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            first_paragraph = (command.help or "").partition("\n\n")[0]
            heading = getattr(command, "rich_help_panel", None) or "Commands"
            rows.setdefault(heading, []).append((name, " ".join(first_paragraph.split())))
        _write_lists(rows, formatter)
        super().format_options(ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_text(self.epilog, formatter)


def _write_text(text: str | None, formatter: Any) -> None:
    """Wrap paragraphs; what is indented, an example, stays as it is."""
    for paragraph in inspect.cleandoc(text or "").split("\n\n"):
        formatter.write_paragraph()
        with formatter.indentation():
            if paragraph.startswith(" "):
                formatter.write(textwrap.indent(paragraph, " " * formatter.current_indent) + "\n")
            else:
                formatter.write_text(paragraph)


def _write_lists(rows: dict[str, list[tuple[str, str]]], formatter: Any) -> None:
    """Write lists under headings, their second columns one below the other."""
    width = min(_NAME_COLUMN, max(len(name) for names in rows.values() for name, _ in names))
    for heading, records in rows.items():
        with formatter.section(heading):
            formatter.write_dl([(name.ljust(width), text) for name, text in records])


# The commands.


def _command(name: str, run: Callable[..., None], heading: str | None = None) -> Any:
    """A command whose flags are the fields of the dataclass that it takes as `options`."""
    about: Any = {"rich_help_panel": heading, "help": inspect.getdoc(run)}
    cls = typing.get_type_hints(run).get("options")
    if cls is None:  # it takes any words, since it only says where it is to be found
        any_words = {"ignore_unknown_options": True, "allow_extra_args": True}
        return Command(name, callback=run, context_settings=any_words, **about)
    flags = sorted(flags_in(cls), key=lambda flag: flag.rank)

    def call(**given: Any) -> None:
        try:
            run(filled(cls, flags, given))
        except SconesError as mistake:
            raise SconesError(_as_flags(str(mistake), flags)) from mistake

    parameters = [flag.parameter() for flag in flags]
    return Command(name, callback=call, params=parameters, rich_markup_mode=None, **about)


def _as_flags(sentence: str, flags: Iterable[Flag]) -> str:
    """A message of the package, which says `beam_size` and search='beam', as the user wrote it.

    What stands in quotes or behind a [section], as the key of a recipe does, stays, and so does a
    part of a path. A name
    of one word may be a word; a setting is known by its underscore.
    """
    for flag in flags:
        if flag.is_argument:
            continue
        name = flag.field.name
        sentence = re.sub(rf"\b{name}=True", flag.written, sentence)
        sentence = re.sub(rf"\b{name}='(\w+)'", rf"{flag.written} \1", sentence)
        sentence = sentence.replace(f"'{name}' is missing", f"{flag.written} is missing")
        if "_" in name:
            sentence = re.sub(rf"(?<!\] )(?<![\w'/.-]){name}(?!\w|[/.-]\w)", flag.written, sentence)
    return sentence


class Commands(Mapping[str, Any]):
    """All commands by name, each imported when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        module, heading = _PLACES[name]
        found = getattr(import_module(f"scones.cli.{module}"), name)
        if not isinstance(found, CommandGroup):
            return _command(name, found, heading)
        return Group(
            name=name,
            commands={inner: _command(inner, run) for inner, run in found.commands.items()},
            help=found.help,
            rich_help_panel=heading,
            rich_markup_mode=None,
        )

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


class _Scones(Group):
    def __init__(self, **more: Any) -> None:
        super().__init__(**more | {"commands": Commands()})


app = typer.Typer(
    name="scones",
    cls=_Scones,
    epilog=_NEXT,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Show versions and exit."),
) -> None:
    """Translation models that can say that more than one answer is right.

    The way of a sentence, with the corpus that is built in; these lines work as they stand and take
    about four minutes:

        scones creamtea tea
        scones prepare store -s de -t en --pieces 700 \\
            --source tea/train.de --target tea/train.en \\
            --dev-source tea/dev.de --dev-target tea/dev.en
        scones train store model --preset tiny --max-minutes 3 \\
            --max-tokens 1024 --warmup-steps 100 --cooldown 0.5
        scones translate model < tea/test.de > output.en
        scones evaluate -r tea/test.en output.en
    """
    if version:
        from scones.files import versions

        typer.echo(versions())
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


def call(arguments: list[str]) -> int:
    """Run a command and give its exit code; a wrong flag is a `SconesError` like any mistake."""
    for flag, value in pairwise(arguments):
        if flag.startswith("-") and re.fullmatch(r"[+-]?\d{19,}", value):
            raise SconesError(f"{flag} {value} is too large a number.")
    try:
        return app(arguments, prog_name="scones", standalone_mode=False) or 0
    except _UsageError as mistake:
        raise SconesError(_sentence(mistake)) from None
    except typer.Abort:
        raise KeyboardInterrupt from None


def _sentence(mistake: Any) -> str:
    """Say what is wrong, and what was probably meant or where to look."""
    if hasattr(mistake, "possibilities"):  # an unknown flag, and all flags that resemble it
        nearest = get_close_matches(mistake.option_name, mistake.possibilities or (), 1, 0.7)
        problem, suggestion = mistake.message, f"{nearest[0]}?" if nearest else ""
    else:
        problem, _, suggestion = mistake.format_message().partition(" Did you mean ")
    if suggestion:
        return f"{problem.rstrip('.')}; did you mean {suggestion}"
    command = mistake.ctx.command_path if mistake.ctx else "scones"
    return f"{problem.rstrip('.')}; see {command} --help."
