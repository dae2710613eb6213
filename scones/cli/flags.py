"""What several commands share: options, and how they show what they do and what they found."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from scones.cli import printable
from scones.errors import SconesError
from scones.options import REQUIRED, option
from scones.search.options import ExactLimits, exactly

if TYPE_CHECKING:
    from rich.table import Table

    from scones.search.frontier import ExactOptions


@dataclass(frozen=True)
class CommandGroup:
    """Commands that stand behind a common name."""

    help: str
    commands: Mapping[str, Callable[..., None]]


# Options that several commands have; a command inherits them.


_shared = partial(option, shared=True)


@dataclass(frozen=True, kw_only=True)
class JsonFlag:
    as_json: bool = _shared(
        False, "Print JSON, and nothing else, to standard output.", flags=("--json",)
    )


@dataclass(frozen=True, kw_only=True)
class OverwriteFlag:
    overwrite: bool = _shared(
        False, "Replace what is there, if it is such a thing and holds nothing else."
    )


@dataclass(frozen=True, kw_only=True)
class VerifyFlag:
    verify: bool = _shared(
        False,
        "Compare every byte with its digest, also of files that were compared before and have not "
        "changed since.",
    )


@dataclass(frozen=True, kw_only=True)
class DeviceFlag:
    device: str = _shared(
        "auto", "Where to compute; cuda:N for a certain GPU.", values=("auto", "cpu", "cuda")
    )


@dataclass(frozen=True, kw_only=True)
class TranslatingFlags(DeviceFlag, ExactLimits):
    """What every command takes that translates with any search."""

    too_long: Literal["error", "cut", "skip"] = _shared(
        "error",
        "What to do with a sentence beyond the model's limit, which scones info tells: stop, cut "
        "it, or skip it (an empty line); cut and skip warn.",
    )
    max_memory: float | None = exactly(
        None, "Gigabytes that exact search may take beside the model.", most=1e9
    )

    def exact_options(self, n_best: int = 1, threshold: float | None = None) -> ExactOptions:
        from scones.search.frontier import ExactOptions

        limits = {field.name: getattr(self, field.name) for field in fields(ExactLimits)}
        memory = None if self.max_memory is None else int(self.max_memory * 1e9)
        return ExactOptions(n_best, threshold, max_memory=memory, **limits)


@dataclass(frozen=True, kw_only=True)
class ReferencesFlag(JsonFlag):
    references: list[Path] = option(
        REQUIRED, "References; may be repeated.", flags=("--reference", "-r"), metavar="FILE"
    )


def named_paths(arguments: Sequence[str], things: str, form: str) -> dict[str, Path]:
    """Systems, models or other things by name: NAME=PATH by NAME, PATH by its own name."""
    named: dict[str, Path] = {}
    for given in arguments:
        name, equals, path = given.partition("=")
        if not equals or not name or Path(given).exists():
            name, path = Path(given).name, given
        if name in named:
            raise SconesError(
                f"Two {things} are called {name!r}; tell them apart with NAME={form}, for example "
                f"second={path}."
            )
        named[name] = Path(path)
    return named


# What a command shows.


def print_json(value: Any) -> None:
    """Print a value for another program to read; no text in it can move a terminal."""
    typer.echo(json.dumps(finite(value), indent=2))


def finite(value: Any) -> Any:
    """The value with null for NaN and infinity, which JSON does not know."""
    return json.loads(json.dumps(value), parse_constant=lambda _: None)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str] | None],
    *,
    text: Sequence[int] = (0,),
    title: str | None = None,
    total: bool = False,
) -> Table:
    """A table whose columns are numbers but those of `text`; a row that is None draws a line.

    The last row of a table with a `total` is that.
    """
    from rich import box
    from rich.table import Table

    made = Table(title=title, box=box.SIMPLE_HEAD, show_header=any(columns))
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index in text else "right", overflow="fold")
    for row in rows:
        if row is None:
            made.add_section()
        else:
            made.add_row(*map(printable, row))
    if total:
        made.rows[-1].style = "bold"
    return made


def answer(as_json: bool, facts: Any, *shown: str | Table) -> None:
    """Print the facts for another program, or else what is shown to people: texts and tables."""
    if as_json:
        print_json(facts)
        return
    for one in shown:
        if isinstance(one, str):
            typer.echo("\n".join(map(printable, one.split("\n"))))
        else:
            print_table(one)


def print_table(table: Table) -> None:
    """Print a table, as wide as it is where there is no terminal."""
    from rich.console import Console

    # No markup: square brackets in a sentence or a file name are not a style.
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = 200
    console.print(table)


Show = Callable[..., None]
"""Takes what is being done, how much of it is done and, where that is known, of how much."""

_PATIENCE = 10.0  # seconds between two lines in a log


@contextmanager
def progress(unit: str) -> Iterator[Show]:
    """Show how far a command is, on standard error: bars on a terminal, a few lines in a log."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False, markup=False)
    if not console.is_terminal:
        yield _lines(unit)
        return
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    tasks: dict[str, TaskID] = {}
    columns = TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console) as bars:

        def show(task: str, done: int, total: int | None = None) -> None:
            if task not in tasks:
                for earlier in tasks.values():
                    bars.stop_task(earlier)
                tasks[task] = bars.add_task("", total=total or None)
            text = _so_far(task, done, total, unit)
            bars.update(tasks[task], completed=done, description=text)

        yield show


def _lines(unit: str) -> Show:
    said = ("", 0.0)

    def say(task: str, done: int, total: int | None = None) -> None:
        nonlocal said
        now = time.monotonic()
        if task != said[0] or now - said[1] >= _PATIENCE or done == total:
            said = (task, now)
            typer.echo(_so_far(task, done, total, unit), err=True)

    return say


def _so_far(task: str, done: int, total: int | None, unit: str) -> str:
    return f"{task}: {done:,} of {total:,} {unit}" if total else f"{task}: {done:,} {unit}"


def check_publishable(stem: Path, key: str) -> None:
    """Refuse a place where `publish` would replace somebody else's files, before the work."""
    from scones.files import check_file, check_result

    check_result(stem.with_suffix(".json"), key)
    earlier = stem.with_suffix(".json").exists()
    check_file(stem.with_suffix(".md"), "a result of this command", lambda _: earlier)


def publish(
    stem: Path, result: Any, tables: str, draw: Callable[[], object], as_json: bool
) -> None:
    """Write STEM.json and STEM.md, draw where plots can be, and print the tables or the JSON."""
    from scones.analysis.figures import can_draw
    from scones.files import write_file, write_json

    write_json(stem.with_suffix(".json"), result)
    write_file(stem.with_suffix(".md"), tables)
    if can_draw():
        draw()
    else:
        typer.echo("No plots: install scones[plots], then give this command again.", err=True)
    answer(as_json, result, tables)
