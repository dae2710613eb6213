"""A step that is not finite is left out by the device, and read about later: nothing else moves."""

import json
import threading

import pytest
import torch
from sick import Sick
from tiny_run import assert_same_end, checkpoint, events
from torch import nn

from scones.errors import SconesError
from scones.training import gpu, loop
from scones.training.gpu import GpuSteps, ahead
from scones.training.optimizers import finite_step, make_optimizer
from scones.training.options import TrainOptions

NAN, INFINITE = float("nan"), float("inf")


class Trainee:
    """A little model with its optimiser, stepped with gradients that depend on the step alone."""

    def __init__(self, name, clip_norm):
        torch.manual_seed(3)
        self.model = nn.Sequential(nn.Linear(7, 5), nn.LayerNorm(5), nn.Linear(5, 3))
        self.clip_norm = clip_norm
        options = TrainOptions(optimizer=name, learning_rate=0.01, weight_decay=0.1)
        self.optimizer = make_optimizer(self.model, options)

    def step(self, number, size=1.0, poison=0.0, loss=2.0):
        generator = torch.Generator().manual_seed(number)
        for parameter in self.model.parameters():
            parameter.grad = size * torch.randn(parameter.shape, generator=generator)
        first = next(self.model.parameters())
        first.grad[1, 2] += poison
        norm = finite_step(self.optimizer, 0.01, torch.tensor(loss), self.clip_norm)
        assert all(parameter.grad is None for parameter in self.model.parameters())
        return float(norm)

    def bits(self):
        """Copies of all weights, moments and counts, as whole numbers: -0 is not 0."""
        states = [self.optimizer.state[parameter] for parameter in self.model.parameters()]
        tensors = [*self.model.parameters(), *(value for s in states for value in s.values())]
        return [tensor.detach().clone().view(torch.int32) for tensor in tensors]


@pytest.mark.parametrize("optimizer", ["lamb", "adamw"])
@pytest.mark.parametrize("clip_norm", [0.0, 1.0], ids=["unclipped", "clipped"])
@pytest.mark.parametrize(("poison", "loss"), [(NAN, 2.0), (INFINITE, 2.0), (0.0, NAN), (NAN, NAN)])
@pytest.mark.parametrize("first", [True, False], ids=["the first step", "a later one"])
def test_a_step_that_is_not_finite_changes_no_bit(optimizer, clip_norm, poison, loss, first):
    sick, healthy = Trainee(optimizer, clip_norm), Trainee(optimizer, clip_norm)
    for number in () if first else (1, 2):
        sick.step(number)
        healthy.step(number)
    sick.step(3, poison=poison, loss=loss)
    if not first:
        assert len(sick.bits()) == 24
        assert all(map(torch.equal, sick.bits(), healthy.bits()))
    # And it goes on as if that step had never been.
    sick.step(4)
    healthy.step(4)
    assert all(map(torch.equal, sick.bits(), healthy.bits()))


@pytest.mark.parametrize(("optimizer", "mean"), [("lamb", "mean"), ("adamw", "exp_avg")])
@pytest.mark.parametrize(("clip_norm", "clips"), [(0.0, False), (0.5, True), (1000.0, False)])
def test_gradients_are_clipped_to_their_common_norm(optimizer, mean, clip_norm, clips):
    trainee = Trainee(optimizer, clip_norm)
    norm = trainee.step(1, size=3.0)
    assert norm > 10
    states = trainee.optimizer.state.values()
    # After one step the mean is a tenth of the gradient that was used.
    used = 10 * torch.cat([state[mean].flatten() for state in states]).norm()
    assert float(used) == pytest.approx(clip_norm if clips else norm, rel=1e-5)


@pytest.fixture
def sickness(monkeypatch):
    """Makes an output layer whose loss is sick in the given steps."""

    def make(*bad, value=NAN):
        monkeypatch.setattr(Sick, "calls", 0)
        monkeypatch.setattr(Sick, "bad", bad)
        monkeypatch.setattr(Sick, "value", value)
        return Sick()

    return make


def test_a_host_that_runs_ahead_writes_the_same_log_and_the_same_bits(
    run_training, sickness, tmp_path, monkeypatch
):
    options = {"max_tokens": 200, "log_every": 9, "checkpoint_every": 10}
    for name, stops in (("plain", [14]), ("ahead", [10, 14])):
        output = sickness(2, 3, 8, 11, value=INFINITE)
        for stop in stops:
            result = run_training(tmp_path / name, options | {"max_steps": stop}, output=output)
        assert (result.steps, result.skipped) == (14, 4)
        assert not [one for one in threading.enumerate() if one.name.startswith("ahead")]
        monkeypatch.setattr(loop, "CpuSteps", GpuSteps)
        monkeypatch.setitem(gpu.STEPS_AHEAD, "cpu", 5)
        monkeypatch.setattr(gpu, "ahead", lambda batches, depth: ahead(batches, 4))
    now, later = tmp_path / "plain", tmp_path / "ahead"
    assert [event["step"] for event in events(later, "skip")] == [2, 3, 8, 11]
    assert events(later, "skip") == events(now, "skip")
    assert {event["loss"] for event in events(later, "skip")} == {"inf"}
    for name in ("loss", "skipped", "learning_rate"):
        assert events(later)[0][name] == events(now)[0][name]
    assert events(later)[0]["skipped"] == 3
    for step in (10, 14):
        assert_same_end(now, later, step)
        states = [
            json.loads((run / f"training/checkpoints/step-{step:08}/state.json").read_text())
            for run in (now, later)
        ]
        assert states[0] | {"seconds": 0} == states[1] | {"seconds": 0}


@pytest.mark.parametrize("steps_ahead", [0, 2])
def test_ten_in_a_row_end_a_run(steps_ahead, run_training, sickness, tmp_path, monkeypatch):
    if steps_ahead:
        monkeypatch.setattr(loop, "CpuSteps", GpuSteps)
        monkeypatch.setitem(gpu.STEPS_AHEAD, "cpu", steps_ahead)
    options = {"max_steps": 50, "log_every": 100, "checkpoint_every": 3}
    said = r"not finite in 10 steps in a row, up to 13 .*learning_rate"
    with pytest.raises(SconesError, match=said):
        run_training(tmp_path / "run", options, output=sickness(*range(4, 100)))
    assert [event["step"] for event in events(tmp_path / "run", "skip")] == list(range(4, 14))
    assert Sick.calls <= 13 + steps_ahead  # the host was not further ahead than it may be
    assert checkpoint(tmp_path / "run", 12)


def test_a_skipped_step_is_counted_and_left_out_of_the_mean_loss(run_training, sickness, tmp_path):
    run_training(tmp_path / "each", {"max_steps": 3}, output=sickness(2))
    first, second, third = events(tmp_path / "each")
    assert [event["skipped"] for event in (first, second, third)] == [0, 1, 1]
    run_training(tmp_path / "mean", {"max_steps": 3, "log_every": 3}, output=sickness(2))
    (mean,) = events(tmp_path / "mean")
    assert mean["loss"] == pytest.approx((first["loss"] + third["loss"]) / 2)
