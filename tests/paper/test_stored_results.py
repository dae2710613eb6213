"""The results that are stored here: what the README says of them, and that they hold no more."""

from __future__ import annotations

import re
import statistics
from pathlib import Path

import pytest

from scones.paper.digests import texts_digest
from scones.paper.results import Results, choose

ROOT = Path(__file__).parents[2]
RESULTS = Results(ROOT / "docs" / "results" / "paper")
ROWS = {
    "softmax": "softmax",
    "softmax, label smoothing 0.1": "softmax-ls",
    "SCONES, α = 0.2": "scones-0.2",
    "SCONES, α = 0.5": "scones-0.5",
    "SCONES, α = 1.0, chosen on newstest2018": "scones-1.0",
}


def readme_rows() -> dict[str, list[str]]:
    """Give the cells of the README's table of German, by system; marks and emphasis left out."""
    text = (ROOT / "README.md").read_text()
    table = text[text.index("The paper's experiments for German") :]
    rows = re.findall(r"^\| ([^|]+) \| (.+) \|$", table, re.MULTILINE)
    cells = {label: [one.strip(" *†‡") for one in rest.split("|")] for label, rest in rows}
    return {ROWS[label]: cells[label] for label in ROWS}


@pytest.mark.parametrize("system", ROWS.values())
def test_the_readme_says_what_was_found(system: str) -> None:
    expected = []
    for direction in map(RESULTS.direction, ("de-en", "en-de")):
        run = direction.run(system)
        assert run is not None
        scores = (run.score("newstest2019", search, "bleu") for search in ("greedy", "beam4"))
        expected += [f"{score:.1f}" for score in scores]
    analysis = RESULTS.direction("de-en").analysis
    assert analysis is not None
    searched = analysis["systems"].get(system)
    found = ["", ""]
    if searched is not None:
        both = searched["beams"]["4"], searched["exact"]
        found = [f"{one['outputs']['bleu']:.1f}" for one in both]
    assert readme_rows()[system] == [*expected, "", *found]


@pytest.mark.parametrize(
    ("system", "said"), [("scones-1.0", "25.4 ± 0.2"), ("softmax", "24.6 ± 0.1")]
)
def test_the_readme_says_what_seeds_gave(system: str, said: str) -> None:
    runs = [run for run in RESULTS.direction("de-en").runs() if run.system == system]
    scores = [run.score("newstest2019", "greedy") or 0.0 for run in runs]
    assert len(scores) == 3
    assert f"{statistics.fmean(scores):.1f} ± {statistics.stdev(scores):.1f}" == said
    assert said in (ROOT / "README.md").read_text()


def test_the_readme_names_the_chosen_one() -> None:
    for direction in ("de-en", "en-de"):
        choice = choose(RESULTS.direction(direction).runs())
        assert choice is not None
        label = next(label for label, system in ROWS.items() if system == choice.system)
        assert label.endswith(f"chosen on {choice.dev}")


def test_translations_are_whole_and_those_that_were_scored() -> None:
    for direction in RESULTS.directions():
        for run in direction.runs():
            for test in run.tests.values():
                for search in test.searches.values():
                    assert len(direction.hypotheses(search.file)) == test.sentences


def test_what_was_trained_again_gave_the_same_translations() -> None:
    (again,) = RESULTS.retrained.directions()
    for run in again.runs():
        for test in run.tests.values():
            for search in test.searches.values():
                first = RESULTS.direction(again.name).hypotheses(search.file)
                assert texts_digest(again.hypotheses(search.file)) == texts_digest(first)


def test_no_place_of_another_machine_is_told() -> None:
    for path in RESULTS.folder.rglob("*.json"):
        assert not re.search(r'["= ]/(root|home|work|tmp)/', path.read_text()), path
