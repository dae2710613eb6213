"""The verdicts on speed, beams, exact search and synthetic languages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from verdict_toys import ALPHAS, DEV, Made, output, searched

from scones.files import write_json
from scones.paper.report.claims_of_beams import CURSE, SPEED
from scones.paper.report.claims_of_errors import BEST_ALPHA, SEARCH_ERRORS
from scones.paper.report.claims_of_modes import AMBIGUITY, MODES
from scones.paper.report.study import NEWS
from scones.paper.synthetic_verdict import judge


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


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
    systems: dict[str, dict[str, Any]] = {
        "softmax": {"beams": {"4": timings(slow, 20.0, spread), "1": timings(greedy, 15.0)}},
        "scones-0.5": {"beams": {"1": timings(fast, bleu, spread)}},
    }
    for name, row in systems.items():
        row["output"] = output(name)
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
    assert "SCONES (α = 1) has no finished exact search" in made.judge(MODES).numbers


def test_a_line_says_how_many_directions_do_not_count(made: Made) -> None:
    kept = {"scones-0.2": 0.9, "softmax": 0.5, "scones-1.0": 0.3}
    rows = {one: searched(one, {4: 20.0}, 20.0 * share) for one, share in kept.items()}
    for direction in ("de-en", "en-de", "lt-en"):
        made.run(direction, "softmax", 20.0)
        made.analysis(direction, rows)
    del rows["scones-1.0"]
    made.analysis("lt-en", rows)
    assert made.judge(MODES).in_short == (
        "exact search keeps of beam 4's BLEU, α = 0.2 alone 80% or more in 2 of 2 (1 not counted); "
        "on average 90%, softmax 50%, α = 1 30%."
    )


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
        key = "de-en", "scones-0.5", DEV, "greedy against scones-0.2 greedy"
        made.marks.known[key] = {"p": 0.001, "baseline": "", "signature": ""}
        found = made.judge(BEST_ALPHA)  # but a test is better than borrowed noise
        assert (found.outcome, "(+2.0‡ over 0.2)" in found.numbers) == ("confirmed", True)


def test_an_alpha_that_was_not_developed_says_nothing(made: Made) -> None:
    rows = {"softmax": searched("softmax", {100: 9.0}, 1.0, 0.5)}
    made.run("de-en", "softmax", 20.0)
    for place, system in enumerate(ALPHAS):
        made.run("de-en", system, 20.0, dev=20.0 + place)
        rows[system] = searched(system, {100: 9.0}, 9.0 - place, 0.1 * (place + 1))
    made.analysis("de-en", rows)
    assert made.judge(BEST_ALPHA).outcome == "confirmed"
    direction = made.direction("de-en")
    small = direction.run("scones-0.2")
    assert small is not None
    direction.write_run(replace(small, tests={NEWS: small.tests[NEWS]}))
    assert made.judge(BEST_ALPHA).outcome == "not measured"


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
    lower = {one: {**row, "relative": 0.75} for one, row in systems.items()}
    rows = {"0.7": {"systems": systems}, "0.1": {"systems": lower}}
    result = {"systems": alphas, "temperatures": rows, "verdict": judge(rows, alphas)}
    write_json(made.folder / "synthetic.json", result)
    found = made.judge(AMBIGUITY)
    assert found.outcome == outcome
    if outcome != "not measured":
        assert f"SCONES (α = 0.2) {kept[2]:.0%} (90.0% proved)" in found.line
        assert "γ = 0.1: Softmax 75% (90.0% proved)" in found.numbers
