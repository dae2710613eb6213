"""Toy parameters, and a test of samples against a distribution."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from scones.ibm3.parameters import ANY, Distortions, Parameters, Translations

SOURCE_WORDS = ["ein", "zwei", "drei", "same", "nirgends"]
TARGET_WORDS = ["one", "two", "three", "same"]
EIN, ZWEI, DREI, SAME, NOWHERE = range(5)


def translations(*rows: Mapping[int, float]) -> Translations:
    """Make t of a row per source word, NULL's the last."""
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
