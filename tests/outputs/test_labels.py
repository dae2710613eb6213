"""Several right tokens and known wrong ones at a position: losses and gradients."""

import pytest
import torch
from torch.nn import functional

import scones
from scones.outputs import Labels
from scones.outputs.scones import Scones

ROWS, VOCABULARY, SIZE = 40, 23, 6
ALPHA, WRONG = 0.3, 4.0


def drawn(right, wrong):
    """Targets, labels, and the weights of every token as right and as wrong (N, V)."""
    torch.manual_seed(right + 10 * wrong)
    order_NV = torch.rand(ROWS, VOCABULARY - 1).argsort(1) + 1
    targets_N = order_NV[:, 0]
    rows_K = torch.arange(ROWS).repeat_interleave(right - 1 + wrong)
    tokens_K = order_NV[:, 1 : right + wrong].flatten()
    is_right_K = (torch.arange(right - 1 + wrong) < right - 1).repeat(ROWS)
    weights = (is_right_K.float(), WRONG * (~is_right_K).float())
    labels = Labels(rows_K, tokens_K, *weights)
    right_NV = torch.zeros(ROWS, VOCABULARY, dtype=torch.float64)
    wrong_NV = torch.full_like(right_NV, ALPHA)
    for places, each_K in ((right_NV, weights[0]), (wrong_NV, weights[1])):
        places[rows_K, tokens_K] = each_K.double()
    right_NV[torch.arange(ROWS), targets_N] = 1.0
    wrong_NV[torch.arange(ROWS), targets_N] = 0.0
    return targets_N, labels, right_NV, wrong_NV


def leaves(dtype):
    torch.manual_seed(7)
    shapes = ((ROWS, SIZE), (VOCABULARY, SIZE), (VOCABULARY,))
    return [torch.randn(shape).mul(2).to(dtype).requires_grad_() for shape in shapes]


def plain(hidden, weight, bias, *others, **options):
    return scones.scones_loss(functional.linear(hidden, weight, bias), *others, **options)


def by_layer(hidden, weight, bias, targets, *, labels, **_):
    layer = Scones(ALPHA)
    loss = layer.loss(hidden, weight, bias, targets)
    return (loss + layer.label_loss(hidden, weight, bias, labels)) / ROWS


@pytest.mark.parametrize("loss", [plain, scones.fused_scones_loss, by_layer])
@pytest.mark.parametrize("wrong", [0, 3])
@pytest.mark.parametrize("right", range(1, 9))
def test_loss_and_gradient_are_those_of_the_formula(loss, right, wrong):
    targets_N, labels, right_NV, wrong_NV = drawn(right, wrong)
    exact = leaves(torch.float64)
    logits_NV = functional.linear(*exact)
    # The formula, with nothing subtracted from anything.
    terms_NV = right_NV * functional.softplus(-logits_NV) + wrong_NV * functional.softplus(
        logits_NV
    )
    expected = terms_NV.sum() / ROWS
    inputs = leaves(torch.float32)
    found = loss(*inputs, targets_N, alpha=ALPHA, labels=labels)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)
    wanted = torch.autograd.grad(expected, exact)
    for gradient, one in zip(torch.autograd.grad(found, inputs), wanted, strict=True):
        torch.testing.assert_close(gradient.double(), one, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("loss", [plain, scones.fused_scones_loss])
def test_one_gold_is_the_usual_loss_bit_for_bit(loss):
    targets_N, labels, *_ = drawn(1, 0)
    assert len(labels.rows_K) == 0
    results = []
    for given in ({}, {"labels": None}, {"labels": labels}):
        inputs = leaves(torch.float32)
        found = loss(*inputs, targets_N, **given)
        results.append([found, *torch.autograd.grad(found, inputs)])
    for usual, none, empty in zip(*results, strict=True):
        assert torch.equal(usual, none)
        assert torch.equal(usual, empty)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_fused_and_plain_agree_with_padding_and_smoothing(smoothing):
    targets_N, labels, *_ = drawn(3, 2)
    targets_N = targets_N.clone()
    targets_N[::3] = 0
    results = []
    for loss in (plain, scones.fused_scones_loss):
        inputs = leaves(torch.float64)
        found = loss(*inputs, targets_N, label_smoothing=smoothing, labels=labels)
        results.append([found, *torch.autograd.grad(found, inputs)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_a_label_counts_instead_of_what_the_token_counted():
    # A token that is told to be wrong with the weight α says what the usual loss says.
    targets_N, labels, *_ = drawn(1, 2)
    same = Labels(
        labels.rows_K, labels.tokens_K, labels.right_K, torch.full_like(labels.wrong_K, 0.5)
    )
    logits = leaves(torch.float32)[0].detach().repeat(1, 4)[:, :VOCABULARY]
    usual = scones.scones_loss(logits, targets_N)
    torch.testing.assert_close(scones.scones_loss(logits, targets_N, labels=same), usual)
