"""What every search needs of a model, and what every search gives back.

A search knows a model only as a `Stepper`: it opens a state for a batch of source sentences,
feeds one token a row and gets the logits of the next. Rows are grouped by sentence
(row = sentence * beams + beam), all sentences advance together, and sentences that are done can
leave. The Transformer is one such stepper; a table of numbers in a test is another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from scones.ids import END


class State(Protocol):
    """A batch in the middle of being decoded.

    Where it also has a method `join`, which takes in the sentences of another state behind its
    own, waiting sentences can begin while others are still being written.
    """

    def reorder(self, rows_N: Tensor) -> None:
        """Let row i continue what row rows[i], of the same sentence, has seen."""

    def keep(self, sentences_B: Tensor) -> None:
        """Drop all sentences but these, which come in ascending order."""


class Stepper(Protocol):
    """A model as search sees it."""

    def start(self, source_BS: Tensor, beams: int = 1) -> Any:
        """Open a `State` with `beams` rows for every source sentence."""

    def step(self, state: Any, tokens_N: Tensor) -> Tensor:
        """Feed one token a row and give the logits (N, V) of the next one."""


@dataclass(frozen=True)
class Hypothesis:
    """One translation as token ids."""

    tokens: tuple[int, ...]
    """The ids, without the end-of-sentence token."""
    log_prob: float | None
    """Log-probability, end of sentence included; None where scores were not asked for."""
    token_log_probs: tuple[float, ...] | None
    """Its terms, one a token, the end of sentence last."""
    finished: bool
    """False where the length limit cut it."""


def hypothesis(
    ids: list[int], log_probs: list[float] | None, limit: int, end: int = END
) -> Hypothesis:
    """Cut raw output at the end of sentence or at the length limit, and add up its scores."""
    finished = end in ids[:limit]
    length = ids.index(end) if finished else min(limit, len(ids))
    tokens = tuple(ids[:length])
    if log_probs is None:
        return Hypothesis(tokens, None, None, finished)
    terms = tuple(log_probs[: length + 1] if finished else log_probs[:length])
    return Hypothesis(tokens, sum(terms), terms, finished)


def should_leave(done: int, active: int) -> bool:
    """Say whether so many sentences of a batch are done that dropping them pays for the copy."""
    return done == active or done * 8 >= active
