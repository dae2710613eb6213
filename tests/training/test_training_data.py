"""PaddedBatches for training: the same ones from any position on, every pair once an epoch."""

from itertools import islice

import numpy as np
import pytest
import torch

from scones.text import END, PAD
from scones.text.store import TokenStore
from scones.training.data import Position, make_batch, training_batches


@pytest.fixture(scope="module")
def tokens(tiny_store):
    return TokenStore.open(tiny_store).split("train")


def test_from_any_position_on_the_batches_are_the_same(tokens):
    whole = list(islice(training_batches(tokens, 512, 7, False, Position()), 120))
    assert whole[-1][1].epoch > 1
    for begin in (1, 17, 30, 44, 100):
        start = whole[begin - 1][1]
        again = list(islice(training_batches(tokens, 512, 7, False, start), 120 - begin))
        for (batch, behind), (expected, expected_behind) in zip(again, whole[begin:], strict=True):
            assert behind == expected_behind
            for name in ("source_BS", "inputs_BT", "targets_N"):
                assert torch.equal(getattr(batch, name), getattr(expected, name))
    first = [batch for batch, behind in whole if (behind.epoch, behind.batch) <= (1, 0)]
    assert sum(len(batch.source_BS) for batch in first) == len(tokens)


@pytest.mark.parametrize("by_sentence", [True, False])
def test_a_batch_predicts_every_real_token_from_those_before_it(by_sentence, tokens):
    batch = make_batch(tokens, np.array([5, 0, 9]), by_sentence).to(torch.device("cpu"))
    lengths = [len(tokens.targets[index]) + 1 for index in (5, 0, 9)]
    assert len(set(lengths)) > 1
    predicted = batch.targets_N.split(lengths)
    for row, (index, targets) in enumerate(zip((5, 0, 9), predicted, strict=True)):
        source, target = tokens.sources[index].tolist(), tokens.targets[index].tolist()
        assert targets.tolist() == [*target, END]
        assert batch.inputs_BT[row, : len(target) + 1].tolist() == [PAD, *target]
        assert batch.source_BS[row, : len(source) + 1].tolist() == [*source, END]
    assert batch.tokens == sum(lengths)
    assert batch.total == (3 if by_sentence else sum(lengths))
    assert (batch.weights_N is not None) == by_sentence
    if batch.weights_N is not None:  # every sentence weighs one
        for length, weights in zip(lengths, batch.weights_N.split(lengths), strict=True):
            torch.testing.assert_close(weights, torch.full((length,), 1 / length))
