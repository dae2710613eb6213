"""The verdicts: every rule gives what the numbers say, and what is not measured says why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from report_toys import ALPHAS, Made, output, searched, write_analysis

from scones.files import write_json
from scones.paper.report import published, writing
from scones.paper.report.claims_of_beams import CURSE, SPEED
from scones.paper.report.claims_of_errors import BEST_ALPHA, SEARCH_ERRORS
from scones.paper.report.claims_of_modes import AMBIGUITY, MODES
from scones.paper.report.claims_of_quality import (
    GAINS,
    GREEDY_FOR_BEAM,
    LESS_DATA,
    SECOND_METRIC,
    SMOOTHING,
)
from scones.paper.report.judging import Claim
from scones.paper.report.significance import Marks
from scones.paper.report.study import NEWS, Study
from scones.paper.report.verdicts import CLAIMS
from scones.paper.results import Results
from scones.paper.synthetic_verdict import judge

SEARCHES = ("greedy", "beam4")
SMALL, SOFTMAX, LARGE = "scones-0.2", "softmax", "scones-1.0"


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


# Each function writes the numbers that a claim is judged by.


def gains(made: Made, scones: float, p: float) -> None:
    made.run("de-en", SOFTMAX, 20.0)
    made.run("de-en", "scones-0.5", scones)
    for search in SEARCHES:
        made.p("de-en", "scones-0.5", search, p)


def gains_of_seeds(made: Made, spread: float, p: float) -> None:
    for seed in (1, 2, 3):
        made.run("lt-en", SOFTMAX, 20.0 + spread * (seed - 2), seed=seed)
        made.run("lt-en", "scones-0.5", 21.0 + spread * (2 - seed), seed=seed)
    made.p("lt-en", "scones-0.5", "greedy", p)


def gains_by_size(made: Made, gains: Sequence[float], noise: float = 0.0) -> None:
    for number, direction in enumerate(("de-en", "fi-en", "lt-en")):
        made.corpora(direction, 1000 - number)
        made.run(direction, SOFTMAX, 10.0)
        made.run(direction, "scones-0.5", 10.0 + gains[number])
    for seed in (2, 3) if noise else ():
        made.run("lt-en", SOFTMAX, 10.0 + noise * (2 * seed - 5), seed=seed)


def smoothed(made: Made, greedy: float, beam: float, p_greedy: float, p_beam: float) -> None:
    made.run("de-en", "scones-0.5", 20.0)
    made.run("de-en", SMALL, 10.0)
    made.run("de-en", "scones-ls", {"greedy": greedy, "beam4": beam})
    for search, p in zip(SEARCHES, (p_greedy, p_beam), strict=True):
        made.p("de-en", "scones-ls", f"{search} against scones-0.5 {search}", p)


def smoothed_with_borrowed_noise(made: Made, spread: float) -> None:
    made.run("de-en", "scones-0.5", 20.0)
    made.run("de-en", "scones-ls", 21.0)
    for seed in (1, 2, 3):
        made.run("lt-en", SOFTMAX, 10.0 + spread * seed, seed=seed)


def second_metric(made: Made, bleu: float, chrf: float) -> None:
    made.run("de-en", SOFTMAX, 20.0)
    made.run("de-en", "scones-0.5", bleu, chrf=chrf)


def greedy_for_beam(made: Made, greedy: float, p: float | None = None) -> None:
    made.run("de-en", SOFTMAX, {"greedy": 10.0, "beam4": 20.0})
    made.run("de-en", "scones-0.5", {"greedy": greedy, "beam4": 30.0})
    if p is not None:
        made.p("de-en", "scones-0.5", "greedy against softmax beam4", p)


def speed(
    made: Made, fast: float, slow: float, greedy: float, bleu: float, spread: float = 1.0
) -> None:
    def timings(rate: float, bleu: float, spread: float = 1.0) -> dict[str, Any]:
        times = [1 / rate, spread / rate, 1 / (rate * spread)]
        return {"sentences_per_second": rate, "times": times, "bleu": bleu}

    made.run("de-en", SOFTMAX, 20.0)
    beams = {"4": timings(slow, 20.0, spread), "1": timings(greedy, 15.0)}
    ours = {"1": timings(fast, bleu, spread)}
    systems = {
        SOFTMAX: {"beams": beams, "output": output(SOFTMAX)},
        "scones-0.5": {"beams": ours, "output": output("scones-0.5")},
    }
    made.direction("de-en").write_json("speed", {"systems": systems})


def analysis(made: Made, rows: Mapping[str, dict[str, Any]]) -> None:
    """Give every system the row that `searched` makes of its arguments."""
    made.run("de-en", SOFTMAX, 20.0)
    found = {system: searched(system, **row) for system, row in rows.items()}
    write_analysis(made.direction("de-en"), found)


def curse(made: Made, small: float, largest: int = 100) -> None:
    """Make curves over beams: softmax falls to 10, the small α to `small`."""
    curves = {SMALL: {1: 20.0, 4: 22.0, largest: small}, SOFTMAX: {1: 20.0, 4: 21.0}}
    curves[SOFTMAX] |= {largest: 10.0, 500: 0.0}  # 500 is a beam that the other lacks
    analysis(made, {system: {"beams": curve} for system, curve in curves.items()})


def modes(made: Made, small: float, softmax: float, large: float, proved: int = 150) -> None:
    """Give the share of beam 4's BLEU that exact search keeps."""
    kept = {SMALL: small, SOFTMAX: softmax, LARGE: large}
    usual = {"beams": {4: 20.0}, "proved": proved}
    analysis(made, {one: {**usual, "exact": 20.0 * share} for one, share in kept.items()})


