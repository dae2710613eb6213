"""How IBM Model 3 is fitted and pruned: what the flags of `scones ibm3 fit` say."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from scones.errors import SconesError
from scones.recipes import option

LONGEST = 200
"""sil-thot leaves longer sentences out of HMM and IBM 3 without a word."""


@dataclass(frozen=True)
class Cut:
    """Which entries of a row are kept."""

    threshold: float = 1e-4
    """Those of at least this probability,"""
    best: int = 200
    """and of these no more than so many, the most probable."""

    def __post_init__(self) -> None:
        """Refuse numbers that make no sense."""
        if not 0 <= self.threshold < 1:
            raise SconesError(f"threshold is {self.threshold}; it must be from 0 to below 1.")
        if self.best < 1:
            raise SconesError(f"best is {self.best}; it must be at least 1.")


@dataclass(frozen=True)
class FitOptions:
    """How to fit."""

    ibm1: int = option(5, "iterations of IBM 1", group="Estimation")
    hmm: int = option(5, "iterations of the HMM that follows")
    ibm2: int = option(0, "iterations of IBM 2, in place of the HMM; needs --hmm 0")
    ibm3: int = option(5, "iterations of IBM 3")
    max_length: int = option(100, f"leave out pairs with more words on a side, {LONGEST} at most")
    distortions: Literal["target", "both"] = option(
        "target", "the lengths that places depend on; both needs much more text"
    )
    fertility_smoothing: float = option(
        1.0, "occurrences of a mean word that are added to those of each, for its fertility"
    )
    threshold: float = option(1e-4, "least probability of t and n that is kept", group="Pruning")
    best: int = option(200, "translations of a word that are kept at most")

    def __post_init__(self) -> None:
        """Refuse numbers that make no sense."""
        for name in ("ibm1", "ibm3", "max_length"):
            if getattr(self, name) < 1:
                raise SconesError(f"{name} is {getattr(self, name)}; it must be at least 1.")
        if min(self.hmm, self.ibm2) < 0 or (self.hmm > 0) == (self.ibm2 > 0):
            raise SconesError(
                f"hmm is {self.hmm} and ibm2 is {self.ibm2}; one of them must be 0 and the other "
                "at least 1."
            )
        if self.max_length > LONGEST:
            raise SconesError(
                f"max_length is {self.max_length}; sil-thot takes sentences of {LONGEST} words at "
                "most."
            )
        if self.distortions not in ("target", "both"):
            raise SconesError(f"distortions is {self.distortions!r}; it must be target or both.")
        if not 0 <= self.fertility_smoothing < math.inf:
            raise SconesError(
                f"fertility_smoothing is {self.fertility_smoothing}; it must be 0 or more."
            )
        _ = self.cut  # which checks its own numbers

    @property
    def cut(self) -> Cut:
        """Which entries of t and n are kept."""
        return Cut(self.threshold, self.best)
