"""Residual, dropout and norm in one pass, against the three of them in float64."""

from __future__ import annotations

import pytest
import torch
from kernel_device import DEVICE
from torch import Tensor
from torch.nn import functional

from scones.kernels import norm
from scones.kernels.norm import add_and_norm
from scones.model.dropout import hashed_dropout

EPSILON = 1e-5


def draw(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(DEVICE)


def leaves(rows: int, size: int) -> list[Tensor]:
    """The stream, what is added to it, scale and shift."""
    tensors = [
        2 * draw(rows, size, seed=1) + 1,
        draw(rows, size, seed=2),
        draw(size, seed=3),
        draw(size, seed=4),
    ]
    return [tensor.requires_grad_() for tensor in tensors]


def plainly(
    x: Tensor, added: Tensor, scale: Tensor, shift: Tensor, seed: Tensor, rate: float
) -> tuple[Tensor, Tensor]:
    total = x + (hashed_dropout(added, rate, seed) if rate else added)
    return total, functional.layer_norm(total, scale.shape, scale, shift, EPSILON)


def check(rows: int, size: int, rate: float) -> None:
    seed = torch.tensor(-77, dtype=torch.int32, device=DEVICE)
    inputs = leaves(rows, size)
    exactly = [tensor.detach().double().requires_grad_() for tensor in inputs]
    found = add_and_norm(*inputs, EPSILON, seed, rate)
    wanted = plainly(*exactly, seed, rate)
    for have, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(have.double(), want, rtol=1e-5, atol=1e-5)
    slopes = [draw(rows, size, seed=number) for number in (5, 6)]
    gradients = torch.autograd.grad(found, inputs, slopes)
    expected = torch.autograd.grad(wanted, exactly, [slope.double() for slope in slopes])
    for have, want in zip(gradients, expected, strict=True):
        torch.testing.assert_close(have.double(), want, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("size", [16, 48, 512])
@pytest.mark.parametrize("rows", [1, 4, 23])
def test_the_sum_its_norm_and_all_slopes(rows: int, size: int, rate: float) -> None:
    check(rows, size, rate)


def test_few_blocks_share_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(norm, "_BLOCKS", 3)
    check(50, 16, 0.3)


@pytest.mark.parametrize("used", [0, 1])
def test_one_of_the_two_results_may_be_used_alone(used: int) -> None:
    seed = torch.zeros((), dtype=torch.int32, device=DEVICE)
    inputs = leaves(5, 16)
    exactly = [tensor.detach().double().requires_grad_() for tensor in inputs]
    slope = draw(5, 16, seed=7)
    found, wanted = (
        torch.autograd.grad(results[used], tensors[:2], slope.to(tensors[0].dtype))
        for results, tensors in (
            (add_and_norm(*inputs, EPSILON, seed, 0.1), inputs),
            (plainly(*exactly, seed, 0.1), exactly),
        )
    )
    for have, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(have.double(), want, rtol=1e-4, atol=1e-5)


def test_the_seed_decides_what_is_dropped() -> None:
    zeros, ones = torch.zeros(40, 32, device=DEVICE), torch.ones(40, 32, device=DEVICE)
    vector = torch.ones(32, device=DEVICE)

    def total(seed: int, rate: float) -> Tensor:
        number = torch.tensor(seed, dtype=torch.int32, device=DEVICE)
        return add_and_norm(zeros, ones, vector, vector, EPSILON, number, rate)[0]

    assert torch.equal(total(1, 0.5), total(1, 0.5))
    assert not torch.equal(total(1, 0.5), total(2, 0.5))
    assert set(total(1, 0.5).unique().tolist()) == {0.0, 2.0}
    assert torch.equal(total(1, 0.0), ones)
