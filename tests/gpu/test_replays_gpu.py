"""Passes that are recorded and repeated give the gradients of those that are not."""

from itertools import islice

import pytest
import torch
from packed_batches import training_batches

from scones.model.config import ModelConfig
from scones.model.transformer import Transformer
from scones.outputs.scones import Scones
from scones.text.store import TokenStore
from scones.training.data import LossModule as Objective
from scones.training.data import Position
from scones.training.gpu import PackedBatch, Replays

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def make_objective(dropout):
    torch.manual_seed(3)
    config = ModelConfig(500, 2, 2, 64, 4, 128, dropout, dropout, max_length=64)
    return Objective(Transformer(config).cuda(), Scones(), torch.float32)


def batches(store):
    tokens = TokenStore.open(store).split("train")
    found = training_batches(tokens, 256, 7, False, Position(), packed=True, grain=128)
    return [batch for batch, _ in islice(found, 12) if isinstance(batch, PackedBatch)]


def plainly(objective, batch):
    """The loss and twice its mean's gradient; nothing of the pass is left behind."""
    loss = objective(batch.to(torch.device("cuda")))
    gradients = torch.autograd.grad(2 * loss / batch.total, list(objective.parameters()))
    return loss.detach(), gradients


def test_repeated_passes_add_up_the_same_gradients(tiny_store):
    objective = make_objective(0.0)
    replays = Replays(objective)
    parameters = list(objective.parameters())
    for batch in batches(tiny_store) * 3:
        wanted_loss, wanted = plainly(objective, batch)
        for _ in range(2):  # they are added up until they are used
            found = replays.gradient(batch.pinned(), batch.total)
        torch.testing.assert_close(found, wanted_loss, rtol=1e-5, atol=0)
        for parameter, gradient in zip(parameters, wanted, strict=True):
            scale = float(gradient.abs().max())
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-5 * scale)
            parameter.grad = None
    assert 1 <= replays.count <= 12


def test_every_repetition_drops_other_numbers(tiny_store):
    replays = Replays(make_objective(0.5))
    batch = batches(tiny_store)[0]
    losses = [replays.gradient(batch, batch.total).item() for _ in range(6)]
    assert replays.count == 1
    assert len(set(losses)) == 6
