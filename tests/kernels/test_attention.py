"""Attention over packed sentences, against attention of one sentence after another in float64."""

import pytest
import torch
from kernel_device import DEVICE

from scones.hardware import attention_fits
from scones.kernels.attention import attend_across, attend_within

SHORT = [3, 16, 1, 9]
LONG = [70, 1, 130, 64]
"""Several blocks of queries and of keys, some of them full."""
ATOL = 1e-5 if DEVICE.type == "cpu" else 5e-5  # a GPU's powers of two are shorter by two bits


def starts_of(lengths):
    return torch.tensor([0, *lengths], device=DEVICE).cumsum(0).int()


def seed_of(number):
    return torch.tensor(number, dtype=torch.int32, device=DEVICE)


def draw(*shape, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(DEVICE).requires_grad_()


def plainly(queries, keys, values, lengths, memory_lengths, causal=False, factors=None):
    """Attend sentence by sentence; `factors` (H, q, k) multiply the weights of each."""
    mixed = []
    memory = zip(keys.split(memory_lengths), values.split(memory_lengths), strict=True)
    for number, (q, (k, v)) in enumerate(zip(queries.split(lengths), memory, strict=True)):
        scores = torch.einsum("qhd,khd->hqk", q, k) * q.size(-1) ** -0.5
        if causal:
            future = torch.ones_like(scores[0], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(future, float("-inf"))
        weights = scores.softmax(dim=-1)
        if factors is not None:
            weights = weights * factors[number]
        mixed.append(torch.einsum("hqk,khd->qhd", weights, v).flatten(1))
    return torch.cat(mixed)


def check_same(found, inputs, exact, exactly):
    """Compare what was mixed, and its slopes in random directions."""
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=ATOL)
    slopes = draw(*found.shape, seed=99).detach()
    expected = torch.autograd.grad(exact, exactly, slopes.double())
    for have, want in zip(torch.autograd.grad(found, inputs, slopes), expected, strict=True):
        torch.testing.assert_close(have.double(), want, rtol=1e-5, atol=ATOL)


def float64(*tensors):
    return tuple(tensor.detach().double().requires_grad_() for tensor in tensors)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("lengths", "size"), [(SHORT, 16), (LONG, 32), ([1], 64), ([64], 16), ([65], 16), ([32], 16)]
)
def test_within_sentences(lengths, size, causal):
    projected = draw(sum(lengths), 3, 2, size, seed=1)
    (exactly,) = float64(projected)
    found = attend_within(projected, starts_of(lengths), max(lengths), causal, seed_of(0), 0.0)
    exact = plainly(*exactly.unbind(1), lengths, lengths, causal)
    check_same(found, (projected,), exact, (exactly,))


@pytest.mark.parametrize(
    ("lengths", "memory_lengths"),
    [
        (SHORT, [5, 7, 12, 2]),
        (LONG, [100, 65, 1, 30]),
        ([1, 2], [130, 1]),  # many keys and few queries,
        ([130, 1], [1, 2]),  # and the other way round
    ],
)
def test_across_to_a_memory(lengths, memory_lengths):
    queries = draw(sum(lengths), 2, 16, seed=2)
    memory = draw(sum(memory_lengths), 2, 2, 16, seed=3)
    exactly = float64(queries, memory)
    found = attend_across(
        queries,
        memory,
        (starts_of(lengths), starts_of(memory_lengths)),
        (max(lengths), max(memory_lengths)),
        seed_of(0),
        0.0,
    )
    exact = plainly(exactly[0], *exactly[1].unbind(1), lengths, memory_lengths)
    check_same(found, (queries, memory), exact, exactly)


def test_an_empty_sentence_changes_nothing():
    projected = draw(74, 3, 2, 16, seed=1)
    results = []
    for lengths in ([4, 0, 70, 0], [4, 70]):
        mixed = attend_within(projected, starts_of(lengths), 70, True, seed_of(0), 0.0)
        results.append((mixed, *torch.autograd.grad(mixed.square().sum(), projected)))
    for have, want in zip(*results, strict=True):
        assert torch.equal(have, want)


@pytest.mark.filterwarnings("ignore:overflow encountered in exp2")  # of weights nobody uses
def test_scores_far_apart_neither_overflow_nor_vanish():
    lengths = [5, 70]
    projected = draw(75, 3, 2, 16, seed=4)
    with torch.no_grad():
        projected[:, :2] *= 12  # scores of a few hundred
    (exactly,) = float64(projected)
    found = attend_within(projected, starts_of(lengths), 70, True, seed_of(0), 0.0)
    exact = plainly(*exactly.unbind(1), lengths, lengths, True)
    torch.testing.assert_close(found.double(), exact, rtol=1e-3, atol=1e-3)
    (slopes,) = torch.autograd.grad(found.sum(), projected)
    assert torch.isfinite(slopes).all()


@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_a_sentence_does_not_see_its_neighbours():
    lengths = [9, 70, 4]
    projected = draw(83, 3, 2, 16, seed=5).detach()
    others = projected.clone()
    others[:9] += 1
    others[79:] = float("nan")
    found, again = (
        attend_within(tensor, starts_of(lengths), 70, False, seed_of(0), 0.0)
        for tensor in (projected, others)
    )
    assert torch.equal(found[9:79], again[9:79])


