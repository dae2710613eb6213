"""Searching for many sentences: sorted by length into batches, answered in input order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from scones.errors import SconesError
from scones.ids import END, PAD
from scones.model.transformer import Transformer
from scones.outputs import OutputLayer
from scones.search.beam import beam_search, check_beam
from scones.search.greedy import greedy_search
from scones.search.stepping import Hypothesis


@dataclass(frozen=True)
class SearchOptions:
    """How to search; the defaults are greedy search."""

    search: Literal["greedy", "beam"] = "greedy"
    beam_size: int = 4
    n_best: int = 1
    length_penalty: float = 0.0
    scores: bool = True
    """Whether greedy search computes log-probabilities."""
    max_tokens: int = 8192
    """Padded source tokens times beams in one batch."""

    def __post_init__(self) -> None:
        if self.search not in ("greedy", "beam"):
            raise SconesError(f"The search '{self.search}' is not known; use 'greedy' or 'beam'.")
        if self.search == "beam":
            check_beam(self.beam_size, self.n_best, self.length_penalty)
        elif self.n_best != 1:
            raise SconesError("Greedy search gives one translation; use search='beam' for n_best.")
        if self.max_tokens < 1:
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
) -> list[list[Hypothesis]]:
    """Translate sentences given as ids (no end of sentence); up to n_best hypotheses for each.

    A sentence's result does not depend on the others: its length limit comes from its own
    source alone, and padding is never attended to.
    """
    results: list[list[Hypothesis]] = [[] for _ in sources]
    lengths = [len(source) + 1 for source in sources]
    for batch in batches_by_length(lengths, options.max_tokens // options.beams):
        source_BS = padded([sources[index] for index in batch], model.device)
        limits_B = torch.tensor(
            [length_limit(lengths[index], model.config.max_length) for index in batch],
            device=model.device,
        )
        if options.search == "beam":
            found = beam_search(
                model,
                output,
                source_BS,
                limits_B,
                options.beam_size,
                options.n_best,
                options.length_penalty,
            )
        else:
            single = greedy_search(model, output, source_BS, limits_B, options.scores)
            found = [[hypothesis] for hypothesis in single]
        for index, hypotheses in zip(batch, found, strict=True):
            results[index] = hypotheses
    return results


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
