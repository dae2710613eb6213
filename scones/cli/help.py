"""Help pages: examples as they were written, options and commands under headings, 80 columns.

Typer groups options only in its boxes of Rich, which take longer to import than all the rest; the
headings here are its `rich_help_panel`, in plain text.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand, TyperGroup

_NAME_COLUMN = 30


class Command(TyperCommand):
    """A command whose help page has headings and examples."""

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write what the docstring says."""
        _write_text(self.help, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options, under their headings."""
        _write_parameters(self.get_params(ctx), ctx, formatter)


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
