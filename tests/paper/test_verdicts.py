"""The verdicts: the rules give what the numbers say, and what is not measured says why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from verdict_toys import Made

from scones.paper.report import published, writing
from scones.paper.report.claims_of_quality import (
    GAINS,
    GREEDY_FOR_BEAM,
    LESS_DATA,
    SECOND_METRIC,
    SMOOTHING,
)
from scones.paper.report.judging import Claim, Material
from scones.paper.report.published import DIRECTIONS
from scones.paper.report.significance import Marks
from scones.paper.report.study import NEWS, Study
from scones.paper.report.verdicts import CLAIMS
from scones.paper.results import Results


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


@pytest.fixture
def as_published(made: Made) -> Callable[[bool], Made]:
    """Make results of the paper's own numbers, or of those with the systems exchanged."""

    def fill(exchanged: bool = False) -> Made:
        names = (published.SOFTMAX, published.TUNED)
        made.learned = {}
        for direction in DIRECTIONS:
            pair = direction if direction.endswith("en") else "-".join(direction.split("-")[::-1])
            size = published.CORPORA[pair][1].text
            made.corpora(direction, int(float(size[:-1]) * 1e6))
            systems = ("scones-0.5", "softmax") if exchanged else ("softmax", "scones-0.5")
            for system, key in zip(systems, names, strict=True):
                table = published.BLEU
                bleu = {one: float(table[one][key][direction].text) for one in table}
                made.run(direction, system, bleu)
                for search in table:
                    bleurt = float(published.BLEURT[search][key][direction].text)
                    place = f"{direction}.{system}.{NEWS}.{search}"
                    made.learned[place] = bleurt / 100
            for search, rows in published.BLEU.items():
                mark = rows[published.GAIN][direction].text[-1]
                p = {"†": 0.03, "‡": 0.003}.get(mark, 0.2)
                made.p(direction, "scones-0.5", search, p)
        return made

    return fill


@pytest.mark.parametrize("claim", [GAINS, LESS_DATA, GREEDY_FOR_BEAM, SECOND_METRIC])
def test_the_papers_own_numbers_confirm_its_claims(
    as_published: Callable[[bool], Made], claim: Claim
) -> None:
    assert as_published(False).judge(claim).outcome == "confirmed"


def test_numbers_stand_in_the_line(as_published: Callable[[bool], Made]) -> None:
    made = as_published(False)
    gains = made.judge(GAINS).numbers
    assert "greedy: better in 6 of 6 (de-en +1.1‡, en-de +0.4, fi-en +0.7†," in gains
    assert gains.endswith("Of the 12 differences, 9 are gains and 0 losses beyond the noise.")
    assert "at least 0 in 4 of 6: de-en +0.3" in made.judge(GREEDY_FOR_BEAM).numbers
    assert "lt ↔ en +6.6 % (2,000,000 pairs)" in made.judge(LESS_DATA).numbers
    assert "in 9 of 12: de-en +1.1‡ and +0.2 (greedy)" in made.judge(SECOND_METRIC).numbers


@pytest.mark.parametrize("claim", [GAINS, LESS_DATA])
def test_exchanged_numbers_are_the_opposite(
    as_published: Callable[[bool], Made], claim: Claim
) -> None:
    assert as_published(True).judge(claim).outcome == "opposite"


def test_one_direction_without_a_gain_is_enough_not_to_confirm(
    as_published: Callable[[bool], Made],
) -> None:
    made = as_published(False)
    made.run("en-de", "scones-0.5", 30.0)
    assert made.judge(GAINS).outcome == "not confirmed"
    assert made.judge(GREEDY_FOR_BEAM).outcome == "confirmed"


@pytest.mark.parametrize(
    ("spread", "p", "outcome"),
    [
        (0.2, 0.9, "confirmed"),  # ± 0.33: seeds go before the test
        (1.5, 0.001, "not confirmed"),  # ± 2.4
    ],
)
def test_a_difference_within_the_noise_of_seeds_confirms_nothing(
    made: Made, spread: float, p: float, outcome: str
) -> None:
    for seed in (1, 2, 3):
        made.run("lt-en", "softmax", 20.0 + spread * (seed - 2), seed=seed)
        made.run("lt-en", "scones-0.5", 21.0 + spread * (2 - seed), seed=seed)
    made.p("lt-en", "scones-0.5", "greedy", p)
    found = made.judge(GAINS)
    assert found.outcome == outcome
    error = 2 * (2 * spread**2 / 3) ** 0.5
    assert f"lt-en +1.0 ± {error:.1f}" in found.numbers


