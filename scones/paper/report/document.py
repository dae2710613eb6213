"""Tables, figures and where their numbers come from, free of any format.

A number of ours carries its `Origin`; a format shows it as a link to an entry of the provenance,
which lists the origins that are used, and no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from scones.paper.report.published import Published

NOT_RUN = "not run"
MINUS = "−"

Kind = Literal["plain", "ours", "paper", "missing", "text"]


@dataclass(frozen=True)
class Origin:
    """Where a number comes from: what is needed to get it again."""

    key: str
    """Unique in a report, made of letters, digits, points and dashes."""
    title: str
    facts: Mapping[str, str] = field(hash=False)
    """By name: command, commit, seed and so on; what is not known is left out."""
    file: str = ""
    """The translations, or where else the number stands, below the results folder."""
    made_from: Origin | None = None
    """For example the model of a translation."""

    @property
    def anchor(self) -> str:
        """What links point to."""
        return f"from-{self.key}"

    @property
    def everything(self) -> dict[str, str]:
        """All facts in the order from the model to the number."""
        before = {} if self.made_from is None else self.made_from.everything
        return {**before, **self.facts}


@dataclass(frozen=True)
class Cell:
    """What stands in a place of a table."""

    text: str
    kind: Kind = "plain"
    origin: Origin | None = None
    about: str = ""
    """A word more: why it was not run, or where in the paper it stands."""
    strong: bool = False
    links: Sequence[tuple[str, str]] = ()
    """Instead of an origin: text and key of tables and figures of this document."""


def ours(text: str, origin: Origin, about: str = "", strong: bool = False) -> Cell:
    """Show a number of ours."""
    return Cell(text, "ours", origin, about, strong)


def paper(number: Published | None) -> Cell:
    """Show a number of the paper; a dash where it gives none."""
    return Cell("–", "paper") if number is None else Cell(number.text, "paper", about=number.place)


def missing(whose: str, reason: str) -> Cell:
    """Show that there is no number yet; `whose` is a direction or a system."""
    return Cell(NOT_RUN, "missing", about=f"{whose}: {reason}")


def nothing() -> Cell:
    """Show that there cannot be a number."""
    return Cell("–")


def prose(text: str, strong: bool = False) -> Cell:
    """Show words, which may speak of numbers."""
    return Cell(text, "text", strong=strong)


def leading_to(*links: tuple[str, str]) -> Cell:
    """Show where in this document to look; texts and keys are given."""
    return Cell(", ".join(text for text, _ in links), "text", links=links)


def said_once(sentences: Iterable[tuple[str, str]]) -> list[str]:
    """Put what is said of several things once, with all their names before it."""
    found: dict[str, dict[str, None]] = {}
    for whose, sentence in sentences:
        found.setdefault(sentence, {})[whose] = None
    return [f"{', '.join(whose)}: {sentence}" for sentence, whose in found.items()]


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    label: str
    cells: Sequence[Cell]
    kind: Literal["ours", "paper"] = "ours"
    system: str = ""
    """Whose colour it has."""


@dataclass(frozen=True)
class Table:
    """A table whose first column names the rows."""

    key: str
    title: str
    caption: str
    heads: Sequence[str]
    """Of all columns."""
    rows: Sequence[Row]
    groups: Sequence[tuple[str, int]] = ()
    """Headings over neighbouring columns, the first column left out, and how many they span."""
    notes: Sequence[str] = ()

    @property
    def reasons(self) -> str:
        """Why cells are missing: each reason once, with all it holds for; empty if none is."""
        cells = (cell for row in self.rows for cell in row.cells)
        found = [cell.about.partition(": ") for cell in cells if cell.kind == "missing"]
        return "; ".join(said_once((whose, reason) for whose, _, reason in found))


@dataclass(frozen=True)
class Figure:
    """A plot with the numbers that it shows."""

    key: str
    title: str
    caption: str
    drawing: str | None
    """SVG; None where there is nothing to draw, or nothing to draw with."""
    tables: Sequence[Table] = ()
    missing: str = ""
    """Why there is no drawing."""


@dataclass(frozen=True)
class Section:
    """A part of the report."""

    key: str
    title: str
    paragraphs: Sequence[str] = ()
    """Text; `code` stands between backticks."""
    blocks: Sequence[Table | Figure] = ()


@dataclass(frozen=True)
class Document:
    """The whole report."""

    title: str
    paragraphs: Sequence[str]
    sections: Sequence[Section]
    results: str
    """The way from the report to the results folder."""

    def tables(self) -> Iterator[Table]:
        """Give all tables, those of figures among them."""
        for section in self.sections:
            for block in section.blocks:
                if isinstance(block, Figure):
                    yield from block.tables
                else:
                    yield block

    def origins(self) -> list[Origin]:
        """Give the origins of all numbers, each once, models before what is made from them."""
        found: dict[str, Origin] = {}
        for table in self.tables():
            for row in table.rows:
                for cell in row.cells:
                    _collect(cell.origin, found)
        return list(found.values())


def _collect(origin: Origin | None, found: dict[str, Origin]) -> None:
    if origin is None or origin.key in found:
        return
    _collect(origin.made_from, found)
    found[origin.key] = origin
