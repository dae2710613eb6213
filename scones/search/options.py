"""What users say of a search, for the engine (`SearchOptions`) and the command line alike.

There is no PyTorch here: the command line shows its flags without it.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Literal

from scones.options import Checked, option

# Flags of greedy and beam search alone, and limits of exact search.
plainly = partial(option, only=("search", "greedy", "beam"))
exactly = partial(option, above=0, only=("search", "exact", "all"))


@dataclass(frozen=True)
class SearchFlags(Checked):
    """What a user says of a search, with greedy search as the default."""

    search: Literal["greedy", "beam", "exact", "all"] = option(
        "greedy",
        "How to search; exact: the most probable translations of all, with a proof; all: every "
        "translation above a probability.",
    )
    beam_size: int = option(
        4,
        "Hypotheses that beam search keeps; exact search begins with it.",
        least=1,
        most=1_000_000,
        only=("search", "beam", "exact", "all"),
    )
    n_best: int = option(
        1,
        "Translations per sentence, all of different texts (beam, exact); a beam may find fewer.",
        least=1,
        most=1_000_000,
        only=("search", "greedy", "beam", "exact"),  # greedy search gives one
    )
    length_penalty: float | None = option(
        None,
        "Rank by log-probability / length**p; 1 by default (beam), 0: no normalisation.",
        least=0,
        only=("search", "beam"),
    )
    _: KW_ONLY
    max_tokens: int | None = plainly(
        None, "Padded tokens times beams in a batch; by default what suits the device.", least=1
    )


LENGTH_PENALTY = 1.0
"""What users get who say nothing of it; the probability alone prefers short translations."""


# Keyword-only, so that they stand behind `n_best` and `threshold` where those come first.
@dataclass(frozen=True, kw_only=True)
class ExactLimits(Checked):
    """How long exact search may take."""

    max_states: int = exactly(1_000_000, "Prefixes that exact search may look at per sentence.")
    max_seconds: float | None = exactly(
        None, "Time of exact search, for all sentences that are searched together."
    )
    sentence_seconds: float | None = exactly(
        None, "Time of exact search per sentence: by its share of the prefixes."
    )
