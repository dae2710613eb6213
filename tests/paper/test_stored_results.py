"""The results that are stored here: what README and report say of them is current."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from scones.analysis.tables import markdown as analysis_tables
from scones.files import read_json
from scones.paper.replication import markdown as replication_tables
from scones.paper.results import LONGER, RETRAINED, Results
from scones.paper.synthetic_tables import markdown as synthetic_tables

ROOT = Path(__file__).parents[2]
RESULTS = Results(ROOT / "docs" / "results" / "paper")


def test_the_readmes_numbers_are_current() -> None:
    spec = importlib.util.spec_from_file_location("readme", ROOT / "tools" / "readme.py")
    assert spec is not None
    assert spec.loader is not None
    readme = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(readme)
    page = readme.README.read_text()
    assert page.count("<!-- results: ") == 3
    assert readme.filled(page) == page, "run python tools/readme.py"


@pytest.mark.parametrize(
    ("figures", "tables", "markdown"),
    [
        ("search/multi30k/analysis.json", "search/multi30k/analysis.md", analysis_tables),
        ("search/newstest2019/analysis.json", "search/newstest2019/analysis.md", analysis_tables),
        ("paper/synthetic.json", "synthetic/synthetic.md", synthetic_tables),
        ("multi30k.json", "multi30k.md", replication_tables),
    ],
)
def test_stored_tables_are_those_of_the_stored_figures(
    figures: str, tables: str, markdown: Callable[[dict[str, Any]], str]
) -> None:
    folder = ROOT / "docs" / "results"
    assert markdown(read_json(folder / figures)) == (folder / tables).read_text()


def test_translations_are_whole_and_those_that_were_scored() -> None:
    apart = [RESULTS.apart(name).directions() for name in (RETRAINED, LONGER)]
    for direction in chain(RESULTS.directions(), *apart):
        for run in direction.runs():
            for test in run.tests.values():
                for search in test.searches.values():
                    assert len(direction.hypotheses(search.file)) == test.sentences


def test_what_was_trained_again_gave_the_same_weights_and_translations() -> None:
    differing = {}
    for again in RESULTS.apart(RETRAINED).directions():
        first = RESULTS.direction(again.name)
        for run in again.runs():
            stored = first.run(run.name)
            assert stored is not None
            assert run.model_digest == stored.model_digest
            for file in (one.file for test in run.tests.values() for one in test.searches.values()):
                pairs = zip(again.hypotheses(file), first.hypotheses(file), strict=True)
                differing[f"{again.name} {file}"] = sum(one != other for one, other in pairs)
    assert {name: count for name, count in differing.items() if count} == {
        "lt-en softmax.newstest2019.beam4.txt.xz": 1  # one of 12,000; docs/results/README.md
    }


def test_no_place_of_another_machine_is_told() -> None:
    for path in RESULTS.folder.rglob("*.json"):
        assert not re.search(r'["= ]/(root|home|work|tmp)/', path.read_text()), path
