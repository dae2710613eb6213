"""Exact search: the most probable translations, with a proof.

Every token can only lower a score. So a prefix that scores no more than the best translation found
so far need not be looked at, and when no other prefix is left, that translation is the best of all.
Prefixes of many sentences and of all depths are expanded together; their children are weighed
against their sentence's bound where they are made, and those that pass go onto one stack, the best
on top. The same search gives the n best, whose bound is the n-th best found, and all above a
threshold, whose bound is the threshold.

Shape letters: N sentences, R prefixes expanded together, V vocabulary.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, TypeVar

import torch
from torch import Tensor

from scones.errors import SconesError
from scones.ids import END, PAD
from scones.outputs import OutputLayer
from scones.search.frontier import BYTES_A_PREFIX, Prefixes, Stack, Tree
from scones.search.stepping import Hypothesis

T = TypeVar("T")
Limit = Literal["states", "time", "length", "memory"]
_NEVER = float("-inf")
_BYTES_A_LOGIT = 64
"""Of a logit and all that is made of it for the moment, should every child pass."""
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.05}
"""By how much a score may differ from one to another way of computing it."""


class Expander(Protocol):
    """A model as exact search sees it: it keeps keys and values in rows that search names."""

    @property
    def device(self) -> torch.device:
        """Where it computes."""

    @property
    def precision(self) -> torch.dtype:
        """The number format of its products."""

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""

    @property
    def bytes_a_row(self) -> int:
        """The memory that keys and values of a prefix take."""

    def bytes_a_source(self, length: int) -> int:
        """Give the memory that a source of so many tokens takes."""

    def open(self, sources: Sequence[Sequence[int]], rows: int) -> None:
        """Encode sentences, given without their ends, and make room for so many prefixes."""

    def expand(
        self, tokens_R: Tensor, paths_RT: Tensor, depths_R: Tensor, sentences_R: Tensor
    ) -> Tensor:
        """Feed a token to each prefix and give the logits (R, V) of the next.

        `paths` are the rows of all tokens up to this one, whose own row is the last, at `depths`.
        """


@dataclass(frozen=True)
class ExactOptions:
    """What to look for, and how long."""

    n_best: int = 1
    threshold: float | None = None
    """Where given, look for all translations of at least this probability instead."""
    max_states: int = 1_000_000
    """Prefixes expanded, a sentence."""
    max_seconds: float | None = None
    """For all sentences together."""
    sentence_seconds: float | None = None
    """A sentence's share of the time, by its share of the prefixes expanded."""
    max_memory: int | None = None
    """Bytes, for all together; None: what suits the device."""
    width: int | None = None
    """Prefixes expanded together; None: as many as suit the device."""

    def __post_init__(self) -> None:
        if self.n_best < 1:
            raise SconesError(f"n_best must be at least 1, not {self.n_best}.")
        if self.threshold is not None and not 0 < self.threshold <= 1:
            raise SconesError(f"threshold must be above 0 and at most 1, not {self.threshold}.")
        for name in ("max_states", "max_seconds", "sentence_seconds", "max_memory", "width"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise SconesError(f"{name} must be above 0, not {value}.")


@dataclass(frozen=True)
class Certificate:
    """What is known about a result."""

    proved: bool
    """Whether nothing better can exist, or nothing more above the threshold."""
    stopped_by: Limit | None
    """The limit that was hit; None where nothing was left to expand."""
    states: int
    """Prefixes whose next tokens were scored."""
    seconds: float
    """The sentence's share of the time."""
    upper_bound: float
    """No translation has a log-probability above this."""
    number_format: str
    """Of the products that made the logits."""
    beam_log_prob: float | None
    """The score of the beam search that came first; None where it found no translation."""
    search_error: bool | None
    """Whether that missed a better translation, by more than the tolerance."""
    tolerance: float
    empty_log_prob: float | None
    """The score of the empty translation; None where not even that was looked at."""


@dataclass(frozen=True)
class ExactResult:
    """The translations of a sentence, the best first, and what is known about them."""

    hypotheses: list[Hypothesis]
    certificate: Certificate


@dataclass
class _Sentence:
    """What the host knows about a sentence."""

    first: list[Hypothesis]
    """What beam search found."""
    found: dict[tuple[int, ...], Hypothesis]
    best: list[float]
    """A heap of the n best scores."""
    empty: float | None = None
    stopped_by: Limit | None = None


def exact_search(
    expander: Expander,
    output: OutputLayer,
    sources: Sequence[Sequence[int]],
    limits: Sequence[int],
    first: Sequence[list[Hypothesis]],
    options: ExactOptions,
    end: int = END,
    began: float | None = None,
) -> Iterator[tuple[int, ExactResult]]:
    """Search sentences, given as ids without their ends; gives each as soon as it is done.

    `limits` bounds each translation's tokens, its end included. `first` is what a beam search
    found: the bounds to begin with. The time that is limited began at `began` (`time.monotonic`),
    or does now.
    """
    began = time.monotonic() if began is None else began
    deadline = math.inf if options.max_seconds is None else began + options.max_seconds
    memory = options.max_memory or _free_memory(expander.device)
    for load in _loads(expander, sources, memory // 4):
        search = _Search(
            expander,
            output,
            [sources[index] for index in load],
            [limits[index] for index in load],
            [first[index] for index in load],
            options,
            memory,
            deadline,
            end,
        )
        for place, result in search.run():
            yield load[place], result


def in_order(results: Iterator[tuple[int, T]]) -> Iterator[tuple[int, T]]:
    """Give numbered results in the order of their numbers, each as soon as its turn comes."""
    early: dict[int, T] = {}
    turn = 0
    for index, result in results:
        early[index] = result
        while turn in early:
            yield turn, early.pop(turn)
            turn += 1


def _free_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] // 2
    return 2**31


def _loads(
    expander: Expander, sources: Sequence[Sequence[int]], memory: int
) -> Iterator[list[int]]:
    """Divide sentences so that the sources of a load fit into some memory; one always does."""
    load: list[int] = []
    taken = 0
    for index, source in enumerate(sources):
        more = expander.bytes_a_source(len(source) + 1)
        if load and taken + more > memory:
            yield load
            load, taken = [], 0
        load.append(index)
        taken += more
    if load:
        yield load


class _Search:
    """Exact search for sentences whose sources fit into memory together."""

    _WIDTH: ClassVar = {"cpu": 256, "cuda": 2048}
    _LOOK = 8
    """Rounds between two looks for sentences that are done."""

    def __init__(
        self,
        expander: Expander,
        output: OutputLayer,
        sources: Sequence[Sequence[int]],
        limits: list[int],
        first: list[list[Hypothesis]],
        options: ExactOptions,
        memory: int,
        deadline: float,
        end: int,
    ) -> None:
        self._expander, self._output, self._options = expander, output, options
        self._deadline, self._end = deadline, end
        device = expander.device
        self._tolerance = TOLERANCE[expander.precision]
        self._sentences = [_Sentence(found, {}, []) for found in first]
        count, steps = len(sources), max(limits)
        # A quarter of the memory each: sources, prefixes that were expanded, those that wait, and
        # what is computed at the moment.
        share = memory // 4
        rows = share // (expander.bytes_a_row + Tree.bytes_a_row(steps))
        most = min(rows // (2 * steps), share // (_BYTES_A_LOGIT * expander.vocabulary))
        self._width = max(1, min(options.width or self._WIDTH[device.type], most))
        rows = max(steps + 1, min(rows, 8 * steps * self._width))
        expander.open(sources, rows)
        self._tree = Tree(rows, steps, device)
        roots = Prefixes.roots(count, PAD, device)
        self._stack = Stack(roots, max(count, share // BYTES_A_PREFIX))
        self._limits_N = torch.tensor(limits, dtype=torch.int32, device=device)
        bounds = [self._first_bound(found) for found in first]
        self._bounds_N = torch.tensor(bounds, dtype=torch.float64, device=device)
        # What was not looked at cannot score more than this.
        self._left_N = torch.full_like(self._bounds_N, _NEVER)
        self._cut_N = torch.full_like(self._bounds_N, _NEVER)
        self._states_N = torch.zeros(count, dtype=torch.long, device=device)
        self._seconds_N = torch.zeros_like(self._bounds_N)
        self._stopped_N = torch.zeros(count, dtype=torch.bool, device=device)

    def _first_bound(self, found: list[Hypothesis]) -> float:
        if self._options.threshold is not None:
            return math.log(self._options.threshold)
        scores = sorted((h.log_prob or 0.0 for h in found if h.finished), reverse=True)
        if len(scores) < self._options.n_best:
            return _NEVER
        # A little less, so that this search finds them again, with its own scores.
        return scores[self._options.n_best - 1] - self._tolerance

    @torch.inference_mode()
    def run(self) -> Iterator[tuple[int, ExactResult]]:
        """Expand until nothing is left; gives sentences as they are done."""
        pending = set(range(len(self._sentences)))
        rounds = 0
        while len(self._stack):
            begin = time.monotonic()
            if begin >= self._deadline:
                self._stop_all("time")
                break
            prefixes = self._next()
            if len(prefixes):
                self._expand(prefixes)
                self._share_time(prefixes.sentences, time.monotonic() - begin)
            rounds += 1
            if rounds % self._LOOK == 0:
                yield from self._done(pending)
        yield from self._done(pending)

    def _next(self) -> Prefixes:
        """Take prefixes that have to be expanded off the stack."""
        if self._tree.room < self._width:
            self._tree.collect(self._stack.waiting)
        if self._tree.room == 0:
            self._stop_largest()
            return self._stack.pop(0)
        prefixes = self._stack.pop(min(self._width, self._tree.room))
        sentences = prefixes.sentences
        stopped = self._stopped_N[sentences]
        self._left_N.scatter_reduce_(
            0,
            sentences.long(),
            torch.where(stopped, prefixes.scores, _NEVER),
            "amax",
        )
        prefixes = prefixes[~stopped & self._above(prefixes.scores, sentences)]
        return self._within_states(prefixes)

    def _above(self, scores: Tensor, sentences: Tensor) -> Tensor:
        """Say which scores are of interest."""
        bounds = self._bounds_N[sentences]
        return scores > bounds if self._options.threshold is None else scores >= bounds

    def _within_states(self, prefixes: Prefixes) -> Prefixes:
        """Leave out what is beyond the limit of states, and stop those sentences."""
        sentences = prefixes.sentences.long()
        # The number of each among those of its sentence, the best, which is the last, first.
        order = sentences.flip(0).argsort(stable=True)
        sorted_sentences = sentences.flip(0)[order]
        begins = torch.searchsorted(sorted_sentences, sorted_sentences)
        numbers = torch.empty_like(order)
        numbers[order] = torch.arange(len(order), device=order.device) - begins
        allowed = self._states_N[sentences] + numbers.flip(0) < self._options.max_states
        over = ~allowed
        if self._options.sentence_seconds is not None:
            over |= self._seconds_N[sentences] >= self._options.sentence_seconds
        if bool(over.any()):
            for sentence in prefixes.sentences[over].unique().tolist():
                late = self._options.sentence_seconds is not None and (
                    float(self._seconds_N[sentence]) >= self._options.sentence_seconds
                )
                self._stop(sentence, "time" if late else "states")
            self._left_N.scatter_reduce_(0, sentences[over], prefixes.scores[over], "amax")
            prefixes = prefixes[~over]
        return prefixes

    def _expand(self, prefixes: Prefixes) -> None:
        """Score the next tokens of prefixes; keep translations, and put children on the stack."""
        rows_R = self._tree.add(prefixes)
        depths_R = self._tree.depths_P[rows_R]
        sentences_R = prefixes.sentences.long()
        longest = int(depths_R.max()) + 1
        logits_RV = self._expander.expand(
            prefixes.tokens.long(), self._tree.paths_PT[rows_R, :longest], depths_R, sentences_R
        )
        ones = torch.ones_like(sentences_R)
        self._states_N.scatter_add_(0, sentences_R, ones)
        terms_RV = self._output.log_scores(logits_RV)
        self._finish(prefixes, rows_R, depths_R, terms_RV[:, self._end])
        terms_RV[:, self._end] = _NEVER
        self._cut(prefixes, depths_R, terms_RV)
        # Compared in float32 first, a little too kindly, for there are many.
        room_R = self._bounds_N[sentences_R] - prefixes.scores
        room_R = room_R - 1e-6 * (1 + room_R.abs())
        rows, tokens = (terms_RV > room_R.float().unsqueeze(1)).nonzero(as_tuple=True)
        terms = terms_RV[rows, tokens]
        scores = prefixes.scores[rows] + terms.double()
        sentences = prefixes.sentences[rows]
        passing = self._above(scores, sentences).nonzero().squeeze(1)
        passing = passing[scores[passing].argsort(stable=True)]
        children = Prefixes(
            scores[passing],
            terms[passing],
            tokens[passing].int(),
            rows_R[rows[passing]],
            sentences[passing],
        )
        while len(children) and len(self._stack) + len(children) > self._stack.most:
            children = self._stop_largest(children)
        self._stack.push(children)

    def _finish(self, prefixes: Prefixes, rows_R: Tensor, depths_R: Tensor, ends_R: Tensor) -> None:
        """Take note of translations: prefixes whose end of sentence keeps them above the bound."""
        scores_R = prefixes.scores + ends_R.double()
        good_R = self._above(scores_R, prefixes.sentences) | (depths_R == 0)
        places = good_R.nonzero().squeeze(1)
        if len(places) == 0:
            return
        columns = (prefixes.sentences, scores_R, ends_R)
        for sentence, score, end, (tokens, terms) in zip(
            *(column[places].tolist() for column in columns),
            self._tree.read(rows_R[places]),
            strict=True,
        ):
            if not tokens:
                self._sentences[sentence].empty = score
            self._keep(sentence, Hypothesis(tuple(tokens), score, (*terms, end), finished=True))
        changed = sorted(set(prefixes.sentences[places].tolist()))
        bounds = [self._bound(sentence) for sentence in changed]
        self._bounds_N[changed] = torch.tensor(bounds, dtype=torch.float64).to(
            self._bounds_N.device
        )

    def _keep(self, sentence: int, hypothesis: Hypothesis) -> None:
        about, score = self._sentences[sentence], hypothesis.log_prob
        assert score is not None
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

    def _bound(self, sentence: int) -> float:
        about = self._sentences[sentence]
        first = self._first_bound(about.first)
        if self._options.threshold is not None or len(about.best) < self._options.n_best:
            return first
        return max(first, about.best[0])

    def _cut(self, prefixes: Prefixes, depths_R: Tensor, terms_RV: Tensor) -> None:
        """Drop the children of prefixes that are as long as can be; remember how good they were."""
        full_R = depths_R + 2 > self._limits_N[prefixes.sentences]
        best_R = prefixes.scores + terms_RV.amax(dim=1).double()
        self._cut_N.scatter_reduce_(
            0, prefixes.sentences.long(), torch.where(full_R, best_R, _NEVER), "amax"
        )
        terms_RV.masked_fill_(full_R.unsqueeze(1), _NEVER)

    def _share_time(self, sentences: Tensor, seconds: float) -> None:
        share = torch.full((len(sentences),), seconds / len(sentences), dtype=torch.float64)
        self._seconds_N.scatter_add_(0, sentences.long(), share.to(sentences.device))

    def _stop(self, sentence: int, limit: Limit) -> None:
        self._sentences[sentence].stopped_by = limit
        self._stopped_N[sentence] = True

    def _stop_all(self, limit: Limit) -> None:
        waiting = self._stack.waiting
        for sentence in waiting.sentences.unique().tolist():
            if self._sentences[sentence].stopped_by is None:
                self._stop(sentence, limit)
        self._drop_stopped(waiting)
        self._stack.pop(len(self._stack))

    def _stop_largest(self, children: Prefixes | None = None) -> Prefixes:
        """Stop the sentence with the most waiting prefixes, for lack of memory."""
        waiting = self._stack.waiting
        both = [waiting] if children is None else [waiting, children]
        sentences = torch.cat([some.sentences for some in both])
        counts = sentences.long().bincount(minlength=len(self._sentences))
        self._stop(int(counts.argmax()), "memory")
        for some in both:
            self._drop_stopped(some)
        self._stack.keep(~self._stopped_N[waiting.sentences])
        if children is None:
            return waiting[slice(0)]
        return children[~self._stopped_N[children.sentences]]

    def _drop_stopped(self, prefixes: Prefixes) -> None:
        """Remember how good the prefixes of stopped sentences were."""
        stopped = self._stopped_N[prefixes.sentences]
        self._left_N.scatter_reduce_(
            0, prefixes.sentences.long(), torch.where(stopped, prefixes.scores, _NEVER), "amax"
        )

    def _done(self, pending: set[int]) -> Iterator[tuple[int, ExactResult]]:
        """Give the sentences of which no prefix waits any more."""
        waits = self._stack.waiting.sentences.unique().tolist() if len(self._stack) else []
        ready = sorted(pending - set(waits))
        if not ready:
            return
        pending.difference_update(ready)
        columns = (self._left_N, self._cut_N, self._states_N, self._seconds_N, self._bounds_N)
        for sentence, left, cut, states, seconds, bound in zip(
            ready, *(column[ready].tolist() for column in columns), strict=True
        ):
            yield sentence, self._result(sentence, left, cut, states, seconds, bound)

    def _result(
        self, sentence: int, left: float, cut: float, states: int, seconds: float, bound: float
    ) -> ExactResult:
        about, options = self._sentences[sentence], self._options
        ranked = self._ranked(about)
        best = ranked[0].log_prob if ranked and ranked[0].finished else None
        # What was left or cut matters only where it might have passed the bound.
        inclusive = options.threshold is not None
        open_end = max(left, cut)
        proved = not (open_end >= bound if inclusive else open_end > bound)
        if open_end == _NEVER:
            proved = True
        stopped_by = about.stopped_by
        if proved:
            stopped_by = None
        elif stopped_by is None:
            stopped_by = "length"
        known = [score for score in (best, None if proved else open_end) if score is not None]
        ceiling = max(known, default=bound if math.isfinite(bound) else 0.0)
        beam = next((h.log_prob for h in about.first if h.finished), None)
        error = None
        if options.threshold is None and beam is not None and best is not None:
            error = best > beam + self._tolerance
        return ExactResult(
            ranked,
            Certificate(
                proved,
                stopped_by,
                states,
                seconds,
                ceiling,
                str(self._expander.precision).removeprefix("torch."),
                beam,
                error,
                self._tolerance,
                about.empty,
            ),
        )

    def _ranked(self, about: _Sentence) -> list[Hypothesis]:
        """Put what both searches found into order; of the same translation, our score counts."""
        if self._options.threshold is not None:
            return sorted(about.found.values(), key=_falling)
        together = {h.tokens: h for h in about.first if h.finished} | about.found
        if not together:
            return about.first[:1]
        return sorted(together.values(), key=_falling)[: self._options.n_best]


def _falling(hypothesis: Hypothesis) -> float:
    return -(hypothesis.log_prob or 0.0)
