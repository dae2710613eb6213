"""The fused losses equal the plain ones, in value and in all three gradients."""

import math

import pytest
import torch
from torch.nn import functional

import scones
from scones.outputs import OutputLayer, fused
from scones.outputs.scones import Scones
from scones.outputs.softmax import Softmax

VOCABULARY, SIZE = 11, 5


def plain_cross_entropy(logits, targets, label_smoothing=0.0, ignore_index=0):
    """PyTorch's own, which is NaN where all is padding."""
    return functional.cross_entropy(
        logits.flatten(0, -2),
        targets.flatten(),
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    )


FUSED = {"scones": scones.fused_scones_loss, "softmax": scones.fused_cross_entropy}
PLAIN = {"scones": scones.scones_loss, "softmax": plain_cross_entropy}
each_layer = pytest.mark.parametrize("layer", FUSED)
each_smoothing = pytest.mark.parametrize("smoothing", [0.0, 0.1])


def draw(*shape, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(shape, dtype=torch.float64, generator=generator)).to(dtype)


def leaves(dtype, *rows):
    """Hidden states, output matrix and bias."""
    shapes = ((*rows, SIZE), (VOCABULARY, SIZE), (VOCABULARY,))
    hidden, weight, bias = (
        draw(*shape, dtype=dtype, seed=seed).requires_grad_() for seed, shape in enumerate(shapes)
    )
    return hidden, weight, bias


def check_equal(found, plain, inputs):
    """Compare losses, and the gradients of thrice the loss."""
    torch.testing.assert_close(found, plain)
    expected = torch.autograd.grad(3 * plain, inputs)
    for gradient, wanted in zip(torch.autograd.grad(3 * found, inputs), expected, strict=True):
        torch.testing.assert_close(gradient, wanted)


@pytest.fixture(params=[(1, 1), (3, 2), (100, 3), (100, 100)], ids="{0[0]} rows by {0[1]}".format)
def _chunks(request, monkeypatch):
    """So many rows a chunk (in float32; half as many in float64), so many a block."""
    rows, few = request.param
    monkeypatch.setitem(fused._CHUNK_BYTES, "cpu", rows * VOCABULARY * 4)
    monkeypatch.setitem(fused._BLOCK_NUMBERS, "cpu", few * VOCABULARY)


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("ignore_index", [0, -100])
@each_smoothing
@pytest.mark.parametrize("alpha", [0.1, 0.5, 2.0, None])
def test_fused_equals_plain(dtype, alpha, smoothing, ignore_index):
    layer, own = ("softmax", ()) if alpha is None else ("scones", (alpha,))
    inputs = leaves(dtype, 3, 4)
    targets = torch.tensor([[3, 1, 0, 0], [10, 2, 5, 1], [0, 0, 0, 0]])
    targets = targets.masked_fill(targets == 0, ignore_index)
    options = (*own, smoothing, ignore_index)
    found = FUSED[layer](*inputs, targets, *options)
    assert found.dtype == dtype
    check_equal(found, PLAIN[layer](functional.linear(*inputs), targets, *options), inputs)


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("layer", [Scones(0.3, 0.1), Softmax(0.1)], ids=lambda layer: layer.name)
def test_the_layers_loss_equals_the_plain_way(layer, weighted):
    inputs, targets = leaves(torch.float32, 7), torch.tensor([3, 1, 10, 2, 5, 1, 9])
    weights = torch.rand(7, generator=torch.Generator().manual_seed(5)) if weighted else None
    found = layer.loss(*inputs, targets, weights)
    check_equal(found, OutputLayer.loss(layer, *inputs, targets, weights), inputs)


@each_layer
@pytest.mark.parametrize("rows", [0, 2])
def test_nothing_to_predict_is_a_loss_of_zero(layer, rows):
    inputs = leaves(torch.float32, rows)
    loss = FUSED[layer](*inputs, torch.zeros(rows, dtype=torch.long))
    assert loss.item() == 0
    assert all(torch.all(gradient == 0) for gradient in torch.autograd.grad(loss, inputs))


@each_layer
@pytest.mark.parametrize("filling", [float("nan"), float("inf")])
def test_what_stands_under_padding_passes_nowhere(layer, filling):
    hidden, weight, bias = leaves(torch.float32, 3)
    with torch.no_grad():
        hidden[1] = filling
    FUSED[layer](hidden, weight, bias, torch.tensor([4, 0, 7])).backward()
    assert torch.all(hidden.grad[1] == 0)
    for leaf in (hidden, weight, bias):
        assert torch.isfinite(leaf.grad).all()
        assert leaf.grad.abs().max() > 0


