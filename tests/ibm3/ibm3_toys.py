"""Toy parameters, and a test of samples against a distribution."""

import math

import numpy as np

from scones.ibm3.parameters import ANY, Distortions, Parameters, Translations

SOURCE_WORDS = ["ein", "zwei", "drei", "same", "nirgends"]
TARGET_WORDS = ["one", "two", "three", "same"]
EIN, ZWEI, DREI, SAME, NOWHERE = range(5)


def translations(*rows):
    """Make t of a row per source word, NULL's the last."""
    begins = np.cumsum([0, *map(len, rows)])
    words = np.array([word for row in rows for word in row], np.int32)
    probs = np.array([prob for row in rows for prob in row.values()], np.float32)
    return Translations(begins, words, probs)


def translation_row(parameters, word):
    """The translations of a word, as text."""
    words, probs = parameters.translations.of(word)
    return {parameters.target_words[y]: float(p) for y, p in zip(words, probs, strict=True)}


def distortions(blocks, spread=0.5):
    """Make d of a block for every pair of lengths."""
    shape = (1 + max(l for l, _ in blocks), 1 + max(m for _, m in blocks))  # noqa: E741
    begins, rows = np.full(shape, -1, np.int64), np.zeros(shape, np.int32)
    probs = []
    for lengths, block in blocks.items():
        begins[lengths], rows[lengths] = len(probs), len(block)
        probs += [prob for row in block for prob in row]
    return Distortions(begins, rows, np.array(probs, np.float32), spread)


def toy(p1=0.3, null=None):
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


def surprise(found, probs):
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


# GIZA's numbers begin at 2, and 1 stands for unknown words; the last source word never occurs.
GIZA = {
    "de.vcb": "1 UNK 0\n2 das 50\n3 Haus 30\n4 nie 0\n",
    "en.vcb": "2 the 60\n3 house 20\n4 home 10\n5 of 5\n",
    "run.t3.final": "0 5 1\n2 2 0.9\n2 5 0.1\n3 3 0.75\n3 4 0.25\n",
    "run.n3.final": "2 0.25 0.75 0 0 \n3 0 0.5 0.5 0 \n",
    # j i l m: for targets of 3 words, the second source word goes to the first place.
    "run.d3.final": "1 0 100 3 0.5\n3 1 100 3 1\n1 2 100 3 0.8\n2 2 100 3 0.2\n1 1 100 1 1\n",
    "run.p0_3.final": "0.875\n",
}
