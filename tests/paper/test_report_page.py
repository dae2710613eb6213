"""The page of the report: everything is there, and it needs nothing else."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scones.paper.report import published, writing
from scones.paper.report.plots import all_looks, look
from scones.paper.report.published import DIRECTIONS

EVERYTHING = [
    *(f"Table {number}" for number in range(1, 8)),
    *(f"Figure {number}" for number in range(2, 10)),
]


@pytest.fixture(scope="module")
def written(toys: Path) -> Path:
    writing.write_report(toys / "results", toys / "page", toys / "data")
    return toys / "page"


@pytest.fixture(scope="module")
def page(written: Path) -> Page:
    return Page.read(written / "index.html")


class Page(HTMLParser):
    """A page that was read: its text, its ids, its links, whether its tags match."""

    void = ("meta", "br")

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.text = ""

    @classmethod
    def read(cls, path: Path) -> Page:
        page = cls()
        page.feed(path.read_text())
        page.close()
        return page

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in self.void:
            self.open.append(tag)
        self._note(attributes)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._note(attributes)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def _note(self, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found[name] for name in ("href", "src") if name in found]


def test_every_table_and_figure_of_the_paper_is_there(written: Path, page: Page) -> None:
    markdown = (written / "report.md").read_text()
    for title in EVERYTHING:
        assert re.search(rf"^#+ {title}\b", markdown, re.MULTILINE), title
        assert title in page.text
    for direction in DIRECTIONS:
        assert direction in page.text


def test_page_needs_nothing_else(page: Page) -> None:
    assert not page.open
    assert not page.tags & {"script", "link", "img", "iframe"}
    far = [link for link in page.links if link.startswith("http")]
    assert far == [published.ADDRESS]


def test_every_link_leads_somewhere(written: Path, page: Page) -> None:
    assert len(page.ids) == len(set(page.ids))
    near = {link[1:] for link in page.links if link.startswith("#")}
    assert near <= set(page.ids)
    files = [link for link in page.links if link.endswith((".xz", ".json"))]
    assert files
    assert all((written / link).exists() for link in files)
    markdown = (written / "report.md").read_text()
    assert set(re.findall(r"\]\(#([^)]+)\)", markdown)) <= set(
        re.findall(r'id="([^"]+)"', markdown)
    )


def test_figures_are_files_with_the_colours_of_their_systems(written: Path) -> None:
    for number in range(2, 10):
        drawing = (written / f"figure-{number}.svg").read_text()
        ElementTree.fromstring(drawing)
        assert look("softmax").light in drawing
        assert f"figure-{number}.svg" in (written / "report.md").read_text()
    text = (written / "index.html").read_text()
    assert text.count("<svg") == 8
    drawn = text[text.index("<svg") :]
    assert look("softmax").light not in drawn  # a page has variables instead, light and dark
    assert len({one.light for one in all_looks()}) == len(all_looks())