def errors(made: Made, small: float, large: float, softmax: float) -> None:
    shares = {SMALL: small, LARGE: large, SOFTMAX: softmax}
    usual = {"beams": {1000: 9.0}, "exact": 9.0}
    analysis(made, {one: {**usual, "errors": share} for one, share in shares.items()})


def best_alpha(
    made: Made, dev: Sequence[float], errors: Sequence[float], exact: Sequence[float]
) -> None:
    """Give BLEU of the development set, search errors and BLEU of exact search, by α."""
    rows: dict[str, Any] = {SOFTMAX: {"beams": {100: 9.0}, "exact": 1.0, "errors": 0.5}}
    for system, bleu, share, best in zip(ALPHAS, dev, errors, exact, strict=True):
        made.run("de-en", system, 20.0, dev=bleu)
        rows[system] = {"beams": {100: 9.0}, "exact": best, "errors": share}
    analysis(made, rows)


def ambiguity(
    made: Made, softmax: float, large: float | None, small: float, p: float = 0.001
) -> None:
    alphas = {SOFTMAX: None, LARGE: 1.0, SMALL: 0.2}
    systems = {
        one: {"relative": share, "exact": {"unproved": 0.1}, "p": p}
        for one, share in zip(alphas, (softmax, large, small), strict=True)
    }
    rows = {"0.7": {"systems": systems}}
    result = {"systems": alphas, "temperatures": rows, "verdict": judge(rows, alphas)}
    write_json(made.folder / "synthetic.json", result)


@pytest.mark.parametrize(
    ("claim", "fill", "numbers", "outcome"),
    [
        (GAINS, gains, (21.0, 0.04), "confirmed"),
        (GAINS, gains, (21.0, 0.06), "not confirmed"),
        (GAINS, gains, (19.0, 0.04), "opposite"),
        (GAINS, gains_of_seeds, (0.2, 0.9), "confirmed"),  # seeds go before the test
        (GAINS, gains_of_seeds, (1.5, 0.001), "not confirmed"),
        (LESS_DATA, gains_by_size, ((1.0, 1.2, 1.4),), "confirmed"),
        (LESS_DATA, gains_by_size, ((1.0, 1.2, 1.4), 0.3), "not confirmed"),
        (LESS_DATA, gains_by_size, ((1.4, 1.2, 1.0),), "opposite"),
        (SMOOTHING, smoothed, (19.0, 20.5, 0.001, 0.3), "confirmed"),
        (SMOOTHING, smoothed, (19.0, 20.5, 0.001, 0.01), "not confirmed"),
        (SMOOTHING, smoothed, (20.9, 20.5, 0.001, 0.01), "opposite"),
        (SMOOTHING, smoothed_with_borrowed_noise, (0.1,), "opposite"),
        (SMOOTHING, smoothed_with_borrowed_noise, (0.6,), "confirmed"),
        (SECOND_METRIC, second_metric, (21.0, 51.0), "confirmed"),
        (SECOND_METRIC, second_metric, (20.0, 51.0), "not confirmed"),
        (SECOND_METRIC, second_metric, (21.0, 49.0), "opposite"),
        (GREEDY_FOR_BEAM, greedy_for_beam, (20.0,), "confirmed"),
        (GREEDY_FOR_BEAM, greedy_for_beam, (19.0, 0.5), "not confirmed"),
        (GREEDY_FOR_BEAM, greedy_for_beam, (19.0,), "opposite"),
        (SPEED, speed, (32.0, 10.0, 30.0, 19.6), "confirmed"),
        (SPEED, speed, (32.0, 10.0, 30.0, 19.4), "not confirmed"),  # worse
        (SPEED, speed, (32.0, 10.0, 11.0, 20.0), "not confirmed"),  # not by the beam
        (SPEED, speed, (25.0, 10.0, 24.0, 20.0, 1.2), "not confirmed"),  # not in all runs
        (SPEED, speed, (9.0, 10.0, 9.0, 20.0), "opposite"),
        (CURSE, curse, (21.0,), "confirmed"),
        (CURSE, curse, (20.0,), "not confirmed"),
        (CURSE, curse, (8.0,), "opposite"),
        (CURSE, curse, (21.0, 50), "not measured"),
        (MODES, modes, (0.95, 0.4, 0.5), "confirmed"),
        (MODES, modes, (0.75, 0.4, 0.5), "not confirmed"),
        (MODES, modes, (0.5, 0.9, 0.95), "opposite"),
        (MODES, modes, (0.95, 0.4, 0.5, 99), "not measured"),
        (SEARCH_ERRORS, errors, (0.05, 0.2, 0.25), "confirmed"),
        (SEARCH_ERRORS, errors, (0.05, 0.08, 0.25), "not confirmed"),  # noise of 150 sentences
        (SEARCH_ERRORS, errors, (0.3, 0.05, 0.1), "opposite"),
        (BEST_ALPHA, best_alpha, ((20, 22, 21), (0.1, 0.2, 0.3), (19, 12, 5)), "confirmed"),
        (BEST_ALPHA, best_alpha, ((20, 22, 21), (0.2, 0.1, 0.3), (19, 12, 5)), "not confirmed"),
        (BEST_ALPHA, best_alpha, ((20, 22, 21), (0.1, 0.1, 0.3), (19, 12, 5)), "not confirmed"),
        (BEST_ALPHA, best_alpha, ((23, 22, 21), (0.3, 0.2, 0.1), (5, 12, 19)), "opposite"),
        (AMBIGUITY, ambiguity, (0.3, 0.2, 0.8), "confirmed"),
        (AMBIGUITY, ambiguity, (0.3, 0.2, 0.8, 0.1), "not confirmed"),
        (AMBIGUITY, ambiguity, (0.3, 0.2, 0.1), "opposite"),
        (AMBIGUITY, ambiguity, (0.3, None, 0.1), "not measured"),
    ],
)
def test_a_rule_gives_what_the_numbers_say(
    made: Made, claim: Claim, fill: Callable[..., None], numbers: Sequence[Any], outcome: str
) -> None:
    fill(made, *numbers)
    found = made.judge(claim)
    assert found.outcome == outcome
    assert found.numbers.endswith(".")
    assert len(found.in_short) <= 240


