"""The command line: one thin file a command; here they are put together.

Heavy libraries are imported by a command when it runs, so that `scones --help` answers at once.
"""

from __future__ import annotations

import errno
import os
import sys

import click
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

app = typer.Typer(
    name="scones",
    help="Translation models that can say that more than one answer is right.\n\n"
    "The way of a sentence: prepare text, train a model, translate, evaluate.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_COMMANDS = (prepare, train, translate, score, evaluate, tune, info)
for _command in (*_COMMANDS, compare, replicate, creamtea):
    app.command()(_command)


@app.callback(invoke_without_command=True)
def _options(
    version: bool = typer.Option(False, "--version", help="Show the version and exit."),
) -> None:
    if version:
        from scones.version import __version__, commit

        source = commit()
        typer.echo(f"scones {__version__}" + (f" (commit {source})" if source else ""))
        raise typer.Exit


def main() -> None:
    """Run the command line; a user's mistake is one sentence on stderr and exit code 2."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run the command line with these arguments and give the exit code."""
    try:
        return app(arguments, prog_name="scones", standalone_mode=False) or 0
    except SconesError as mistake:
        return _refuse(str(mistake))
    except click.exceptions.NoArgsIsHelpError as help_text:
        help_text.show()
        return USAGE
    except click.ClickException as mistake:
        return _refuse(f"{mistake.format_message()} (see scones --help)")
    except BrokenPipeError:
        # The reader, such as `head`, has gone; do not complain again when Python flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (KeyboardInterrupt, click.Abort):
        sys.stderr.write("scones: interrupted.\n")
        return INTERRUPTED
    except OSError as problem:
        if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return _refuse(f"There is no space left to write{_place(problem)}; free some space.")
        if problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return _refuse(f"No permission{_place(problem)}: {problem.strerror}.")
        raise


def _refuse(sentence: str) -> int:
    sys.stdout.flush()
    sys.stderr.write(f"scones: {sentence}\n")
    return USAGE


def _place(problem: OSError) -> str:
    return f" to {problem.filename}" if problem.filename else ""
