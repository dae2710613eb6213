"""All commands put together, and their help pages.

Heavy libraries are imported by a command when it runs, so that `scones --help` answers at once.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
import typing
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import partial
from itertools import pairwise
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from scones.cli.analyze import analyze, compare
from scones.cli.evaluate import evaluate
from scones.cli.export import export, shortlist
from scones.cli.flags import filled, flags_in
from scones.cli.ibm3 import IBM3_COMMANDS, IBM3_HELP
from scones.cli.info import info
from scones.cli.paper import PAPER_COMMANDS, PAPER_HELP
from scones.cli.prepare import creamtea, prepare
from scones.cli.replicate import replicate
from scones.cli.synthetic import synthetic
from scones.cli.train import train, tune
from scones.cli.translate import score, translate
from scones.errors import SconesError

_HELP = """\
Translation models that can say that more than one answer is right.

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

_NEXT = """\
Where to go next: `scones COMMAND --help` says what goes in and what comes out, with examples;
`scones --install-completion` lets Tab complete commands, flags and values; in Python,
`import scones; help(scones)`.
"""

_COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "From text to a model": (creamtea, prepare, train, tune),
    "Use a model": (translate, score, info, export, shortlist),
    "Judge": (evaluate, compare, analyze),
    "Experiments": (replicate, synthetic),
}

# A wrong flag, command or value. Newer versions of Typer bring their own copy of click, older ones
# import it: this is the way to the class that is right for both.
_UsageError: Any = typer.BadParameter.__base__


# Help pages: examples as they were written, options and commands under headings, 80 columns.
#
# Typer groups options only in its boxes of Rich, which take longer to import than all the rest; the
# headings here are its `rich_help_panel`, in plain text.

_NAME_COLUMN = 30


class Command(TyperCommand):
    """A command whose help page has headings and examples."""

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write what the docstring says."""
        _write_text(self.help, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options, under their headings."""
        _write_parameters(self.get_params(ctx), ctx, formatter)


class OptionsCommand(Command):
    """A command whose flags are the fields of a dataclass, the options of the function it runs."""

    def __init__(self, *, run: Callable[[Any], None], options: type, **more: Any) -> None:
        flags = tuple(flags_in(options))

        def call(**given: Any) -> None:
            run(filled(options, flags, given))

        parameters = [flag.parameter() for flag in flags]
        super().__init__(**more | {"params": parameters, "callback": call})


class Group(TyperGroup):
    """All commands; its help page shows them under headings, before its own options."""

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write the introduction."""
        _write_text(self.help, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the commands and then the options."""
        rows: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            first_paragraph = (command.help or "").partition("\n\n")[0]
            rows.setdefault(command.rich_help_panel or "Commands", []).append(
                (name, " ".join(first_paragraph.split()))
            )
        _write_lists(rows, formatter)
        _write_parameters(self.get_params(ctx), ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write what stands below the options."""
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


def _write_parameters(parameters: Iterable[Any], ctx: Any, formatter: Any) -> None:
    """Write a list for every heading, in the order in which the parameters name them."""
    rows: dict[str, list[tuple[str, str]]] = {}
    for parameter in parameters:
        usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
        heading = getattr(parameter, "rich_help_panel", None) or usual
        row = parameter.get_help_record(ctx)
        if row is not None:
            rows.setdefault(heading, []).append(row)
    _write_lists(rows, formatter)


def _write_lists(rows: dict[str, list[tuple[str, str]]], formatter: Any) -> None:
    """Write lists under headings, their second columns one below the other."""
    longest = max(len(name) for names in rows.values() for name, _ in names)
    width = min(longest, _NAME_COLUMN)
    for heading, records in rows.items():
        with formatter.section(heading):
            formatter.write_dl([(name.ljust(width), text) for name, text in records])


# The commands.


def _new_group(name: str, help: str, epilog: str | None = None) -> typer.Typer:
    return typer.Typer(
        name=name,
        cls=Group,
        help=help,
        epilog=epilog,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def _add(
    group: typer.Typer, name: str, command: Callable[..., None], heading: str | None = None
) -> None:
    """Add a command: its flags are the fields of the dataclass that it takes as `options`."""
    cls = typing.get_type_hints(command).get("options")
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        # One of the paper's, whose flags are its parameters, which Typer reads.
        group.command(name, cls=Command, rich_help_panel=heading)(command)
        return
    made: Any = partial(OptionsCommand, run=command, options=cls)
    group.command(name, cls=made, help=command.__doc__, rich_help_panel=heading)(_nothing)


def _nothing() -> None:
    """What Typer looks at for parameters where the options are a dataclass: there are none."""


def _add_group(name: str, help: str, commands: Mapping[str, Callable[..., None]]) -> None:
    group = _new_group(name, help)
    for command_name, command in commands.items():
        _add(group, command_name, command)
    app.add_typer(group, rich_help_panel="Experiments")


app = _new_group("scones", _HELP, _NEXT)
for _heading, _commands in _COMMANDS.items():
    for _command in _commands:
        _add(app, _command.__name__, _command, _heading)
_add_group("ibm3", IBM3_HELP, IBM3_COMMANDS)
_add_group("paper", PAPER_HELP, PAPER_COMMANDS)


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Show versions and exit."),
) -> None:
    if version:
        from scones.version import versions

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
