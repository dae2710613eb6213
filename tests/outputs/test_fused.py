"""The fused SCONES loss equals the plain one, in value and in all three gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import scones
from scones.outputs import OutputLayer, fused
from scones.outputs.scones import Scones

VOCABULARY, SIZE = 11, 5


def draw(*shape: int, dtype: torch.dtype, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(shape, dtype=torch.float64, generator=generator)).to(dtype)


def leaves(dtype: torch.dtype, *rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, output matrix and bias."""
    shapes = ((*rows, SIZE), (VOCABULARY, SIZE), (VOCABULARY,))
    hidden, weight, bias = (
        draw(*shape, dtype=dtype, seed=seed).requires_grad_() for seed, shape in enumerate(shapes)
    )
    return hidden, weight, bias


@pytest.fixture(params=[1, 3, 100], ids=lambda rows: f"{rows} rows a chunk")
def _chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fused._CHUNK_NUMBERS, "cpu", request.param * VOCABULARY)


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("alpha", "smoothing"), [(0.5, 0.0), (0.1, 0.1), (2.0, 0.1)])
@pytest.mark.parametrize("ignore_index", [0, -100])
def test_fused_equals_plain(
    dtype: torch.dtype, alpha: float, smoothing: float, ignore_index: int
) -> None:
    inputs = leaves(dtype, 3, 4)
    targets = torch.tensor([[3, 1, 0, 0], [10, 2, 5, 1], [0, 0, 0, 0]])
    targets = targets.masked_fill(targets == 0, ignore_index)
    options = (alpha, smoothing, ignore_index)
    plain = scones.scones_loss(functional.linear(*inputs), targets, *options)
    found = scones.fused_scones_loss(*inputs, targets, *options)
    assert found.dtype == dtype
    torch.testing.assert_close(found, plain)
    expected = torch.autograd.grad(3 * plain, inputs)
    for gradient, wanted in zip(torch.autograd.grad(3 * found, inputs), expected, strict=True):
        torch.testing.assert_close(gradient, wanted)


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("weighted", [True, False])
def test_the_layers_loss_equals_the_plain_way(weighted: bool) -> None:
    layer, inputs = Scones(alpha=0.3, label_smoothing=0.1), leaves(torch.float32, 7)
    targets = torch.tensor([3, 1, 10, 2, 5, 1, 9])
    weights = torch.rand(7, generator=torch.Generator().manual_seed(5)) if weighted else None
    plain = OutputLayer.loss(layer, *inputs, targets, weights)
    found = layer.loss(*inputs, targets, weights)
    torch.testing.assert_close(found, plain)
    expected = torch.autograd.grad(plain, inputs)
    for gradient, wanted in zip(torch.autograd.grad(found, inputs), expected, strict=True):
        torch.testing.assert_close(gradient, wanted)


@pytest.mark.usefixtures("_chunks")
def test_the_gradient_is_the_slope() -> None:
    inputs, targets = leaves(torch.float64, 4), torch.tensor([3, 0, 7, 1])

    def loss(*values: Tensor) -> Tensor:
        return scones.fused_scones_loss(*values, targets, 0.5, 0.1)

    assert torch.autograd.gradcheck(loss, inputs)


@pytest.mark.parametrize("filling", [float("nan"), float("inf")])
def test_what_stands_under_padding_passes_nowhere(filling: float) -> None:
    hidden, weight, bias = leaves(torch.float32, 3)
    with torch.no_grad():
        hidden[1] = filling
    targets = torch.tensor([4, 0, 7])
    scones.fused_scones_loss(hidden, weight, bias, targets).backward()
    assert hidden.grad is not None
    assert torch.all(hidden.grad[1] == 0)
    for leaf in (hidden, weight, bias):
        assert leaf.grad is not None
        assert torch.isfinite(leaf.grad).all()
        assert leaf.grad.abs().max() > 0


def test_all_padding_is_a_loss_of_zero() -> None:
    inputs = leaves(torch.float32, 2)
    loss = scones.fused_scones_loss(*inputs, torch.zeros(2, dtype=torch.long))
    assert loss.item() == 0
    assert all(torch.all(gradient == 0) for gradient in torch.autograd.grad(loss, inputs))


def test_only_what_is_asked_for_is_trained() -> None:
    hidden, weight, bias = leaves(torch.float32, 2)
    weight, bias = weight.detach(), bias.detach()
    targets = torch.tensor([3, 4])
    found = scones.fused_scones_loss(hidden, weight, bias, targets)
    plain = scones.scones_loss(functional.linear(hidden, weight, bias), targets)
    torch.testing.assert_close(
        torch.autograd.grad(found, hidden), torch.autograd.grad(plain, hidden)
    )
    with torch.inference_mode():
        torch.testing.assert_close(
            scones.fused_scones_loss(hidden, weight, bias, targets), plain.detach()
        )


def test_under_autocast_it_computes_as_the_plain_one_does() -> None:
    inputs, targets = leaves(torch.float32, 6), torch.tensor([3, 1, 10, 2, 5, 1])
    with torch.autocast("cpu", torch.bfloat16):
        found = scones.fused_scones_loss(*inputs, targets)
        plain = scones.scones_loss(functional.linear(*inputs), targets)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, plain)
    expected = torch.autograd.grad(plain, inputs)
    for gradient, wanted in zip(torch.autograd.grad(found, inputs), expected, strict=True):
        assert gradient.dtype == torch.float32
        torch.testing.assert_close(gradient, wanted, atol=2e-2, rtol=2e-2)
