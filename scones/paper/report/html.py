"""A document as one HTML page that needs nothing else: no network, no script."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from itertools import accumulate

from scones.paper.report.document import Cell, Document, Figure, Origin, Row, Section, Table
from scones.paper.report.plots import all_looks, inline, look
from scones.paper.report.style import style_sheet

PROVENANCE = "provenance"
_LONG = 40
"""A cell with more characters is text, not a number."""


def page(document: Document) -> str:
    """Write the page."""
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(document.title)}</title>",
        f"<style>{style_sheet()}</style>",
        "</head>",
        "<body>",
        "<main>",
        f"<h1>{escape(document.title)}</h1>",
        *(f"<p>{_text(paragraph)}</p>" for paragraph in document.paragraphs),
    ]
    first, *others = document.sections  # the verdicts stand above the contents
    parts += [*_section(first), *_contents(document)]
    for section in others:
        parts += _section(section)
    parts += [*_provenance(document), "</main>", "</body>", "</html>"]
    return "\n".join(parts) + "\n"


def _text(text: str) -> str:
    """Escape a text; what stands between backticks becomes code, an address a link."""
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
    return re.sub(r"(https://[^\s<()]*[^\s<().,:;])", r'<a href="\1">\1</a>', text)


def _contents(document: Document) -> Iterator[str]:
    yield '<nav aria-label="Contents"><ul>'
    for section in document.sections:
        yield f'<li><a href="#{section.key}">{escape(section.title)}</a><ul>'
        for block in section.blocks:
            yield f'<li><a href="#{block.key}">{escape(block.title)}</a></li>'
        yield "</ul></li>"
    yield f'<li><a href="#{PROVENANCE}">Where every number comes from</a></li>'
    yield "</ul></nav>"


def _section(section: Section) -> Iterator[str]:
    yield f'<h2 id="{section.key}">{escape(section.title)}</h2>'
    yield from (f"<p>{_text(paragraph)}</p>" for paragraph in section.paragraphs)
    for block in section.blocks:
        yield from _figure(block) if isinstance(block, Figure) else _table(block)


def _figure(figure: Figure) -> Iterator[str]:
    yield f'<figure id="{figure.key}">'
    caption = f"<h3>{escape(figure.title)}</h3><p>{_text(figure.caption)}</p>"
    yield f"<figcaption>{caption}</figcaption>"
    if figure.drawing is None:
        yield f'<p class="empty">Not drawn: {escape(figure.missing)}.</p>'
    else:
        yield inline(figure.drawing, figure.key, escape(f"{figure.title}: {figure.caption}"))
    if figure.tables:
        yield f"<details><summary>The numbers of {figure.title.lower()}</summary>"
        for table in figure.tables:
            yield from _table(table)
        yield "</details>"
    yield "</figure>"


def _table(table: Table) -> Iterator[str]:
    yield f'<div class="table" id="{table.key}"><div class="caption">'
    yield f"<h3>{escape(table.title)}</h3><p>{_text(table.caption)}</p></div>"
    yield '<div class="scroll"><table><thead>'
    if table.groups:
        groups = "".join(
            f'<th class="group" colspan="{span}" scope="colgroup">{escape(name)}</th>'
            for name, span in table.groups
        )
        yield f"<tr><td></td>{groups}</tr>"
    firsts = _firsts(table)
    heads = "".join(
        f'<th scope="col"{_kind(_head_classes(table, place, firsts))}>{escape(head)}</th>'
        for place, head in enumerate(table.heads[1:])
    )
    yield f"<tr><td></td>{heads}</tr></thead><tbody>"
    for row in table.rows:
        yield _row(row, firsts)
    yield "</tbody></table></div>"
    notes = [*table.notes]
    if table.reasons:
        notes.append(f"Not run: {table.reasons}.")
    yield from (f'<p class="note">{_text(note)}</p>' for note in notes)
    yield "</div>"


def _head_classes(table: Table, place: int, firsts: set[int]) -> list[str]:
    """Say how a heading looks: over words it stands where they do, on the left."""
    words = all(_is_text(row.cells[place]) for row in table.rows)
    return ["first"] * (place in firsts) + ["text"] * words


def _is_text(cell: Cell) -> bool:
    return cell.kind == "text" or len(cell.text) > _LONG


def _firsts(table: Table) -> set[int]:
    """Give the columns that begin a group, but the first."""
    ends = list(accumulate(span for _, span in table.groups))
    return set(ends[:-1])


def _kind(classes: list[str]) -> str:
    return f' class="{" ".join(classes)}"' if classes else ""


def _row(row: Row, firsts: set[int]) -> str:
    dot = ""
    if row.system:
        number = all_looks().index(look(row.system))
        dot = f'<span class="dot" style="background:var(--look-{number})"></span>'
    kind = ' class="paper"' if row.kind == "paper" else ""
    cells = "".join(_cell(cell, place in firsts) for place, cell in enumerate(row.cells))
    return f'<tr{kind}><th scope="row">{dot}{escape(row.label)}</th>{cells}</tr>'


def _cell(cell: Cell, first: bool) -> str:
    classes = [str(cell.kind)] if cell.kind in ("paper", "missing", "text") else []
    classes += ["first"] * first + ["strong"] * cell.strong
    classes += ["left"] * (len(cell.text) > _LONG)
    links = [f'<a href="#{key}">{escape(title)}</a>' for title, key in cell.links]
    text = "<br>".join(links) or escape(cell.text)
    about = cell.about
    if cell.origin is not None:
        about = "; ".join(filter(None, [about, _shortly(cell.origin)]))
        text = f'<a href="#{cell.origin.anchor}">{text}</a>'
    title = f' title="{escape(about)}"' if about else ""
    return f"<td{_kind(classes)}{title}>{text}</td>"


def _shortly(origin: Origin) -> str:
    """Say in a line where a number comes from."""
    known = origin.everything
    names = ("commit", "seed", "data digest")
    facts = [f"{name} {known[name]}" for name in names if name in known]
    return "; ".join(filter(None, [origin.title, *facts, origin.file]))


def _provenance(document: Document) -> Iterator[str]:
    yield f'<h2 id="{PROVENANCE}">Where every number comes from</h2>'
    yield (
        "<p>Every number of ours above is a link to its entry here: the command, the commit, the "
        "seed, digests of data and model, and the file with the translations in the results "
        "folder.</p>"
    )
    for origin in document.origins():
        entries = "".join(
            f"<dt>{escape(name)}</dt><dd><code>{escape(fact)}</code></dd>"
            for name, fact in origin.facts.items()
        )
        if origin.file:
            link = (
                f'<a href="{escape(f"{document.results}/{origin.file}")}">{escape(origin.file)}</a>'
            )
            entries += f"<dt>file</dt><dd>{link}</dd>"
        if origin.made_from is not None:
            link = f'<a href="#{origin.made_from.anchor}">{escape(origin.made_from.title)}</a>'
            entries += f"<dt>made from</dt><dd>{link}</dd>"
        yield (
            f'<div class="origin" id="{origin.anchor}"><strong>{escape(origin.title)}</strong>'
            f"<dl>{entries}</dl></div>"
        )
