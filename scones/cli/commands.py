"""All commands put together.

Heavy libraries are imported by a command when it runs, so that `scones --help` answers at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

import typer

from scones.cli.analyze import analyze
from scones.cli.compare import compare
from scones.cli.creamtea import creamtea
from scones.cli.evaluate import evaluate
from scones.cli.export import export
from scones.cli.help import Command, Group
from scones.cli.ibm3 import ibm3
from scones.cli.info import info
from scones.cli.paper import paper
from scones.cli.prepare import prepare
from scones.cli.replicate import replicate
from scones.cli.score import score
from scones.cli.shortlist import shortlist
from scones.cli.synthetic import synthetic
from scones.cli.train import train
from scones.cli.translate import translate
from scones.cli.tune import tune
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

app = typer.Typer(
    name="scones",
    cls=Group,
    help=_HELP,
    epilog=_NEXT,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _heading, _commands in _COMMANDS.items():
    for _command in _commands:
        app.command(cls=Command, rich_help_panel=_heading)(_command)
app.add_typer(ibm3, rich_help_panel="Experiments")
app.add_typer(paper, rich_help_panel="Experiments")


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
