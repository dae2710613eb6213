"""Dropping numbers by a hash is as good as dropping them at random."""

import pytest
import torch
from hashed_dropout import hashed_dropout

from scones.model.transformer import Dropout, DropoutSeeds

ROWS, SIZE = 512, 256
COUNT = ROWS * SIZE


def seed_of(number):
    return torch.tensor(number, dtype=torch.int32)


def kept(seed, rate=0.5):
    return hashed_dropout(torch.ones(ROWS, SIZE), rate, seed_of(seed)) > 0


def likeness(left, right):
    """The correlation of two masks, in standard deviations of chance."""
    left, right = (mask.flatten().double() - mask.double().mean() for mask in (left, right))
    return float((left * right).mean() / (left.std() * right.std()) * left.numel() ** 0.5)


SEEDS = [0, 1, 77, -5, 2**31 - 1, -(2**31), 0x5EED]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rate", [0.05, 0.1, 0.3, 0.5, 0.9])
def test_the_share_that_is_dropped_and_the_scale_of_the_rest(seed, rate):
    x = torch.linspace(-3, 5, COUNT).view(ROWS, SIZE)
    found = hashed_dropout(x, rate, seed_of(seed))
    mask = kept(seed, rate)
    share = 1 - mask.double().mean().item()
    assert share == pytest.approx(rate, abs=5 * (rate * (1 - rate) / COUNT) ** 0.5)
    torch.testing.assert_close(found, torch.where(mask, x / (1 - rate), 0.0))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("apart", [1, 2, 3, 16, SIZE, 2 * SIZE, 32 * SIZE, COUNT // 2])
def test_numbers_apart_are_dropped_independently(seed, apart):
    mask = kept(seed).flatten()
    assert abs(likeness(mask[:-apart], mask[apart:])) < 5


# The seeds.


def test_every_place_has_its_own_seed_and_every_step_new_ones():
    seeds = DropoutSeeds()
    assert [seeds.new_index() for _ in range(50)] == list(range(50))
    torch.manual_seed(8)
    seeds.draw(torch.device("cpu"))
    first, place = seeds.seeds_S.tolist(), seeds.seeds_S.data_ptr()
    seeds.draw(torch.device("cpu"))
    second = seeds.seeds_S.tolist()
    assert len({*first, *second}) == 100
    assert seeds.seeds_S.dtype == torch.int32
    assert seeds.seeds_S.data_ptr() == place, "graphs read them where they were"
    torch.manual_seed(8)
    seeds.draw(torch.device("cpu"))
    assert seeds.seeds_S.tolist() == first, "PyTorch's generator decides them"
    seeds.new_index()
    seeds.draw(torch.device("cpu"))
    assert len(seeds.seeds_S) == 51, "places that come later have seeds too"


# The module.


def test_in_plain_code_pytorch_drops_and_nothing_outside_training_or_at_a_rate_of_0():
    x = torch.ones(100, 100)
    dropout = Dropout(0.25, DropoutSeeds()).train()
    torch.manual_seed(1)
    found = dropout(x)
    torch.manual_seed(1)
    assert torch.equal(found, torch.nn.functional.dropout(x, 0.25))
    assert dropout.eval()(x) is x
    assert Dropout(0.0, DropoutSeeds()).train()(x) is x
