"""`scones replicate`, as small as can be."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from running import Scones
from synthetic_toys import RECIPE

import scones.cli as cli


def test_replicate_compares_both_layers_over_seeds(
    tiny_store: Path, tmp_path: Path, tea: Path, scones: Scones, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train_here(command: list[str], folder: Path) -> Path:
        """Train in this process: three new ones would take most of the test's time."""
        assert command[:3] == [sys.executable, "-m", "scones"]
        assert cli.run(command[3:]) == 0
        return folder

    monkeypatch.setattr("scones.paper.replication._run", train_here)
    (tmp_path / "tiny.toml").write_text(RECIPE)
    runs = tmp_path / "runs"
    words = [
        *("replicate", tiny_store, runs, "--recipe", tmp_path / "tiny.toml", "--device", "cpu"),
        *("--source", tea / "test.de", "-r", tea / "test.en", "--jobs", 1),
        *("--alpha", 0.5, "--tuning-seed", 9, "--seed", 1),
    ]
    done = scones(*words)
    assert done.code == 0, done.err
    assert {path.name for path in runs.iterdir() if path.is_dir()} == {
        "scones-0.5-seed9",
        "scones-0.5-seed1",
        "softmax-seed1",
    }
    result = json.loads((runs / "replication.json").read_text())
    assert (result["alpha"], result["seeds"][0]["seed"]) == (0.5, 1)
    assert all(minutes > 0 for minutes in result["seeds"][0]["minutes"].values())
    assert done.out == (runs / "replication.md").read_text() + "\n"
    as_json = scones(*words, "--json")  # nothing is trained again
    assert json.loads(as_json.out) == json.loads((runs / "replication.json").read_text())
