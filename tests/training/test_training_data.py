"""PaddedBatches for training: the same ones from any position on, every pair once an epoch."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from scones.text import END, PAD
from scones.text.store import ParallelTokens, TokenStore
from scones.training.data import PaddedBatch, Position, make_batch, training_batches


@pytest.fixture(scope="module")
def tokens(tiny_store: Path) -> ParallelTokens:
    return TokenStore.open(tiny_store).split("train")


def pairs_of(batch: PaddedBatch) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The sentence pairs of a batch, as ids without padding and end."""
    real = torch.zeros(batch.inputs_BT.numel(), dtype=torch.long)
    real[batch.real_N] = batch.targets_N
    return [
        tuple(tuple(row[(row != PAD) & (row != END)].tolist()) for row in rows)  # type: ignore[misc]
        for rows in zip(batch.source_BS, real.view_as(batch.inputs_BT), strict=True)
    ]


def same(left: PaddedBatch, right: PaddedBatch) -> bool:
    return pairs_of(left) == pairs_of(right)


def epochs(tokens: ParallelTokens, count: int, seed: int = 7) -> list[list[PaddedBatch]]:
    found: list[list[PaddedBatch]] = [[] for _ in range(count)]
    for batch, behind in training_batches(tokens, 512, seed, False, Position()):
        epoch = behind.epoch - (behind.batch == 0)
        if epoch == count:
            return found
        found[epoch].append(batch)
    raise AssertionError("training batches must never end")


def test_every_epoch_holds_every_pair_once_in_another_order(tokens: ParallelTokens) -> None:
    first, second = (
        [pair for batch in epoch for pair in pairs_of(batch)] for epoch in epochs(tokens, 2)
    )
    expected = [
        (tuple(tokens.source(index).tolist()), tuple(tokens.target(index).tolist()))
        for index in range(len(tokens))
    ]
    assert sorted(first) == sorted(second) == sorted(expected)
    assert first != second


def test_another_seed_is_another_order(tokens: ParallelTokens) -> None:
    (one,), (two,) = epochs(tokens, 1, seed=1), epochs(tokens, 1, seed=2)
    assert not all(same(left, right) for left, right in zip(one, two, strict=False))


def test_from_any_position_on_the_batches_are_the_same(tokens: ParallelTokens) -> None:
    whole = list(islice(training_batches(tokens, 512, 7, False, Position()), 120))
    assert whole[-1][1].epoch > 1
    for begin in (1, 17, 30, 44, 100):
        start = whole[begin - 1][1]
        again = list(islice(training_batches(tokens, 512, 7, False, start), 120 - begin))
        for (batch, behind), (expected, expected_behind) in zip(again, whole[begin:], strict=True):
            assert behind == expected_behind
            assert same(batch, expected)


def test_a_batch_predicts_every_real_token_from_those_before_it(tokens: ParallelTokens) -> None:
    batch = make_batch(tokens, np.array([5, 0, 9]), by_sentence=False)
    predicted = batch.targets_N.split([len(tokens.target(index)) + 1 for index in (5, 0, 9)])
    for row, (index, targets) in enumerate(zip((5, 0, 9), predicted, strict=True)):
        sentence = tokens.target(index).tolist()
        assert targets.tolist() == [*sentence, END]
        assert batch.inputs_BT[row, : len(sentence) + 1].tolist() == [PAD, *sentence]
        assert batch.source_BS[row, : len(tokens.source(index)) + 1].tolist() == [
            *tokens.source(index).tolist(),
            END,
        ]
    assert batch.weights_N is None
    assert batch.tokens == batch.total == sum(len(targets) for targets in predicted)


def test_by_sentence_every_sentence_weighs_one(tokens: ParallelTokens) -> None:
    batch = make_batch(tokens, np.array([5, 0, 9]), by_sentence=True)
    assert batch.weights_N is not None
    lengths = [len(tokens.target(index)) + 1 for index in (5, 0, 9)]
    assert len(set(lengths)) > 1
    for length, weights in zip(lengths, batch.weights_N.split(lengths), strict=True):
        torch.testing.assert_close(weights, torch.full((length,), 1 / length))
    assert batch.total == 3
    assert batch.to(torch.device("cpu")).total == 3
