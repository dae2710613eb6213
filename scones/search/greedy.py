"""Greedy search: the best next token, again and again, on raw logits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from scones.ids import END, PAD
from scones.outputs import OutputLayer
from scones.search.stepping import Hypothesis, Stepper, hypothesis, should_leave


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
