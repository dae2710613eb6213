"""Tuning α: one run for each value, finished ones are not trained again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_run import events, make_experiment

from scones.errors import SconesError
from scones.model.folder import read_facts
from scones.outputs import OutputLayer
from scones.outputs.scones import Scones
from scones.training import loop
from scones.training.loop import Validation
from scones.training.tune import tune

BLEU = {0.1: 11.0, 0.5: 14.0, 1.0: 14.0, 2.0: 12.5}


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Development BLEU that depends on α alone: a few steps would give 0 for all."""

    def judge(_model: object, output: OutputLayer, _store: object, _count: object) -> Validation:
        assert isinstance(output, Scones)
        return Validation(1.0, BLEU[output.alpha], 1.0, "made up")

    monkeypatch.setattr(loop, "validate", judge)


@pytest.mark.usefixtures("judged")
def test_the_best_alpha_is_chosen_and_finished_runs_are_kept(
    tiny_store: Path, tmp_path: Path
) -> None:
    experiment = make_experiment({"max_steps": 2})
    found = tune(experiment, tiny_store, tmp_path, [2.0, 0.1, 0.1], quiet=True)
    assert found.best == 2.0
    assert list(found.scores) == [0.1, 2.0]
    again = tune(experiment, tiny_store, tmp_path, list(BLEU), quiet=True)
    assert again.scores == BLEU
    assert again.best == 0.5  # of equal ones the smallest
    assert [event["step"] for event in events(tmp_path / "alpha-0.1")] == [1, 2]
    written = json.loads((tmp_path / "tune.json").read_text())
    assert written["best_alpha"] == 0.5
    assert written["runs"][0] == {
        "alpha": 0.1,
        "dev_bleu": 11.0,
        "model": str(tmp_path / "alpha-0.1"),
    }
    assert read_facts(tmp_path / "alpha-2").output["alpha"] == 2.0


def test_without_a_development_set_nothing_can_be_chosen(
    store_without_dev: Path, tmp_path: Path
) -> None:
    with pytest.raises(SconesError, match="has no development set to choose α on"):
        tune(make_experiment(), store_without_dev, tmp_path / "sweep", [0.5])
    assert not (tmp_path / "sweep").exists()
