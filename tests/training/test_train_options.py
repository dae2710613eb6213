"""The options of training: what does not fit."""

from __future__ import annotations

import pytest

from scones.errors import SconesError
from scones.training.options import TrainOptions


def test_all_problems_are_said_at_once() -> None:
    with pytest.raises(SconesError) as caught:
        TrainOptions(patience=-1, learning_rate=0.0, beta2=1.0, clip_norm=float("nan"))
    for problem in (
        "patience must be at least 0, not -1",
        "clip_norm must be at least 0, not nan",
        "learning_rate must be above 0, not 0.0",
        "beta2 must be in [0, 1), not 1.0",
    ):
        assert problem in str(caught.value)


def test_something_must_end_the_run() -> None:
    with pytest.raises(SconesError, match="one of max_steps, max_minutes and patience must say"):
        TrainOptions(patience=0)
    with pytest.raises(SconesError, match="cooldown needs max_steps or max_minutes"):
        TrainOptions(cooldown=0.3)
    assert TrainOptions(patience=0, max_minutes=1.0).has_budget
