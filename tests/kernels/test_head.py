"""The kernels of the output layer, against the rules of `scones.outputs.fused` in float64."""

from __future__ import annotations

import pytest
import torch
from kernel_device import DEVICE, make_usable
from torch import Tensor

from scones.kernels import IGNORED, head
from scones.kernels.head import SconesTurn, SoftmaxTurn, Turn
from scones.outputs import fused
from scones.outputs.fused import Rule, SconesRule, SoftmaxRule

ALPHA = 0.3
SIZE, VOCABULARY = 16, 301
LAYERS = ["scones", "softmax"]


def turn_and_rule(layer: str, smoothing: float = 0.0, sharded: bool = False) -> tuple[Turn, Rule]:
    if layer == "scones":
        return SconesTurn(ALPHA, smoothing), SconesRule(ALPHA, smoothing, sharded)
    return SoftmaxTurn(smoothing), SoftmaxRule(smoothing)


def draw(rows: int, vocabulary: int = VOCABULARY, seed: int = 1) -> tuple[Tensor, ...]:
    """Hidden states, matrix, bias and targets."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, SIZE, generator=generator)
    weight = torch.randn(vocabulary, SIZE, generator=generator)
    bias = torch.randn(vocabulary, generator=generator) - 3
    targets = torch.randint(0, vocabulary, (rows,), generator=generator)
    return tuple(tensor.to(DEVICE) for tensor in (hidden, weight, bias, targets))


def by_logits(logits_NV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, matrix and bias that have just these logits."""
    rows, vocabulary = logits_NV.shape
    states = torch.eye(rows, device=DEVICE)
    return states, logits_NV.T.contiguous().to(DEVICE), torch.zeros(vocabulary, device=DEVICE)


def check(
    inputs: tuple[Tensor, ...],
    targets: Tensor,
    weights: Tensor | None,
    layer: str,
    smoothing: float = 0.0,
    tolerance: float = 1e-5,
) -> None:
    """Compare the loss and the gradients with the rule's, ignored rows left out of it."""
    turn, rule = turn_and_rule(layer, smoothing)
    keep = targets != IGNORED
    loss, gradients = head.loss_and_gradients(*inputs, targets, weights, turn, wanted=True)
    hidden, weight, bias = (tensor.double() for tensor in inputs)
    exact, expected = fused.loss_and_gradients(
        hidden[keep],
        weight,
        bias,
        targets[keep],
        None if weights is None else weights[keep].double(),
        rule,
        wanted=True,
    )
    assert loss.item() == pytest.approx(exact.item(), rel=tolerance)
    states = torch.zeros_like(hidden)
    states[keep] = expected[0]
    for have, want in zip(gradients, (states, *expected[1:]), strict=True):
        assert have.dtype == torch.float32
        assert (have - want).norm() <= tolerance * want.norm()
    assert torch.all(gradients[0][~keep] == 0)


each_layer = pytest.mark.parametrize("layer", LAYERS)


@each_layer
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_kernels_do_what_the_rules_do(layer: str, smoothing: float, weighted: bool) -> None:
    *inputs, targets = draw(80)
    targets[[0, 67, 79]] = IGNORED
    weights = torch.rand(80, device=DEVICE) if weighted else None
    check(tuple(inputs), targets, weights, layer, smoothing)


@each_layer
@pytest.mark.parametrize("chunk", [1, 20_000])  # the smallest, and one that divides nothing
@pytest.mark.parametrize("rows", [1, 70])
def test_chunks_change_nothing(
    layer: str, chunk: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head, "_CHUNK", chunk)
    *inputs, targets = draw(rows)
    check(tuple(inputs), targets, None, layer, 0.1)


def test_chunks_of_rows_change_nothing() -> None:
    *inputs, targets = draw(140)
    whole, pieces = (
        head.loss_and_gradients(*inputs, targets, None, turn, True)
        for turn in (SconesTurn(ALPHA, 0.1), SconesTurn(ALPHA, 0.1, most_rows=128))
    )
    torch.testing.assert_close(whole, pieces)


@pytest.mark.parametrize("vocabulary", [2, 64, 1023, 1025, 4097])
@each_layer
def test_any_vocabulary(layer: str, vocabulary: int) -> None:
    *inputs, targets = draw(5, vocabulary)
    targets[:2] = torch.tensor([0, vocabulary - 1], device=DEVICE)
    check(tuple(inputs), targets, None, layer, 0.1)


@each_layer
def test_gold_in_every_place(layer: str) -> None:
    *inputs, _ = draw(70, 70)
    check(tuple(inputs), torch.randperm(70, device=DEVICE), None, layer)


