"""IBM Model 3's generative process in plain NumPy, one sentence at a time.

The oracle of the compiled sampler: the steps are those that `scones.ibm3.sampling` lists, written
to be read rather than to be fast. The distributions of all choices stand here once; they can be
drawn from, and all outcomes can be enumerated. `benchmarks/ibm3_sampling.py` measures how much
faster the compiled one is.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from scones.ibm3.options import MAX_LENGTH
from scones.ibm3.parameters import ANY
from scones.ibm3.sampling import (
    ATTEMPTS,
    DROPPED,
    FROZEN,
    SEEN,
    Outcome,
    Vocabulary,
    check_temperature,
)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """A sampled sentence; without words where the outcome is not a translation."""

    outcome: Outcome
    words: tuple[int, ...] = ()
    origins: tuple[int, ...] = ()


def tempered(probs, temperature):
    """The distribution proportional to probs^(1/γ); nothing but zeros stays zeros."""
    highest = probs.max(initial=0.0)
    if highest == 0:
        return np.zeros(len(probs))
    if temperature <= FROZEN:
        certain = np.zeros(len(probs))
        certain[np.argmax(probs)] = 1.0
        return certain
    with np.errstate(divide="ignore"):
        logs = np.log(probs.astype(np.float64))
    weights = np.exp((logs - logs.max()) / temperature)
    return weights / weights.sum()


def position_probs(table, i, source, target):
    """The probabilities of all positions of a word that comes from the i-th, by lengths."""
    for length in (source, ANY):
        if length < len(table.begins) and target < table.begins.shape[1]:
            begin = int(table.begins[length, target]) + (i - 1) * target
            if table.begins[length, target] >= 0 and i <= table.rows[length, target]:
                row = table.probs[begin : begin + target].astype(np.float64)
                if (total := row.sum()) > 0:
                    return row / total
    centre = (i - 0.5) * target / source + 0.5
    row = table.spread ** np.abs(np.arange(1, target + 1) - centre)
    return row / row.sum()


class GenerativeProcess:
    """The process of one set of parameters at one temperature."""

    def __init__(self, parameters, temperature=1.0, max_length=MAX_LENGTH):
        check_temperature(temperature)
        self.parameters = parameters
        self.temperature = temperature
        self.max_length = max_length
        self.oov_policy = Vocabulary(parameters).oov_policy

    def fertility_probs(self, word):
        if self.oov_policy[word] != SEEN:
            return np.array([1.0]) if self.oov_policy[word] == DROPPED else np.array([0.0, 1.0])
        return tempered(self.parameters.fertilities[word], self.temperature)

    def null_probs(self, words):
        p1 = self.parameters.p1
        if not self.parameters.translations.of(self.parameters.null)[1].any():
            p1 = 0.0
        return np.array(
            [math.comb(words, k) * p1**k * (1 - p1) ** (words - k) for k in range(words + 1)]
        )

    def word_probs(self, word):
        if word != self.parameters.null and self.oov_policy[word] != SEEN:
            return self.oov_policy[word : word + 1], np.ones(1)
        words, probs = self.parameters.translations.of(word)
        return words, tempered(probs, self.temperature)

    def position_probs(self, i, source, vacant):
        probs = position_probs(self.parameters.distortions, i, source, len(vacant))
        left = np.where(vacant, probs, 0.0)
        if not left.any():
            left = vacant.astype(np.float64)
        return tempered(left, self.temperature)

    def sample(self, source, rng):
        def draw(probs):
            return int(rng.choice(len(probs), p=probs))

        if len(source) > self.max_length:
            return Sample(Outcome.SOURCE_TOO_LONG)
        for _ in range(ATTEMPTS):
            fertilities = [draw(self.fertility_probs(word)) for word in source]
            length = sum(fertilities) + draw(self.null_probs(sum(fertilities)))
            if length == 0:
                return Sample(Outcome.EMPTY)
            if length <= self.max_length:
                break
        else:
            return Sample(Outcome.TARGET_TOO_LONG)
        origins = np.zeros(length, int)
        for i, fertility in enumerate(fertilities, start=1):
            for _ in range(fertility):
                origins[draw(self.position_probs(i, len(source), origins == 0))] = i
        rows = [self.word_probs(word) for word in self._origin_words(source, origins.tolist())]
        words = tuple(int(words[draw(probs)]) for words, probs in rows)
        return Sample(Outcome.TRANSLATED, words, tuple(origins.tolist()))

    def _origin_words(self, source, origins):
        return [source[i - 1] if i else self.parameters.null for i in origins]

    def distribution(self, source):
        """The probability of every translation, by going through all of them."""
        found = Counter()
        choices = [list(enumerate(self.fertility_probs(word))) for word in source]
        for chosen in product(*choices):
            fertilities = [fertility for fertility, _ in chosen]
            prob = math.prod(prob for _, prob in chosen)
            for null, more in enumerate(self.null_probs(sum(fertilities))):
                if prob * more and 0 < sum(fertilities) + null <= self.max_length:
                    for target, rest in self._targets(source, fertilities, null):
                        found[target] += prob * more * rest
        total = sum(found.values())
        return {target: prob / total for target, prob in found.items() if prob}

    def _targets(self, source, fertilities, null):
        due = [i for i, fertility in enumerate(fertilities, 1) for _ in range(fertility)]
        for origins, prob in self._alignments(due, len(source), (0,) * (len(due) + null)):
            rows = [
                list(zip(*self.word_probs(word), strict=True))
                for word in self._origin_words(source, origins)
            ]
            for chosen in product(*rows):
                words = tuple(int(word) for word, _ in chosen)
                yield (words, origins), prob * math.prod(more for _, more in chosen)

    def _alignments(self, due, source, origins):
        if not due:
            yield origins, 1.0
            return
        probs = self.position_probs(due[0], source, np.array(origins) == 0)
        for j in np.flatnonzero(probs).tolist():
            filled = (*origins[:j], due[0], *origins[j + 1 :])
            for alignment, more in self._alignments(due[1:], source, filled):
                yield alignment, float(probs[j]) * more
