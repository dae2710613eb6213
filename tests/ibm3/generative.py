"""IBM Model 3's generative process in plain NumPy, one sentence at a time.

The oracle of the compiled sampler: the steps are those that `scones.ibm3.sampling` lists, written
to be read rather than to be fast. `benchmarks/ibm3_sampling.py` measures how much faster the other
one is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scones.ibm3.options import MAX_LENGTH
from scones.ibm3.parameters import ANY, Distortions, Parameters
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
    """For every target word the position of its source word, from 1; 0 is NULL."""


def tempered(probs: NDArray[np.floating], temperature: float) -> Floats:
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


def position_probs(table: Distortions, i: int, source: int, target: int) -> Floats:
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

    def __init__(
        self, parameters: Parameters, temperature: float = 1.0, max_length: int = MAX_LENGTH
    ) -> None:
        check_temperature(temperature)
        self.parameters = parameters
        self.temperature = temperature
        self.max_length = max_length
        self.oov_policy = Vocabulary(parameters).oov_policy

    def sample(self, source: Sequence[int], rng: np.random.Generator) -> Sample:
        if len(source) > self.max_length:
            return Sample(Outcome.SOURCE_TOO_LONG)
        for _ in range(ATTEMPTS):
            fertilities = [self._fertility(word, rng) for word in source]
            length = sum(fertilities) + self._null_fertility(sum(fertilities), rng)
            if length == 0:
                return Sample(Outcome.EMPTY)
            if length <= self.max_length:
                return self._fill(source, fertilities, length, rng)
        return Sample(Outcome.TARGET_TOO_LONG)

    def _fertility(self, word: int, rng: np.random.Generator) -> int:
        if self.oov_policy[word] != SEEN:
            return 0 if self.oov_policy[word] == DROPPED else 1
        return _draw(tempered(self.parameters.fertilities[word], self.temperature), rng)

    def _null_fertility(self, words: int, rng: np.random.Generator) -> int:
        if not self.parameters.translations.of(self.parameters.null)[1].any():
            return 0
        return int(rng.binomial(words, self.parameters.p1))

    def _word(self, word: int, rng: np.random.Generator) -> int:
        if word != self.parameters.null and self.oov_policy[word] != SEEN:
            return int(self.oov_policy[word])
        words, probs = self.parameters.translations.of(word)
        return int(words[_draw(tempered(probs, self.temperature), rng)])

    def _position(
        self, i: int, source: int, vacant: NDArray[np.bool_], rng: np.random.Generator
    ) -> int:
        probs = position_probs(self.parameters.distortions, i, source, len(vacant))
        left = np.where(vacant, probs, 0.0)
        if not left.any():
            left = vacant.astype(np.float64)
        return _draw(tempered(left, self.temperature), rng)

    def _fill(
        self, source: Sequence[int], fertilities: Sequence[int], length: int,
        rng: np.random.Generator,
    ) -> Sample:  # fmt: skip
        words, origins = np.full(length, -1), np.zeros(length, int)
        for i, (word, fertility) in enumerate(zip(source, fertilities, strict=True), start=1):
            for _ in range(fertility):
                position = self._position(i, len(source), words < 0, rng)
                words[position] = self._word(word, rng)
                origins[position] = i
        for position in np.flatnonzero(words < 0).tolist():
            words[position] = self._word(self.parameters.null, rng)
        return Sample(Outcome.TRANSLATED, tuple(words.tolist()), tuple(origins.tolist()))


def _draw(probs: Floats, rng: np.random.Generator) -> int:
    return int(rng.choice(len(probs), p=probs))
