"""The report: everything is there, every number has an origin, nothing is invented."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import statistics
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from report_toys import FIRST, make_data, make_results, texts, write_lines

from scones.errors import SconesError
from scones.paper.digests import texts_digest
from scones.paper.report import published, writing
from scones.paper.report.checking import bleu_cells, check
from scones.paper.report.document import Document, Row, Table
from scones.paper.report.plots import all_looks, look
from scones.paper.report.published import DIRECTIONS, Published
from scones.paper.report.references import References
from scones.paper.report.significance import Marks, find_marks
from scones.paper.report.study import NEWS, Study
from scones.paper.results import Results

EVERYTHING = [
    *(f"Table {number}" for number in range(1, 8)),
    *(f"Figure {number}" for number in range(2, 10)),
]


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    make_results(folder / "results")
    make_data(folder / "data")
    return folder


@pytest.fixture
def copy(toys: Path, tmp_path: Path) -> Path:
    """Give a results folder that may be changed; its data folder lies beside it."""
    for name in ("results", "data"):
        shutil.copytree(toys / name, tmp_path / name)
    for path in tmp_path.rglob("significance.json"):
        path.unlink()
    return tmp_path / "results"


@pytest.fixture(scope="module")
def written(toys: Path) -> Path:
    writing.write_report(toys / "results", toys / "page", toys / "data")
    return toys / "page"


@pytest.fixture(scope="module")
def page(written: Path) -> Page:
    return Page.read(written / "index.html")


@pytest.fixture(scope="module")
def whole(toys: Path) -> Document:
    """The document of the results as they are, without marks."""
    return document(toys / "results")


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(test_set: str, direction: str) -> list[str]:
        raise OSError("no network")

    monkeypatch.setattr("sacrebleu.utils.get_reference_files", refuse)


def document(results: Path, marks: Marks | None = None) -> Document:
    return writing.make_document(Study(Results(results)), marks or Marks(), None, "results")


def table(found: Document, key: str) -> Table:
    return next(one for one in found.tables() if one.key == key)


def row(found: Table, label: str) -> Row:
    return next(one for one in found.rows if one.label == label)


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


def test_texts_are_escaped(written: Path) -> None:
    text = (written / "index.html").read_text()
    assert "scones train &lt;store&gt;" in text
    assert "<store>" not in text


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


def test_every_number_of_ours_has_its_origin(whole: Document) -> None:
    found = whole
    for one in found.tables():
        for line in one.rows:
            assert len(line.cells) == len(one.heads) - 1, one.key
            for cell in line.cells:
                if cell.kind == "ours" and cell.about != "of the rows above":
                    assert cell.origin is not None, (one.key, line.label)
                elif cell.kind == "plain":
                    assert not re.search(r"\d", cell.text), (one.key, line.label, cell.text)
    for origin in found.origins():
        known = origin.everything
        assert origin.file
        if "corpora" not in origin.key:
            assert any("scones " in fact for fact in known.values()), origin
            assert known["commit"]


def test_scores_are_the_stored_ones(whole: Document, toys: Path) -> None:
    results = Results(toys / "results")
    found = whole
    for test in ("newstest2019", "europarl", "msdocs"):
        one = table(found, f"table-3-{test}")
        places = [place for place, head in enumerate(one.heads[1:]) if head == "de-en"]
        for label, name in (("Softmax", "softmax"), ("SCONES, tuned α", "scones-0.5")):
            run = results.direction("de-en").run(name)
            assert run is not None
            expected = [f"{run.score(test, search):.1f}" for search in ("greedy", "beam4")]
            assert [row(one, label).cells[place].text for place in places] == expected


def test_numbers_of_the_paper_are_published_ones(whole: Document) -> None:
    known = set()

    def collect(value: object) -> None:
        if isinstance(value, Published):
            known.add(value.text)
        elif isinstance(value, dict):
            for one in value.values():
                collect(one)
        elif isinstance(value, tuple):
            for one in value:
                collect(one)

    for value in vars(published).values():
        collect(value)
    for one in whole.tables():
        for line in one.rows:
            for cell in line.cells:
                if cell.kind == "paper" and cell.text != "–":
                    assert cell.text in known or cell.about.startswith("the difference of"), cell
                assert (line.kind == "paper") <= (cell.kind == "paper")


@pytest.mark.parametrize("search", ["greedy", "beam4"])
def test_published_gains_fit_published_scores(search: str) -> None:
    rows = published.BLEU[search]
    for direction in DIRECTIONS:
        softmax, scones = (float(rows[key][direction].text) for key in ("softmax", "tuned SCONES"))
        gain = float(rows["gain"][direction].text.strip("+†‡"))
        rounding = 100 * (0.05 + 0.05) / softmax + 0.05
        assert gain == pytest.approx(100 * (scones / softmax - 1), abs=rounding + 0.02)


def test_what_was_not_run_says_so_and_why(whole: Document) -> None:
    found = whole
    cells = row(table(found, "table-3-newstest2019"), "Softmax").cells
    assert [cell.kind for cell in cells[:6]] == ["ours", "ours", *["missing"] * 4]
    assert cells[2].text == "not run"
    assert "fi-en, en-fi, lt-en, en-lt: no results yet" in table(found, "table-3-msdocs").reasons
    reasons = table(found, "table-3-msdocs").reasons
    assert "en-de: softmax: not translated yet" in reasons
    assert "en-de: softmax-ls: not trained yet" in reasons
    assert "en-de: scones-ls: no jam" in reasons
    assert "en-de: speed: no cream" in table(found, "speed-shares").reasons
    assert table(found, "table-3-europarl").heads == ["", "de-en", "en-de", "de-en", "en-de"]
    others = ["fi-en", "en-fi", "lt-en", "en-lt"]
    assert table(found, "table-3-tatoeba").heads == ["", *others, *others]
    assert "europarl" in dict(table(found, "seeds-de-en").groups)
    assert "tatoeba" not in dict(table(found, "seeds-de-en").groups)


def test_without_results_of_search_there_is_a_place_for_them(toys: Path, tmp_path: Path) -> None:
    (tmp_path / "en-de").mkdir()
    shutil.copy(toys / "results" / "en-de" / "softmax.json", tmp_path / "en-de")
    found = document(tmp_path)
    assert {block.key for section in found.sections for block in section.blocks} >= {
        *(f"figure-{number}" for number in range(2, 10)),
        "table-6",
        "table-7",
    }
    assert not [
        cell
        for key in ("table-6", "table-7")
        for line in table(found, key).rows
        for cell in line.cells
        if cell.kind == "ours"
    ]
    assert "Not drawn: the synthetic languages were not run." in writing.page(found)


def test_seeds_have_mean_and_deviation(whole: Document, toys: Path) -> None:
    runs = Results(toys / "results").direction("de-en").runs()
    scores = [run.score("newstest2019", "greedy") or 0.0 for run in runs if run.system == "softmax"]
    assert len(scores) == 3
    cell = row(table(whole, "seeds-de-en"), "softmax, mean of 3").cells[0]
    assert cell.text == f"{statistics.fmean(scores):.1f} ± {statistics.stdev(scores):.1f}"


def test_a_mean_of_fewer_seeds_says_so(copy: Path) -> None:
    path = copy / "de-en" / "softmax-seed3.json"
    kept = json.loads(path.read_text())
    del kept["tests"]["europarl"]
    path.write_text(json.dumps(kept))
    found = table(document(copy), "seeds-de-en")
    cells = row(found, "softmax, mean of 3").cells
    fewer = [cell.text.endswith(" (of 2)") for cell in cells]
    assert fewer == [test == "europarl" for test, columns in found.groups for _ in range(columns)]


def test_what_was_trained_again_stands_beside_the_first(copy: Path) -> None:
    assert table(document(copy), "retrained").reasons
    stored = Results(copy).direction("de-en").run("softmax")
    assert stored is not None
    news = {NEWS: stored.tests[NEWS]}
    again = Results(copy).retrained.direction("de-en")
    again.write_run(dataclasses.replace(stored, tests=news))
    (found,) = table(document(copy), "retrained").rows
    assert found.label == f"de-en, softmax: {NEWS}"
    first, second, *_, weights = found.cells
    assert first.text == second.text == f"{stored.score(NEWS, 'greedy', 'bleu'):.1f}"
    assert first.origin
    assert second.origin
    assert second.origin.file == f"retrained/{first.origin.file}"
    assert first.origin.anchor != second.origin.anchor
    assert weights.text == "the same, bit by bit"
    again.write_run(dataclasses.replace(stored, tests=news, model_digest="another"))
    (found,) = table(document(copy), "retrained").rows
    assert found.cells[-1].text == "others"


def test_speed_up_is_split_into_beam_and_output_layer(whole: Document) -> None:
    found = table(whole, "speed-shares")
    first = [line.cells[0].text for line in found.rows]
    assert first[0] == "3.12×"
    assert first[1] == "3.9×"
    assert first[3:5] == ["2.50×", "1.25×"]


def test_exact_search_stands_beside_beam_search(whole: Document, toys: Path) -> None:
    analysis = Results(toys / "results").direction("de-en").analysis
    assert analysis is not None
    exact = analysis["systems"]["softmax"]["exact"]
    found = whole
    assert (
        row(table(found, "table-6"), "Softmax").cells[6].text == f"{exact['outputs']['bleu']:.1f}"
    )
    cells = row(table(found, "table-7"), "de-en, Softmax").cells
    assert [cell.text for cell in cells] == ["10.00 %", f"{FIRST}", "123,456", "–"]
    cells = row(table(found, "table-7"), "synthetic, γ = 0.1, SCONES (α = 0.2)").cells
    assert [cell.text for cell in cells] == ["4.32 %", "77", "654,321", "0.55 %"]


def test_no_plots_without_matplotlib(toys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scones.paper.report.plots.can_draw", lambda: False)
    text = writing.page(document(toys / "results"))
    assert "<svg" not in text
    assert "Not drawn: matplotlib is not installed" in text


def test_other_measures_that_are_not_computed_yet_are_missing(copy: Path) -> None:
    direction = Results(copy).direction("de-en")
    run = direction.run("softmax")
    assert run is not None
    value = run.to_json()
    del value["tests"]["newstest2019"]["searches"]["greedy"]["scores"]["ter"]
    direction.write_json("softmax", value)
    found = table(document(copy), "table-4-ter-newstest2019")
    assert found.rows[0].cells[0].about == "de-en: ter is not computed yet (scones paper score)"
    assert found.rows[0].cells[6].kind == "ours"


@pytest.mark.usefixtures("no_network")
class TestSignificance:
    def test_tests_are_made_once_and_kept(self, copy: Path) -> None:
        study = Study(Results(copy))
        made = find_marks(study, References(copy.parent / "data"))
        assert made.mark("de-en", "scones-0.5", "newstest2019", "greedy") == "‡"
        assert made.known["de-en", "scones-0.5-seed2", "europarl", "beam4"]["baseline"] == (
            "softmax-seed2"
        )
        against = made.known["de-en", "scones-0.5", NEWS, "greedy against softmax beam4"]
        assert (against["baseline"], against["p"] < 0.01) == ("softmax", True)
        assert ("de-en", "scones-0.5", "europarl", "greedy against softmax beam4") not in made.known
        smoothed = made.known["de-en", "scones-ls", NEWS, "beam4 against scones-0.5 beam4"]
        assert smoothed["baseline"] == "scones-0.5"
        again = find_marks(Study(Results(copy)), References())
        assert again.known == made.known
        assert not again.problems
        found = document(copy, again)
        cells = table(found, "table-3-newstest2019").rows[-2].cells
        assert cells[0].text.endswith("‡")
        assert "paired bootstrap tests" in " ".join(found.sections[2].paragraphs)

    def test_there_are_no_marks_without_references(self, copy: Path) -> None:
        marks = find_marks(Study(Results(copy)), References())
        assert not marks.known
        assert "There are no marks" in marks.sentence
        assert "--data" in marks.sentence
        assert not (copy / "de-en" / "significance.json").exists()

    def test_tests_of_other_translations_do_not_count(self, copy: Path) -> None:
        find_marks(Study(Results(copy)), References(copy.parent / "data"))
        direction = Results(copy).direction("de-en")
        write_lines(direction.folder / "softmax.newstest2019.greedy.txt.xz", ["another"] * 40)
        marks = find_marks(Study(Results(copy)), References())
        assert ("de-en", "scones-0.5", "newstest2019", "greedy") not in marks.known
        assert ("de-en", "scones-0.5-seed2", "newstest2019", "greedy") in marks.known

    def test_a_stored_score_that_is_wrong_is_refused(self, copy: Path) -> None:
        direction = Results(copy).direction("de-en")
        run = direction.run("softmax")
        assert run is not None
        value = run.to_json()
        value["tests"]["newstest2019"]["searches"]["greedy"]["scores"]["bleu"] += 1
        direction.write_json("softmax", value)
        with pytest.raises(SconesError, match=r"de-en softmax, newstest2019, greedy have BLEU"):
            find_marks(Study(Results(copy)), References(copy.parent / "data"))


class TestReferences:
    def result(self, folder: Path, test: str = "newstest2019"):  # type: ignore[no-untyped-def]
        run = Results(folder).direction("de-en").run("softmax")
        assert run is not None
        return run.tests[test]

    @pytest.mark.parametrize("test", ["newstest2018", "newstest2019", "europarl", "msdocs"])
    def test_found_in_a_data_folder(self, toys: Path, test: str) -> None:
        found = References(toys / "data").of("de-en", test, self.result(toys / "results", test))
        assert found == texts("de-en", test)

    def test_those_of_sacrebleu(
        self, toys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "wmt19.de-en.ref"
        path.write_text("".join(f"{text}\n" for text in texts("de-en", "newstest2019")))
        asked = []

        def files(test_set: str, direction: str) -> list[str]:
            asked.append((test_set, direction))
            return [str(path)]

        monkeypatch.setattr("sacrebleu.utils.get_reference_files", files)
        found = References().of("de-en", "newstest2019", self.result(toys / "results"))
        assert found == texts("de-en", "newstest2019")
        assert asked == [("wmt19", "de-en")]

    @pytest.mark.usefixtures("no_network")
    def test_without_a_network(self, toys: Path) -> None:
        with pytest.raises(SconesError, match=r"neither in its cache nor .* --data"):
            References().of("de-en", "newstest2019", self.result(toys / "results"))
        with pytest.raises(SconesError, match=r"sacreBLEU does not know msdocs"):
            References().of("de-en", "msdocs", self.result(toys / "results", "msdocs"))

    def test_the_first_sentences_of_a_set(self, toys: Path) -> None:
        first = texts("de-en", "msdocs")[:30]
        whole = self.result(toys / "results", "msdocs")
        cut = dataclasses.replace(whole, sentences=30, reference_digest=texts_digest(first))
        references = References(toys / "data")
        assert references.of("de-en", "msdocs", cut) == first
        assert references.of("de-en", "msdocs", whole) == texts("de-en", "msdocs")
        with pytest.raises(SconesError, match="scored with others"):
            references.of("de-en", "msdocs", dataclasses.replace(whole, sentences=30))

    def test_other_references_are_refused(self, toys: Path) -> None:
        other = dataclasses.replace(self.result(toys / "results"), reference_digest="0" * 16)
        with pytest.raises(SconesError, match="0" * 16):
            References(toys / "data").of("de-en", "newstest2019", other)
        longer = dataclasses.replace(other, sentences=41)
        with pytest.raises(SconesError, match=r"40 lines, but 41"):
            References(toys / "data").of("de-en", "newstest2019", longer)
        with pytest.raises(SconesError, match=r"has no references of unknown"):
            References(toys / "data").of("de-en", "unknown", other)


def test_every_bleu_cell_can_be_computed_again(toys: Path) -> None:
    study = Study(Results(toys / "results"))
    known = bleu_cells(study)
    assert {"exact search", "beam 1000", "while timed", "europarl"} <= {
        word
        for cell in known
        for word in ("exact search", "beam 1000", "while timed", "europarl")
        if word in cell.title
    }
    checked = list(check(study, References(toys / "data"), len(known), seed=1))
    assert len(checked) == len(known)
    assert all(one.same for one in checked)


def test_a_damaged_cell_is_found(copy: Path) -> None:
    direction = Results(copy).direction("en-de")
    for path in direction.folder.glob("*.txt.xz"):
        write_lines(path, ["damaged"] * 40)
    study = Study(Results(copy))
    checked = list(check(study, References(copy.parent / "data"), len(bleu_cells(study)), seed=2))
    assert {one.cell.direction.name for one in checked if not one.same} == {"en-de"}
