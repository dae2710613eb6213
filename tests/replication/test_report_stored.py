"""The results that are stored here: what documents and report say of them is current."""

import re
import runpy
from pathlib import Path

import pytest

pytest.importorskip("pandas")
pytest.importorskip("jinja2")

from replication.claims import judge
from replication.report import write
from replication.table import MAIN, RETRAINED, Key, read_table
from scones.files import read_json
from scones.text.reading import read_texts

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results" / "paper"


@pytest.fixture(scope="module")
def table():
    return read_table(RESULTS)


def test_the_documents_numbers_are_current():
    readme = runpy.run_path(str(ROOT / "tools" / "readme.py"))
    pages = [path.read_text() for path in readme["PAGES"]]
    assert [page.count("<!-- results: ") for page in pages] == [2, 5]
    assert [readme["filled"](page) for page in pages] == pages, "run python tools/readme.py"


def test_corpora_are_told_without_the_place_where_they_lay():
    found = [read_json(file) for file in RESULTS.parent.glob("*/*/corpora.json")]
    named = [
        one[side] for each in found for one in each["corpora"] for side in ("source", "target")
    ]
    assert named
    assert [one for one in named if Path(one).is_absolute()] == []


def test_the_report_is_current_and_needs_no_references(tmp_path):
    written = write(RESULTS, tmp_path / "docs" / "report")
    assert not written.problems
    for name in ("report.md", "data/verdicts.csv"):
        parts = [
            (folder / name).read_text()
            for folder in (ROOT / "docs/report", tmp_path / "docs/report")
        ]
        stored, now = (re.sub(r"Written by .*|\S*results/paper\S*", "", text) for text in parts)
        assert now == stored, "run make report"


def test_every_claim_is_judged(table):
    names = ["1", "2", "3", "4", "5", "6a", "6b", "7", "8", "9", "10", "11"]
    assert [one.number for one in judge(table, {})] == names
    assert all(one.about["decides"] and one.about["old_rule"] for one in judge(table, {}))


def test_translations_are_whole_and_those_that_were_scored(table):
    for one in table.numbers:
        if one.metric == "bleu" and one.digest:
            assert len(read_texts(table.path(one))) == one.sentences


def test_what_was_trained_again_gave_the_same_weights_and_translations(table):
    differing = {}
    for one in table.numbers:
        if one.variant != RETRAINED or one.metric != "bleu":
            continue
        first = table.get(Key(MAIN, *one.key[1:]))
        assert first.model_digest == one.model_digest
        texts = [read_texts(table.path(number)) for number in (first, one)]
        differing[one.file] = sum(before != after for before, after in zip(*texts, strict=True))
    assert {file: count for file, count in differing.items() if count} == {
        # one of 12,000; docs/results/README.md
        "paper/retrained/lt-en/softmax.newstest2019.beam4.txt.xz": 1
    }


def test_no_place_of_another_machine_is_told():
    for path in RESULTS.rglob("*.json"):
        assert not re.search(r'["= ]/(root|home|work|tmp)/', path.read_text()), path
