"""What exact search is asked for, and what it says about its results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from scones.errors import SconesError
from scones.search.stepping import Hypothesis

Limit = Literal["states", "time", "length", "memory"]


@dataclass(frozen=True)
class ExactOptions:
    """What to look for, and how long."""

    n_best: int = 1
    threshold: float | None = None
    """Where given, look for all translations of at least this probability instead."""
    max_states: int = 1_000_000
    """Prefixes expanded, a sentence."""
    max_seconds: float | None = None
    """For all sentences together."""
    sentence_seconds: float | None = None
    """A sentence's share of the time, by its share of the prefixes expanded."""
    max_memory: int | None = None
    """Bytes, for all together; None: what suits the device."""
    width: int | None = None
    """Prefixes expanded together; None: as many as suit the device."""

    def __post_init__(self) -> None:
        if self.n_best < 1:
            raise SconesError(f"n_best must be at least 1, not {self.n_best}.")
        if self.threshold is not None and not 0 < self.threshold <= 1:
            raise SconesError(f"threshold must be above 0 and at most 1, not {self.threshold}.")
        for name in ("max_states", "max_seconds", "sentence_seconds", "max_memory", "width"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise SconesError(f"{name} must be above 0, not {value}.")


@dataclass(frozen=True)
class Certificate:
    """What is known about a result."""

    proved: bool
    """Whether nothing better can exist, or nothing more above the threshold."""
    stopped_by: Limit | None
    """The limit that was hit; None where nothing was left to expand."""
    states: int
    """Prefixes whose next tokens were scored."""
    seconds: float
    """The sentence's share of the time."""
    upper_bound: float
    """No translation has a log-probability above this."""
    number_format: str
    """Of the products that made the logits."""
    beam_log_prob: float | None
    """The score of the beam search that came first; None where it found no translation."""
    search_error: bool | None
    """Whether that missed a better translation, by more than the tolerance."""
    tolerance: float
    empty_log_prob: float | None
    """The score of the empty translation; None where not even that was looked at."""


@dataclass(frozen=True)
class ExactResult:
    """The translations of a sentence, the best first, and what is known about them."""

    hypotheses: list[Hypothesis]
    certificate: Certificate
