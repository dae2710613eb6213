"""The verdicts: the rules give what the numbers say, and what is not measured says why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

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
from scones.paper.report.judging import Claim, Judgement, Material
from scones.paper.report.published import DIRECTIONS
from scones.paper.report.significance import Marks
from scones.paper.report.study import NEWS, Study
from scones.paper.report.verdicts import CLAIMS
from scones.paper.results import Direction, Results, RunResult, SearchResult, SetResult, run_name
from scones.paper.synthetic_verdict import judge

DEV = "newstest2018"
ALPHAS = {"scones-0.2": 0.2, "scones-0.5": 0.5, "scones-1.0": 1.0}
Searches = Mapping[str, float]
"""BLEU by search; for short a number is BLEU of both."""


def output(system: str) -> dict[str, Any]:
    layer, _, rest = system.partition("-")
    found: dict[str, Any] = {"layer": layer, "label_smoothing": 0.1 if rest == "ls" else 0.0}
    return found if layer == "softmax" else {**found, "alpha": ALPHAS.get(system, 0.5)}


class Made:
    """A results folder that is filled step by step; there are no translations behind it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.marks = Marks()
        self.learned: dict[str, float] | None = None

    def direction(self, name: str) -> Direction:
        return Results(self.folder).direction(name)

    def run(
        self,
        name: str,
        system: str,
        bleu: Searches | float,
        *,
        dev: float = 20.0,
        seed: int = 1,
        chrf: Searches | float = 50.0,
    ) -> None:
        """Add a run with scores on newstest2019 and on the development set."""
        made = run_name(system, seed, 1)
        metrics = {"bleu": both(bleu), "chrf": both(chrf)}
        tests = {
            NEWS: {
                search: {metric: one[search] for metric, one in metrics.items()}
                for search in ("greedy", "beam4")
            },
            DEV: {"greedy": {"bleu": dev}},
        }
        self.direction(name).write_run(
            RunResult(
                name=made,
                system=system,
                direction=name,
                seed=seed,
                output=output(system),
                training={"recipe": {}},
                data_digest="data",
                model_digest=made,
                commit="abc",
                device="toy",
                versions={},
                command="scones train",
                dev=DEV,
                tests={
                    test: SetResult(
                        "source",
                        "reference",
                        9,
                        {
                            search: SearchResult("scones translate", 1.0, "file", scores, {}, 1.0)
                            for search, scores in searches.items()
                        },
                    )
                    for test, searches in tests.items()
                },
            )
        )

    def p(self, name: str, run: str, comparison: str, p: float) -> None:
        """Add a bootstrap test."""
        self.marks.known[name, run, NEWS, comparison] = {"p": p, "baseline": "", "signature": ""}

    def corpora(self, name: str, pairs: int) -> None:
        value = {"pairs_kept": pairs, "pairs_read": pairs, "vocabulary": 9, "corpora": []}
        self.direction(name).write_json("corpora", value)

    def analysis(self, name: str, systems: Mapping[str, dict[str, Any]]) -> None:
        value = {"test": NEWS, "sentences": 200, "limits": None, "systems": systems}
        value |= {"source_digest": "", "reference_digests": [], "precision": "float32"}
        self.direction(name).write_json("analysis", value)

    def judge(self, claim: Claim) -> Judgement:
        return claim.judge(Material(Study(Results(self.folder)), self.marks, self.learned))


def both(scores: Searches | float) -> Searches:
    return {"greedy": scores, "beam4": scores} if isinstance(scores, int | float) else scores


def searched(
    system: str,
    beams: Mapping[int, float],
    exact: float | None = None,
    errors: float = 0.0,
    proved: int = 150,
) -> dict[str, Any]:
    """Make the row of a system in analysis.json: BLEU by beam size, BLEU of exact search."""

    def outputs(bleu: float) -> dict[str, Any]:
        found = {"bleu": bleu, "searched": 200, "length_ratio": 1.0, "empty": 0.0, "signature": ""}
        return {**found, "log_probs": None}

    found = {"share": errors, "compared": proved}
    row = {
        "beams": {str(one): {"outputs": outputs(b), "errors": found} for one, b in beams.items()},
        "exact": None,
        "output": output(system),
        "commits": [],
        "devices": [],
        "model_digest": "",
    }
    if exact is not None:
        row["exact"] = {
            "outputs": outputs(exact),
            "proved": proved,
            "unproved": 1 - proved / 200,
            "empty_log_probs": None,
        }
    return row


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
    assert "lt-en +6.6 % (2,000,000 pairs)" in made.judge(LESS_DATA).numbers
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
    assert found.numbers.endswith("lt-en +14.0 % (998 pairs) (noise not known).")
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


