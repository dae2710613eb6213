"""Toy parameters, the exact distribution of what they say, and a test of samples against it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from generative import position_probs

from scones.ibm3.parameters import ANY, Distortions, Parameters, Translations

SOURCE_WORDS = ["ein", "zwei", "drei", "same", "nirgends"]
TARGET_WORDS = ["one", "two", "three", "same"]
EIN, ZWEI, DREI, SAME, NOWHERE = range(5)

Target = tuple[tuple[int, ...], tuple[int, ...]]
"""Target words, and for each the place of its source word."""


def translations(*rows: Mapping[int, float]) -> Translations:
    """Make t of a row a source word, NULL's the last."""
    begins = np.cumsum([0, *map(len, rows)])
    words = np.array([word for row in rows for word in row], np.int32)
    probs = np.array([prob for row in rows for prob in row.values()], np.float32)
    return Translations(begins, words, probs)


def translation_row(parameters: Parameters, word: int) -> dict[str, float]:
    """The translations of a word, as text."""
    words, probs = parameters.translations.of(word)
    return {parameters.target_words[y]: float(p) for y, p in zip(words, probs, strict=True)}


def distortions(
    blocks: Mapping[tuple[int, int], Sequence[Sequence[float]]], spread: float = 0.5
) -> Distortions:
    """Make d of a block for every pair of lengths."""
    shape = (1 + max(l for l, _ in blocks), 1 + max(m for _, m in blocks))  # noqa: E741
    begins, rows = np.full(shape, -1, np.int64), np.zeros(shape, np.int32)
    probs: list[float] = []
    for lengths, block in blocks.items():
        begins[lengths], rows[lengths] = len(probs), len(block)
        probs += [prob for row in block for prob in row]
    return Distortions(begins, rows, np.array(probs, np.float32), spread)


def toy(p1: float = 0.3, null: Mapping[int, float] | None = None) -> Parameters:
    """Three words that were seen, one that is spelled alike in both languages, and one unknown.

    d knows lengths by themselves (2, 2), by the target alone (3), not at all (all others); it has
    a row never seen and one that can be left without any probability among the vacant places.
    """
    return Parameters(
        SOURCE_WORDS,
        TARGET_WORDS,
        translations(
            {0: 0.6, 1: 0.3, 2: 0.1},
            {1: 0.5, 2: 0.5},
            {2: 1.0},
            {},
            {},
            {3: 0.7, 0: 0.3} if null is None else null,
        ),
        np.array(
            [[0.1, 0.6, 0.3], [0.2, 0.5, 0.3], [0.0, 1.0, 0.0], [0, 0, 0], [0, 0, 0]], np.float32
        ),
        distortions(
            {
                (2, 2): [[0.8, 0.2], [0.3, 0.7]],
                (ANY, 3): [[0.5, 0.4, 0.1], [0.0, 1.0, 0.0]],
                (2, 4): [[0.1, 0.2, 0.3, 0.4], [0.0, 0.0, 0.0, 0.0]],
            }
        ),
        p1,
    )


def temper(probs: Sequence[float], temperature: float) -> list[float]:
    weights = [float(prob) ** (1 / temperature) for prob in probs]
    return [weight / sum(weights) for weight in weights]


def same(probs: Sequence[float], temperature: float) -> list[float]:
    return [float(prob) for prob in probs]


