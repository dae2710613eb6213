"""Searching for many sentences: sorted by length into batches, answered in input order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from scones.errors import SconesError
from scones.ids import END, PAD
from scones.model.packing import PackedTransformer
from scones.model.transformer import Transformer
from scones.outputs import OutputLayer
from scones.search.beam import beam_search, check_beam
from scones.search.greedy import greedy_stream
from scones.search.shortlist import Shortlist, Shortlisted
from scones.search.stepping import Hypothesis, Stepper

_MOST_TOKENS = 8192
_PACKED_TOKENS = 4096
"""With more at once a CPU is no faster: what sentences attend to outgrows its caches."""


@dataclass(frozen=True)
class SearchOptions:
    """How to search; the defaults are greedy search."""

    search: Literal["greedy", "beam"] = "greedy"
    beam_size: int = 4
    n_best: int = 1
    length_penalty: float = 0.0
    scores: bool = True
    """Whether greedy search computes log-probabilities."""
    max_tokens: int | None = None
    """The most padded source tokens times beams at once; None: as many as suit the device."""
    max_memory: int | None = None
    """Bytes that a GPU may take for it; None: what suits the device. A CPU never takes much."""

    def __post_init__(self) -> None:
        if self.search not in ("greedy", "beam"):
            raise SconesError(f"The search '{self.search}' is not known; use 'greedy' or 'beam'.")
        if self.search == "beam":
            check_beam(self.beam_size, self.n_best, self.length_penalty)
        elif self.n_best != 1:
            raise SconesError("Greedy search gives one translation; use search='beam' for n_best.")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise SconesError(f"max_tokens must be at least 1, not {self.max_tokens}.")

    @property
    def beams(self) -> int:
        """Rows a sentence takes."""
        return self.beam_size if self.search == "beam" else 1


def search_corpus(
    model: Transformer,
    output: OutputLayer,
    sources: Sequence[Sequence[int]],
    options: SearchOptions,
    shortlist: Shortlist | None = None,
) -> list[list[Hypothesis]]:
    """Translate sentences given as ids (no end of sentence); up to n_best hypotheses for each.

    A sentence's result does not depend on the others: its length limit and its shortlist, where
    there is one, come from its own source alone, and padding is never attended to.
    """
    if model.has_kernels and shortlist is None:
        from scones.search.slots import slot_searcher

        return slot_searcher(model, output, torch.float32).search(sources, options)
    stepper: Stepper = model if shortlist is None else Shortlisted(model, shortlist)
    lengths = [len(source) + 1 for source in sources]
    most, room = (options.max_tokens or _MOST_TOKENS) // options.beams, 0
    if isinstance(model, PackedTransformer):
        most = min(options.max_tokens or _PACKED_TOKENS, _PACKED_TOKENS) // options.beams
        if options.search == "greedy":
            most, room = most // 4, most
    plan = list(batches_by_length(lengths, most))
    batches = (_tensors(model, [sources[index] for index in batch]) for batch in plan)
    if options.search == "beam":
        beam, n_best, penalty = options.beam_size, options.n_best, options.length_penalty
        found = [
            beam_search(stepper, output, source_BS, limits_B, beam, n_best, penalty)
            for source_BS, limits_B in batches
        ]
    else:
        single = greedy_stream(stepper, output, batches, room, options.scores)
        found = [[[hypothesis] for hypothesis in batch] for batch in single]
    results: list[list[Hypothesis]] = [[] for _ in sources]
    for batch, translations in zip(plan, found, strict=True):
        for index, hypotheses in zip(batch, translations, strict=True):
            results[index] = hypotheses
    return results


def _tensors(model: Transformer, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Give a batch of sources and the length limits of their translations."""
    limits = [length_limit(len(source) + 1, model.config.max_length) for source in sources]
    return padded(sources, model.device), torch.tensor(limits, device=model.device)


def length_limit(source_length: int, longest: int) -> int:
    """Give the longest translation, in tokens, that a source of this length may get."""
    return min(longest, 2 * source_length + 20)


def batches_by_length(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Group indices of like lengths, the longest first, at most `max_tokens` padded tokens each."""
    batch: list[int] = []
    longest = 1
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if batch and (len(batch) + 1) * longest > max_tokens:
            yield batch
            batch = []
        if not batch:
            longest = lengths[index]
        batch.append(index)
    if batch:
        yield batch


def padded(sentences: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Put sentences into one tensor, each ended, the shorter ones padded."""
    width = max(map(len, sentences)) + 1
    rows = [[*sentence, END] + [PAD] * (width - len(sentence) - 1) for sentence in sentences]
    return torch.tensor(rows, device=device)
