"""The generative process of `scones.ibm3.sampling`, compiled by numba.

Every sentence has an RNG of its own, made from the seed and the sentence's number alone. So its
translation depends on nothing else: not on threads, chunks or neighbours. The RNG is Philox 4x64-10
(Salmon et al., 2011), a cipher that turns a counter into random bits: no state has to be carried
on, and no two sentences can ever see the same stretch of numbers.

n and t are drawn from in one look each, by alias tables (Walker, 1977). d is not: what is vacant
changes with every word, so its rows are read where they lie, and weighed as they are needed.

What is compiled releases the GIL, so that threads can share the sentences among them, without a
thread pool of numba's own, which would not live well with PyTorch's or with forks.
"""

# What numba compiles has no types that mypy knows.
# mypy: allow-untyped-defs

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from scones.ibm3.parameters import ANY
from scones.ibm3.sampling import ATTEMPTS, DROPPED, SEEN, Outcome

_VACANT = -1


class Alias(NamedTuple):
    """Rows of tempered distributions, each ready to be drawn from in one look."""

    begins: NDArray[np.int64]
    """(R + 1,)"""
    keeps: NDArray[np.float32]
    """(P,) how probable it is that a cell stands for itself,"""
    others: NDArray[np.int32]
    """(P,) and what it stands for otherwise."""


class Positions(NamedTuple):
    """d as in `scones.ibm3.parameters.Distortions`, and 1/γ; infinite: take the most probable."""

    begins: NDArray[np.int64]
    rows: NDArray[np.int32]
    probs: NDArray[np.float32]
    spread: float
    exponent: float


class Tables(NamedTuple):
    """All that the process draws from."""

    oov_policy: NDArray[np.int32]
    """Of the source words, and behind them of NULL."""
    fertilities: Alias
    translations: Alias
    words: NDArray[np.int32]
    positions: Positions
    p1: float


def _compiled(function: Callable[..., Any]) -> Any:
    """Compile, and cache the result on disk where there is room for it."""
    try:
        return numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:  # numba found no folder that it may write to
        return numba.njit(nogil=True, error_model="numpy")(function)


# --- The RNG: [seed, sentence, blocks so far, numbers left in the block, and the block of four].


@_compiled
def new_rng(seed, number):
    rng = np.zeros(8, np.uint64)
    rng[0] = seed
    rng[1] = number
    return rng


@_compiled
def _multiply(a, b):
    """Multiply two numbers of 64 bits; gives the high and the low half of the product."""
    # There are no integers of 128 bits here: the product is put together from halves of 32.
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    a1, a0, b1, b0 = a >> half, a & low, b >> half, b & low
    middle = a1 * b0 + ((a0 * b0) >> half)
    other = a0 * b1 + (middle & low)
    return a1 * b1 + (middle >> half) + (other >> half), a * b


@_compiled
def _next_block(rng):
    """Encrypt (block, sentence, 0, 0) by the seed in ten rounds: four new numbers."""
    zero = np.uint64(0)
    x0, x1, x2, x3 = rng[2], rng[1], zero, zero
    key0, key1 = rng[0], zero
    for _ in range(10):
        high0, low0 = _multiply(np.uint64(0xD2E7470EE14C6C93), x0)
        high1, low1 = _multiply(np.uint64(0xCA5A826395121157), x2)
        x0, x1, x2, x3 = high1 ^ x1 ^ key0, low1, high0 ^ x3 ^ key1, low0
        key0 += np.uint64(0x9E3779B97F4A7C15)
        key1 += np.uint64(0xBB67AE8584CAA73B)
    rng[2] += np.uint64(1)
    rng[3] = np.uint64(4)
    # Handed out from the end, in the order of NumPy's Philox, which the tests compare it with.
    rng[4], rng[5], rng[6], rng[7] = x3, x2, x1, x0


@_compiled
def uniform(rng):
    """Give the next number of [0, 1)."""
    if rng[3] == 0:
        _next_block(rng)
    rng[3] -= np.uint64(1)
    # The upper 53 bits, as many as the mantissa of a double has.
    return np.float64(rng[4 + rng[3]] >> np.uint64(11)) * 2.0**-53


# --- Alias tables.


