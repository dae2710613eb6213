"""LAMB against a slow reference in plain Python, and the learning rate's way."""

import math

import pytest
import torch
from torch import nn

from scones.training.optimizers import Lamb, learning_rate, make_optimizer
from scones.training.options import TrainOptions

BETAS, EPSILON, RATE = (0.9, 0.98), 1e-6, 0.05


class SlowLamb:
    """One tensor's LAMB, number by number, after You et al.'s algorithm."""

    def __init__(self, values, matrix, decay, cap):
        self.values, self.matrix, self.decay, self.cap = values, matrix, decay, cap
        self.means = [0.0] * len(values)
        self.squares = [0.0] * len(values)
        self.steps = 0

    def step(self, gradients):
        self.steps += 1
        update = []
        for index, gradient in enumerate(gradients):
            self.means[index] = BETAS[0] * self.means[index] + (1 - BETAS[0]) * gradient
            self.squares[index] = BETAS[1] * self.squares[index] + (1 - BETAS[1]) * gradient**2
            mean = self.means[index] / (1 - BETAS[0] ** self.steps)
            square = self.squares[index] / (1 - BETAS[1] ** self.steps)
            decayed = self.decay * self.values[index] if self.matrix else 0.0
            update.append(mean / (math.sqrt(square) + EPSILON) + decayed)
        ratio = 1.0
        norm, length = math.hypot(*self.values), math.hypot(*update)
        if self.matrix and norm > 0 and length > 0:
            ratio = min(norm / length, self.cap)
        self.values = [
            value - RATE * ratio * change for value, change in zip(self.values, update, strict=True)
        ]


@pytest.mark.parametrize(
    ("start", "decay", "cap"),
    [
        pytest.param(1.0, 0.0, 10.0, id="plain"),
        pytest.param(1.0, 0.3, 10.0, id="weight decay"),
        pytest.param(100.0, 0.01, 2.0, id="ratio at its cap"),
        pytest.param(0.0, 0.01, 10.0, id="zero norm"),
    ],
)
def test_lamb_equals_the_slow_reference(start, decay, cap):
    generator = torch.Generator().manual_seed(1)

    def draw(shape):
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    # Tensors that are updated together do not touch each other.
    shapes = [(3, 4), (2, 3, 2), (12,)]
    parameters = [nn.Parameter(start * draw(shape)) for shape in shapes]
    unused = nn.Parameter(torch.ones(2, 2))
    optimizer = Lamb([*parameters, unused], RATE, BETAS, EPSILON, decay, cap)
    slow = [SlowLamb(p.flatten().tolist(), p.ndim > 1, decay, cap) for p in parameters]
    for _ in range(6):
        for parameter in parameters:
            parameter.grad = draw(parameter.shape)
        optimizer.step()
        for parameter, reference in zip(parameters, slow, strict=True):
            reference.step(parameter.grad.flatten().tolist())
            expected = torch.tensor(reference.values).double()
            torch.testing.assert_close(parameter.detach().flatten(), expected)
    assert torch.equal(unused, torch.ones(2, 2))


@pytest.mark.parametrize("name", ["lamb", "adamw"])
def test_only_matrices_decay(name):
    model = nn.Linear(3, 2)
    with torch.no_grad():
        model.bias.fill_(1.0)
    before = model.weight.detach().clone()
    options = TrainOptions(optimizer=name, weight_decay=0.5, learning_rate=0.1)
    optimizer = make_optimizer(model, options)
    model.weight.grad, model.bias.grad = torch.zeros(2, 3), torch.zeros(2)
    optimizer.step()
    assert torch.equal(model.bias, torch.ones(2))
    assert torch.all(model.weight.abs() < before.abs())


def test_the_learning_rate_rises_then_falls_as_the_root_and_cools_down():
    options = TrainOptions(learning_rate=0.02, warmup_steps=100)
    rates = [learning_rate(options, step, 0.0) for step in (1, 50, 100, 400, 10_000)]
    assert rates == pytest.approx([0.0002, 0.01, 0.02, 0.01, 0.002])
    options = TrainOptions(learning_rate=1.0, warmup_steps=0, cooldown=0.4, max_steps=10)
    assert learning_rate(options, 4, 0.0) == pytest.approx(0.5)
    rates = [learning_rate(options, 1, spent) for spent in (0.0, 0.6, 0.7, 0.8, 0.95, 1.0, 1.2)]
    assert rates == pytest.approx([1.0, 1.0, 0.75, 0.5, 0.125, 0.0, 0.0])
