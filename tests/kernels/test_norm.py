"""Bias, residual, dropout and norm in one pass, against all of them in float64."""

import pytest
import torch
from hashed_dropout import hashed_dropout
from kernel_device import DEVICE
from torch.nn import functional

from scones.kernels import norm
from scones.kernels.norm import add_and_norm
from scones.kernels.norm import norm as norm_alone

EPSILON = 1e-5


def draw(*shape, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(DEVICE)


def leaves(rows, size):
    """The stream, what is added to it, its bias, scale and shift."""
    tensors = [
        2 * draw(rows, size, seed=1) + 1,
        draw(rows, size, seed=2),
        draw(size, seed=8),
        draw(size, seed=3),
        draw(size, seed=4),
    ]
    return [tensor.requires_grad_() for tensor in tensors]


def plainly(x, added, bias, scale, shift, seed, rate):
    added = added + bias
    total = x + (hashed_dropout(added, rate, seed) if rate else added)
    return total, functional.layer_norm(total, scale.shape, scale, shift, EPSILON)


def check(rows, size, rate):
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
def test_the_sum_its_norm_and_all_slopes(rows, size, rate):
    check(rows, size, rate)


def test_few_blocks_share_many_rows(monkeypatch):
    monkeypatch.setattr(norm, "_BLOCKS", 3)
    check(50, 16, 0.3)


@pytest.mark.parametrize("used", [0, 1])
def test_one_of_the_two_results_may_be_used_alone(used):
    seed = torch.zeros((), dtype=torch.int32, device=DEVICE)
    inputs = leaves(5, 16)
    exactly = [tensor.detach().double().requires_grad_() for tensor in inputs]
    slope = draw(5, 16, seed=7)
    found, wanted = (
        torch.autograd.grad(results[used], tensors[:3], slope.to(tensors[0].dtype))
        for results, tensors in (
            (add_and_norm(*inputs, EPSILON, seed, 0.1), inputs),
            (plainly(*exactly, seed, 0.1), exactly),
        )
    )
    for have, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(have.double(), want, rtol=1e-4, atol=1e-5)


def test_the_seed_decides_what_is_dropped():
    zeros, ones = torch.zeros(40, 32, device=DEVICE), torch.ones(40, 32, device=DEVICE)
    vector, nothing = torch.ones(32, device=DEVICE), torch.zeros(32, device=DEVICE)

    def total(seed, rate):
        number = torch.tensor(seed, dtype=torch.int32, device=DEVICE)
        return add_and_norm(zeros, ones, nothing, vector, vector, EPSILON, number, rate)[0]

    assert torch.equal(total(1, 0.5), total(1, 0.5))
    assert not torch.equal(total(1, 0.5), total(2, 0.5))
    assert set(total(1, 0.5).unique().tolist()) == {0.0, 2.0}
    assert torch.equal(total(1, 0.0), ones)


def test_where_nothing_is_added_the_stream_stays_and_both_slopes_reach_it():
    x, scale, shift = draw(9, 16, seed=1), draw(16, seed=3), draw(16, seed=4)
    leaves = [tensor.requires_grad_() for tensor in (x, scale, shift)]
    exactly = [tensor.detach().double().requires_grad_() for tensor in leaves]
    found = norm_alone(*leaves, EPSILON)
    assert torch.equal(found[0], x)
    wanted = (exactly[0] * 1, functional.layer_norm(exactly[0], (16,), *exactly[1:], EPSILON))
    torch.testing.assert_close(found[1].double(), wanted[1], rtol=1e-5, atol=1e-5)
    slopes = [draw(9, 16, seed=number) for number in (5, 6)]
    gradients = torch.autograd.grad(found, leaves, slopes)
    expected = torch.autograd.grad(wanted, exactly, [slope.double() for slope in slopes])
    for have, want in zip(gradients, expected, strict=True):
        torch.testing.assert_close(have.double(), want, rtol=1e-4, atol=1e-5)


def test_a_stream_in_bf16_is_added_up_in_float32():
    inputs = [tensor.detach() for tensor in leaves(7, 32)]
    short = [tensor.bfloat16() for tensor in inputs[:2]]
    total, normed = add_and_norm(
        *short, *inputs[2:], EPSILON, torch.zeros((), dtype=torch.int32, device=DEVICE), 0.0
    )
    assert total.dtype == normed.dtype == torch.bfloat16
    exact = short[0].float() + (short[1].float() + inputs[2])
    torch.testing.assert_close(total.float(), exact, rtol=8e-3, atol=0)  # one rounding, no more
    wanted = functional.layer_norm(total.float(), (32,), *inputs[3:], EPSILON)
    torch.testing.assert_close(normed.float(), wanted, rtol=1e-2, atol=1e-2)
