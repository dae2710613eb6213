"""The replication: its report, and what it refuses before it trains."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scones.errors import SconesError
from scones.paper.replication import Replication, _run, markdown


def system(greedy: float, beam: float, p: float | None) -> dict[str, Any]:
    return {
        "bleu": {"greedy": greedy, "beam 4": beam},
        "p": {"greedy": p, "beam 4": None if p is None else 0.5},
        "signature": "nrefs:1|made:up",
    }


@pytest.fixture
def result() -> dict[str, Any]:
    """A made-up result of two seeds."""
    rows = [
        {
            "seed": seed,
            "systems": {"softmax": system(*softmax, None), "scones": system(*scones)},
            "minutes": {"softmax": 1.25, "scones": 2.0},
            "commit": "abc123",
            "device": "cpu",
            "torch": "9.9",
            "command": "scones replicate here",
        }
        for seed, softmax, scones in (
            (1, (30.0, 31.0), (32.0, 31.5, 0.004)),
            (2, (31.0, 32.0), (31.5, 32.5, 0.04)),
        )
    ]
    return {
        "recipe": "recipes/made-up.toml",
        "data_digest": "0123456789abcdef0123",
        "tuning_seed": 100,
        "dev_bleu_by_alpha": {"0.2": 29.5, "0.5": 30.25},
        "alpha": 0.5,
        "seeds": rows,
    }


def table(text: str) -> list[list[str]]:
    rows = [line.strip("| ").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows]


def test_the_report_shows_every_seed_and_the_means(result: dict[str, Any]) -> None:
    text = markdown(result)
    head, line, first, second, mean, deviation = table(text)
    assert head == [
        "seed",
        *("softmax, greedy", "SCONES, greedy", "softmax, beam 4", "SCONES, beam 4"),
        "minutes",
    ]
    assert len(line) == len(head)
    assert first == ["1", "30.00", "32.00‡", "31.00", "31.50", "1.2 / 2.0"]
    assert second == ["2", "31.00", "31.50†", "32.00", "32.50", "1.2 / 2.0"]
    assert mean[:5] == ["mean", "**30.50**", "**31.75**", "**31.50**", "**32.00**"]
    assert deviation[:5] == ["deviation", "0.71", "0.35", "0.71", "0.71"]
    assert text.startswith("# made-up: softmax and SCONES, 2 seeds\n")
    assert "α = 0.5, chosen by" in text
    assert "(α = 0.2: 29.50, α = 0.5: 30.25)" in text
    for fact in ("nrefs:1|made:up", "0123456789abcdef`", "abc123", "9.9", "scones replicate here"):
        assert fact in text


@pytest.fixture
def replication(tiny_store: Path, tmp_path: Path) -> Replication:
    return Replication(
        tiny_store, tmp_path / "recipe.toml", tmp_path / "runs", [0.5], 100, [1], 1, "cpu"
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seeds": [1, 100]}, "tuning seed 100 is also a test seed"),
        ({"jobs": 0}, "jobs must be at least 1, not 0"),
        ({"store": Path("nowhere")}, "nowhere is not a folder"),
    ],
)
def test_what_cannot_work_is_refused_before_training(
    replication: Replication, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(SconesError, match=said):
        replace(replication, **change).run(["Tee"], [["tea"]])
    assert not replication.folder.exists()


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import sys; sys.exit('step 1\\nscones: The oven is cold.')", "scones: The oven is cold."),
        ("import os; os._exit(9)", "exit code 9"),
    ],
)
def test_a_training_that_fails_is_named(program: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(SconesError, match=f"Training {tmp_path} failed: {said}"):
        _run([sys.executable, "-c", program], tmp_path)