@each_layer
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("largest", [30.0, 80.0])
def test_extreme_logits(layer: str, smoothing: float, largest: float) -> None:
    generator = torch.Generator().manual_seed(2)
    logits = (2 * torch.rand(16, VOCABULARY, generator=generator) - 1) * largest
    logits[0] = largest
    logits[1] = -largest
    inputs = by_logits(logits)
    targets = torch.randint(0, VOCABULARY, (16,), generator=generator).to(DEVICE)
    check(inputs, targets, None, layer, smoothing)


@pytest.mark.parametrize(
    ("layer", "logit"),
    [(layer, logit) for layer in LAYERS for logit in (-80.0, -20.0, 0.0, 20.0, 80.0)]
    + [("scones", -1e4), ("scones", 1e4)],  # it has no normaliser, which would round there
)
def test_every_single_gradient_keeps_its_digits(layer: str, logit: float) -> None:
    logits = torch.full((3, 5), logit)
    logits[1, 2] += 1
    inputs, targets = by_logits(logits), torch.tensor([0, 2, 4], device=DEVICE)
    turn, rule = turn_and_rule(layer)
    _, (_, have, _) = head.loss_and_gradients(*inputs, targets, None, turn, True)
    exactly = tuple(tensor.double() for tensor in inputs)
    _, (_, want, _) = fused.loss_and_gradients(*exactly, targets, None, rule, wanted=True)
    torch.testing.assert_close(have.double(), want, rtol=1e-5, atol=1e-30)


