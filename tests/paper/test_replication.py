"""The replication: what it refuses before it trains (its report: test_stored_results.py)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scones.errors import SconesError
from scones.paper.replication import Replication


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
