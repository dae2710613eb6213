"""The loss for JAX is the loss for PyTorch, in value and gradient."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from hypothesis.extra.numpy import arrays

import scones
from scones.bridges.jax import initial_bias, scones_loss
from scones.errors import SconesError
from scones.outputs import output_layer

jax = pytest.importorskip("jax")
jnp = jax.numpy

VOCABULARY = 7
RANDOM = np.random.default_rng(3)
LOGITS = RANDOM.uniform(-100, 100, (3, 5, VOCABULARY)).astype(np.float32)
TARGETS = RANDOM.integers(1, VOCABULARY, (3, 5))
TARGETS[0, 3:] = TARGETS[2] = 0  # padding; a whole sentence of it too


def ours(logits, targets, **options):
    """Give the loss and the gradient of (the sum of) it by PyTorch, in float64."""
    leaf = torch.tensor(logits.astype(np.float64), requires_grad=True)
    loss = scones.scones_loss(leaf, torch.tensor(targets), **options)
    loss.sum().backward()
    return loss.detach().numpy(), leaf.grad.numpy()


def theirs(logits, targets, **options):
    """Give the same by JAX, compiled."""

    def total(values):
        loss = scones_loss(values, targets, **options)
        return loss.sum(), loss

    gradient, loss = jax.jit(jax.grad(total, has_aux=True))(logits)
    return np.asarray(loss, np.float64), np.asarray(gradient, np.float64)


def assert_same(found, expected, tolerance=1e-05):
    """Compare within a tolerance relative to the largest value."""
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("reduction", ["mean", "sentence_mean", "sum", "none"])
def test_value_and_gradient_are_ours(reduction):
    options = {"alpha": 0.2, "label_smoothing": 0.1, "reduction": reduction}
    for found, expected in zip(
        theirs(LOGITS, TARGETS, **options), ours(LOGITS, TARGETS, **options), strict=True
    ):
        assert found.shape == expected.shape
        assert_same(found, expected)


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_low_precision_is_computed_in_float32(kind):
    low = jnp.asarray(LOGITS, kind)
    exact = np.asarray(low, np.float32)
    found, gradient = theirs(low, TARGETS, alpha=0.7)
    expected, expected_gradient = ours(exact, TARGETS, alpha=0.7)
    assert scones_loss(low, TARGETS).dtype == jnp.float32
    assert_same(found, expected)
    assert_same(gradient, expected_gradient, tolerance=2**-8)  # a gradient has its input's type


@settings(max_examples=30)
@given(
    arrays(np.float32, (2, 3, VOCABULARY), elements=some.floats(-100, 100, width=32)),
    arrays(np.int64, (2, 3), elements=some.integers(0, VOCABULARY - 1)),
    some.floats(0.01, 5),
    some.floats(0, 0.5),
    some.integers(-1, VOCABULARY - 1),
)
def test_any_logits_and_settings(logits, targets, alpha, smoothing, ignored):
    options = {"alpha": alpha, "label_smoothing": smoothing, "ignore_index": ignored}
    expected, expected_gradient = ours(logits, targets, **options)
    found, gradient = _value_and_gradient(logits, targets, **options)
    assert_same(found, expected)
    assert_same(gradient, expected_gradient)


_value_and_gradient = jax.jit(jax.value_and_grad(scones_loss))  # α, λ and all traced


def test_the_gradient_is_exact_however_large_the_logit():
    logits = np.array([-1e4, -100, -80, -30, -1, 0, 1, 30, 80, 100, 1e4], np.float32)
    rows = np.stack([np.zeros_like(logits), logits, logits], axis=-1)
    _, gradient = theirs(rows, np.ones(len(rows), int), alpha=0.5, reduction="sum")
    with np.errstate(over="ignore"):
        chances = 1 / (1 + np.exp(-logits.astype(np.float64)))
        rests = 1 / (1 + np.exp(logits.astype(np.float64)))
    # Below 1e-38 float32 has no exact numbers.
    np.testing.assert_allclose(gradient[:, 1], -rests, rtol=1e-6, atol=1e-38)
    np.testing.assert_allclose(gradient[:, 2], 0.5 * chances, rtol=1e-6, atol=1e-38)


def test_not_even_a_nan_passes_an_ignored_row():
    spoilt = LOGITS.copy()
    spoilt[TARGETS == 0] = np.nan
    spoilt[2, 0] = np.inf
    for reduction in ("sentence_mean", "none"):
        clean = theirs(LOGITS, TARGETS, reduction=reduction)
        for found, expected in zip(
            theirs(spoilt, TARGETS, reduction=reduction), clean, strict=True
        ):
            np.testing.assert_array_equal(found, expected)


def test_values_at_the_edge():
    for outside in (-100, VOCABULARY):
        losses = scones_loss(LOGITS[0, :2], np.array([1, outside]), reduction="none")
        assert list(np.isnan(losses)) == [False, True]
    for reduction in ("mean", "sentence_mean"):  # nothing but padding
        loss, gradient = theirs(LOGITS, np.zeros_like(TARGETS), reduction=reduction)
        assert loss == 0
        assert not gradient.any()
    ruled_out = np.array([[0.0, 1.0, -np.inf]], np.float32)
    loss, gradient = theirs(ruled_out, np.array([1]))
    assert_same(loss, ours(ruled_out, np.array([1]))[0])
    assert gradient[0, 2] == 0


def test_the_bias_to_start_from_is_the_layers():
    layer = output_layer({"layer": "scones", "alpha": 0.3, "label_smoothing": 0.1})
    bias = initial_bias(VOCABULARY, 0.3, 0.1)
    assert bias == layer.initial_bias(VOCABULARY)
    slope = jax.grad(lambda z: scones_loss(jnp.full((1, VOCABULARY), z), np.array([1]), 0.3, 0.1))
    assert float(jax.jit(slope)(bias)) == pytest.approx(0, abs=1e-6)


def test_mistakes_are_one_sentence(monkeypatch):
    with pytest.raises(SconesError, match="reduction='avg' is not known"):
        scones_loss(LOGITS, TARGETS, reduction="avg")
    with pytest.raises(SconesError, match=r"logits \(3, 5, 7\) and targets \(3, 1\) must have"):
        scones_loss(LOGITS, TARGETS[:, :1])
    with pytest.raises(SconesError, match="targets must be token ids, whole numbers, not float32"):
        scones_loss(LOGITS, TARGETS.astype(np.float32))
    with pytest.raises(SconesError, match="alpha must be above 0, not nan"):
        scones_loss(LOGITS, TARGETS, alpha=float("nan"))
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(SconesError, match=r"pip install 'scones\[jax\]'"):
        scones_loss(LOGITS, TARGETS)


def test_the_bridge_is_imported_without_jax_and_pytorch():
    program = "import sys, scones.bridges.jax; print({'jax', 'torch'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr
