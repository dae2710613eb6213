"""What every searcher takes and gives: options, sentences as ids, hypotheses; and their batches.

There is no PyTorch here: a model that CTranslate2 runs is searched without it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal, Protocol, TypeVar

from scones.errors import SconesError
from scones.options import option
from scones.search.options import SearchFlags
from scones.text import END

Fact = TypeVar("Fact")


@dataclass(frozen=True)
class SearchOptions(SearchFlags):
    """How an engine is to search, exact search aside."""

    search: Literal["greedy", "beam"] = "greedy"
    length_penalty: float = option(0.0, "As for users, but for the default.", least=0)
    _: KW_ONLY
    scores: bool = True
    """Whether greedy search computes log-probabilities."""
    ambiguities: bool = False
    """Whether an engine that can tell them cheaply is to tell them too."""
    max_memory: int | None = None
    """Bytes that a GPU may take for it; None: what suits the device. A CPU never takes much."""
    end_circles: bool = True
    """Whether the translator, not the engine, is to end what was cut while it ran in circles."""

    def problems(self) -> list[str]:
        if self.search == "greedy" and self.n_best != 1:
            raise SconesError("Greedy search gives one translation; use search='beam' for n_best.")
        problems = super().problems()
        if self.search == "beam" and self.n_best > max(1, self.beam_size):
            problems.append(
                f"n_best must be at most beam_size, {self.beam_size}, not {self.n_best}"
            )
        return problems

    @property
    def beams(self) -> int:
        """Rows a sentence takes."""
        return self.beam_size if self.search == "beam" else 1


Sources = Sequence[Sequence[int]]
"""Sentences as token ids, without the end of sentence."""


class Searcher(Protocol):
    """An engine with a model: the ids of sentences in, hypotheses out."""

    def search(self, sources: Sources, options: SearchOptions) -> list[list[Hypothesis]]:
        """Find up to n_best hypotheses for each source; no ids hold the end of sentence.

        A sentence's result does not depend on the others: its length limit and its shortlist,
        where there is one, come from its own source alone, and padding is never attended to.
        """


@dataclass(frozen=True)
class Hypothesis:
    """One translation as token ids."""

    tokens: tuple[int, ...]
    """The ids, without the end-of-sentence token."""
    log_prob: float | None
    """Log-probability, end of sentence included unless cut; None where nobody asked for scores."""
    token_log_probs: tuple[float, ...] | None
    """Its terms, one per token, the end of sentence last."""
    finished: bool
    """False where the length limit cut it."""
    ambiguities: tuple[float, ...] | None = None
    """Of each token, the end of sentence last; None where the search did not tell."""
    doubts: tuple[float, ...] | None = None
    """Likewise."""
    end_log_probs: tuple[float, ...] | None = None
    """What an end would have had at each token of one that was cut; None likewise."""


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


# Lengths and batches.


def length_limit(source_length: int, longest: int) -> int:
    """The longest translation, in tokens, that a source of this length may get."""
    # Of the source alone, so that a sentence is cut at the same token whatever stands beside it.
    return min(longest, 2 * source_length + 20)


_INSIDE = re.compile(r"\w|<0x")
"""How a piece begins that goes on with the word, or with the bytes of the character, before it."""


def circles_begin(pieces: Sequence[str], first: int = 1) -> int | None:
    """Where a translation that was cut ends if its circles are gone through once; None without any.

    Circles are pieces that come three times or more in a row, eight pieces at least: "..." is none.
    They drift (a word changes, a comma is lost), so that anything may follow them, if half of it
    or more is repeated. The first `first` pieces stay in any case.
    """
    for end in range(first, len(pieces)):
        for period in range(1, min(end, (len(pieces) - end) // 2) + 1):
            stop = end + period * (max(3, -(-8 // period)) - 1)
            circling = stop <= len(pieces) and all(
                pieces[at] == pieces[at - period] for at in range(end, stop)
            )
            if circling and 2 * len(set(pieces[end:])) <= len(pieces) - end:
                # Wherever the circle is cut open it is the same: rather not within a word.
                places = range(end, end + period)
                return next((at for at in places if not _INSIDE.match(pieces[at])), end)
    return None


Cost = Callable[[int, int], int]


def chunks(order: Iterable[int], *limits: tuple[Cost, int]) -> Iterator[list[int]]:
    """Divide indices, in this order, into chunks within limits; one alone is always allowed.

    A limit is the most that the costs of a chunk may add up to, behind a function that tells the
    cost of an index from the first index of its chunk and from itself.
    """
    chunk: list[int] = []
    left = [most for _, most in limits]
    for index in order:
        if chunk:
            costs = [cost(chunk[0], index) for cost, _ in limits]
            left = [most - cost for most, cost in zip(left, costs, strict=True)]
            if min(left) < 0:
                yield chunk
                chunk = []
        if not chunk:
            left = [most - cost(index, index) for cost, most in limits]
        chunk.append(index)
    if chunk:
        yield chunk


def longest_first(lengths: Sequence[int]) -> list[int]:
    return sorted(range(len(lengths)), key=lambda index: -lengths[index])


def batches_by_length(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Group indices of like lengths, the longest first, at most `max_tokens` padded tokens each."""
    # Padding makes every sentence as long as the first, the longest.
    return chunks(longest_first(lengths), (lambda first, _: lengths[first], max_tokens))


def put_back(batches: Iterable[Sequence[int]], found: Iterable[Iterable[Fact]]) -> list[Fact]:
    """What was found for each index of some batches, in the order of the indices."""
    facts = {
        index: fact
        for batch, several in zip(batches, found, strict=True)
        for index, fact in zip(batch, several, strict=True)
    }
    return [facts[index] for index in range(len(facts))]
