"""The SCONES loss against the paper's equations in float64, written in another form here."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import scones
from scones.errors import SconesError
from scones.outputs.softmax import Softmax

ALPHAS = (0.1, 0.5, 1.0, 2.0)
SMOOTHINGS = (0.0, 0.1)
GRID = (-100, -88, -50, -20, -18.5, -17, -15, -1, 0, 0.5, 1, 15, 16, 17, 18, 19, 20, 21, 88, 100)

logit = st.floats(-100, 100, width=32) | st.sampled_from(GRID)


def reference(logits, gold, alpha, smoothing):
    """The loss of one position: the appendix's two cross-entropies, term by term."""
    logits = logits.astype(np.float64)
    log_yes, log_no = -np.logaddexp(0, -logits), -np.logaddexp(0, logits)
    positive = -(1 - smoothing) * log_yes[gold] - smoothing * log_no[gold]
    others = np.arange(len(logits)) != gold
    negative = -np.sum((1 - smoothing) * log_no[others] + smoothing * log_yes[others])
    return float(positive + alpha * negative)


def reference_gradient(logits, gold, alpha, smoothing):
    """σ minus its target, weighed; each difference is taken where it keeps its digits."""
    logits = logits.astype(np.float64)
    yes, no = np.exp(-np.logaddexp(0, -logits)), np.exp(-np.logaddexp(0, logits))
    gradient = alpha * ((1 - smoothing) * yes - smoothing * no)
    gradient[gold] = smoothing * yes[gold] - (1 - smoothing) * no[gold]
    return gradient


def loss_and_gradient(logits, targets, alpha, smoothing):
    leaf = logits.clone().requires_grad_()
    losses = scones.scones_loss(leaf, targets, alpha, smoothing, reduction="none")
    losses.sum().backward()
    return losses.detach(), leaf.grad


def check_row(row, gold, alpha, smoothing):
    logits = np.array(row, dtype=np.float32)
    losses, gradients = loss_and_gradient(
        torch.from_numpy(logits)[None], torch.tensor([gold]), alpha, smoothing
    )
    loss, gradient = float(losses[0]), gradients[0].double().numpy()
    expected = reference(logits, gold, alpha, smoothing)
    assert abs(loss - expected) <= 1e-5 * abs(expected) + 1e-30
    expected_gradient = reference_gradient(logits, gold, alpha, smoothing)
    largest = np.abs(expected_gradient).max()
    # Below 1e-37 float32 has no full digits, whatever the formula.
    assert np.abs(gradient - expected_gradient).max() <= 1e-5 * largest + 1e-37


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("alpha", ALPHAS)
@given(row=st.lists(logit, min_size=2, max_size=12), data=st.data())
@settings(max_examples=40)
def test_float32_is_as_good_as_float64(alpha, smoothing, row, data):
    # Token 0 is padding and never gold.
    check_row(row, data.draw(st.integers(1, len(row) - 1)), alpha, smoothing)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_float32_is_as_good_as_float64_at_every_size_of_logit(alpha, smoothing):
    for gold in GRID:
        for other in GRID:
            check_row([other, gold, other], 1, alpha, smoothing)


def test_a_large_vocabulary_loses_no_digits():
    random = np.random.default_rng(4)
    row = random.normal(-8, 6, 32_000).clip(-100, 100)
    check_row(row.tolist(), 77, 0.5, 0.1)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_gradient_is_the_slope(alpha, smoothing):
    generator = torch.Generator().manual_seed(2)
    logits = 6 * torch.randn(3, 7, dtype=torch.float64, generator=generator)
    targets = torch.tensor([4, 0, 6])

    def total(values):
        return scones.scones_loss(values, targets, alpha, smoothing)

    assert torch.autograd.gradcheck(total, logits.requires_grad_())


@pytest.mark.parametrize("filling", [0.0, 1e30, float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("ignore_index", [0, -100, None])
def test_padding_counts_for_nothing(filling, ignore_index):
    def each_loss(logits_NV, targets_N):
        if ignore_index is None:
            return Softmax(label_smoothing=0.1).token_losses(logits_NV, targets_N)
        return scones.scones_loss(
            logits_NV, targets_N, 0.5, 0.1, ignore_index=ignore_index, reduction="none"
        )

    generator = torch.Generator().manual_seed(3)
    real = torch.randn(2, 6, generator=generator)
    logits = torch.stack([real[0], torch.full((6,), filling), real[1]]).requires_grad_()
    losses = each_loss(logits, torch.tensor([3, ignore_index or 0, 5]))
    losses.sum().backward()
    assert losses[1] == 0
    assert torch.all(logits.grad[1] == 0)
    assert torch.equal(losses[[0, 2]], each_loss(real, torch.tensor([3, 5])))
    assert torch.all(logits.grad[[0, 2]] != 0)


def test_reductions():
    generator = torch.Generator().manual_seed(6)
    logits = torch.randn(3, 4, 7, generator=generator)
    targets = torch.tensor([[3, 4, 5, 1], [6, 1, 0, 0], [0, 0, 0, 0]])
    each = np.array(
        [
            [reference(z, y, 0.5, 0.0) if y else 0.0 for z, y in zip(rows, golds, strict=True)]
            for rows, golds in zip(logits.numpy(), targets.tolist(), strict=True)
        ]
    )

    def loss(reduction):
        return scones.scones_loss(logits, targets, 0.5, reduction=reduction).numpy()

    np.testing.assert_allclose(loss("none"), each, rtol=1e-5)
    np.testing.assert_allclose(loss("sum"), each.sum(), rtol=1e-5)
    np.testing.assert_allclose(loss("mean"), each.sum() / 6, rtol=1e-5)
    # The paper's equation: the mean over a sentence's tokens, then over the sentences there are.
    by_sentence = (each[0].sum() / 4 + each[1].sum() / 2) / 2
    np.testing.assert_allclose(loss("sentence_mean"), by_sentence, rtol=1e-5)
    targets[:] = 0  # nothing but padding
    assert loss("mean") == loss("sentence_mean") == loss("sum") == 0
    with pytest.raises(SconesError, match="'average' is not known; use 'mean'"):
        loss("average")


def test_half_precision_logits_are_computed_in_float32():
    logits = torch.linspace(-30, 30, 40).reshape(4, 10).bfloat16()
    targets = torch.tensor([1, 9, 5, 3])
    losses = scones.scones_loss(logits, targets, 0.5, 0.1, reduction="none")
    assert losses.dtype == torch.float32
    exact = scones.scones_loss(logits.float(), targets, 0.5, 0.1, reduction="none")
    assert torch.equal(losses, exact)
    assert scones.scones_loss(logits.double(), targets).dtype == torch.float64
