"""The experiment with synthetic languages: its verdict, tables, plots and languages.

The whole way is in tests/cli/test_synthetic_command.py.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic_toys import save_ibm3

from scones.errors import SconesError
from scones.paper.synthetic_language import LanguageSettings, find_language, sample_language
from scones.paper.synthetic_tables import labels, markdown
from scones.paper.synthetic_verdict import judge, verdict_sentences
from scones.text.subwords import Subwords

ALPHAS = {"softmax": None, "scones-0.2": 0.2, "scones-0.5": 0.5, "scones-1.0": 1.0}


def system(beam: float, exact: float, base: float, p: float | None) -> dict[str, Any]:
    outputs = {"bleu": exact, "length_ratio": 0.9, "empty": 0.125, "signature": "made:up"}
    return {
        "beams": {"4": {"outputs": {"bleu": beam}, "errors": {"share": 0.25}}},
        "exact": {"outputs": outputs, "unproved": 0.3},
        "relative": exact / base if base else None,
        "p": p,
        "training": {"steps": 4000},
        "devices": ["an abacus"],
        "commits": ["abc123"],
    }


def row(
    beam: float, exact: dict[str, float], p: float = 0.004, digest: str = "f" * 64
) -> dict[str, Any]:
    return {
        "systems": {
            name: system(beam + place, exact[name], beam, None if name == "softmax" else p)
            for place, name in enumerate(exact)
        },
        "sentences": 200,
        "training_pairs": 150_000,
        "empty_test_references": 3,
        "data_digest": digest,
        "made_with": {"store": "0123456789abcdef0123", "IBM Model 3": "fedcba"},
    }


@pytest.fixture
def result() -> dict[str, Any]:
    """A made-up result in which the paper's finding is seen."""
    rows = {
        "1.0": row(10.0, dict(zip(ALPHAS, (2.0, 8.0, 5.0, 1.0), strict=True))),
        "0.1": row(80.0, dict(zip(ALPHAS, (80.0, 80.0, 78.0, 76.0), strict=True)), p=0.5),
    }
    return {
        "command": "scones synthetic here",
        "models": {"ibm3": "de-en.ibm3"},
        "store": "data/msdocs",
        "recipe": "recipes/made-up.toml",
        "scones": "1.2.3",
        "torch": "9.9",
        "python": "3.99",
        "seed": 7,
        "beam": 4,
        "first_beam": 4,
        "limits": {
            "max_states": 100_000,
            "max_seconds": None,
            "sentence_seconds": None,
            "max_memory": None,
        },
        "systems": ALPHAS,
        "temperatures": rows,
        "verdict": judge(rows, ALPHAS),
    }


def test_the_finding_is_judged_at_the_highest_temperature(result: dict[str, Any]) -> None:
    verdict = result["verdict"]
    assert (verdict["seen"], verdict["ahead"], verdict["temperature"]) == (True, True, 1.0)
    assert verdict["relative"] == {"softmax": 0.2, "scones-1.0": 0.1, "scones-0.2": 0.8}
    assert json.loads(json.dumps(verdict)) == verdict
    text = "\n".join(verdict_sentences(verdict, labels(result)))
    assert "finding is seen** by this rule: at the highest temperature" in text
    assert "γ = 1.0 exact search keeps of softmax's beam BLEU: softmax 20%, " in text
    assert "SCONES (α = 0.2) keeps more than the other two" in text
    assert "p = 0.004" in text
    assert "not proved: softmax 30%, SCONES (α = 1.0) 30%, SCONES (α = 0.2) 30%" in text


@pytest.mark.parametrize(
    ("softmax", "small", "large", "seen", "ahead"),
    [
        (4.9, 5.0, 4.9, True, True),
        (4.9, 4.8, 4.8, False, False),  # all are degraded
        (3.0, 4.9, 1.0, False, True),  # more is kept, yet less than half
        (5.0, 9.0, 1.0, False, True),  # softmax holds out
        (1.0, 9.0, 5.0, False, True),  # a large α holds out
        (1.0, 6.0, 1.0, True, True),
        (9.0, 2.0, 2.0, False, False),  # the other way round
    ],
)
def test_the_rule(softmax: float, small: float, large: float, seen: bool, ahead: bool) -> None:
    exact = {"softmax": softmax, "scones-0.2": small, "scones-0.5": 0.0, "scones-1.0": large}
    verdict = judge({"0.5": row(10.0, exact)}, ALPHAS)
    assert (verdict["seen"], verdict["ahead"]) == (seen, ahead)
    text = "\n".join(verdict_sentences(verdict, {name: name for name in ALPHAS}))
    assert ("is seen**" in text) == seen
    assert ("does not keep more" in text) != ahead


def table(text: str, title: str) -> list[list[str]]:
    part = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split("|") for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[:1] + rows[2:]]


def test_the_tables(result: dict[str, Any]) -> None:
    text = markdown(result)
    assert table(text, "BLEU, beam 4") == [
        ["model", "γ = 1.0", "γ = 0.1"],
        ["softmax", "10.00", "80.00"],
        ["SCONES (α = 0.2)", "11.00", "81.00"],
        ["SCONES (α = 0.5)", "12.00", "82.00"],
        ["SCONES (α = 1.0)", "13.00", "83.00"],
    ]
    assert table(text, "BLEU, exact search")[1:3] == [
        ["softmax", "2.00", "80.00"],
        ["SCONES (α = 0.2)", "8.00‡", "80.00"],
    ]
    assert table(text, "Exact search, relative")[2] == ["SCONES (α = 0.2)", "80.0%", "100.0%"]
    assert table(text, "Unfinished")[1] == ["softmax", "30.00%", "30.00%"]
    assert table(text, "Languages")[1] == ["1.0", "150,000", "200", "3", "`ffffffffffffffff`"]
    assert "tested on 200 sentences a temperature" in text
    assert "Limits of exact search: 100,000 states a sentence, and the length limit" in text
    for fact in ("made:up", "an abacus", "abc123", "9.9", "4,000 steps", "0123456789abcdef`"):
        assert fact in text
    assert text.endswith("- command: `scones synthetic here`\n")


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
