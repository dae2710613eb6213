"""A training step on a GPU never waits for the host, nor the host for it."""

import pytest
import torch
from torch import nn

from scones.training.gpu import STEPS_AHEAD, InFlight
from scones.training.optimizers import finite_step, make_optimizer
from scones.training.options import TrainOptions

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
NAN = float("nan")


@pytest.fixture
def refusing_to_wait():
    """Makes an error of every operation that waits for the GPU."""
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.usefixtures("refusing_to_wait")
@pytest.mark.parametrize("name", ["lamb", "adamw"])
@pytest.mark.parametrize("clip_norm", [0.0, 1.0])
def test_the_gpu_itself_leaves_out_a_step_that_is_not_finite(name, clip_norm):
    model = nn.Sequential(nn.Linear(64, 32), nn.LayerNorm(32), nn.Linear(32, 8)).cuda()
    optimizer = make_optimizer(model, TrainOptions(optimizer=name, learning_rate=0.01))
    steps = InFlight(torch.device("cuda"))
    torch.cuda.set_sync_debug_mode("error")
    outcomes, copies = [], []
    for number, factor in enumerate([1.0, 1.0, NAN, 1.0], start=1):
        loss = model(torch.ones(4, 64, device="cuda")).square().mean() * factor
        loss.backward()
        norm = finite_step(optimizer, 0.01, loss.detach(), clip_norm)
        outcomes += steps.add(number, loss.detach(), norm)
        states = [optimizer.state[parameter] for parameter in model.parameters()]
        tensors = [*model.parameters(), *(v for s in states for v in s.values())]
        copies.append([tensor.detach().clone() for tensor in tensors])
    assert len(outcomes) == 4 - STEPS_AHEAD["cuda"]
    outcomes += steps.land()
    torch.cuda.set_sync_debug_mode("default")
    assert [(outcome.step, outcome.finite) for outcome in outcomes] == [
        (1, True), (2, True), (3, False), (4, True),
    ]  # fmt: skip
    _, before, skipped, after = copies
    assert all(torch.equal(left, right) for left, right in zip(before, skipped, strict=True))
    assert all(tensor.isfinite().all() for tensor in after)
    assert not torch.equal(skipped[0], after[0])
