import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scones.errors import SconesError
from scones.evaluation.significance import acceptance, choose_threshold

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
