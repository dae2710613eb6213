"""Exact search: the most probable translations, with a proof.

Every token can only lower a score. So a prefix that scores no more than the best translation found
so far need not be looked at, and when no other prefix is left, that translation is the best of all.
Prefixes of many sentences and of all depths are expanded together; their children are weighed
against their sentence's bound where they are made, and those that pass go onto one stack, the best
on top. The same search gives the n best, whose bound is the n-th best found, and all above a
threshold, whose bound is the threshold. Where several translations are the same text in other
pieces, the n best are texts: the bound is the n-th best text.

Shape letters: N sentences, R prefixes expanded together, V vocabulary.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

import torch
from torch import Tensor

from scones.hardware import gpu_path, spare_memory
from scones.model.transformer import Transformer
from scones.outputs import OutputLayer
from scones.search.frontier import (
    BYTES_A_PREFIX,
    ExactOptions,
    ExactResult,
    Limit,
    PooledTransformer,
    Prefixes,
    SearchState,
    Spelling,
    Stack,
    Tree,
)
from scones.search.prefix import Prefixes as Beginnings
from scones.search.searcher import Hypothesis, chunks
from scones.text import END, PAD

T = TypeVar("T")
_NEVER = float("-inf")
_BYTES_A_LOGIT = 64
"""Of a logit and all that is made of it for the moment, should every child pass."""
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.05}
"""By how much a score may differ from one to another way of computing it."""
_TOLERANCE_INT8 = 0.05
"""The same where rounding to int8 makes more of what other lengths of padding change."""


class Expander(Protocol):
    """A model as exact search sees it: it keeps keys and values in rows that search names."""

    device: torch.device
    """Where it computes."""
    precision: torch.dtype
    """The number format of its products."""
    vocabulary: int
    """How many tokens there are."""
    bytes_a_row: int
    """The memory that keys and values of a prefix take, or of a token of a source."""

    def open(self, sources: Sequence[Sequence[int]], rows: int) -> None:
        """Encode sentences, given without their ends, and make room for so many prefixes."""

    def expand(
        self, tokens_R: Tensor, paths_RT: Tensor, depths_R: Tensor, sentences_R: Tensor
    ) -> Tensor:
        """Feed a token to each prefix and give the logits (R, V) of the next.

        `paths` are the rows of all tokens up to this one, whose own row is the last, at `depths`.
        """


def expander_for(model: Transformer, precision: torch.dtype) -> Expander:
    """Decide how a model expands prefixes; a GPU's kernels compute in a format of their own."""
    if not gpu_path(model):
        return PooledTransformer(model)
    from scones.search.gpu import PooledInference

    return PooledInference(model, precision)


