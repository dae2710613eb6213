"""The experiment with synthetic languages: its verdict and its languages.

The whole way is in tests/cli/test_synthetic_command.py, the tables are in test_stored_results.py.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic_toys import save_ibm3

from scones.errors import SconesError
from scones.paper.synthetic_language import LanguageSettings, find_language, sample_language
from scones.paper.synthetic_verdict import judge, verdict_sentences
from scones.text.subwords import Subwords

ALPHAS = {"softmax": None, "scones-0.2": 0.2, "scones-0.5": 0.5, "scones-1.0": 1.0}


@pytest.mark.parametrize(
    ("softmax", "small", "large", "seen", "ahead"),
    [
        (4.9, 5.0, 4.9, True, True),
        (4.9, 4.8, 4.8, False, False),  # all are degraded
        (5.0, 9.0, 1.0, False, True),  # softmax holds out
        (1.0, 9.0, 5.0, False, True),  # a large α holds out
        (9.0, 2.0, 2.0, False, False),  # the other way round
    ],
)
def test_the_rule(softmax: float, small: float, large: float, seen: bool, ahead: bool) -> None:
    kept = {"softmax": softmax, "scones-0.2": small, "scones-0.5": 0.0, "scones-1.0": large}
    systems = {
        name: {"relative": share / 10, "exact": {"unproved": 0.3}, "p": 0.004}
        for name, share in kept.items()
    }
    lower = {name: {**row, "relative": 1.0} for name, row in systems.items()}
    rows = {"0.5": {"systems": systems}, "0.1": {"systems": lower}}
    verdict = judge(rows, ALPHAS)  # of the highest temperature
    assert (verdict["seen"], verdict["ahead"], verdict["temperature"]) == (seen, ahead, 0.5)
    text = "\n".join(verdict_sentences(verdict, {name: name for name in ALPHAS}))
    assert ("is seen**" in text) == seen
    assert ("does not keep more" in text) != ahead


@pytest.fixture
def settings(tiny_store: Path, tiny_subwords: bytes, tmp_path: Path) -> LanguageSettings:
    model = save_ibm3(tmp_path / "toy.ibm3", Subwords(tiny_subwords))
    return LanguageSettings(tiny_store, model, ["Tee mit Sahne.", "", "Ein Scone."], 3, 50)


def test_a_language_is_found_again(settings: LanguageSettings, tmp_path: Path) -> None:
    place = tmp_path / "language"
    assert find_language(place, settings.at(0.5)) is None
    made = sample_language(place, settings, 0.5)
    assert made.source.read_text() == "Tee mit Sahne.\nEin Scone.\n"
    assert len(made.references(2)) == len(made.references(9)) == 2
    assert made.facts["empty_test_references"] == 1
    found = find_language(place, settings.at(0.5))
    assert found == made
    elsewhere = replace(settings, store=Path("no-store"), model=Path("no-model"))
    assert find_language(place, elsewhere.at(0.5)) == made


def test_the_same_seed_gives_the_same_language(settings: LanguageSettings, tmp_path: Path) -> None:
    first, again = (sample_language(tmp_path / name, settings, 1.0) for name in "ab")
    other = sample_language(tmp_path / "c", replace(settings, seed=4), 1.0)
    assert first.facts["data_digest"] == again.facts["data_digest"] != other.facts["data_digest"]
    assert first.references(2) == again.references(2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seed": 4}, "was sampled with seed 3, not 4; give the same again"),
        ({"pairs": None}, "was sampled with pairs 50, not unlimited"),
        ({"sources": ["Tee."]}, r"was sampled with test set \w+, not \w+;"),
    ],
)
def test_another_language_is_refused(
    settings: LanguageSettings, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    sample_language(tmp_path / "language", settings, 0.5)
    with pytest.raises(SconesError, match=said):
        find_language(tmp_path / "language", replace(settings, **change).at(0.5))
