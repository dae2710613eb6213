"""Greedy search: the best next token, again and again, on raw logits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from scones.ids import END, PAD
from scones.outputs import OutputLayer

# What every search needs of a model, and what every search gives back.
#
# A search knows a model only as a `Stepper`: it opens a state for a batch of source sentences,
# feeds one token a row and gets the logits of the next. Rows are grouped by sentence
# (row = sentence * beams + beam), all sentences advance together, and sentences that are done can
# leave. The Transformer is one such stepper; a table of numbers in a test is another.


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


@torch.inference_mode()
def greedy_search(
    model: Stepper,
    output: OutputLayer,
    source_BS: Tensor,
    limits_B: Tensor,
    scores: bool = True,
    end: int = END,
) -> list[Hypothesis]:
    """Translate a batch greedily; `limits_B` is each sentence's longest translation in tokens.

    Neither softmax nor sigmoid changes the order of the logits, so no activation is computed at
    all unless `scores` asks for log-probabilities. `end` is the model's id of the end of sentence.
    """
    (found,) = greedy_stream(model, output, [(source_BS, limits_B)], scores=scores, end=end)
    return found


@torch.inference_mode()
def greedy_stream(
    model: Stepper,
    output: OutputLayer,
    batches: Iterable[tuple[Tensor, Tensor]],
    room: int = 0,
    scores: bool = True,
    end: int = END,
) -> list[list[Hypothesis]]:
    """Translate batches (sources, limits), each as `greedy_search` does.

    A batch begins while sentences before it are still being written, as soon as all their padded
    source tokens together fit into `room`. The model's states must then have a method `join`.
    """
    running = _Running(model, output, scores, end)
    begun = []
    for source_BS, limits_B in batches:
        while running.sentences and running.size + source_BS.numel() > room:
            running.step()
        begun.append(running.begin(source_BS, limits_B))
    while running.sentences:
        running.step()
    return [
        [hypothesis(one.ids, one.log_probs if scores else None, one.limit, end) for one in batch]
        for batch in begun
    ]


@dataclass
class _Sentence:
    """A translation that is being written."""

    size: int
    """Tokens of its source, padding included."""
    limit: int
    """Its longest translation in tokens."""
    ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    done: bool = False

    @property
    def full(self) -> bool:
        """Whether it has reached its limit."""
        return len(self.ids) >= self.limit


class _Running:
    """The sentences that are being translated at the same time."""

    def __init__(self, model: Stepper, output: OutputLayer, scores: bool, end: int) -> None:
        self.sentences: list[_Sentence] = []
        self._model = model
        self._output = output
        self._scores = scores
        self._end = end
        self._state: Any = None
        self._tokens_A = torch.empty(0)

    @property
    def size(self) -> int:
        """Their source tokens, padding included."""
        return sum(sentence.size for sentence in self.sentences)

    def begin(self, source_BS: Tensor, limits_B: Tensor) -> list[_Sentence]:
        """Begin with the sentences of a batch."""
        new = [_Sentence(source_BS.size(1), limit) for limit in limits_B.tolist()]
        state = self._model.start(source_BS)
        tokens_B = torch.full((len(new),), PAD, device=source_BS.device)
        if self.sentences:
            self._state.join(state)
            self._tokens_A = torch.cat([self._tokens_A, tokens_B])
        else:
            self._state, self._tokens_A = state, tokens_B
        self.sentences += new
        return new

    def step(self) -> None:
        """Write one token of every sentence; now and then those that are done leave."""
        logits_AV = self._model.step(self._state, self._tokens_A)
        self._tokens_A = self._output.best_token(logits_AV)
        tokens = self._tokens_A.tolist()
        for sentence, token in zip(self.sentences, tokens, strict=True):
            # What a sentence still writes after its end is cut off when it is read out.
            sentence.ids.append(token)
            sentence.done |= token == self._end or sentence.full
        if self._scores:
            terms = self._output.scores_of(logits_AV, self._tokens_A).double().tolist()
            for sentence, term in zip(self.sentences, terms, strict=True):
                sentence.log_probs.append(term)
        staying = [index for index, one in enumerate(self.sentences) if not one.done]
        # A model may have no positions beyond the limit.
        must_leave = any(sentence.full for sentence in self.sentences)
        if must_leave or should_leave(len(self.sentences) - len(staying), len(self.sentences)):
            self._keep(staying)

    def _keep(self, staying: list[int]) -> None:
        self.sentences = [self.sentences[index] for index in staying]
        if staying:
            staying_A = torch.tensor(staying, device=self._tokens_A.device)
            self._state.keep(staying_A)
            self._tokens_A = self._tokens_A[staying_A]
