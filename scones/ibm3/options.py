"""How IBM Model 3 is fitted, sampled from and measured: what the flags of `scones ibm3` say."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from scones.options import Checked, option

LONGEST = 200
"""sil-thot silently leaves longer sentences out of HMM and IBM 3."""
MAX_LENGTH = 250
"""The longest source and target that are sampled, where nothing else is said."""
GRID = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
"""The temperatures of the paper."""


@dataclass(frozen=True)
class Cut(Checked):
    """How the rows of t and n are pruned."""

    threshold: float = option(
        1e-4, "least probability of t and n that is kept", group="Pruning", least=0, below=1
    )
    best: int = option(200, "translations of a word that are kept at most", least=1)


@dataclass(frozen=True)
class FitOptions(Cut):
    """How to fit, and what to prune of the result."""

    ibm1: int = option(5, "iterations of IBM 1", group="Estimation", least=1)
    hmm: int = option(5, "iterations of the HMM that follows", least=0)
    ibm2: int = option(0, "iterations of IBM 2, in place of the HMM; needs --hmm 0", least=0)
    ibm3: int = option(5, "iterations of IBM 3", least=1)
    max_length: int = option(
        100,
        f"leave out pairs with more words on a side, {LONGEST} at most",
        least=1,
        most=LONGEST,
    )
    distortions: Literal["target", "both"] = option(
        "target", "the lengths that positions depend on; both needs much more text"
    )
    fertility_smoothing: float = option(
        1.0,
        "occurrences of a mean word that are added to those of each, for its fertility",
        least=0,
        below=math.inf,
    )

    def problems(self) -> list[str]:
        problems = super().problems()
        if (self.hmm > 0) == (self.ibm2 > 0):
            problems.append(
                f"hmm is {self.hmm} and ibm2 is {self.ibm2}; one of them must be 0 and the other "
                "at least 1"
            )
        return problems


@dataclass(frozen=True)
class SampleOptions(Checked):
    """How to sample, the temperature aside."""

    seed: int = option(0, "The same seed gives the same translations.", least=0, most=2**64 - 1)
    max_length: int = option(
        MAX_LENGTH,
        "Words of the longest sentence: a longer source has no translation, a longer target is "
        "drawn again.",
        least=1,
    )
    threads: int | None = option(
        None, "All cores by default; they change nothing but the time.", least=1
    )


@dataclass(frozen=True)
class MeasureOptions(SampleOptions):
    """How to measure ambiguity: two samples are the least that can be compared."""

    samples: int = option(10, "Translations of each sentence.", least=2, most=10_000)
