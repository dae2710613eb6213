"""Confidence: the map from a model's numbers, and whether what it says holds."""

import numpy as np
import pytest

from scones.errors import SconesError
from scones.evaluation.calibration import SIGNS, Calibration, features, fit, reliability


def made(count=4000, seed=3):
    """Features whose sum and ambiguity decide, and the least counts the wrong way by itself."""
    rng = np.random.default_rng(seed)
    known_NF = rng.normal(size=(count, len(SIGNS)))
    names = list(SIGNS)
    log_odds_N = 2 * known_NF[:, names.index("sum")] - known_NF[:, names.index("ambiguity")]
    log_odds_N -= 0.5 * known_NF[:, names.index("least")]
    return known_NF, rng.random(count) < 1 / (1 + np.exp(-log_odds_N))


def test_a_fit_holds_on_other_sentences():
    fitted = fit(*made(), "chrF2 of at least 60")
    known_NF, yes_N = made(seed=4)
    told = reliability(fitted.confidence(known_NF), yes_N)
    assert told.error < 0.04
    assert told.area > 0.8
    assert told.base_rate == pytest.approx(0.5, abs=0.05)
    risks = [risk for _, risk in told.risks]
    assert risks == sorted(risks)
    assert risks[-1] == pytest.approx(1 - told.base_rate)
    assert Calibration.from_json(fitted.to_json(), "config.json") == fitted


def test_no_feature_counts_against_its_meaning():
    weights = dict(zip(SIGNS, fit(*made(), "").weights, strict=False))
    assert weights["sum"] > 1
    assert weights["ambiguity"] < -0.5
    assert weights["least"] == 0  # alone it would be negative
    assert all(sign * weights[name] >= 0 for name, sign in SIGNS.items())


def test_confidence_never_falls_where_the_model_is_surer():
    fitted = fit(*made(), "")
    rising = np.zeros((50, len(SIGNS)))
    rising[:, 0] = np.linspace(-9, 9, 50)
    said = fitted.confidence(rising)
    assert said == sorted(said)
    assert 0 <= said[0] < 0.1 < 0.9 < said[-1] <= 1
    assert fitted.confidence([]) == []


def test_a_constant_has_no_area_and_a_boast_an_error():
    yes = [True, False] * 300
    flat = reliability([0.5] * 600, yes)
    assert (flat.error, flat.area) == (pytest.approx(0, abs=0.01), 0.5)
    assert reliability([0.9] * 600, yes).error == pytest.approx(0.4, abs=0.01)
    with pytest.raises(SconesError, match="All translations are acceptable, or none"):
        reliability([0.5, 0.5], [True, True])


def test_features_are_finite_for_the_shortest_translation():
    assert len(features("", 0, [-0.5], 1.0, 0.0)) == len(SIGNS)
    assert np.isfinite(features("", 0, [-0.5], 1.0, 0.0)).all()


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_too_little_to_fit_is_refused(share):
    known_NF, _ = made(100)
    with pytest.raises(SconesError, match="are too few to fit a confidence"):
        fit(known_NF, np.arange(100) < 100 * share, "")


@pytest.mark.parametrize(
    "change", [{"weights": [1.0]}, {"said": [0.9, 0.1]}, {"true": []}, {"sentences": "many"}]
)
def test_a_damaged_map_is_refused(change):
    section = fit(*made(), "").to_json() | change
    with pytest.raises(SconesError, match=r"config\.json"):
        Calibration.from_json(section, "config.json")


def test_spaces_around_a_translation_change_nothing():
    assert features(" tea ", 1, [-0.5], 1.0, 0.1) == features("tea", 1, [-0.5], 1.0, 0.1)
