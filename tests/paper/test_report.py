"""The report of the stored results is current and whole; of others it says what is missing."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from report_toys import document, row, table

from scones.paper.agreement import disagreements
from scones.paper.report import published
from scones.paper.report.published import DIRECTIONS
from scones.paper.report.writing import write_report
from scones.paper.results import Results

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = DOCS / "results" / "paper"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_report(RESULTS, folder)
    return folder


def test_the_stored_report_is_current(written: Path) -> None:
    """Every table, every reason and every origin, as `make report` last wrote them."""

    def text(path: Path) -> str:
        """Leave out who wrote it, and the way to the results."""
        told = re.sub(r"^Written by .*\n", "", path.read_text(), flags=re.MULTILINE)
        return re.sub(r"\]\((?:\.\./)+\S*?results/paper/", "](results/", told)

    assert text(written / "report.md") == text(DOCS / "report" / "report.md")


def test_every_number_of_ours_has_its_origin() -> None:
    found = document(RESULTS)
    for one in found.tables():
        for line in one.rows:
            assert len(line.cells) == len(one.heads) - 1, one.key
            for cell in line.cells:
                if cell.kind == "ours" and cell.about != "of the rows above":
                    assert cell.origin is not None, (one.key, line.label)
                elif cell.kind == "plain":
                    assert not re.search(r"\d", cell.text), (one.key, line.label, cell.text)


class Page(HTMLParser):
    """A page that was read: its text, its ids, its links, whether its tags match."""

    void = ("meta", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in self.void:
            self.open.append(tag)
        self.handle_startendtag(tag, attributes)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found[name] for name in ("href", "src") if name in found]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_has_everything_and_needs_nothing_else(written: Path) -> None:
    page = Page((written / "index.html").read_text())
    titles = [f"Table {number}" for number in range(1, 8)]
    titles += [f"Figure {number}" for number in range(2, 10)]
    for word in (*titles, *DIRECTIONS):
        assert word in page.text
    assert not page.open
    assert not page.tags & {"script", "link", "img", "iframe"}
    assert [link for link in page.links if link.startswith("http")] == [published.ADDRESS]
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    files = [link for link in page.links if link.endswith((".xz", ".json"))]
    assert files
    assert all((written / link).exists() for link in files)
    for number in range(2, 10):
        ElementTree.parse(written / f"figure-{number}.svg")


def test_what_was_not_run_says_so_and_why(toys: Path) -> None:
    found = document(toys / "results")
    cells = row(table(found, "table-3-newstest2019"), "Softmax").cells
    assert [cell.kind for cell in cells[:6]] == ["ours", "ours", *["missing"] * 4]
    assert cells[2].text == "not run"
    reasons = table(found, "table-3-msdocs").reasons
    assert "fi-en, en-fi, lt-en, en-lt: no results yet" in reasons
    assert "en-de: softmax: not translated yet" in reasons
    assert "en-de: softmax-ls: not trained yet" in reasons
    assert "en-de: scones-ls: no jam" in reasons


def test_the_report_says_who_was_trained_otherwise(copy: Path) -> None:
    direction = Results(copy).direction("de-en")
    assert disagreements(direction.runs()) == []
    run = direction.run("scones-0.5")
    assert run is not None
    direction.write_run(
        dataclasses.replace(run, data_digest="other", command=f"{run.command} --max-steps 9")
    )
    said = "scones-0.5 differs from softmax in training data, [train]"
    assert disagreements(direction.runs()) == [said]
    paragraphs = " ".join(document(copy).sections[1].paragraphs)
    assert f"But not all do: de-en: {said}." in paragraphs
