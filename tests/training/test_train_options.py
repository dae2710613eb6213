"""The options of training: what does not fit, and what may change under a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from scones.errors import SconesError
from scones.training.options import TrainOptions


def test_all_problems_are_said_at_once() -> None:
    with pytest.raises(SconesError) as caught:
        TrainOptions(
            patience=-1,
            max_tokens=0,
            learning_rate=0.0,
            max_minutes=-2.0,
            beta2=1.0,
            cooldown=float("nan"),
            clip_norm=float("nan"),
        )
    message = str(caught.value)
    for problem in (
        "patience must be at least 0, not -1",
        "max_tokens must be at least 1, not 0",
        "clip_norm must be at least 0, not nan",
        "learning_rate must be above 0, not 0.0",
        "max_minutes must be above 0, not -2.0",
        "beta2 must be in [0, 1), not 1.0",
        "cooldown must be in [0, 1), not nan",
    ):
        assert problem in message


def test_something_must_end_the_run() -> None:
    with pytest.raises(SconesError, match="one of max_steps, max_minutes and patience must say"):
        TrainOptions(patience=0)
    with pytest.raises(SconesError, match="cooldown needs max_steps or max_minutes"):
        TrainOptions(cooldown=0.3)
    assert TrainOptions(patience=0, max_minutes=1.0).has_budget


def test_a_budget_may_change_under_a_run_and_a_seed_may_not() -> None:
    begun = TrainOptions(max_steps=5, threads=1, start_from=Path("a")).fingerprint()
    assert begun == TrainOptions(max_minutes=3.0, log_every=7, start_from=Path("a")).fingerprint()
    assert begun != TrainOptions(max_steps=5, start_from=Path("a"), seed=2).fingerprint()
    assert begun["start_from"] == "a"  # as JSON can hold it