@each_layer
def test_a_bias_that_rules_tokens_out(layer: str) -> None:
    hidden, weight, bias, targets = draw(20)
    bias[::3] = -1e4
    targets.copy_(targets // 3 * 3 + 1).clamp_(max=VOCABULARY - 2)
    check((hidden, weight, bias), targets, None, layer)


@pytest.mark.parametrize(("rows", "weighted"), [(64, False), (200, False), (130, True)])
def test_the_product_of_many_rows_does_not_overflow(rows: int, weighted: bool) -> None:
    """Every 1 + e is 2 where logits are 0: the product of 128 rows is no float32 any more."""
    zeros = torch.zeros(rows, SIZE, device=DEVICE)
    weight = torch.ones(70, SIZE, device=DEVICE)
    targets = torch.zeros(rows, dtype=torch.long, device=DEVICE)
    weights = torch.full((rows,), 0.5, device=DEVICE) if weighted else None
    inputs = (zeros, weight, torch.zeros(70, device=DEVICE))
    loss, _ = head.loss_and_gradients(*inputs, targets, weights, SconesTurn(ALPHA, 0.0), True)
    one = torch.log(torch.tensor(2.0)).item() * (1 + 69 * ALPHA)
    assert loss.item() == pytest.approx(rows * one * (0.5 if weighted else 1), rel=1e-5)


def test_small_losses_of_many_rows_add_up() -> None:
    """1 + e is 1 in float32 below 1e-8, but the logarithm of many is not 0."""
    logits = torch.full((4, VOCABULARY), -19.0)
    inputs, targets = by_logits(logits), torch.tensor([IGNORED, 3, IGNORED, 300], device=DEVICE)
    loss, _ = head.loss_and_gradients(*inputs, targets, None, SconesTurn(ALPHA, 0.0), False)
    small = torch.nn.functional.softplus(torch.tensor(-19.0, dtype=torch.float64)).item()
    expected = 2 * (small + 19 + ALPHA * 300 * small)
    assert loss.item() - 38 == pytest.approx(expected - 38, abs=4e-6)  # 38's last digit
    rest = head.loss_and_gradients(*inputs, targets - 1000, None, SconesTurn(ALPHA, 0.0), False)[0]
    assert rest.item() == pytest.approx(4 * ALPHA * VOCABULARY * small, rel=1e-5)


@each_layer
def test_only_the_loss(layer: str) -> None:
    *inputs, targets = draw(40)
    turn, _ = turn_and_rule(layer, 0.1)
    loss, nothing = head.loss_and_gradients(*inputs, targets, None, turn, wanted=False)
    assert nothing == ()
    assert torch.equal(loss, head.loss_and_gradients(*inputs, targets, None, turn, wanted=True)[0])


@each_layer
def test_rows_that_do_not_count_alone(layer: str) -> None:
    *inputs, targets = draw(3)
    turn, _ = turn_and_rule(layer)
    targets.fill_(IGNORED)
    loss, gradients = head.loss_and_gradients(*inputs, targets, None, turn, wanted=True)
    assert loss.item() == 0
    assert all(torch.all(gradient == 0) for gradient in gradients)


@each_layer
def test_no_rows_at_all(layer: str) -> None:
    *inputs, targets = draw(0)
    turn, _ = turn_and_rule(layer)
    loss, gradients = head.loss_and_gradients(*inputs, targets, None, turn, wanted=True)
    assert loss.item() == 0
    assert [gradient.shape for gradient in gradients] == [tensor.shape for tensor in inputs]
    assert all(torch.all(gradient == 0) for gradient in gradients)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
def test_shards_of_the_vocabulary_add_up(smoothing: float, weighted: bool) -> None:
    """A shard sees targets below and above its own tokens, which are nobody's gold there."""
    hidden, weight, bias, targets = draw(70)
    weights = torch.rand(70, device=DEVICE) if weighted else None
    turn, rule = turn_and_rule("scones", smoothing)
    parts = []
    for first, last in ((0, 100), (100, 228), (228, 301)):
        parts.append(
            head.loss_and_gradients(
                hidden, weight[first:last], bias[first:last], targets - first, weights, turn, True
            )
        )
    exactly = tuple(tensor.double() for tensor in (hidden, weight, bias))
    exact_weights = None if weights is None else weights.double()
    exact, want = fused.loss_and_gradients(*exactly, targets, exact_weights, rule, wanted=True)
    assert sum(loss.item() for loss, _ in parts) == pytest.approx(exact.item(), rel=1e-5)
    to_hidden = torch.stack([gradients[0] for _, gradients in parts]).sum(dim=0)
    to_weight, to_bias = (torch.cat([gradients[i] for _, gradients in parts]) for i in (1, 2))
    for have, slope in zip((to_hidden, to_weight, to_bias), want, strict=True):
        assert (have - slope).norm() < 1e-5 * slope.norm()


# By the front door: `scones.outputs.fused` takes the kernels where they are usable.


@pytest.fixture
def _usable(monkeypatch: pytest.MonkeyPatch) -> None:
    make_usable(monkeypatch)


@pytest.mark.usefixtures("_usable")
@each_layer
@pytest.mark.parametrize("ignore_index", [0, -100])
def test_the_fused_losses_take_the_kernels(
    layer: str, ignore_index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    *inputs, targets = draw(12)
    targets[4:6] = ignore_index
    loss_of = fused.fused_scones_loss if layer == "scones" else fused.fused_cross_entropy
    exactly = [tensor.double().cpu().requires_grad_() for tensor in inputs]
    inputs = [tensor.requires_grad_() for tensor in inputs]
    with monkeypatch.context() as patch:
        patch.delattr(fused, "_by_chunks")
        loss = loss_of(*inputs, targets, ignore_index=ignore_index)
    gradients = torch.autograd.grad(3 * loss, inputs)
    monkeypatch.undo()
    exact = loss_of(*exactly, targets.cpu(), ignore_index=ignore_index)
    assert loss.item() == pytest.approx(exact.item(), rel=1e-5)
    expected = torch.autograd.grad(3 * exact, exactly)
    for have, want in zip(gradients, expected, strict=True):
        torch.testing.assert_close(have.double().cpu(), want, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("_usable")
@pytest.mark.filterwarnings("ignore:invalid value encountered")
@each_layer
@pytest.mark.parametrize("filling", [float("nan"), float("inf")])
def test_what_stands_under_padding_passes_nowhere(layer: str, filling: float) -> None:
    *inputs, targets = draw(3)
    inputs[0][1], targets[1] = filling, 0
    inputs = [tensor.requires_grad_() for tensor in inputs]
    loss_of = fused.fused_scones_loss if layer == "scones" else fused.fused_cross_entropy
    loss = loss_of(*inputs, targets)
    gradients = torch.autograd.grad(loss, inputs)
    assert torch.isfinite(loss)
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    assert torch.all(gradients[0][1] == 0)


@pytest.mark.usefixtures("_usable")
@each_layer
def test_float64_has_no_kernels_and_is_computed_all_the_same(layer: str) -> None:
    *inputs, targets = draw(4)
    targets[2] = 0
    loss_of = fused.fused_scones_loss if layer == "scones" else fused.fused_cross_entropy
    exact = loss_of(*(tensor.double() for tensor in inputs), targets)
    assert exact.dtype == torch.float64
    assert exact.item() == pytest.approx(loss_of(*inputs, targets).item(), rel=1e-5)


def test_a_cpu_is_left_to_the_plain_way() -> None:
    from scones.kernels import usable

    assert not usable(torch.device("cpu"))