# Dropping weights.

HEADS, SIZE = 2, 128
"""Heads larger than sentences are long: values can then be chosen that show every weight."""


def kept_weights(lengths, memory_lengths, causal, seed, rate):
    """What each weight is multiplied by (H, q, k), read off values that are unit vectors."""
    rows, longest = sum(memory_lengths), max(memory_lengths)
    units = torch.cat([torch.eye(SIZE, device=DEVICE)[:length] for length in memory_lengths])
    values = units.unsqueeze(1).expand(rows, HEADS, SIZE)
    if causal is None:
        memory = torch.stack([torch.zeros_like(values), values], dim=1)
        queries = torch.zeros(sum(lengths), HEADS, SIZE, device=DEVICE)
        starts = (starts_of(lengths), starts_of(memory_lengths))
        long = (max(lengths), longest)
        shares = attend_across(queries, memory, starts, long, seed_of(seed), rate)
    else:
        projected = torch.stack([torch.zeros_like(values), torch.zeros_like(values), values], 1)
        starts_q = starts_of(lengths)
        shares = attend_within(projected, starts_q, longest, causal, seed_of(seed), rate)
    factors = []
    parts = shares.view(-1, HEADS, SIZE).split(lengths)
    for part, length in zip(parts, memory_lengths, strict=True):
        seen = torch.full((len(part),), length, device=DEVICE)
        if causal:
            seen = torch.arange(1, len(part) + 1, device=DEVICE)
        factors.append((part[..., :length] * seen[:, None, None]).transpose(0, 1).double())
    return factors


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [[5, 12], [70, 3, 128]])
def test_dropping_within_is_the_same_forwards_and_backwards(lengths, causal):
    factors = kept_weights(lengths, lengths, causal, seed=77, rate=0.3)
    projected = draw(sum(lengths), 3, HEADS, SIZE, seed=6)
    (exactly,) = float64(projected)
    found = attend_within(projected, starts_of(lengths), max(lengths), causal, seed_of(77), 0.3)
    exact = plainly(*exactly.unbind(1), lengths, lengths, causal, factors)
    check_same(found, (projected,), exact, (exactly,))


def test_dropping_across_is_the_same_forwards_and_backwards():
    lengths, memory_lengths = [66, 4], [7, 90]
    factors = kept_weights(lengths, memory_lengths, None, seed=-5, rate=0.2)
    queries = draw(70, HEADS, SIZE, seed=7)
    memory = draw(97, 2, HEADS, SIZE, seed=8)
    exactly = float64(queries, memory)
    starts = (starts_of(lengths), starts_of(memory_lengths))
    found = attend_across(queries, memory, starts, (66, 90), seed_of(-5), 0.2)
    exact = plainly(exactly[0], *exactly[1].unbind(1), lengths, memory_lengths, False, factors)
    check_same(found, (queries, memory), exact, exactly)


def test_the_slope_under_dropout_is_that_of_finite_differences():
    lengths, step = [5, 12, 70], 1e-3
    projected = draw(87, 3, 2, 16, seed=9)
    way, slopes = draw(87, 3, 2, 16, seed=10).detach(), draw(87, 32, seed=11).detach().double()

    def height(x):
        mixed = attend_within(x, starts_of(lengths), 70, True, seed_of(3), 0.3)
        return (mixed.double() * slopes).sum()

    (slope,) = torch.autograd.grad(height(projected), projected)
    with torch.no_grad():
        difference = height(projected + step * way) - height(projected - step * way)
    assert difference.item() / (2 * step) == pytest.approx((slope * way).sum().item(), rel=1e-3)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_the_share_that_is_kept_and_what_it_is_scaled_by(rate):
    factors = kept_weights([100, 120], [100, 120], False, seed=12345, rate=rate)
    for factor in factors:
        near_zero = factor.abs() < 1e-3
        torch.testing.assert_close(
            factor[~near_zero], torch.full_like(factor[~near_zero], 1 / (1 - rate))
        )
        for head in near_zero:  # 10,000 weights or more: 4 standard deviations
            assert head.double().mean().item() == pytest.approx(rate, abs=0.02)
    assert not torch.equal(factors[0][0], factors[0][1]), "heads drop the same weights"
    assert not torch.equal(factors[0], factors[1][:, :100, :100]), "sentences drop the same weights"


def test_the_seed_decides_what_is_dropped():
    one, same, other = (kept_weights([40], [40], False, seed, 0.5)[0] for seed in (1, 1, 2))
    assert torch.equal(one, same)
    agree = ((one > 1) == (other > 1)).double().mean().item()
    assert agree == pytest.approx(0.5, abs=0.05), "two seeds have to agree by chance alone"


def test_rows_and_columns_are_dropped_independently():
    (dropped,) = kept_weights([120], [120], False, seed=8, rate=0.5)
    signs = (dropped[0] > 1).double() * 2 - 1
    for one in (signs, signs.T):
        likeness = (one @ one.T) / len(one)
        likeness.fill_diagonal_(0)
        assert likeness.abs().max() < 0.45  # 5 standard deviations of chance


def test_heads_there_are_kernels_for():
    fitting = [size for size in range(1, 300) if attention_fits(size)]
    assert fitting == [16, 32, 64, 128, 256]
