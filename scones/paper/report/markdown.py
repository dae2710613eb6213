"""A document as Markdown, its figures as files beside it."""

from __future__ import annotations

from collections.abc import Iterator

from scones.analysis.tables import table_lines
from scones.paper.report.document import Cell, Document, Figure, Section, Table


def markdown(document: Document) -> str:
    """Write the text; figures are expected as KEY.svg in the same folder."""
    lines = [f"# {document.title}", ""]
    for paragraph in document.paragraphs:
        lines += [paragraph, ""]
    for section in document.sections:
        lines += _section(section)
    lines += _provenance(document)
    return "\n".join(lines)


def _section(section: Section) -> Iterator[str]:
    yield from (f"## {section.title}", "")
    for paragraph in section.paragraphs:
        yield from (paragraph, "")
    for block in section.blocks:
        yield from _figure(block) if isinstance(block, Figure) else _table(block, "###")


def _figure(figure: Figure) -> Iterator[str]:
    yield from (_anchor(figure.key), f"### {figure.title}", "", figure.caption, "")
    if figure.drawing is None:
        yield from (f"*Not drawn: {figure.missing}.*", "")
    else:
        yield from (f"![{figure.title}]({figure.key}.svg)", "")
    for table in figure.tables:
        yield from _table(table, "####")


def _table(table: Table, heading: str) -> Iterator[str]:
    yield from (_anchor(table.key), f"{heading} {table.title}", "", table.caption, "")
    groups = [name for name, span in table.groups for _ in range(span)]
    heads = list(table.heads)
    if groups:
        named = zip(groups, heads[1:], strict=True)
        heads[1:] = [f"{group}: {head}" if group else head for group, head in named]
    rows = [[_label(row.label, row.kind), *map(_cell, row.cells)] for row in table.rows]
    words = all(cell.kind == "text" for row in table.rows for cell in row.cells)
    yield from (*table_lines(heads, rows, words), "")
    for note in table.notes:
        yield from (note, "")
    if table.reasons:
        yield from (f"Not run: {table.reasons}.", "")


def _anchor(key: str) -> str:
    """Give what links point to; a heading's own name would change with its words."""
    return f'<a id="{key}"></a>\n'


def _label(label: str, kind: str) -> str:
    return f"*{label}*" if kind == "paper" else label


def _cell(cell: Cell) -> str:
    text = cell.text
    if cell.kind == "paper":
        return f"*{text}*"
    if cell.links:
        return ", ".join(f"[{title}](#{key})" for title, key in cell.links)
    if cell.strong:
        text = f"**{text}**"
    return text if cell.origin is None else f"[{text}](#{cell.origin.anchor})"


def _provenance(document: Document) -> Iterator[str]:
    yield from ("## Where every number comes from", "")
    yield from (
        "Every number of ours is a link to its entry here; files lie in the results folder.",
        "",
    )
    for origin in document.origins():
        yield f'- <a id="{origin.anchor}"></a>**{origin.title}**'
        yield from (f"  - {name}: `{fact}`" for name, fact in origin.facts.items())
        if origin.file:
            yield f"  - file: [{origin.file}]({document.results}/{origin.file})"
        if origin.made_from is not None:
            yield f"  - made from: [{origin.made_from.title}](#{origin.made_from.anchor})"
    yield ""
