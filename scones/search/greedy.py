"""Greedy search: the best next token, again and again, on raw logits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import repeat, zip_longest
from typing import Any, Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor

from scones.outputs import OutputLayer
from scones.search.prefix import Prefix, Prefixes
from scones.search.searcher import Hypothesis, hypothesis
from scones.text import END, PAD

# What every search needs of a model, and what every search gives back.
#
# A search knows a model only as a `Stepper`: it opens a state for a batch of source sentences,
# feeds one token per row and gets the logits of the next. Rows are grouped by sentence
# (row = sentence * beams + beam), all sentences advance together, and sentences that are done can
# leave. The Transformer is one such stepper; a table of numbers in a test is another.


class State(Protocol):
    """A batch in the middle of being decoded."""

    def reorder(self, rows_N: Tensor) -> None:
        """Let row i continue what row rows[i], of the same sentence, has seen."""

    def keep(self, sentences_B: Tensor) -> None:
        """Drop all sentences but these, which come in ascending order."""


class JoinableState(State, Protocol):
    """One that waiting sentences can enter while others are still being written."""

    def join(self, other: Self) -> None:
        """Take in the sentences of another state, behind those that are here."""


S = TypeVar("S", bound=State)
J = TypeVar("J", bound=JoinableState)


class Stepper(Protocol[S]):
    """A model as search sees it."""

    def start(self, source_BS: Tensor, beams: int = 1) -> S:
        """Open a state with `beams` rows for every source sentence."""

    def step(self, state: S, tokens_N: Tensor) -> Tensor:
        """Feed one token per row and give the logits (N, V) of the next one."""


def should_leave(done: int, active: int) -> bool:
    """Whether so many sentences of a batch are done that dropping them pays for the copy."""
    return done == active or done * 8 >= active


@torch.inference_mode()
def greedy_search(
    model: Stepper[Any],
    output: OutputLayer,
    source_BS: Tensor,
    limits_B: Tensor,
    scores: bool = True,
    end: int = END,
    prefixes: Prefixes = (),
) -> list[Hypothesis]:
    """Translate a batch greedily; `limits_B` is each sentence's longest translation in tokens.

    Neither softmax nor sigmoid changes the order of the logits, so no activation is computed at
    all unless `scores` asks for log-probabilities. `end` is the model's id of the end of sentence.
    """
    # A single batch: its state is never asked to join another.
    batches = [(source_BS, limits_B)]
    (found,) = greedy_stream(model, output, batches, scores=scores, end=end, prefixes=[prefixes])
    return found


@torch.inference_mode()
def greedy_stream(
    model: Stepper[J],
    output: OutputLayer,
    batches: Iterable[tuple[Tensor, Tensor]],
    room: int = 0,
    scores: bool = True,
    end: int = END,
    prefixes: Iterable[Prefixes] = repeat(()),
) -> list[list[Hypothesis]]:
    """Translate batches (sources, limits), each as `greedy_search` does, by continuous batching.

    A batch begins while sentences before it are still being written, as soon as all their padded
    source tokens together fit into `room`.
    """
    running: _Running[J] | None = None
    begun = []
    for (source_BS, limits_B), fixed in zip(batches, prefixes, strict=False):
        while running and running.sentences and running.size + source_BS.numel() > room:
            running.step()
        new = _Running(model, output, source_BS, limits_B, scores, end, fixed)
        begun.append(new.sentences)
        if running and running.sentences:
            running.join(new)
        else:
            running = new
    while running and running.sentences:
        running.step()
    return [[sentence.hypothesis(end) for sentence in batch] for batch in begun]


@dataclass
class _Sentence:
    """A translation that is being written."""

    size: int
    """Tokens of its source, padding included."""
    limit: int
    """Its longest translation in tokens."""
    ids: list[int] = field(default_factory=list)
    log_probs: list[float] | None = None
    """None where nobody asked for scores."""
    prefix: Prefix | None = None
    done: bool = False

    @property
    def full(self) -> bool:
        """Whether it has reached its limit."""
        return len(self.ids) >= self.limit

    def hypothesis(self, end: int) -> Hypothesis:
        return hypothesis(self.ids, self.log_probs, self.limit, end)


class _Running(Generic[J]):
    """The sentences that are being translated at the same time."""

    def __init__(
        self,
        model: Stepper[J],
        output: OutputLayer,
        source_BS: Tensor,
        limits_B: Tensor,
        scores: bool,
        end: int,
        prefixes: Prefixes,
    ) -> None:
        self._model = model
        self._output = output
        self._scores = scores
        self._end = end
        self.state = model.start(source_BS)
        self.tokens_A = torch.full((len(source_BS),), PAD, device=source_BS.device)
        self.sentences = [
            _Sentence(source_BS.size(1), limit, log_probs=[] if scores else None, prefix=prefix)
            for limit, prefix in zip_longest(limits_B.tolist(), prefixes)
        ]

    @property
    def size(self) -> int:
        """Their source tokens, padding included."""
        return sum(sentence.size for sentence in self.sentences)

    def join(self, new: _Running[J]) -> None:
        self.state.join(new.state)
        self.tokens_A = torch.cat([self.tokens_A, new.tokens_A])
        self.sentences = self.sentences + new.sentences

    def step(self) -> None:
        """Write one token of every sentence; now and then those that are done leave."""
        logits_AV = self._model.step(self.state, self.tokens_A)
        self.tokens_A = self._output.best_token(self._fixed(logits_AV))
        tokens = self.tokens_A.tolist()
        for sentence, token in zip(self.sentences, tokens, strict=True):
            # What a sentence still writes after its end is cut off when it is read out.
            sentence.ids.append(token)
            sentence.done |= token == self._end or sentence.full
        if self._scores:
            terms = self._output.scores_of(logits_AV, self.tokens_A).double().tolist()
            for sentence, term in zip(self.sentences, terms, strict=True):
                assert sentence.log_probs is not None
                sentence.log_probs.append(term)
        staying = [index for index, one in enumerate(self.sentences) if not one.done]
        # A model may have no positions beyond the limit.
        must_leave = any(sentence.full for sentence in self.sentences)
        if must_leave or should_leave(len(self.sentences) - len(staying), len(self.sentences)):
            self._keep(staying)

    def _fixed(self, logits_AV: Tensor) -> Tensor:
        """The logits, of which only what prefixes allow is left."""
        fixed_AV = logits_AV
        for row, sentence in enumerate(self.sentences):
            allowed = sentence.prefix.after(sentence.ids) if sentence.prefix else None
            if allowed is not None:
                fixed_AV = logits_AV.clone() if fixed_AV is logits_AV else fixed_AV
                fixed_AV[row] = float("-inf")
                fixed_AV[row, allowed] = logits_AV[row, allowed]
        return fixed_AV

    def _keep(self, staying: list[int]) -> None:
        self.sentences = [self.sentences[index] for index in staying]
        if staying:
            staying_A = torch.tensor(staying, device=self.tokens_A.device)
            self.state.keep(staying_A)
            self.tokens_A = self.tokens_A[staying_A]