@pytest.fixture
def as_published(made: Made) -> Made:
    """Results that are the paper's own numbers."""
    made.learned = {}
    for direction in published.DIRECTIONS:
        pair = direction if direction.endswith("en") else "-".join(direction.split("-")[::-1])
        made.corpora(direction, int(float(published.CORPORA[pair][1].text[:-1]) * 1e6))
        for system, key in ((SOFTMAX, published.SOFTMAX), ("scones-0.5", published.TUNED)):
            table = published.BLEU
            made.run(
                direction, system, {one: float(table[one][key][direction].text) for one in table}
            )
            for search in table:
                bleurt = float(published.BLEURT[search][key][direction].text)
                made.learned[f"{direction}.{system}.{NEWS}.{search}"] = bleurt / 100
        for search, rows in published.BLEU.items():
            mark = rows[published.GAIN][direction].text[-1]
            made.p(direction, "scones-0.5", search, {"†": 0.03, "‡": 0.003}.get(mark, 0.2))
    return made


def test_the_papers_own_numbers_confirm_its_claims(as_published: Made) -> None:
    for claim in (GAINS, LESS_DATA, GREEDY_FOR_BEAM, SECOND_METRIC):
        assert as_published.judge(claim).outcome == "confirmed"
    gains = as_published.judge(GAINS)
    assert "greedy: better in 6 of 6 (de-en +1.1‡, en-de +0.4, fi-en +0.7†," in gains.numbers
    assert gains.in_short == (
        "better in 12 of 12 (greedy and beam 4), beyond the noise in 9; on average +0.9."
    )
    as_published.run("en-de", "scones-0.5", 30.0)  # one without a gain is enough
    assert as_published.judge(GAINS).outcome == "not confirmed"


def test_without_results_nothing_is_measured(made: Made) -> None:
    assert len(CLAIMS) == 11
    document = writing.make_document(Study(Results(made.folder)), Marks(), None, "results")
    opening = document.sections[0]
    assert opening.paragraphs[0] == "0 of the paper's 6 directions have results."
    assert opening.paragraphs[1] == "Of the paper's 11 claims: 11 not measured."


def test_the_page_opens_with_early_verdicts_and_ways_to_the_evidence(made: Made) -> None:
    gains(made, 21.0, 0.04)
    document = writing.make_document(Study(Results(made.folder)), made.marks, None, "results")
    opening = document.sections[0]
    assert [block.key for block in opening.blocks] == ["claims", "summary", "numbers", "rules"]
    verdicts, _, numbers, _ = opening.blocks
    assert verdicts.rows[0].cells[0].text == "confirmed so far"  # five directions are missing
    assert [row.cells[0].text for row in numbers.rows] == [
        made.judge(claim).numbers for claim in CLAIMS
    ]
    keys = {block.key for section in document.sections for block in section.blocks}
    for row in verdicts.rows:
        assert {key for _, key in row.cells[2].links} <= keys
