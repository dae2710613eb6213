"""Sampled translations of many sentences as flat arrays, and what is counted of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scones.ibm3.story import DROPPED, Outcome

Ids = NDArray[np.int32]
Lengths = NDArray[np.int64]


@dataclass(frozen=True)
class Samples:
    """Translations of several sentences, as flat arrays.

    A sentence without a translation has the length 0, and an outcome that says why.
    """

    tokens: Ids
    """The target words of all sentences, one after another."""
    lengths: Lengths
    outcomes: NDArray[np.int8]
    """For each sentence an `Outcome`."""
    origins: Ids
    """For each target word the place of its source word, from 1; 0 is NULL."""
    place_entropies: NDArray[np.float64]
    """For each sentence the sum of the entropies of its places in nats, where measured."""

    def split(self) -> list[list[int]]:
        """Give the target words sentence by sentence."""
        words, ends = self.tokens.tolist(), np.cumsum(self.lengths).tolist()
        return [words[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    @classmethod
    def joined(cls, parts: Sequence[Samples]) -> Samples:
        """Put samples one behind another."""
        names = ("tokens", "lengths", "outcomes", "origins", "place_entropies")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@dataclass
class Counts:
    """What became of many sentences."""

    sentences: int = 0
    translated: int = 0
    source_too_long: int = 0
    target_too_long: int = 0
    empty: int = 0
    source_words: int = 0
    """Of all sentences, as those behind it."""
    never_seen_and_copied: int = 0
    never_seen_and_dropped: int = 0
    target_words: int = 0

    def add(self, fates: Ids, samples: Samples) -> None:
        """Count what came of some sentences, given the fates of their words."""
        self.sentences += len(samples.lengths)
        for outcome in Outcome:
            name = outcome.name.lower()
            count = int(np.count_nonzero(samples.outcomes == outcome))
            setattr(self, name, getattr(self, name) + count)
        self.source_words += len(fates)
        self.never_seen_and_copied += int(np.count_nonzero(fates >= 0))
        self.never_seen_and_dropped += int(np.count_nonzero(fates == DROPPED))
        self.target_words += len(samples.tokens)
