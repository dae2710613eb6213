"""The output layers as training and search see them."""

from functools import partial

import pytest
import torch
from torch.nn import functional

from scones.errors import SconesError
from scones.outputs import OutputLayer, best_logits, output_layer
from scones.outputs.scones import Scones
from scones.outputs.softmax import Softmax

LAYERS = [Scones(alpha=0.3, label_smoothing=0.1), Softmax(label_smoothing=0.1)]


def draw_logits(rows=5, vocabulary=12):
    return 4 * torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(8))


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_the_short_ways_equal_the_long_one(layer):
    logits = draw_logits()
    scores = layer.log_scores(logits)
    for k in (1, 3, 12):
        best_scores, best_tokens = layer.best(logits, k)
        expected_scores, expected_tokens = scores.topk(k)
        assert torch.equal(best_tokens, expected_tokens)
        torch.testing.assert_close(best_scores, expected_scores)
    assert torch.equal(layer.best_token(logits), scores.argmax(-1))
    tokens = torch.tensor([0, 3, 11, 5, 5])
    expected = torch.stack([scores[row, token] for row, token in enumerate(tokens)])
    torch.testing.assert_close(layer.scores_of(logits, tokens), expected)
    for same in (layer.scores_of_rows, partial(OutputLayer.scores_of_rows, layer)):
        found = same([*logits.numpy()], tokens.tolist())
        assert found == pytest.approx(expected.tolist(), rel=1e-5)


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_scores_are_log_probabilities_in_float32(layer):
    logits = draw_logits()
    expected = {"scones": torch.sigmoid(logits), "softmax": torch.softmax(logits, -1)}[layer.name]
    torch.testing.assert_close(layer.log_scores(logits).exp(), expected)
    half = logits.bfloat16()
    assert layer.log_scores(half).dtype == torch.float32
    assert layer.best(half, 2)[0].dtype == torch.float32
    assert layer.scores_of(half, torch.zeros(5, dtype=torch.long)).dtype == torch.float32


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_softmax_is_cross_entropy(smoothing):
    logits, targets = draw_logits(), torch.tensor([3, 0, 11, 1, 5])
    expected = functional.cross_entropy(
        logits, targets, ignore_index=0, reduction="none", label_smoothing=smoothing
    )
    torch.testing.assert_close(Softmax(smoothing).token_losses(logits, targets), expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0, 2.0])
def test_training_starts_where_no_constant_is_better(alpha, smoothing):
    layer, vocabulary = Scones(alpha, smoothing), 500
    start = layer.initial_bias(vocabulary)
    bias = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    logits = bias.expand(vocabulary - 1, vocabulary)
    # Every token is gold once, so this is the mean loss of a model that knows nothing.
    loss = layer.token_losses(logits, torch.arange(1, vocabulary)).mean()
    (slope,) = torch.autograd.grad(loss, bias)
    assert abs(float(slope)) < 1e-9
    assert start < 0


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_settings_make_the_same_layer_again(layer):
    assert output_layer(layer.to_config()) == layer
    assert layer.to_config()["layer"] == layer.name
    assert output_layer({}) == Scones(alpha=0.5, label_smoothing=0.0)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"layer": "entmax"}, "here: the output layer 'entmax' is not known; there are scones, so"),
        ({"layer": ["softmax"]}, "is not known"),
        ({"alpha": 0}, "alpha must be above 0, not 0"),
        ({"alpha": float("inf")}, "alpha must be at most"),
        ({"alpha": "half"}, "'alpha' must be a number, not 'half'"),
        ({"label_smoothing": 1.0}, r"label_smoothing must be in \[0, 1\), not 1.0"),
        ({"layer": "softmax", "label_smoothing": -0.1}, r"label_smoothing must be in \[0, 1\)"),
        ({"alhpa": 0.5}, r"'alhpa' is not known \(did you mean 'alpha'\?\)"),
        ({"layer": "softmax", "alpha": 0.5}, "'alpha' is not known"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, sentence):
    with pytest.raises(SconesError, match=sentence):
        output_layer(settings, "here")


def test_the_best_of_many_tokens_are_found_in_blocks():
    logits_NV = torch.randn(5, 64 * 20, generator=torch.Generator().manual_seed(3))
    logits_NV[0, 100:] = float("-inf")
    values_Nk, tokens_Nk, _ = best_logits(logits_NV, 4)
    expected = logits_NV.topk(4, dim=-1)
    assert torch.equal(values_Nk, expected.values)
    assert torch.equal(tokens_Nk, expected.indices)