@_compiled
def _temper(probs, exponent, weights):
    """Set weights to the distribution probs^exponent; False where there is nothing but zeros."""
    highest = 0.0
    for k in range(len(probs)):
        highest = max(highest, probs[k])
    if highest == 0.0:
        return False
    total = 0.0
    for k in range(len(probs)):
        # Relative to the highest: at a low temperature the power of a small number underflows.
        share = probs[k] / highest
        weight = share**exponent if share > 0 else 0.0
        if exponent == np.inf and total > 0:
            weight = 0.0  # the first of equal ones
        weights[k] = weight
        total += weight
    weights /= total
    return True


@_compiled
def _entropy(weights, total):
    """Measure the entropy of weights with a sum, in nats."""
    result = np.log(total)
    for weight in weights:
        if weight > 0:
            result -= weight / total * np.log(weight)
    return result


@_compiled
def _fill_alias(weights, keeps, others):
    """Share a distribution out to equal cells, each for itself and at most one other.

    Until a cell gets another, it is all for itself: `keeps` begins with ones.
    """
    size = len(weights)
    # A cell that has less than its equal share is filled up by one that has more; what is left of
    # that one is then treated in the same way.
    order = np.empty(size, np.int32)
    poor, rich = 0, size
    for k in range(size):
        weights[k] *= size
        others[k] = k
        if weights[k] < 1.0:
            order[poor] = k
            poor += 1
        else:
            rich -= 1
            order[rich] = k
    # order holds the poor from the left, and the rich from the right
    while poor > 0 and rich < size:
        poor -= 1
        needy, giver = order[poor], order[rich]
        others[needy] = giver
        keeps[needy] = weights[needy]
        weights[giver] -= 1.0 - weights[needy]
        if weights[giver] < 1.0:
            rich += 1
            order[poor] = giver
            poor += 1


@_compiled
def fill_aliases(first, end, begins, probs, exponent, keeps, others, entropies):
    """Make the alias tables of some rows, and measure the entropies of the rows in nats."""
    for row in range(first, end):
        there = slice(begins[row], begins[row + 1])
        weights = np.empty(begins[row + 1] - begins[row], np.float64)
        if _temper(probs[there], exponent, weights):
            entropies[row] = _entropy(weights, 1.0)
            _fill_alias(weights, keeps[there], others[there])


@_compiled
def _draw(rng, alias, row):
    """Draw from a row; gives the index in the flat arrays."""
    begin = alias.begins[row]
    size = alias.begins[row + 1] - begin
    point = uniform(rng) * size
    cell = min(int(point), size - 1)
    return begin + (
        cell if point - cell < alias.keeps[begin + cell] else alias.others[begin + cell]
    )


# --- The process, in the order of its steps.


@_compiled
def _fertilities(rng, tables, source, fertilities):
    """Draw the fertilities of all source words; gives their sum."""
    total = 0
    for i in range(len(source)):
        word = source[i]
        policy = tables.oov_policy[word] if word >= 0 else -2 - word
        if policy == SEEN:
            fertilities[i] = _draw(rng, tables.fertilities, word) - tables.fertilities.begins[word]
        else:
            fertilities[i] = 0 if policy == DROPPED else 1
        total += fertilities[i]
    return total


@_compiled
def _binomial(rng, trials, p1):
    # As many trials as words: too few for a cleverer method to pay.
    successes = 0
    if p1 > 0:
        for _ in range(trials):
            successes += uniform(rng) < p1
    return successes


@_compiled
def _word(rng, tables, word):
    """Draw a translation of a source word, or of NULL."""
    policy = tables.oov_policy[word] if word >= 0 else -2 - word
    return tables.words[_draw(rng, tables.translations, word)] if policy == SEEN else policy


@_compiled
def _weigh_row(probs, exponent, target, weights):
    """Weigh the vacant positions by a row of d; gives the sum, or 0 if the row was never seen."""
    # Weights are relative to the highest vacant one, not to the row's: when the probable positions
    # are taken, powers of what is left would all underflow.
    known = False
    highest = 0.0
    for j in range(len(probs)):
        if probs[j] > 0:
            known = True
            if target[j] == _VACANT and probs[j] > highest:
                highest = probs[j]
    if not known:
        return 0.0
    total = 0.0
    for j in range(len(probs)):
        weights[j] = 0.0
        if target[j] == _VACANT:
            if highest == 0.0:
                weights[j] = 1.0
            elif probs[j] > 0:
                share = probs[j] / highest
                weights[j] = share if exponent == 1.0 else share**exponent
            total += weights[j]
    return total


