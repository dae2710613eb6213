"""How commands that measure something hand it over: JSON, tables and plots in one folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from scones.cli.flags import print_json


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
    if as_json:
        print_json(result)
    else:
        typer.echo(tables)