@dataclass
class Exact:
    """The probability of every outcome, by going through all of them.

    What can be exchanged stands for mistakes that a sampler could make.
    """

    parameters: Parameters
    temperature: float
    temper_n: Callable[..., list[float]] = temper
    temper_t: Callable[..., list[float]] = temper
    temper_d: Callable[..., list[float]] = temper
    temper_null: bool = False
    uniform_after_collision: bool = False
    swap_places: bool = False

    def distribution(self, source: Sequence[int], limit: int) -> dict[Target, float]:
        found: Counter[Target] = Counter()
        choices = [range(self.parameters.fertilities.shape[1])] * len(source)
        for fertilities in product(*choices):
            prob = math.prod(map(self.fertility, source, fertilities))
            words = sum(fertilities)
            for null in range(words + 1):
                if prob and 0 < words + null <= limit:
                    for outcome, more in self.fillings(source, fertilities, words + null):
                        found[outcome] += prob * self.null(null, words) * more
        total = sum(found.values())
        return {outcome: prob / total for outcome, prob in found.items() if prob}

    def fertility(self, word: int, fertility: int) -> float:
        if word in (SAME, NOWHERE):
            return float(fertility == (word == SAME))
        return self.temper_n(self.parameters.fertilities[word], self.temperature)[fertility]

    def null(self, fertility: int, words: int) -> float:
        p1 = self.parameters.p1
        if self.temper_null:
            p1 = temper([p1, 1 - p1], self.temperature)[0]
        return math.comb(words, fertility) * p1**fertility * (1 - p1) ** (words - fertility)

    def words(self, word: int) -> dict[int, float]:
        if word == SAME:
            return {3: 1.0}
        words, probs = self.parameters.translations.of(word)
        return dict(zip(words.tolist(), self.temper_t(probs, self.temperature), strict=True))

    def places(self, i: int, source: int, vacant: Sequence[bool]) -> list[float]:
        length = len(vacant)
        if self.swap_places:
            i = source + 1 - i
        row = self.temper_d(
            position_probs(self.parameters.distortions, i, source, length), self.temperature
        )
        left = [prob * free for prob, free in zip(row, vacant, strict=True)]
        if self.uniform_after_collision:
            lost = 1 - sum(left)
            return [p + lost * f / sum(vacant) for p, f in zip(left, vacant, strict=True)]
        if not any(left):
            left = [float(free) for free in vacant]
        return [prob / sum(left) for prob in left]

    def fillings(
        self, source: Sequence[int], fertilities: Sequence[int], length: int
    ) -> Iterator[tuple[Target, float]]:
        origins = [i for i, fertility in enumerate(fertilities, 1) for _ in range(fertility)]
        for places, prob in self.placings(origins, len(source), [True] * length):
            at = [0] * length
            for place, origin in zip(places, origins, strict=True):
                at[place] = origin
            known = [self.words(source[i - 1] if i else self.parameters.null) for i in at]
            for words in product(*known):
                more = math.prod(row[word] for row, word in zip(known, words, strict=True))
                yield (words, tuple(at)), prob * more

    def placings(
        self, origins: Sequence[int], source: int, vacant: Sequence[bool]
    ) -> Iterator[tuple[tuple[int, ...], float]]:
        if not origins:
            yield (), 1.0
            return
        for place, prob in enumerate(self.places(origins[0], source, vacant)):
            if prob:
                left = [free and j != place for j, free in enumerate(vacant)]
                for places, more in self.placings(origins[1:], source, left):
                    yield (place, *places), prob * more


def surprise(found: Mapping[Any, int], probs: Mapping[Any, float]) -> float:
    """Give the chi-square of counts against probabilities, in deviations of a normal variable.

    Above 4 is for one in thirty thousand right samplers (Wilson and Hilferty's approximation).
    Rare outcomes are pooled; an impossible one is an infinite surprise.
    """
    if set(found) - set(probs):
        return math.inf
    total = sum(found.values())
    bins = []
    pooled = np.zeros(2)
    for outcome, prob in sorted(probs.items(), key=lambda item: item[1]):
        pooled += (found.get(outcome, 0), total * prob)
        if pooled[1] >= 10:
            bins.append(pooled)
            pooled = np.zeros(2)
    bins[-1] = bins[-1] + pooled
    free = len(bins) - 1
    if free == 0:
        return 0.0
    square = sum((seen - due) ** 2 / due for seen, due in bins)
    part = 2 / (9 * free)
    return ((square / free) ** (1 / 3) - (1 - part)) / math.sqrt(part)
