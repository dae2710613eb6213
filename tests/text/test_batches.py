import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scones.errors import SconesError
from scones.text.batches import pad_batch, plan_batches
from scones.text.store import ParallelTokens, Sentences

lengths = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=200)


def _corpus(count):
    """Lengths spread like those of parliament speeches, the two sides correlated."""
    random = np.random.default_rng(5)
    target = np.clip(random.lognormal(3.1, 0.7, count), 1, 300).astype(int)
    source = np.clip(target * random.lognormal(0.05, 0.25, count), 1, 300).astype(int)
    return source, target


def _as_sets(plan):
    return {frozenset(batch.tolist()) for batch in plan}


@given(lengths, st.integers(31, 200), st.integers(1, 300))
def test_every_pair_once_and_no_limit_broken(pairs, max_tokens, pool):
    source, target = np.array(pairs).T
    plan = plan_batches(source, target, max_tokens, seed=1, epoch=2, pool=pool)
    assert sorted(np.concatenate(list(plan)).tolist()) == list(range(len(pairs)))
    real = padded = 0
    for batch in plan:
        for side in (source, target):
            size = (side[batch].max() + 1) * len(batch)
            assert size <= max_tokens
            padded += size
            real += (side[batch] + 1).sum()
    assert plan.fill == pytest.approx(real / padded)


@pytest.mark.parametrize(
    ("count", "max_tokens", "pool"),
    [
        (1, 4096, 1_000_000),
        (300, 2048, 1_000_000),
        (1_000, 32_768, 1_000_000),
        (20_000, 4096, 6_000),
    ],
)
def test_little_padding(count, max_tokens, pool):
    assert plan_batches(*_corpus(count), max_tokens, seed=1, epoch=0, pool=pool).fill >= 0.9


def test_seed_and_epoch_decide_the_batches():
    source, target = _corpus(3000)
    first = plan_batches(source, target, 1000, seed=1, epoch=0)
    np.random.seed(99)
    again = plan_batches(source, target, 1000, seed=1, epoch=0)
    assert [batch.tolist() for batch in first] == [batch.tolist() for batch in again]
    for other in ({"seed": 1, "epoch": 1}, {"seed": 2, "epoch": 0}):
        shared = _as_sets(first) & _as_sets(plan_batches(source, target, 1000, **other))
        assert len(shared) < len(first) / 10
    longest = [int(target[batch].max()) for batch in first]  # nor does the length order them
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.3


def test_batches_are_as_large_as_the_limit_allows():
    plan = plan_batches(np.full(100, 9), np.full(100, 4), 100, seed=1, epoch=0)
    assert [len(batch) for batch in plan] == [10] * 10
    assert len(plan_batches(np.zeros(0, int), np.zeros(0, int), 100, seed=1, epoch=0)) == 0


def test_a_pair_too_long_for_any_batch_is_named():
    with pytest.raises(SconesError, match=r"Pair 1 has 101 tokens .* more than the 100"):
        plan_batches(np.array([3, 4]), np.array([5, 100]), 100, seed=1, epoch=0)


def test_pad_batch_ends_and_pads_both_sides():
    sources = Sentences(np.array([5, 6, 7, 8], "<u2"), np.array([0, 3, 3, 4], "<u8"))
    targets = Sentences(np.array([9, 10, 11], "<u2"), np.array([0, 1, 2, 3], "<u8"))
    source_ids, target_ids = pad_batch(ParallelTokens(sources, targets), np.array([2, 0, 1]))
    assert source_ids.tolist() == [[8, 1, 0, 0], [5, 6, 7, 1], [1, 0, 0, 0]]
    assert target_ids.tolist() == [[11, 1], [9, 1], [10, 1]]
    assert source_ids.dtype == target_ids.dtype == np.int64