@_compiled
def _weigh_diagonal(positions, i, source, target, weights):
    """Weigh the vacant positions by their distance from the diagonal; gives the sum."""
    length = len(target)
    centre = (i - 0.5) * length / source + 0.5
    # Only what is further than the nearest vacant position counts, for the same reason.
    nearest = np.inf
    for j in range(length):
        if target[j] == _VACANT:
            nearest = min(nearest, abs(j + 1 - centre))
    total = 0.0
    for j in range(length):
        weights[j] = 0.0
        if target[j] == _VACANT:
            further = abs(j + 1 - centre) - nearest
            weights[j] = positions.spread ** (further * positions.exponent) if further > 0 else 1.0
            total += weights[j]
    return total


@_compiled
def _weigh(positions, i, source, target, weights):
    """Weigh the vacant positions of the target for a word from the i-th of the source's."""
    length = len(target)
    for lengths in (source, ANY):
        if lengths < positions.begins.shape[0] and length < positions.begins.shape[1]:
            begin = positions.begins[lengths, length]
            if begin >= 0 and i <= positions.rows[lengths, length]:
                begin += (i - 1) * length
                row = positions.probs[begin : begin + length]
                total = _weigh_row(row, positions.exponent, target, weights)
                if total > 0:
                    return total
    return _weigh_diagonal(positions, i, source, target, weights)


@_compiled
def _choose(rng, weights, total, frozen):
    """Draw a position by weights; the first of the heaviest where frozen."""
    point = 0.0 if frozen else uniform(rng) * total
    # Where rounding leaves a rest of the point, the last position with a weight is taken.
    chosen = 0
    for j in range(len(weights)):
        if weights[j] > 0:
            chosen = j
            point -= weights[j]
            if point < 0:
                break
    return chosen


@_compiled
def _fill(rng, tables, source, fertilities, target, origins, measured):
    """Put a word at every position of the target; gives their entropy if `measured`."""
    target[:] = _VACANT
    weights = np.empty(len(target), np.float64)
    frozen = tables.positions.exponent == np.inf
    entropy = 0.0
    for i in range(len(source)):
        for _ in range(fertilities[i]):
            total = _weigh(tables.positions, i + 1, len(source), target, weights)
            position = _choose(rng, weights, total, frozen)
            if measured and not frozen:
                entropy += _entropy(weights, total)
            target[position] = _word(rng, tables, source[i])
            origins[position] = i + 1
    # From left to right: NULL's words all have one distribution, so that their order is no choice.
    null = len(tables.oov_policy) - 1
    for position in range(len(target)):
        if target[position] == _VACANT:
            target[position] = _word(rng, tables, null)
            origins[position] = 0
    return entropy


@_compiled
def _sample(rng, tables, source, target, origins, measured):
    """Sample a sentence; gives the outcome, the length, and the entropy of positions."""
    limit = len(target)
    if len(source) > limit:
        return Outcome.SOURCE_TOO_LONG, 0, 0.0
    # A target that does not fit is drawn again as a whole; cutting it would bend the distribution.
    fertilities = np.empty(len(source), np.int32)
    for _ in range(ATTEMPTS):
        words = _fertilities(rng, tables, source, fertilities)
        length = words + _binomial(rng, words, tables.p1)
        if length == 0:
            return Outcome.EMPTY, 0, 0.0
        if length <= limit:
            entropy = _fill(
                rng, tables, source, fertilities, target[:length], origins[:length], measured
            )
            return Outcome.TRANSLATED, length, entropy
    return Outcome.TARGET_TOO_LONG, 0, 0.0


@_compiled
def sample_rows(
    first, end, tables, seed, number, tokens, begins, targets, origins, lengths, outcomes,
    entropies, measured
):  # fmt: skip
    """Translate some rows of a chunk; `number` is that of the sentence in row 0."""
    for row in range(first, end):
        rng = new_rng(seed, number + np.uint64(row))
        source = tokens[begins[row] : begins[row + 1]]
        outcomes[row], lengths[row], entropies[row] = _sample(
            rng, tables, source, targets[row], origins[row], measured
        )


@_compiled
def join(first, end, rows, lengths, ends, joined):
    """Set the beginnings of some rows one behind another."""
    for row in range(first, end):
        for k in range(lengths[row]):
            joined[ends[row] - lengths[row] + k] = rows[row, k]
