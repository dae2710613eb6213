"""The command line: one thin file a command; here they are put together.

Heavy libraries are imported by a command when it runs, so that `scones --help` answers at once.
"""

from __future__ import annotations

import contextlib
import errno
import sys
from typing import Any

import typer

from scones.cli.compare import compare
from scones.cli.creamtea import creamtea
from scones.cli.evaluate import evaluate
from scones.cli.info import info
from scones.cli.prepare import prepare
from scones.cli.replicate import replicate
from scones.cli.score import score
from scones.cli.train import train
from scones.cli.translate import translate
from scones.cli.tune import tune
from scones.errors import SconesError

USAGE, INTERRUPTED = 2, 130

# A wrong flag, command or value. Newer versions of Typer bring their own copy of click, older ones
# import it: this is the way to the class that is right for both.
_UsageError: Any = typer.BadParameter.__base__

app = typer.Typer(
    name="scones",
    help="Translation models that can say that more than one answer is right.\n\n"
    "The way of a sentence: prepare text, train a model, translate, evaluate.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_COMMANDS = (prepare, train, translate, score, evaluate, tune, info)
for _command in (*_COMMANDS, compare, replicate, creamtea):
    app.command()(_command)


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Show the version and exit."),
) -> None:
    if version:
        from scones.version import __version__, commit

        source = commit()
        typer.echo(f"scones {__version__}" + (f" (commit {source})" if source else ""))
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(USAGE)


def main() -> None:
    """Run the command line; a user's mistake is one sentence on stderr and exit code 2."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run the command line with these arguments and give the exit code."""
    try:
        return app(arguments, prog_name="scones", standalone_mode=False) or 0
    except SconesError as mistake:
        return _refuse(str(mistake))
    except _UsageError as mistake:
        command = mistake.ctx.command_path if mistake.ctx else "scones"
        return _refuse(f"{mistake.format_message().rstrip('.')}; see {command} --help.")
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except OSError as problem:
        return _refuse(_about(problem))


def _refuse(sentence: str) -> int:
    with contextlib.suppress(OSError):  # where nobody takes the output, the sentence still counts
        sys.stdout.flush()
    sys.stderr.write(f"scones: {sentence}\n")
    return USAGE


def _about(problem: OSError) -> str:
    """Say what the system refused, where, and what helps."""
    place = f" {problem.filename}" if problem.filename else ""
    if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"There is no space left to write{place}; free some space."
    if problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"There is no permission to use{place or ' a file'}; change it or choose another."
    return f"The system refuses{place}: {problem.strerror or problem}."
