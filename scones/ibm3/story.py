"""How IBM Model 3 makes a target sentence, told step by step, a sentence at a time.

Given a source sentence of l words and a temperature γ,

1.  every source word draws its fertility from n, how many target words it becomes;
2.  NULL's fertility is drawn from the binomial distribution of as many trials as there are words
    so far, with probability p1: each of them may bring along one that the source does not explain;
3.  the target length m is the sum of all fertilities;
4.  every target word is drawn from t, given the source word, or NULL, that it comes from;
5.  source word by source word, every target word draws its place from d among the places that are
    still vacant: d is restricted to them and divided by what remains of it. Where d gives none of
    them any probability, all are equally probable. So no two words collide, and the probabilities
    of all outcomes sum to one;
6.  NULL's words go to the places that are left, in any order with equal probability. As they are
    all drawn from one distribution, filling the places from left to right is the same thing.

The temperature turns P(c) into P(c)^(1/γ), divided by the sum over all c, in steps 1, 4 and 5.
Restricting d and changing its temperature can be done in either order. The number and the places
of NULL's words keep their own randomness at all temperatures. From `FROZEN` down, the most probable
choice is always taken, the first of equal ones.

What the story leaves open:

- A source word that was never seen, because n or t has nothing for it, becomes the target word that
  is spelled the same (with pieces of both languages: itself); where there is none it is dropped.
- If NULL has no translations, it has no fertility.
- A source longer than the limit has no translation. A target longer than the limit is thrown away
  and drawn again from step 1, so that what comes out has the distribution of targets that fit;
  after `ATTEMPTS` vain ones there is no translation.

This module is the version to read, and to test the other one against; `scones.ibm3.sampling` does
the same many times as fast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from scones.errors import SconesError
from scones.ibm3.parameters import Parameters

MAX_LENGTH = 250
"""The longest source and target, where nothing else is said."""
ATTEMPTS = 100
FROZEN = 1e-6
"""From this temperature down only the most probable choices are taken.

Probabilities that differ by a hundred-thousandth would not be chosen between at random here."""

SEEN, DROPPED = -2, -1
"""What becomes of a source word apart from the number of a target word that it is copied to."""

Floats = NDArray[np.float64]


class Outcome(IntEnum):
    """What became of a source sentence."""

    TRANSLATED = 0
    SOURCE_TOO_LONG = 1
    TARGET_TOO_LONG = 2
    EMPTY = 3
    """The source is empty, or no word of it became any."""


@dataclass(frozen=True)
class Told:
    """A sampled sentence; without words where the outcome is not a translation."""

    outcome: Outcome
    words: tuple[int, ...] = ()
    origins: tuple[int, ...] = ()
    """For every target word the place of its source word, from 1; 0 is NULL."""


def check_temperature(temperature: float) -> None:
    """Refuse what is no temperature."""
    if not (math.isfinite(temperature) and temperature > 0):
        raise SconesError(f"The temperature must be above 0 and finite, not {temperature}.")


def tempered(probs: NDArray[np.floating], temperature: float) -> Floats:
    """Give the distribution proportional to probs^(1/γ); nothing but zeros stays zeros."""
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


def fates(parameters: Parameters) -> NDArray[np.int32]:
    """Say for each source word: `SEEN`, `DROPPED`, or the target word of the same spelling."""
    begins = parameters.translations.begins[:-1]
    possible = np.concatenate([[0], np.cumsum(parameters.translations.probs > 0)])
    translated = possible[begins[1:]] > possible[begins[:-1]]
    seen = translated & (parameters.fertilities.sum(axis=1) > 0)
    result = np.full(len(seen), SEEN, np.int32)
    numbers = {word: number for number, word in enumerate(parameters.target_words)}
    for word in np.flatnonzero(~seen).tolist():
        result[word] = numbers.get(parameters.source_words[word], DROPPED)
    return result


class Story:
    """The story of one set of parameters at one temperature."""

    def __init__(
        self, parameters: Parameters, temperature: float = 1.0, max_length: int = MAX_LENGTH
    ) -> None:
        check_temperature(temperature)
        self.parameters = parameters
        self.temperature = temperature
        self.max_length = max_length

    @cached_property
    def _fates(self) -> NDArray[np.int32]:
        return fates(self.parameters)

    def tell(self, source: Sequence[int], random: np.random.Generator) -> Told:
        """Sample a translation of a sentence of source words."""
        if len(source) > self.max_length:
            return Told(Outcome.SOURCE_TOO_LONG)
        for _ in range(ATTEMPTS):
            fertilities = [self._fertility(word, random) for word in source]
            null = self._null_fertility(sum(fertilities), random)
            length = sum(fertilities) + null
            if length == 0:
                return Told(Outcome.EMPTY)
            if length <= self.max_length:
                return self._fill(source, fertilities, length, random)
        return Told(Outcome.TARGET_TOO_LONG)

    def _fertility(self, word: int, random: np.random.Generator) -> int:
        if self._fates[word] != SEEN:
            return 0 if self._fates[word] == DROPPED else 1
        return _draw(tempered(self.parameters.fertilities[word], self.temperature), random)

    def _null_fertility(self, words: int, random: np.random.Generator) -> int:
        if not self.parameters.translations.of(self.parameters.null)[1].any():
            return 0
        return int(random.binomial(words, self.parameters.p1))

    def _word(self, word: int, random: np.random.Generator) -> int:
        if word != self.parameters.null and self._fates[word] != SEEN:
            return int(self._fates[word])
        words, probs = self.parameters.translations.of(word)
        return int(words[_draw(tempered(probs, self.temperature), random)])

    def _place(
        self, i: int, source: int, vacant: NDArray[np.bool_], random: np.random.Generator
    ) -> int:
        probs = self.parameters.distortions.of(i, source, len(vacant))
        left = np.where(vacant, probs, 0.0)
        if not left.any():
            left = vacant.astype(np.float64)
        return _draw(tempered(left, self.temperature), random)

    def _fill(
        self, source: Sequence[int], fertilities: Sequence[int], length: int,
        random: np.random.Generator,
    ) -> Told:  # fmt: skip
        words, origins = np.full(length, -1), np.zeros(length, int)
        for i, (word, fertility) in enumerate(zip(source, fertilities, strict=True), start=1):
            for _ in range(fertility):
                place = self._place(i, len(source), words < 0, random)
                words[place] = self._word(word, random)
                origins[place] = i
        for place in np.flatnonzero(words < 0).tolist():
            words[place] = self._word(self.parameters.null, random)
        return Told(Outcome.TRANSLATED, tuple(words.tolist()), tuple(origins.tolist()))


def _draw(probs: Floats, random: np.random.Generator) -> int:
    return int(random.choice(len(probs), p=probs))