def test_two_seeds_are_too_few(made: Made) -> None:
    for seed in (1, 2):
        made.run("lt-en", "softmax", 20.0 + seed, seed=seed)
        made.run("lt-en", "scones-0.5", 23.0 - seed, seed=seed)
    assert "lt-en +1.0 (noise not known)" in made.judge(GAINS).numbers


@pytest.mark.parametrize(("p", "outcome"), [(0.04, "confirmed"), (0.06, "not confirmed")])
def test_a_bootstrap_test_decides_where_there_are_no_seeds(
    made: Made, p: float, outcome: str
) -> None:
    made.run("de-en", "softmax", 20.0)
    made.run("de-en", "scones-0.5", 21.0)
    for search in ("greedy", "beam4"):
        made.p("de-en", "scones-0.5", search, p)
    assert made.judge(GAINS).outcome == outcome


@pytest.mark.parametrize(("spread", "outcome"), [(0.1, "opposite"), (0.6, "confirmed")])
def test_noise_is_borrowed_from_another_direction(made: Made, spread: float, outcome: str) -> None:
    made.run("de-en", "scones-0.5", 20.0)
    made.run("de-en", "scones-ls", 21.0)
    for seed in (1, 2, 3):
        made.run("lt-en", "softmax", 10.0 + spread * seed, seed=seed)
    assert made.judge(SMOOTHING).outcome == outcome


def test_more_data_must_gain_less_by_more_than_the_noise(made: Made) -> None:
    gains = {"de-en": 1.0, "fi-en": 1.2, "lt-en": 1.4}
    for number, (direction, gain) in enumerate(gains.items()):
        made.corpora(direction, 1000 - number)
        made.run(direction, "softmax", 10.0)
        made.run(direction, "scones-0.5", 10.0 + gain)
    found = made.judge(LESS_DATA)
    assert found.outcome == "confirmed"
    assert found.numbers.endswith("lt ↔ en +14.0 % (998 pairs) (noise not known).")
    for seed in (2, 3):
        made.run("lt-en", "softmax", 10.0 + 0.3 * (2 * seed - 5), seed=seed)
    assert made.judge(LESS_DATA).outcome == "not confirmed"


@pytest.mark.parametrize(
    ("smoothed", "p", "outcome"),
    [
        ([19.0, 20.5], [0.001, 0.3], "confirmed"),
        ([19.0, 20.5], [0.001, 0.01], "not confirmed"),
        ([20.9, 20.5], [0.001, 0.01], "opposite"),
    ],
)
def test_label_smoothing_of_scones(
    made: Made, smoothed: Sequence[float], p: Sequence[float], outcome: str
) -> None:
    made.run("de-en", "scones-0.5", 20.0)
    made.run("de-en", "scones-0.2", 10.0)
    made.run("de-en", "scones-ls", dict(zip(("greedy", "beam4"), smoothed, strict=True)))
    for search, one in zip(("greedy", "beam4"), p, strict=True):
        made.p("de-en", "scones-ls", f"{search} against scones-0.5 {search}", one)
    found = made.judge(SMOOTHING)
    assert found.outcome == outcome
    assert "(greedy, α = 0.5)" in found.numbers
    made.run("en-de", "scones-0.5", 20.0)
    made.run("en-de", "scones-ls", 19.0)
    assert (made.judge(SMOOTHING).outcome == "confirmed") == (outcome == "confirmed")


@pytest.mark.parametrize(
    ("chrf", "outcome"), [(51.0, "confirmed"), (49.0, "opposite"), (50.0, "opposite")]
)
def test_the_second_metric_is_chrf_without_weights(made: Made, chrf: float, outcome: str) -> None:
    made.run("de-en", "softmax", 20.0)
    made.run("de-en", "scones-0.5", 21.0, chrf=chrf)
    assert made.judge(SECOND_METRIC).outcome == outcome
    made.run("de-en", "scones-0.5", 20.0, chrf=chrf)
    assert made.judge(SECOND_METRIC).outcome == "not confirmed"