def exact_search(
    expander: Expander,
    output: OutputLayer,
    sources: Sequence[Sequence[int]],
    limits: Sequence[int],
    first: Sequence[list[Hypothesis]],
    options: ExactOptions,
    began: float | None = None,
    spelling: Spelling = tuple,
    prefixes: Beginnings = (),
) -> Iterator[tuple[int, ExactResult]]:
    """Search sentences, given as ids without their ends; gives each as soon as it is done.

    `limits` bounds each translation's tokens, its end included. `first` is what a beam search
    found: the bounds to begin with. The time that is limited began at `began` (`time.monotonic`),
    or does now. Of ids whose `spelling` is the same, the best alone count towards the n best.
    Where there are `prefixes`, translations begin with them.
    """
    began = time.monotonic() if began is None else began
    deadline = math.inf if options.max_seconds is None else began + options.max_seconds
    memory = options.max_memory or 2**31
    if options.max_memory is None and expander.device.type == "cuda":
        memory = spare_memory(expander.device)
    held = _held_memory(expander.device)

    def bytes_of(_: int, index: int) -> int:
        return expander.bytes_a_row * (len(sources[index]) + 1)

    columns: tuple[Sequence[Any], ...] = (sources, limits, first, prefixes)
    # The sources of a group share a fifth of the memory; see `_Search` for the rest.
    for group in chunks(range(len(sources)), (bytes_of, memory // 5)):
        theirs = ([column[index] for index in group] if column else [] for column in columns)
        search = _Search(expander, output, options, memory, held, deadline, spelling, *theirs)
        for index, result in search.run():
            yield group[index], result
        del search  # its memory is for the next


def in_order(results: Iterator[tuple[int, T]]) -> Iterator[tuple[int, T]]:
    """Numbered results in the order of their numbers, each as soon as its turn comes."""
    early: dict[int, T] = {}
    turn = 0
    for index, result in results:
        early[index] = result
        while turn in early:
            yield turn, early.pop(turn)
            turn += 1


def _held_memory(device: torch.device) -> int:
    """The memory that PyTorch holds, in use or for later."""
    return torch.cuda.memory_reserved(device) if device.type == "cuda" else 0


class _Search:
    """Exact search for sentences whose sources fit into memory together."""

    _WIDTH: ClassVar = {"cpu": 256, "cuda": 2048}
    _LOOK = 8
    """Rounds between two looks for sentences that are done."""

    def __init__(
        self,
        expander: Expander,
        output: OutputLayer,
        options: ExactOptions,
        memory: int,
        held: int,
        deadline: float,
        spelling: Spelling,
        sources: Sequence[Sequence[int]],
        limits: list[int],
        first: list[list[Hypothesis]],
        prefixes: Beginnings,
    ) -> None:
        self._expander, self._output = expander, output
        self._deadline = deadline
        self._most_held = None if options.max_memory is None else held + options.max_memory
        device, steps = expander.device, max(limits)
        # A fifth of the memory each: sources, prefixes that were expanded, those that wait, what is
        # computed at the moment, and what lies idle between blocks of different sizes.
        share = memory // 5
        rows = share // (expander.bytes_a_row + Tree.bytes_a_row(steps))
        most = min(rows // (2 * steps), share // (_BYTES_A_LOGIT * expander.vocabulary))
        # Prefixes are expanded together to fill the products. More at once than the products need
        # would look at prefixes that a bound found a moment later would have spared.
        self._width = max(1, min(options.width or self._WIDTH[device.type], most))
        rows = max(steps + 1, min(rows, 8 * steps * self._width))
        expander.open(sources, rows)
        self._tree = Tree(rows, steps, device)
        roots = Prefixes.roots(len(sources), PAD, device)
        self._stack = Stack(roots, max(len(sources), share // BYTES_A_PREFIX))
        self._limits_N = torch.tensor(limits, dtype=torch.int32, device=device)
        self._prefixes = prefixes
        fixed = [len(prefix.allowed) if prefix else 0 for prefix in prefixes]
        self._fixed_N = torch.tensor(fixed, dtype=torch.int32, device=device)
        number_format = str(expander.precision).removeprefix("torch.")
        arithmetic = getattr(expander, "arithmetic", number_format)
        tolerance = TOLERANCE[expander.precision]
        if "int8" in arithmetic:
            tolerance = max(tolerance, _TOLERANCE_INT8)
        self._state = SearchState(
            first, options, tolerance, number_format, arithmetic, device, spelling
        )

    @torch.inference_mode()
    def run(self) -> Iterator[tuple[int, ExactResult]]:
        """Expand until nothing is left; gives sentences as they are done."""
        pending = set(range(len(self._state)))
        rounds = 0
        while len(self._stack):
            begin = time.monotonic()
            if begin >= self._deadline:
                self._stop_all("time")
                break
            prefixes = self._next()
            if len(prefixes):
                self._expand(prefixes)
                self._state.count(prefixes.sentences, time.monotonic() - begin)
            # Rounds differ in size, and blocks that fit no more pile up beyond the limit of memory.
            most = self._most_held
            if most is not None and _held_memory(self._expander.device) > most:
                torch.cuda.empty_cache()
            rounds += 1
            if rounds % self._LOOK == 0:
                yield from self._done(pending)
        yield from self._done(pending)

    def _next(self) -> Prefixes:
        """Take prefixes that have to be expanded off the stack."""
        # Rows are freed only when they run short: which are still needed takes a look at all.
        if self._tree.room < self._width:
            self._tree.collect(self._stack.waiting)
        if self._tree.room == 0:
            self._stop_largest()
            return self._stack.pop(0)
        count = min(self._width, self._tree.room, len(self._stack))
        prefixes = self._stack.pop(count)
        prefixes = prefixes[self._matter(prefixes)]
        if 2 * len(prefixes) < count and len(self._stack):
            # Bounds have risen or sentences have stopped: much of what waits does so in vain.
            self._stack.keep(self._matter(self._stack.waiting))
            prefixes = self._stack.pop(count - len(prefixes)).before(prefixes)
        return prefixes[~self._state.beyond_limits(prefixes)]

    def _matter(self, prefixes: Prefixes) -> Tensor:
        """Which prefixes may still lead to something; what was stopped is remembered."""
        stopped = self._state.stopped_N[prefixes.sentences]
        self._state.note_pruned(prefixes, stopped)
        return self._state.passes(prefixes.scores, prefixes.sentences) & ~stopped

    def _expand(self, prefixes: Prefixes) -> None:
        """Score the next tokens of prefixes; keep translations, and put children on the stack."""
        rows_R = self._tree.add(prefixes)
        depths_R = self._tree.depths_P[rows_R]
        longest = int(depths_R.max()) + 1
        logits_RV = self._expander.expand(
            prefixes.tokens.long(),
            self._tree.paths_PT[rows_R, :longest],
            depths_R,
            prefixes.sentences.long(),
        )
        allowed = self._allowed(prefixes, rows_R, depths_R)
        # Translations come before children: they raise the bounds that children have to pass.
        ends_R = self._output.scores_of(logits_RV, torch.full_like(rows_R, END))
        ends_R[[row for row, tokens in allowed.items() if END not in tokens]] = _NEVER
        self._finish(prefixes, rows_R, depths_R, ends_R)
        # A child would be at depth + 1, and its end of sentence one token further.
        full_R = depths_R + 2 > self._limits_N[prefixes.sentences]
        self._note_too_long(prefixes[full_R], logits_RV[full_R])
        children = self._children(prefixes, rows_R, logits_RV, ~full_R, allowed)
        while len(children) and len(self._stack) + len(children) > self._stack.most:
            children = self._stop_largest(children)
        self._stack.push(children)

    def _allowed(
        self, prefixes: Prefixes, rows_R: Tensor, depths_R: Tensor
    ) -> dict[int, tuple[int, ...]]:
        """What may follow those that are still what their sentence has to begin with."""
        if not self._prefixes:
            return {}
        near = (depths_R < self._fixed_N[prefixes.sentences]).nonzero().squeeze(1)
        if len(near) == 0:
            return {}
        sentences, read = prefixes.sentences[near].tolist(), self._tree.read(rows_R[near])
        found = {}
        for row, sentence, (tokens, _) in zip(near.tolist(), sentences, read, strict=True):
            prefix = self._prefixes[sentence]
            if prefix is not None and (some := prefix.after(tokens)) is not None:
                found[row] = some
        return found

    def _children(
        self,
        prefixes: Prefixes,
        rows_R: Tensor,
        logits_RV: Tensor,
        open_R: Tensor,
        allowed: Mapping[int, Sequence[int]],
    ) -> Prefixes:
        """The children that pass their sentence's bound, the best last."""
        # Compared in float32 first, a little too kindly, for there are many.
        room_R = self._state.bounds_N[prefixes.sentences] - prefixes.scores
        room_R = (room_R - 1e-6 * (1 + room_R.abs())).masked_fill(~open_R, math.inf)
        parents, tokens, terms = self._output.above(logits_RV, room_R.float())
        going_on = tokens != END
        for row, some in allowed.items():
            going_on &= (parents != row) | torch.isin(tokens, tokens.new_tensor(some))
        parents, tokens, terms = parents[going_on], tokens[going_on], terms[going_on]
        children = Prefixes(
            prefixes.scores[parents] + terms.double(),
            terms,
            tokens.int(),
            rows_R[parents],
            prefixes.sentences[parents],
        )
        passing = self._state.passes(children.scores, children.sentences).nonzero().squeeze(1)
        return children[passing[children.scores[passing].argsort(stable=True)]]

    def _finish(self, prefixes: Prefixes, rows_R: Tensor, depths_R: Tensor, ends_R: Tensor) -> None:
        """Take note of translations: prefixes whose end of sentence keeps them above the bound."""
        scores_R = prefixes.scores + ends_R.double()
        # The empty translation is told about whatever it scores: certificates report its score.
        good_R = self._state.passes(scores_R, prefixes.sentences) | (depths_R == 0)
        good = (good_R & (ends_R > _NEVER)).nonzero().squeeze(1)
        if len(good) == 0:
            return
        columns = (prefixes.sentences, scores_R, ends_R)
        sentences, scores, ends = (column[good].tolist() for column in columns)
        read = self._tree.read(rows_R[good])
        for sentence, score, end, (tokens, terms) in zip(
            sentences, scores, ends, read, strict=True
        ):
            whole = Hypothesis(tuple(tokens), score, (*terms, end), finished=True)
            self._state.find(sentence, whole)
        self._state.raise_bounds(sorted(set(sentences)))

    def _note_too_long(self, prefixes: Prefixes, logits_RV: Tensor) -> None:
        """Remember how good the children would be of prefixes that are as long as can be."""
        if len(prefixes):
            terms_RV = self._output.log_scores(logits_RV)
            terms_RV[:, END] = _NEVER
            best_R = prefixes.scores + terms_RV.amax(dim=1).double()
            self._state.note_too_long(prefixes.sentences, best_R)

    # What is given up is not forgotten: its best score bounds what the certificate can promise.

    def _stop_all(self, limit: Limit) -> None:
        waiting = self._stack.pop(len(self._stack))
        self._state.stop(waiting.sentences.unique().tolist(), limit)
        self._state.note_pruned(waiting, torch.ones_like(waiting.scores, dtype=torch.bool))

    def _stop_largest(self, children: Prefixes | None = None) -> Prefixes:
        """Stop the sentence with the most waiting prefixes, for lack of memory.

        Gives the children of others.
        """
        waiting = self._stack.waiting
        children = waiting[slice(0)] if children is None else children
        sentences = torch.cat([waiting.sentences, children.sentences])
        largest = int(sentences.long().bincount(minlength=len(self._state)).argmax())
        self._state.stop([largest], "memory")
        for prefixes in (waiting, children):
            self._state.note_pruned(prefixes, prefixes.sentences == largest)
        self._stack.keep(waiting.sentences != largest)
        return children[children.sentences != largest]

    def _done(self, pending: set[int]) -> Iterator[tuple[int, ExactResult]]:
        """The sentences of which no prefix waits any more."""
        waits = self._stack.waiting.sentences.unique().tolist() if len(self._stack) else []
        ready = sorted(pending - set(waits))
        pending.difference_update(ready)
        if ready:
            yield from zip(ready, self._state.results(ready), strict=True)
