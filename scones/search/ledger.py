"""What exact search knows about its sentences: bounds, what was found, what was left.

Numbers that every round needs are on the device, one a sentence; translations are on the host.

Shape letters: N sentences, R prefixes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from scones.search.certificate import Certificate, ExactOptions, ExactResult, Limit
from scones.search.frontier import Prefixes
from scones.search.stepping import Hypothesis

_NEVER = float("-inf")


@dataclass
class _Sentence:
    first: list[Hypothesis]
    """What beam search found."""
    found: dict[tuple[int, ...], Hypothesis] = field(default_factory=dict)
    best: list[float] = field(default_factory=list)
    """A heap of the n best scores."""
    empty: float | None = None
    stopped_by: Limit | None = None


class Ledger:
    """The books of a search."""

    def __init__(
        self,
        first: Sequence[list[Hypothesis]],
        options: ExactOptions,
        tolerance: float,
        number_format: str,
        device: torch.device,
    ) -> None:
        self._options = options
        self._tolerance = tolerance
        self._number_format = number_format
        self._sentences = [_Sentence(found) for found in first]
        bounds = [self._first_bound(found) for found in first]
        self.bounds_N = torch.tensor(bounds, dtype=torch.float64, device=device)
        """What has to be passed: scores below cannot matter."""
        self.stopped_N = torch.zeros(len(bounds), dtype=torch.bool, device=device)
        self._states_N = torch.zeros(len(bounds), dtype=torch.long, device=device)
        self._seconds_N = torch.zeros_like(self.bounds_N)
        self._left_N = torch.full_like(self.bounds_N, _NEVER)
        """The best score of what was not looked at."""
        self._cut_N = torch.full_like(self.bounds_N, _NEVER)
        """The best score of what was too long."""

    def __len__(self) -> int:
        return len(self._sentences)

    def _first_bound(self, found: list[Hypothesis]) -> float:
        if self._options.threshold is not None:
            return math.log(self._options.threshold)
        scores = sorted((h.log_prob or 0.0 for h in found if h.finished), reverse=True)
        if len(scores) < self._options.n_best:
            return _NEVER
        # A little less, so that this search finds them again, with its own scores.
        return scores[self._options.n_best - 1] - self._tolerance

    def passes(self, scores: Tensor, sentences: Tensor) -> Tensor:
        """Say which scores are of interest."""
        bounds = self.bounds_N[sentences]
        return scores > bounds if self._options.threshold is None else scores >= bounds

    # While searching.

    def count(self, sentences_R: Tensor, seconds: float) -> None:
        """Take note of prefixes that were expanded together, in some time."""
        sentences_R = sentences_R.long()
        ones = torch.ones_like(sentences_R)
        self._states_N.scatter_add_(0, sentences_R, ones)
        share = torch.full_like(ones, seconds / len(ones), dtype=torch.float64)
        self._seconds_N.scatter_add_(0, sentences_R, share)

    def find(self, sentence: int, hypothesis: Hypothesis) -> None:
        """Take note of a translation."""
        about, score = self._sentences[sentence], hypothesis.log_prob
        assert score is not None
        if not hypothesis.tokens:
            about.empty = score
        if self._options.threshold is not None:
            if score >= math.log(self._options.threshold):
                about.found[hypothesis.tokens] = hypothesis
            return
        if len(about.best) == self._options.n_best and score <= about.best[0]:
            return
        about.found[hypothesis.tokens] = hypothesis
        if len(about.best) < self._options.n_best:
            heapq.heappush(about.best, score)
        else:
            heapq.heapreplace(about.best, score)

    def raise_bounds(self, sentences: list[int]) -> None:
        """Let the bounds of sentences follow what was found."""
        bounds = [self._bound(sentence) for sentence in sentences]
        self.bounds_N[sentences] = self.bounds_N.new_tensor(bounds)

    def _bound(self, sentence: int) -> float:
        about = self._sentences[sentence]
        first = self._first_bound(about.first)
        if self._options.threshold is not None or len(about.best) < self._options.n_best:
            return first
        return max(first, about.best[0])

    def beyond_limits(self, prefixes: Prefixes) -> Tensor:
        """Say which prefixes their sentences may not expand any more, and stop those sentences."""
        sentences = prefixes.sentences.long()
        # The number of each among those of its sentence, the best, which is the last, first.
        order = sentences.flip(0).argsort(stable=True)
        in_order = sentences.flip(0)[order]
        numbers = torch.empty_like(order)
        places = torch.arange(len(order), device=order.device)
        numbers[order] = places - torch.searchsorted(in_order, in_order)
        over = self._states_N[sentences] + numbers.flip(0) >= self._options.max_states
        late = torch.zeros_like(over)
        if self._options.sentence_seconds is not None:
            late = self._seconds_N[sentences] >= self._options.sentence_seconds
        beyond = over | late
        if bool(beyond.any()):
            self.stop(sentences[late].unique().tolist(), "time")
            self.stop(sentences[over & ~late].unique().tolist(), "states")
            self.leave(prefixes, beyond)
        return beyond

    def stop(self, sentences: list[int], limit: Limit) -> None:
        """Let sentences end here, because of a limit."""
        for sentence in sentences:
            if self._sentences[sentence].stopped_by is None:
                self._sentences[sentence].stopped_by = limit
        self.stopped_N[sentences] = True

    def leave(self, prefixes: Prefixes, which: Tensor) -> None:
        """Remember how good prefixes were that will not be looked at."""
        _raise(self._left_N, prefixes.sentences, torch.where(which, prefixes.scores, _NEVER))

    def cut(self, sentences: Tensor, scores: Tensor, which: Tensor) -> None:
        """Remember how good prefixes were that were too long."""
        _raise(self._cut_N, sentences, torch.where(which, scores, _NEVER))

    # In the end.

    def results(self, sentences: list[int]) -> list[ExactResult]:
        """Give the results of sentences that are done."""
        columns = (self._left_N, self._cut_N, self._states_N, self._seconds_N, self.bounds_N)
        numbers = zip(*(column[sentences].tolist() for column in columns), strict=True)
        return [
            self._result(self._sentences[sentence], max(left, cut), states, seconds, bound)
            for sentence, (left, cut, states, seconds, bound) in zip(
                sentences, numbers, strict=True
            )
        ]

    def _result(
        self, about: _Sentence, unseen: float, states: int, seconds: float, bound: float
    ) -> ExactResult:
        """`unseen` is the best score of what was not looked at."""
        ranked = self._ranked(about)
        best = ranked[0].log_prob if ranked and ranked[0].finished else None
        beam = next((h.log_prob for h in about.first if h.finished), None)
        if self._options.threshold is None:
            proved = unseen <= bound
            error = None if beam is None or best is None else best > beam + self._tolerance
        else:  # to reach the bound is enough, and no beam search looked for all
            proved = unseen < bound
            error = None
        known = [score for score in (best, None if proved else unseen) if score is not None]
        certificate = Certificate(
            proved=proved,
            stopped_by=None if proved else about.stopped_by or "length",
            states=states,
            seconds=seconds,
            upper_bound=max(known, default=bound if math.isfinite(bound) else 0.0),
            number_format=self._number_format,
            beam_log_prob=beam,
            search_error=error,
            tolerance=self._tolerance,
            empty_log_prob=about.empty,
        )
        return ExactResult(ranked, certificate)

    def _ranked(self, about: _Sentence) -> list[Hypothesis]:
        """Put what both searches found into order; of the same translation, our score counts."""
        found = about.found
        if self._options.threshold is None:
            found = {h.tokens: h for h in about.first if h.finished} | found
            if not found:
                return about.first[:1]
        ranked = sorted(found.values(), key=lambda one: one.log_prob or 0.0, reverse=True)
        return ranked if self._options.threshold is not None else ranked[: self._options.n_best]


def _raise(numbers_N: Tensor, sentences: Tensor, scores: Tensor) -> None:
    numbers_N.scatter_reduce_(0, sentences.long(), scores, "amax")
