"""Searching for many sentences: in batches or slots, alone or by several processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from scones.hardware import gpu_path
from scones.model.transformer import Transformer, can_prepack, prepacked
from scones.outputs import OutputLayer
from scones.processes import Processes
from scones.search.beam import beam_search
from scones.search.greedy import Stepper, greedy_stream
from scones.search.prefix import Prefixes
from scones.search.searcher import (
    Hypothesis,
    Searcher,
    SearchOptions,
    Sources,
    batches_by_length,
    length_limit,
    put_back,
)
from scones.search.shortlist import Shortlist, Shortlisted
from scones.text import END, PAD

Fact = TypeVar("Fact")

_MOST_TOKENS = 8192
_JOINED_TOKENS = 4096
"""With more at once a CPU is no faster: what sentences attend to outgrows its caches."""


def searcher(
    model: Transformer,
    output: OutputLayer,
    precision: torch.dtype = torch.float32,
    shortlist: Shortlist | None = None,
    prepack: bool = True,
) -> Searcher:
    """Decide how a model searches: in slots on a GPU, else in batches.

    A GPU's products are made in `precision`; elsewhere the model computes as it is. Slots and
    prepacked products have weights of their own, copied now: they know nothing of later training.
    """
    # A shortlist needs the steps of PyTorch, on a GPU too: slots compute all logits.
    if shortlist is None and gpu_path(model):
        from scones.search.gpu import slot_searcher

        return slot_searcher(model, output, precision)
    if prepack and can_prepack(model):
        return BatchSearcher(prepacked(model), output, shortlist, joined=True)
    return BatchSearcher(model, output, shortlist)


def search_corpus(
    model: Transformer, output: OutputLayer, sources: Sources, options: SearchOptions
) -> list[list[Hypothesis]]:
    """Search once, with the weights as they are now: what validation does.

    The searcher is built anew for every call. One that was kept from the last validation would go
    on searching with the weights of that time. For one call, prepacking would not pay.
    """
    return searcher(model, output, prepack=False).search(sources, options)


@dataclass(frozen=True)
class BatchSearcher:
    """Sentences of like lengths together, step by step."""

    model: Transformer
    output: OutputLayer
    shortlist: Shortlist | None = None
    joined: bool = False
    """Whether greedy batches begin before those in front of them are done, sharing products.

    It pays where products of few rows cost as much as those of many: on a CPU with prepacked
    weights.
    """

    def search(
        self, sources: Sources, options: SearchOptions, prefixes: Prefixes = ()
    ) -> list[list[Hypothesis]]:
        """As every searcher does; where there are `prefixes`, translations begin with them."""
        most, room = (options.max_tokens or _MOST_TOKENS) // options.beams, 0
        if self.joined:
            most = min(options.max_tokens or _JOINED_TOKENS, _JOINED_TOKENS) // options.beams
            # Small batches, so that the next can begin soon; a beam's batches never join.
            if options.search == "greedy":
                most, room = most // 4, most
        plan = list(batches_by_length([len(source) + 1 for source in sources], most))
        # A generator: on a GPU the sources of all batches at once would take memory for nothing.
        batches = (self._tensors([sources[index] for index in batch]) for batch in plan)
        fixed = [[prefixes[index] for index in batch] if prefixes else [] for batch in plan]
        return put_back(plan, self._search(batches, room, options, fixed))

    def _search(
        self,
        batches: Iterable[tuple[Tensor, Tensor]],
        room: int,
        options: SearchOptions,
        fixed: Sequence[Prefixes],
    ) -> list[list[list[Hypothesis]]]:
        stepper: Stepper[Any] = self.model
        if self.shortlist is not None:
            stepper = Shortlisted(self.model, self.shortlist)
        if options.search == "greedy":
            single = greedy_stream(
                stepper, self.output, batches, room, options.scores, prefixes=fixed
            )
            return [[[hypothesis] for hypothesis in batch] for batch in single]
        beam, n_best, penalty = options.beam_size, options.n_best, options.length_penalty
        return [
            beam_search(
                stepper, self.output, source_BS, limits_B, beam, n_best, penalty, prefixes=prefixes
            )
            for (source_BS, limits_B), prefixes in zip(batches, fixed, strict=True)
        ]

    def _tensors(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """A batch of sources and the length limits of their translations."""
        longest, device = self.model.config.max_length, self.model.device
        limits = [length_limit(len(source) + 1, longest) for source in sources]
        return padded(sources, device), torch.tensor(limits, device=device)


def padded(sentences: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Put sentences into one tensor, each ended, the shorter ones padded."""
    width = max(map(len, sentences)) + 1
    rows = [[*sentence, END] + [PAD] * (width - len(sentence) - 1) for sentence in sentences]
    return torch.tensor(rows, device=device)


# What a model says of given translations: one pass, no search.


@torch.inference_mode()
def read_batch(
    model: Transformer,
    source_BS: Tensor,
    target_BT: Tensor,
    read: Callable[[Tensor, Tensor], list[Fact]],
) -> list[list[Fact]]:
    """What `read` makes of the logits of each target token (end of sentence included, no padding).

    It takes them with the tokens themselves, all rows at once, and gives one fact a row.
    """
    inputs_BT = functional.pad(target_BT, (1, -1), value=PAD)
    hidden_ND = model(source_BS, inputs_BT).flatten(0, 1)
    # Logits of padding are not even computed: they would be the largest tensor of all.
    real_N = target_BT.flatten() != PAD
    facts = iter(read(model.logits(hidden_ND[real_N]), target_BT.flatten()[real_N]))
    return [list(islice(facts, length)) for length in (target_BT != PAD).sum(dim=1).tolist()]


def token_scores(output: OutputLayer, logits_NV: Tensor, targets_N: Tensor) -> list[float]:
    """For `read_batch`: the log-probability of every target token."""
    return output.scores_of(logits_NV, targets_N).double().tolist()


Job = tuple[Sources, SearchOptions]


class SharedSearcher:
    """Spreads sentences over processes; their answers come back in the order of the sentences.

    The first process calls `search` as often as it likes and `finish` at the end; meanwhile the
    others are in `help`.
    """

    def __init__(self, searcher: Searcher, processes: Processes) -> None:
        self._searcher = searcher
        self._processes = processes

    def search(self, sources: Sources, options: SearchOptions) -> list[list[Hypothesis]]:
        """Let all processes search; the first calls this."""
        # The others wait in `help` for this very broadcast.
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
        shares = [order[other::count] for other in range(count)]
        mine = [sources[index] for index in shares[rank]]
        return put_back(shares, self._processes.all_gather(self._searcher.search(mine, options)))
