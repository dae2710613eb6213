import math
import random

import numpy as np
import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.significance import PairedTest

from scones.errors import SconesError
from scones.evaluation.significance import acceptance, choose_threshold, mark, paired_bootstrap

PEERS = {"bleu": sacrebleu.BLEU, "chrf": sacrebleu.CHRF, "ter": sacrebleu.TER}


@pytest.fixture
def systems(spoil):
    return {"baseline": spoil(0.3, 1), "close": spoil(0.28, 2), "worse": spoil(0.5, 3)}


@pytest.mark.parametrize("metric", PEERS)
@pytest.mark.parametrize("sets", [1, 2])
def test_equals_sacrebleus_paired_bootstrap(metric, sets, systems, references, spoil, monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", "99")
    reference_sets = [references, spoil(0.1, 4)][:sets]
    peer = PairedTest(
        list(systems.items()), {metric: PEERS[metric]()}, reference_sets, "bs", n_samples=200
    )
    signatures, columns = peer()
    (name,) = signatures

    results = paired_bootstrap(metric, systems, reference_sets, resamples=200, seed=99)

    assert [result.system for result in results] == columns["System"]
    for ours, theirs in zip(results, columns[name], strict=True):
        assert ours.metric == name
        assert ours.signature == str(signatures[name])
        assert ours.score == theirs.score
        assert ours.p == theirs.p_value
        # sacreBLEU resamples in single precision.
        assert ours.mean == pytest.approx(theirs.mean, rel=1e-5)
        assert (ours.high - ours.low) / 2 == pytest.approx(theirs.ci, rel=1e-4)
        assert ours.low < ours.score < ours.high


@pytest.mark.parametrize("metric", PEERS)
def test_a_worse_system_is_marked_and_an_equal_one_is_not(metric, systems, references):
    systems["same"] = list(systems["baseline"])
    baseline, close, worse, same = paired_bootstrap(metric, systems, [references])
    assert (baseline.p, baseline.mark) == (None, "")
    assert close.mark == ""
    assert (worse.p, worse.mark) == (1 / 1001, "‡")
    assert (same.p, same.mark) == (1.0, "")


def test_only_the_seed_decides(systems, references):
    def run(seed):
        return paired_bootstrap("bleu", systems, [references], resamples=100, seed=seed)

    first = run(0)
    np.random.seed(5)
    random.seed(5)
    assert run(0) == first
    assert run(1) != first


def test_a_further_system_changes_nothing_for_the_others(systems, references):
    all_three = paired_bootstrap("chrf", systems, [references], resamples=100)
    del systems["close"]
    assert paired_bootstrap("chrf", systems, [references], resamples=100) == all_three[::2]


def test_marks_of_the_paper():
    assert "".join(mark(p) for p in (0.001, 0.0099, 0.01, 0.049, 0.05, 1.0)) == "‡‡††"
    assert (mark(0.05), mark(1.0)) == ("", "")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"metric": "meteor"}, "'meteor' is unknown"),
        ({"systems": {}}, "no systems"),
        ({"systems": {"a": ["x", "y"], "b": ["x"]}}, "2 texts for 1 hypotheses"),
    ],
)
def test_mistakes_are_refused(changes, sentence):
    arguments = {"metric": "bleu", "systems": {"a": ["x", "y"]}, "references": [["x", "y"]]}
    with pytest.raises(SconesError, match=sentence):
        paired_bootstrap(**(arguments | changes))


# Acceptance.


# Few distinct values, so that ties are frequent; log-probabilities may be -inf.
scores = st.lists(st.sampled_from([-math.inf, -9.5, -3.0, -2.0, -1.25, -0.5, 0.0]), min_size=1)


def share(values, threshold):
    return sum(value >= threshold for value in values) / len(values)


@given(scores, scores, st.sampled_from([-math.inf, -3.0, -2.5, 0.0, 1.0]))
def test_shares_and_area_equal_counting_all_pairs(valid, invalid, threshold):
    judged = acceptance(valid, invalid, threshold)
    wins = sum((v > i) + (v == i) / 2 for v in valid for i in invalid)
    assert judged.threshold == threshold
    assert judged.found == share(valid, threshold)
    assert judged.believed == share(invalid, threshold)
    assert judged.area == pytest.approx(wins / (len(valid) * len(invalid)))


@given(scores, scores)
def test_threshold_is_the_highest_of_the_best(valid, invalid):
    def gain(threshold):
        found = sum(value >= threshold for value in valid)
        believed = sum(value >= threshold for value in invalid)
        return found * len(invalid) - believed * len(valid)

    chosen = choose_threshold(valid, invalid)
    best = max(gain(threshold) for threshold in valid + invalid + [1.0])
    assert gain(chosen) == best
    assert chosen == max(threshold for threshold in valid if gain(threshold) == best)


@pytest.mark.parametrize(
    ("valid", "invalid", "sentence"),
    [
        ([], [-1.0], "no scores of valid"),
        ([-1.0], [], "no scores of invalid"),
        ([math.nan, -1.0], [-1.0], "valid translations is NaN"),
    ],
)
def test_empty_and_nan_are_refused(valid, invalid, sentence):
    with pytest.raises(SconesError, match=sentence):
        choose_threshold(valid, invalid)
    with pytest.raises(SconesError, match=sentence):
        acceptance(valid, invalid, -1.0)
