"""The report of the stored results is current and whole; of others it says what is missing."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from report_toys import document

from scones.paper.agreement import disagreements
from scones.paper.report import published, writing
from scones.paper.report.document import Document
from scones.paper.report.published import DIRECTIONS
from scones.paper.report.writing import make_document, write_report
from scones.paper.results import Results

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = DOCS / "results" / "paper"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Document]:
    """The report of the stored results and the document it shows, made once."""
    folder, made = tmp_path_factory.mktemp("report"), []

    def remember(*arguments: Any) -> Document:
        made.append(make_document(*arguments))
        return made[0]

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(writing, "make_document", remember)
        write_report(RESULTS, folder)
    return folder, made[0]


@pytest.fixture
def written(stored: tuple[Path, Document]) -> Path:
    return stored[0]


def test_the_stored_report_is_current(written: Path) -> None:
    """Every table, every reason and every origin, as `make report` last wrote them."""

    def text(path: Path) -> str:
        """Leave out who wrote it, and the way to the results."""
        told = re.sub(r"^Written by .*\n", "", path.read_text(), flags=re.MULTILINE)
        return re.sub(r"\]\((?:\.\./)+\S*?results/paper/", "](results/", told)

    assert text(written / "report.md") == text(DOCS / "report" / "report.md")


def test_every_number_of_ours_has_its_origin(stored: tuple[Path, Document]) -> None:
    for one in stored[1].tables():
        for line in one.rows:
            assert len(line.cells) == len(one.heads) - 1, one.key
            for cell in line.cells:
                if cell.kind == "ours" and cell.about != "of the rows above":
                    assert cell.origin is not None, (one.key, line.label)
                elif cell.kind == "plain":
                    assert not re.search(r"\d", cell.text), (one.key, line.label, cell.text)


def test_the_page_has_everything_and_needs_nothing_else(written: Path) -> None:
    page = (written / "index.html").read_text()
    ids = re.findall(r' id="([^"]*)"', page)
    links = re.findall(r' (?:href|src)="([^"]*)"', page)
    titles = [f"Table {number}" for number in range(1, 8)]
    titles += [f"Figure {number}" for number in range(2, 10)]
    for word in (*titles, *DIRECTIONS):
        assert word in page
    assert not re.search(r"<(script|link|img|iframe)\b", page)
    assert [link for link in links if link.startswith("http")] == [published.ADDRESS]
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)
    files = [link for link in links if link.endswith((".xz", ".json"))]
    assert files
    assert all((written / link).exists() for link in files)
    for number in range(2, 10):
        ElementTree.parse(written / f"figure-{number}.svg")


def test_what_was_not_run_says_so_and_why(toys: Path) -> None:
    found = document(toys / "results")
    tables = {table.key: table for table in found.tables()}
    rows = {row.label: row.cells for row in tables["table-3-newstest2019"].rows}
    cells = rows["Softmax"]
    assert [cell.kind for cell in cells[:6]] == ["ours", "ours", *["missing"] * 4]
    assert cells[2].text == "not run"
    reasons = tables["table-3-msdocs"].reasons
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