def test_greedy_search_is_compared_with_beam_search(made: Made) -> None:
    made.run("de-en", "softmax", {"greedy": 10.0, "beam4": 20.0})
    made.run("de-en", "scones-0.5", {"greedy": 19.0, "beam4": 30.0})
    assert made.judge(GREEDY_FOR_BEAM).outcome == "opposite"
    made.p("de-en", "scones-0.5", "greedy against softmax beam4", 0.5)
    assert made.judge(GREEDY_FOR_BEAM).outcome == "not confirmed"
    made.run("de-en", "scones-0.5", {"greedy": 20.0, "beam4": 0.0})
    assert made.judge(GREEDY_FOR_BEAM).outcome == "confirmed"


def test_without_results_nothing_is_measured_and_everything_says_why(made: Made) -> None:
    assert len(CLAIMS) == 11
    for claim in CLAIMS:
        found = made.judge(claim)
        assert found.outcome == "not measured"
        assert found.numbers.endswith(".")
    document = writing.make_document(Study(Results(made.folder)), Marks(), None, "results")
    opening = document.sections[0]
    assert opening.key == "verdicts"
    assert opening.paragraphs[0] == "0 of the paper's 6 directions have results."
    assert opening.paragraphs[1] == "Of the paper's 11 claims: 11 not measured."


def test_the_page_opens_with_verdicts_rules_and_ways_to_the_evidence(made: Made) -> None:
    made.run("de-en", "softmax", 20.0)
    made.run("de-en", "scones-0.5", 21.0)
    for learned in (None, {"de-en.softmax.newstest2019.greedy": 0.5}):
        study = Study(Results(made.folder))
        document = writing.make_document(study, made.marks, learned, "results")
        opening = document.sections[0]
        table, _, numbers, rules = opening.blocks
        assert [block.key for block in opening.blocks] == ["claims", "summary", "numbers", "rules"]
        assert [row.cells[0].text for row in numbers.rows] == [
            claim.judge(Material(study, made.marks, learned)).numbers for claim in CLAIMS
        ]
        keys = {block.key for section in document.sections for block in section.blocks}
        for number, (claim, row) in enumerate(zip(CLAIMS, table.rows, strict=True), 1):
            assert row.label == f"{number}. {claim.title}"
            assert row.cells[2].links
            assert {key for _, key in row.cells[2].links} <= keys
        assert [row.cells[0].text for row in rules.rows] == [claim.rule for claim in CLAIMS]
        text = writing.page(document)
        assert text.index("1. BLEU gains") < text.index("<nav") < text.index('id="table-1"')
        assert '<a href="#table-3-newstest2019">table 3</a>' in text


def test_each_verdict_is_a_line_with_its_number(as_published: Callable[[bool], Made]) -> None:
    made = as_published(False)
    assert made.judge(GAINS).in_short == (
        "better in 12 of 12 (greedy and beam 4), beyond the noise in 9; on average +0.9."
    )
    assert made.judge(GREEDY_FOR_BEAM).in_short == (
        "BLEU of SCONES greedy minus softmax beam 4, at least 0 in 4 of 6; on average +0.3."
    )
    for claim in CLAIMS:
        assert len(made.judge(claim).in_short) <= 240, claim.title


def test_while_directions_are_missing_verdicts_are_early(made: Made) -> None:
    def first_verdict() -> str:
        study = Study(Results(made.folder))
        document = writing.make_document(study, made.marks, None, "results")
        table = next(document.tables())
        return table.rows[0].cells[0].text

    assert first_verdict() == "not measured"
    for direction in published.DIRECTIONS:
        for system, bleu in (("softmax", 20.0), ("scones-0.5", 21.0)):
            made.run(direction, system, bleu)
        expected = "confirmed" if direction == [*published.DIRECTIONS][-1] else "confirmed so far"
        assert first_verdict() == expected