def timings(rate: float, bleu: float, spread: float = 1.0) -> dict[str, Any]:
    times = [1 / rate, spread / rate, 1 / (rate * spread)]
    return {"sentences_per_second": rate, "times": times, "bleu": bleu}


@pytest.mark.parametrize(
    ("rates", "bleu", "spread", "outcome"),
    [
        ((32.0, 10.0, 30.0), 19.6, 1.0, "confirmed"),
        ((32.0, 10.0, 30.0), 19.4, 1.0, "not confirmed"),  # worse
        ((32.0, 10.0, 11.0), 20.0, 1.0, "not confirmed"),  # not by the beam
        ((19.0, 10.0, 18.0), 20.0, 1.0, "not confirmed"),  # not fast enough
        ((25.0, 10.0, 24.0), 20.0, 1.2, "not confirmed"),  # not fast enough in all runs
        ((9.0, 10.0, 9.0), 20.0, 1.0, "opposite"),
        ((9.0, 10.0, 9.0), 20.0, 1.2, "not confirmed"),
    ],
)
def test_speed(
    made: Made, rates: tuple[float, float, float], bleu: float, spread: float, outcome: str
) -> None:
    fast, slow, greedy = rates
    systems = {
        "softmax": {"beams": {"4": timings(slow, 20.0, spread), "1": timings(greedy, 15.0)}},
        "scones-0.5": {"beams": {"1": timings(fast, bleu, spread)}},
    }
    made.run("de-en", "softmax", 20.0)
    made.direction("de-en").write_json("speed", {"systems": systems})
    found = made.judge(SPEED)
    assert found.outcome == outcome
    assert f"de-en {fast / slow:.2f}×" in found.numbers


@pytest.mark.parametrize(
    ("small", "softmax", "outcome"),
    [
        ([20.0, 22.0, 21.0], [20.0, 21.0, 10.0], "confirmed"),
        ([20.0, 22.0, 20.0], [20.0, 21.0, 10.0], "not confirmed"),
        ([20.0, 22.0, 8.0], [20.0, 21.0, 10.0], "opposite"),
    ],
)
def test_the_curse(
    made: Made, small: Sequence[float], softmax: Sequence[float], outcome: str
) -> None:
    rows = {"scones-0.2": small, "softmax": softmax}
    made.run("de-en", "softmax", 20.0)
    for sizes, expected in (((1, 4, 100), outcome), ((1, 4, 50), "not measured")):
        beams = {one: dict(zip(sizes, row, strict=True)) for one, row in rows.items()}
        # A beam that the other lacks does not count.
        beams["softmax"][500] = 0.0
        made.analysis("de-en", {one: searched(one, curve) for one, curve in beams.items()})
        assert made.judge(CURSE).outcome == expected


@pytest.mark.parametrize(
    ("kept", "outcome"),
    [
        ((0.95, 0.4, 0.5), "confirmed"),
        ((0.95, 0.4, 0.9), "not confirmed"),
        ((0.75, 0.4, 0.5), "not confirmed"),
        ((0.5, 0.9, 0.95), "opposite"),
    ],
)
def test_adequate_modes(made: Made, kept: tuple[float, float, float], outcome: str) -> None:
    made.run("de-en", "softmax", 20.0)
    systems = ("scones-0.2", "softmax", "scones-1.0")
    rows = {
        one: searched(one, {4: 20.0}, 20.0 * share)
        for one, share in zip(systems, kept, strict=True)
    }
    made.analysis("de-en", rows)
    found = made.judge(MODES)
    assert found.outcome == outcome
    assert f"SCONES (α = 0.2) {kept[0]:.0%} (150 of 200 proved)" in found.numbers
    rows["scones-0.2"] = searched("scones-0.2", {4: 20.0}, 20.0, proved=99)
    made.analysis("de-en", rows)
    found = made.judge(MODES)
    assert found.outcome == "not measured"
    assert "only 99 of 200 modes of SCONES (α = 0.2) are proved" in found.numbers
    del rows["scones-1.0"]
    made.analysis("de-en", rows)
    assert "SCONES (α = 1) was not searched exactly" in made.judge(MODES).numbers


