"""Searching for many sentences: in batches or slots, alone or by several processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from scones.errors import SconesError
from scones.ids import END, PAD
from scones.model.folder import ModelFolder
from scones.model.packing import PackedTransformer, packed
from scones.model.transformer import Transformer
from scones.outputs import OutputLayer, output_layer
from scones.processes import Processes
from scones.search.beam import beam_search, check_beam
from scones.search.greedy import Hypothesis, Stepper, greedy_stream
from scones.search.shortlist import Shortlist, Shortlisted

if TYPE_CHECKING:
    from scones.search.gpu import SlotSearcher

# Searching for many sentences: sorted by length into batches, answered in input order.

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
        from scones.search.gpu import slot_searcher

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


# The log-probability of given translations: one pass, no search.


@torch.inference_mode()
def score_batch(
    model: Transformer, output: OutputLayer, source_BS: Tensor, target_BT: Tensor
) -> list[list[float]]:
    """Give the log-probability of every target token (end of sentence included, no padding)."""
    inputs_BT = functional.pad(target_BT, (1, -1), value=PAD)
    hidden_ND = model(source_BS, inputs_BT).flatten(0, 1)
    real_N = target_BT.flatten() != PAD
    logits_NV = model.logits(hidden_ND[real_N])
    terms_N = output.scores_of(logits_NV, target_BT.flatten()[real_N]).double()
    lengths = (target_BT != PAD).sum(dim=1).tolist()
    return [terms.tolist() for terms in terms_N.split(lengths)]


class Searcher(Protocol):
    """An engine with a model: the ids of sentences in, hypotheses out."""

    @property
    def tells_scores(self) -> bool:
        """Whether it can give the log-probability of every token."""

    def search(
        self, sources: Sequence[Sequence[int]], options: SearchOptions
    ) -> list[list[Hypothesis]]:
        """Give up to n_best hypotheses for each source; no ids hold the end of sentence."""


@dataclass(frozen=True)
class TorchSearcher:
    """PyTorch, which can do all there is."""

    folder: ModelFolder
    shortlist: Shortlist | None = None
    precision: torch.dtype = torch.float32
    """Of the products, where a GPU's kernels make them; else the model is as it is."""
    tells_scores: ClassVar[bool] = True

    def search(
        self, sources: Sequence[Sequence[int]], options: SearchOptions
    ) -> list[list[Hypothesis]]:
        """Search in slots on a GPU, and in batches of like lengths elsewhere."""
        if self._slots is not None:
            return self._slots.search(sources, options)
        output = output_layer(self.folder.output)
        return search_corpus(self._model, output, sources, options, self.shortlist)

    @cached_property
    def _slots(self) -> SlotSearcher | None:
        if self.shortlist is not None or not self.folder.model.has_kernels:
            return None
        from scones.search.gpu import slot_searcher

        output = output_layer(self.folder.output)
        return slot_searcher(self.folder.model, output, self.precision)

    @cached_property
    def _model(self) -> Transformer:
        return packed(self.folder.model)


Job = tuple[Sequence[Sequence[int]], SearchOptions]


class SharedSearcher:
    """Spreads sentences over processes; their answers come back in the order of the sentences.

    The first process calls `search` as often as it likes and `finish` at the end; meanwhile the
    others are in `help`.
    """

    def __init__(self, searcher: Searcher, processes: Processes) -> None:
        self._searcher = searcher
        self._processes = processes
        self.tells_scores = searcher.tells_scores

    def search(
        self, sources: Sequence[Sequence[int]], options: SearchOptions
    ) -> list[list[Hypothesis]]:
        """Let all processes search; the first calls this."""
        self._processes.broadcast(lambda: (sources, options))
        return self._work((sources, options))

    def finish(self) -> None:
        """Send the others home."""
        self._processes.broadcast(lambda: None)

    def help(self) -> None:
        """Search for the first process until it is done."""
        nothing: Any = None
        while (job := self._processes.broadcast(lambda: nothing)) is not None:
            self._work(job)

    def _work(self, job: Job) -> list[list[Hypothesis]]:
        sources, options = job
        # Sorted by length, every n-th sentence is an n-th of the work.
        order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
        rank, count = self._processes.rank, self._processes.count
        mine = [sources[index] for index in order[rank::count]]
        results: list[list[Hypothesis]] = [[] for _ in sources]
        for other, found in enumerate(
            self._processes.all_gather(self._searcher.search(mine, options))
        ):
            for index, hypotheses in zip(order[other::count], found, strict=True):
                results[index] = hypotheses
        return results
