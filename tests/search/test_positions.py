"""What a model holds right at each position of a translation: docs/confidence.md."""

import math
from statistics import fmean

import numpy as np
import pytest
import torch

import scones
from scones import SconesError
from scones.outputs import OutputLayer
from scones.outputs.scones import Scones
from scones.outputs.softmax import Softmax
from scones.search.positions import CANDIDATE, of_candidates, positions


class Letters:
    """A vocabulary whose pieces are letters."""

    def pieces(self, ids):
        return ["abcdefgh"[one] for one in ids]


class Plain(Softmax):
    """A layer that says nothing of NumPy."""

    candidates_of_rows = OutputLayer.candidates_of_rows


def logit(probability):
    return math.log(probability / (1 - probability))


def read(output, probabilities, target, share=0.1):
    inverse = logit if isinstance(output, Scones) else math.log
    logits_NV = torch.tensor([[inverse(one) for one in probabilities]])
    (found,) = positions(output, Letters(), share, logits_NV, torch.tensor([target]))
    return found


@pytest.mark.parametrize(
    ("output", "probabilities", "ambiguity", "doubt"),
    [
        (Scones(), [0.999, 0.999, 0.999, 1e-6], 3.0, 1e-9),  # three are right, and that is sure
        (Scones(), [0.2, 0.2, 0.2, 1e-6], 3.0, 0.512),  # the same three, if any
        (Scones(), [0.8, 0.4, 0.07, 1e-6], 1.8, 0.12),  # what is far below the best is no candidate
        (Softmax(), [0.25, 0.25, 0.25, 0.25], 4.0, 0.75**4),
        (Softmax(), [0.97, 0.01, 0.01, 0.01], 1.0, 0.03),
    ],
)
def test_ambiguity_and_doubt_are_what_the_page_defines(output, probabilities, ambiguity, doubt):
    found = read(output, probabilities, 1)
    assert found.piece == "b"
    assert math.exp(found.log_prob) == pytest.approx(probabilities[1], rel=1e-4)
    assert (found.ambiguity, found.doubt) == pytest.approx((ambiguity, doubt), rel=1e-3, abs=1e-6)
    # CTranslate2 gives logits as NumPy arrays, and these go another way.
    inverse = logit if isinstance(output, Scones) else math.log
    row = np.array([inverse(one) for one in probabilities], np.float32)
    for layer in (output, Plain()) if isinstance(output, Softmax) else (output,):
        (chances,) = layer.candidates_of_rows([row], CANDIDATE)
        assert of_candidates(chances) == pytest.approx((ambiguity, doubt), rel=1e-3, abs=1e-6)


def test_alternatives_are_near_the_best_and_without_the_piece_itself():
    probabilities = [0.04, 0.5, 0.9, 0.1, 0.001]
    pieces = [piece for piece, _ in read(Scones(), probabilities, 0).alternatives]
    assert pieces == ["c", "b", "d"]
    assert dict(read(Scones(), probabilities, 2).alternatives) == pytest.approx(
        {"b": 0.5, "d": 0.1}, rel=1e-4
    )
    assert read(Scones(), probabilities, 2, share=0.6).alternatives == ()


@pytest.mark.parametrize("layer", ["scones", "softmax"])
def test_positions_say_what_score_says(tiny_models, tea_pairs, layer):
    translator = scones.load(tiny_models / layer, "cpu")
    pairs = [*tea_pairs[:20], ("Tee", "")]
    found = translator.positions(pairs)
    assert [one[-1].piece for one in found] == ["</s>"] * len(pairs)
    for several, terms in zip(found, translator.score_tokens(pairs), strict=True):
        assert [one.log_prob for one in several] == pytest.approx(terms, abs=1e-4)
        assert all(one.ambiguity > 0.999 and 0 <= one.doubt <= 1 for one in several)
    for judged, several in zip(translator.judge(pairs), found, strict=True):
        assert judged.ambiguity == pytest.approx(fmean(one.ambiguity for one in several), abs=1e-4)
        assert judged.doubt == pytest.approx(fmean(one.doubt for one in several), abs=1e-4)
        assert judged.log_prob == pytest.approx(sum(one.log_prob for one in several), abs=1e-3)
    assert translator.positions([]) == translator.judge([]) == []


def test_a_share_out_of_bounds_is_refused(tiny_models):
    translator = scones.load(tiny_models / "scones", "cpu")
    with pytest.raises(SconesError, match="share must be above 0 and at most 1, not 0"):
        translator.positions([("Tee", "tea")], share=0)