@each_layer
@pytest.mark.parametrize("target", [-1, VOCABULARY])
def test_a_token_outside_the_vocabulary_is_no_token(layer, target):
    with pytest.raises((IndexError, RuntimeError), match="out of"):
        FUSED[layer](*leaves(torch.float32, 2), torch.tensor([3, target]))


@each_layer
def test_only_what_is_asked_for_is_trained(layer):
    hidden, weight, bias = leaves(torch.float32, 2)
    weight, bias = weight.detach(), bias.detach()
    targets = torch.tensor([3, 4])
    plain = PLAIN[layer](functional.linear(hidden, weight, bias), targets)
    check_equal(FUSED[layer](hidden, weight, bias, targets), plain, (hidden,))
    with torch.inference_mode():
        found = FUSED[layer](hidden, weight, bias, targets)
    torch.testing.assert_close(found, plain.detach())


@each_layer
@each_smoothing
@pytest.mark.parametrize(
    ("kind", "vocabulary", "loss_error", "gradient_error"),
    [
        ("autocast", 300, 1e-3, 1e-2),
        ("bfloat16", 300, 1e-3, 1e-2),
        ("float32", 32_000, 1e-5, 1e-5),
    ],
)
def test_it_is_near_float64(
    layer, smoothing, kind, vocabulary, loss_error, gradient_error, monkeypatch
):
    monkeypatch.setitem(fused._CHUNK_BYTES, "cpu", 16 * vocabulary * 2)  # several are added up
    generator = torch.Generator().manual_seed(7)
    drawn = (
        torch.randn(64, 32, generator=generator),
        0.2 * torch.randn(vocabulary, 32, generator=generator),
        torch.randn(vocabulary, generator=generator) - 5,
    )
    dtype = torch.bfloat16 if kind == "bfloat16" else torch.float32
    inputs = tuple(tensor.to(dtype).requires_grad_() for tensor in drawn)
    exactly = tuple(tensor.detach().double().requires_grad_() for tensor in inputs)
    targets = torch.randint(1, vocabulary, (64,), generator=generator)
    with torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
        found = FUSED[layer](*inputs, targets, label_smoothing=smoothing)
    exact = PLAIN[layer](functional.linear(*exactly), targets, label_smoothing=smoothing)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(exact.item(), rel=loss_error)
    gradients, expected = torch.autograd.grad(found, inputs), torch.autograd.grad(exact, exactly)
    for leaf, gradient, wanted in zip(inputs, gradients, expected, strict=True):
        assert gradient.dtype == leaf.dtype
        assert (gradient.double() - wanted).norm() / wanted.norm() < gradient_error


@pytest.mark.parametrize("certain", [5.0, 20.0, 60.0])
def test_under_scones_a_nearly_certain_gold_token_keeps_its_gradient(certain):
    hidden, weight = torch.tensor([[1.0]]), torch.tensor([[-certain], [certain]])
    bias = torch.zeros(2, requires_grad=True)
    scones.fused_scones_loss(hidden, weight, bias, torch.tensor([1])).backward()
    small = torch.sigmoid(torch.tensor(-certain, dtype=torch.float64))
    torch.testing.assert_close(
        bias.grad.double(), small * torch.tensor([0.5, -1], dtype=torch.float64), rtol=1e-5, atol=0
    )


@each_smoothing
@pytest.mark.parametrize("vocabulary", [2, 32_000])
@pytest.mark.parametrize("certain", [0.0, 5.0, 17.0, 40.0])
def test_under_softmax_it_keeps_digits(certain, vocabulary, smoothing):
    logits = certain * functional.one_hot(torch.tensor([1]), vocabulary).float()
    (loss,), (gradient,) = fused.SoftmaxRule(smoothing)(logits, torch.tensor([[1]]))
    others, spread = (vocabulary - 1) * math.exp(-certain), smoothing * (1 - 1 / vocabulary)
    assert loss.item() == pytest.approx(math.log1p(others) + spread * certain, rel=2e-6, abs=0)
    assert gradient[1].item() == pytest.approx(spread - others / (1 + others), rel=2e-6, abs=0)