@pytest.mark.parametrize(
    ("errors", "outcome"),
    [
        ((0.05, 0.2, 0.25), "confirmed"),
        ((0.05, 0.08, 0.25), "not confirmed"),  # within the noise of 150 sentences
        ((0.3, 0.05, 0.1), "opposite"),
        ((0.15, 0.05, 0.4), "not confirmed"),
    ],
)
def test_search_errors(made: Made, errors: tuple[float, float, float], outcome: str) -> None:
    made.run("de-en", "softmax", 20.0)
    systems = ("scones-0.2", "scones-1.0", "softmax")
    shares = dict(zip(systems, errors, strict=True))
    made.analysis(
        "de-en", {one: searched(one, {1000: 9.0}, 9.0, share) for one, share in shares.items()}
    )
    found = made.judge(SEARCH_ERRORS)
    assert found.outcome == outcome
    assert f"Softmax {errors[2]:.1%} of 150" in found.numbers


@pytest.mark.parametrize(
    ("dev", "errors", "exact", "outcome"),
    [
        ((20, 22, 21), (0.1, 0.2, 0.3), (19, 12, 5), "confirmed"),
        ((20, 22, 21), (0.2, 0.1, 0.3), (19, 12, 5), "not confirmed"),
        ((20, 22, 21), (0.1, 0.2, 0.3), (5, 12, 19), "not confirmed"),
        ((23, 22, 21), (0.3, 0.2, 0.1), (5, 12, 19), "opposite"),
        ((20, 22, 21), (0.1, 0.1, 0.3), (19, 12, 5), "not confirmed"),  # of equals the larger α
        ((20, 22, 21), (0.1, 0.2, 0.3), (19, 19, 5), "not confirmed"),
    ],
)
def test_the_best_alpha(
    made: Made,
    dev: tuple[float, ...],
    errors: tuple[float, ...],
    exact: tuple[float, ...],
    outcome: str,
) -> None:
    rows = {"softmax": searched("softmax", {100: 9.0}, 1.0, 0.5)}
    made.run("de-en", "softmax", 20.0)
    for place, system in enumerate(ALPHAS):
        made.run("de-en", system, 20.0, dev=dev[place])
        rows[system] = searched(system, {100: 9.0}, exact[place], errors[place])
    made.analysis("de-en", rows)
    assert made.judge(BEST_ALPHA).outcome == outcome
    if outcome == "confirmed":
        for seed in (1, 2, 3):
            made.run("lt-en", "softmax", 9.0, dev=9.0 + 2 * seed, seed=seed)
        assert made.judge(BEST_ALPHA).outcome == "not confirmed"  # within the noise


@pytest.mark.parametrize(
    ("kept", "p", "outcome"),
    [
        ((0.3, 0.2, 0.8), 0.001, "confirmed"),
        ((0.3, 0.2, 0.8), 0.1, "not confirmed"),
        ((0.3, 0.2, 0.4), 0.001, "not confirmed"),
        ((0.3, 0.2, 0.1), 0.001, "opposite"),
        ((0.3, None, 0.1), 0.001, "not measured"),
    ],
)
def test_synthetic_languages(
    made: Made, kept: tuple[float | None, ...], p: float, outcome: str
) -> None:
    alphas = {"softmax": None, "scones-1.0": 1.0, "scones-0.2": 0.2}
    systems = {
        one: {"relative": share, "exact": {"unproved": 0.1}, "p": p}
        for one, share in zip(alphas, kept, strict=True)
    }
    verdict = judge({"0.7": {"systems": systems}}, alphas)
    write_json(made.folder / "synthetic.json", {"systems": alphas, "verdict": verdict})
    found = made.judge(AMBIGUITY)
    assert found.outcome == outcome
    if outcome != "not measured":
        assert f"SCONES (α = 0.2) {kept[2]:.0%} (90% proved)" in found.numbers


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
        table, _, rules = opening.blocks
        assert [block.key for block in opening.blocks] == ["claims", "summary", "rules"]
        keys = {block.key for section in document.sections for block in section.blocks}
        for number, (claim, row) in enumerate(zip(CLAIMS, table.rows, strict=True), 1):
            assert row.label == f"{number}. {claim.title}"
            assert row.cells[2].links
            assert {key for _, key in row.cells[2].links} <= keys
        assert [row.cells[0].text for row in rules.rows] == [claim.rule for claim in CLAIMS]
        text = writing.page(document)
        assert text.index("1. BLEU gains") < text.index("<nav") < text.index('id="table-1"')
        assert '<a href="#table-3-newstest2019">table 3</a>' in text


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
