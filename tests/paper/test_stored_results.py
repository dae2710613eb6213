"""The results that are stored here: what the README says of them, and that they hold no more."""

from __future__ import annotations

import re
import statistics
from itertools import chain
from pathlib import Path

import pytest

from scones.evaluation.significance import mark
from scones.paper.results import LONGER, RETRAINED, Direction, Results, RunResult, choose

ROOT = Path(__file__).parents[2]
RESULTS = Results(ROOT / "docs" / "results" / "paper")
DIRECTIONS = ("de-en", "en-de", "fi-en", "en-fi", "lt-en", "en-lt")
README = (ROOT / "README.md").read_text()


def readme_row(label: str) -> list[str]:
    """Give a row of the README's table of six directions, without emphasis."""
    table = README[README.index("The paper's experiments in its six directions") :]
    (row,) = re.findall(rf"^\| {re.escape(label)} \| (.+) \|$", table, re.MULTILINE)
    return [one.strip(" *") for one in row.split("|")]


def chosen_run(direction: Direction) -> RunResult:
    choice = choose(direction.runs())
    assert choice is not None
    run = direction.run(choice.system)
    assert run is not None
    return run


@pytest.mark.parametrize(("search", "shown"), [("greedy", "greedy"), ("beam4", "beam 4")])
def test_the_readme_says_what_was_found(search: str, shown: str) -> None:
    scores, smoothed, baselines = [], [], []
    for direction in map(RESULTS.direction, DIRECTIONS):
        softmax, run, other = direction.run("softmax"), chosen_run(direction), "softmax-ls"
        assert softmax is not None
        baselines.append(f"{softmax.score('newstest2019', search):.1f}")
        tests = direction.read_json("significance")["newstest2019"][search]
        scores.append(f"{run.score('newstest2019', search):.1f}{mark(tests[run.name]['p'])}")
        second = direction.run(other)
        assert second is not None
        smoothed.append(f"{second.score('newstest2019', search):.1f}{mark(tests[other]['p'])}")
    assert readme_row(f"softmax, {shown}") == baselines
    assert readme_row(f"softmax with label smoothing, {shown}") == smoothed
    assert readme_row(f"SCONES, {shown}") == scores


def test_the_readme_counts_what_label_smoothing_leaves() -> None:
    better, beyond = 0, 0
    for direction in map(RESULTS.direction, DIRECTIONS):
        run, other = chosen_run(direction), direction.run("softmax-ls")
        assert other is not None
        for search in ("greedy", "beam4"):
            scores = [one.score("newstest2019", search) or 0.0 for one in (run, other)]
            tests = direction.read_json("significance")["newstest2019"]
            p = tests[f"{search} against softmax-ls {search}"][run.name]["p"]
            better += scores[0] > scores[1]
            beyond += scores[0] > scores[1] and p < 0.05
    known = " ".join(README.split())
    assert f"in {better} of 12 with softmax with label smoothing, {beyond} of them" in known


def test_the_readme_says_what_was_chosen_and_trained_on() -> None:
    directions = [RESULTS.direction(name) for name in DIRECTIONS]
    alphas = [f"{chosen_run(one).output['alpha']:.1f}" for one in directions]
    assert readme_row("chosen α") == alphas
    pairs = [f"{(one.corpora or {})['pairs_kept']:,}" for one in directions]
    assert readme_row("training pairs") == pairs


@pytest.mark.parametrize(
    ("system", "shown"), [("softmax", "softmax"), ("scones-0.2", "SCONES, α = 0.2")]
)
def test_the_readme_says_what_exact_search_found(system: str, shown: str) -> None:
    beams, modes, proved = [], [], []
    for direction in map(RESULTS.direction, DIRECTIONS):
        assert direction.analysis is not None
        assert direction.analysis["sentences"] == 200
        found = direction.analysis["systems"][system]
        beams.append(f"{found['beams']['4']['outputs']['bleu']:.1f}")
        modes.append(f"{found['exact']['outputs']['bleu']:.1f}")
        proved.append(str(found["exact"]["proved"]))
    assert readme_row(f"{shown}, beam 4, 200 sentences") == beams
    assert readme_row(f"{shown}, exact search of them") == modes
    assert readme_row(f"{shown}, proved, of 200") == proved


@pytest.mark.parametrize(
    ("name", "system", "said"),
    [
        ("de-en", "scones-1.0", "25.42 ± 0.18"),
        ("de-en", "softmax", "24.58 ± 0.15"),
        ("lt-en", "scones-0.7", "4.90 ± 0.05"),
        ("lt-en", "softmax", "4.38 ± 0.15"),
    ],
)
def test_the_readme_says_what_seeds_gave(name: str, system: str, said: str) -> None:
    runs = [run for run in RESULTS.direction(name).runs() if run.system == system]
    scores = [run.score("newstest2019", "greedy") or 0.0 for run in runs]
    assert len(scores) == 3
    assert f"{statistics.fmean(scores):.2f} ± {statistics.stdev(scores):.2f}" == said
    assert said in README


def test_the_readme_says_what_more_steps_gave() -> None:
    apart = RESULTS.apart(LONGER)
    said = {}
    for name, systems in {"fi-en": ["scones-1.0"], "lt-en": ["scones-0.7", "scones-0.2"]}.items():
        tests = apart.direction(name).read_json("significance")["newstest2019"]
        for system in ("softmax", *systems):
            run = apart.direction(name).run(system)
            assert run is not None
            assert run.training["steps"] == 12_000
            said[name, system] = ", ".join(
                f"{run.score('newstest2019', search):.1f}"
                + (mark(tests[search][system]["p"]) if system != "softmax" else "")
                for search in ("greedy", "beam4")
            )
    known = " ".join(README.split())
    assert f"{said['fi-en', 'softmax']} and {said['fi-en', 'scones-1.0']} in fi-en" in known
    assert f"{said['lt-en', 'softmax']} and {said['lt-en', 'scones-0.2']} with the α" in known
    assert f"with α = 0.7 as above it is {said['lt-en', 'scones-0.7']}." in known
    choice = choose(apart.direction("lt-en").runs())
    assert choice is not None
    assert choice.alpha == 0.2


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
            files = [one.file for test in run.tests.values() for one in test.searches.values()]
            for file in files:
                pairs = zip(again.hypotheses(file), first.hypotheses(file), strict=True)
                differing[f"{again.name} {file}"] = sum(one != other for one, other in pairs)
    assert {name: count for name, count in differing.items() if count} == {
        "lt-en softmax.newstest2019.beam4.txt.xz": 1  # one of 12,000; docs/results/README.md
    }
    assert {name.split(".newstest")[0] for name in differing if "newstest2019" in name} == {
        "de-en scones-1.0",
        "lt-en softmax",
    }


def test_no_place_of_another_machine_is_told() -> None:
    for path in RESULTS.folder.rglob("*.json"):
        assert not re.search(r'["= ]/(root|home|work|tmp)/', path.read_text()), path
