"""What exact search keeps: prefixes that wait, and prefixes that were expanded.

A prefix that waits is a few numbers: its score, its last token and the expanded prefix before it.
An expanded one is a row: of a pool of keys and values that the model keeps, and of the tables here.
It lists the rows of all prefixes before it, so that nobody copies keys or values.

Shape letters: P rows of the pool, R of them expanded together, T positions, F prefixes that wait.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from itertools import accumulate, pairwise
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from scones.model.transformer import (
    Attention,
    Transformer,
    decoder_block,
    prepacked,
    source_mask,
)
from scones.options import option
from scones.search.engine import padded
from scones.search.options import ExactLimits
from scones.search.searcher import Hypothesis, batches_by_length
from scones.text import END

# What exact search is asked for, and what it says about its results.

Limit = Literal["states", "time", "length", "memory"]


@dataclass(frozen=True)
class ExactOptions(ExactLimits):
    """What exact search looks for, and how long."""

    n_best: int = option(1, "Translations per sentence.", least=1)
    threshold: float | None = option(
        None, "All translations of at least this probability, instead.", above=0, most=1
    )
    _: KW_ONLY
    max_memory: int | None = option(
        None, "Bytes, for all together; what suits the device if not given.", above=0
    )
    width: int | None = option(
        None, "Prefixes expanded together; as many as suit the device if not given.", above=0
    )


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
    arithmetic: str = "float32"
    """Of all products: the result is proved for what they give."""


@dataclass(frozen=True)
class ExactResult:
    """The translations of a sentence, the best first, and what is known about them."""

    hypotheses: list[Hypothesis]
    """Down to the n-th text or to the threshold; what spells the same text stands there too."""
    certificate: Certificate


@dataclass
class Prefixes:
    """Prefixes that were not expanded yet."""

    scores: Tensor
    """Log-probabilities, float64."""
    terms: Tensor
    """Log-probabilities of the last tokens alone, float32."""
    tokens: Tensor
    """The last tokens."""
    parents: Tensor
    """The rows of the prefixes before them; -1 where there is none."""
    sentences: Tensor

    @classmethod
    def roots(cls, sentences: int, start: int, device: torch.device) -> Prefixes:
        """The beginning of every sentence; the first lies on top."""
        none = torch.zeros(sentences, dtype=torch.int32, device=device)
        return cls(
            none.double(),
            none.float(),
            none + start,
            none - 1,
            torch.arange(sentences - 1, -1, -1, dtype=torch.int32, device=device),
        )

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, which: Tensor | slice) -> Prefixes:
        if isinstance(which, Tensor) and which.dtype == torch.bool:
            which = which.nonzero().squeeze(1)  # once, and not again for every column
        return Prefixes(*(column[which] for column in self.columns))

    def before(self, others: Prefixes) -> Prefixes:
        """These and others, which come last."""
        both = zip(self.columns, others.columns, strict=True)
        return Prefixes(*(torch.cat(columns) for columns in both))

    @property
    def columns(self) -> list[Tensor]:
        """All of its columns."""
        return [getattr(self, field.name) for field in fields(self)]


BYTES_A_PREFIX = 2 * (8 + 4 + 4 + 4 + 4)
"""Twice what its columns take: the stack is copied when it grows, and when it is thinned out."""


class Stack:
    """Waiting prefixes; the last to come are the first to go, which favours depth."""

    def __init__(self, prefixes: Prefixes, most: int) -> None:
        self._prefixes = prefixes
        self._count = len(prefixes)
        self.most = most
        """How many fit."""

    def __len__(self) -> int:
        return self._count

    @property
    def waiting(self) -> Prefixes:
        """All of them, the last to come last."""
        return self._prefixes[slice(self._count)]

    def pop(self, count: int) -> Prefixes:
        """Take up to so many off the top."""
        begin = max(0, self._count - count)
        taken = self._prefixes[slice(begin, self._count)]
        self._count = begin
        # A later push writes over them.
        return Prefixes(*(column.clone() for column in taken.columns))

    def push(self, prefixes: Prefixes) -> None:
        """Put prefixes on top; there has to be room for them."""
        end = self._count + len(prefixes)
        if end > len(self._prefixes):
            size = min(self.most, max(end, 2 * len(self._prefixes), 4096))
            self._prefixes = Prefixes(
                *(
                    torch.cat([column[: self._count], column.new_empty(size - self._count)])
                    for column in self._prefixes.columns
                )
            )
        for column, new in zip(self._prefixes.columns, prefixes.columns, strict=True):
            column[self._count : end] = new
        self._count = end

    def keep(self, which: Tensor) -> None:
        """Keep those for which a mask over all says so."""
        kept = self.waiting[which]
        self._count = 0
        self.push(kept)


class Tree:
    """Expanded prefixes."""

    def __init__(self, rows: int, steps: int, device: torch.device) -> None:
        self.paths_PT = torch.zeros(rows, steps, dtype=torch.int32, device=device)
        """The rows of the prefixes before each, and then its own."""
        self.depths_P = torch.zeros(rows, dtype=torch.int32, device=device)
        self.tokens_P = torch.zeros(rows, dtype=torch.int32, device=device)
        self.terms_P = torch.zeros(rows, device=device)
        self._free = torch.arange(rows, dtype=torch.int32, device=device)

    @property
    def room(self) -> int:
        """How many rows are free."""
        return len(self._free)

    @staticmethod
    def bytes_a_row(steps: int) -> int:
        return 4 * steps + 4 + 4 + 4 + 4

    def add(self, prefixes: Prefixes) -> Tensor:
        """Prefixes rows, of which enough have to be free."""
        rows_R, self._free = self._free[: len(prefixes)], self._free[len(prefixes) :]
        has_parent = prefixes.parents >= 0
        parents_R = prefixes.parents.clamp(min=0)
        depths_R = torch.where(has_parent, self.depths_P[parents_R] + 1, 0)
        self.paths_PT[rows_R] = self.paths_PT[parents_R]
        self.paths_PT[rows_R, depths_R] = rows_R
        self.depths_P[rows_R] = depths_R
        self.tokens_P[rows_R] = prefixes.tokens
        self.terms_P[rows_R] = prefixes.terms
        return rows_R

    def collect(self, waiting: Prefixes) -> None:
        """Free all rows but those that waiting prefixes continue."""
        rows, steps = self.paths_PT.shape
        needed_P = torch.zeros(rows + 1, dtype=torch.bool, device=self.paths_PT.device)
        needed_P[waiting.parents] = True  # -1, for none, is the last and is not looked at
        parents = needed_P[:rows].nonzero().squeeze(1)
        positions_T = torch.arange(steps, device=parents.device)
        on_path = positions_T <= self.depths_P[parents].unsqueeze(1)
        needed_P[self.paths_PT[parents][on_path]] = True
        self._free = (~needed_P[:rows]).nonzero().squeeze(1).int()

    def read(self, rows_R: Tensor) -> list[tuple[list[int], list[float]]]:
        """The tokens of prefixes, without the start, and their log-probabilities."""
        depths = self.depths_P[rows_R].tolist()
        paths_RT = self.paths_PT[rows_R, : max(depths) + 1]
        tokens, terms = (column[paths_RT].tolist() for column in (self.tokens_P, self.terms_P))
        return [
            (some[1 : depth + 1], their[1 : depth + 1])
            for some, their, depth in zip(tokens, terms, depths, strict=True)
        ]


# A model's half of it: keys and values in rows of the pool.
#
# Shape letters: B sources, S their positions, D model size, H heads, K size of a head.

_ENCODED_TOGETHER = 4096


class PooledTransformer:
    """A Transformer as exact search needs it, on a CPU or wherever there are no kernels.

    It keeps keys and values of every prefix once, in rows of a pool. A prefix reads those of the
    prefixes before it where they lie: the rows are gathered for the moment of attending.
    """

    def __init__(self, model: Transformer) -> None:
        self._model = model = prepacked(model)
        self.device = model.device
        self.precision = model.output_bias.dtype if model.head is None else model.head.precision
        self.arithmetic = model.arithmetic
        config = model.config
        self.vocabulary = config.vocabulary
        self._layers = list(model.decoder_layers())
        self.bytes_a_row = 2 * config.size * len(self._layers) * model.output_bias.itemsize
        self._pools_P2D: list[Tensor] = []
        self._memories_S2D: list[Tensor] = []
        self._spans: list[slice] = []
        """Where each source lies in them."""

    @torch.inference_mode()
    def open(self, sources: Sequence[Sequence[int]], rows: int) -> None:
        """Encode sentences and make room for so many prefixes."""
        width = 2 * self._model.config.size
        self._pools_P2D, self._memories_S2D = [], []  # before anything new takes their place
        self._pools_P2D = [self._model.output_bias.new_empty(rows, width) for _ in self._layers]
        lengths = [len(source) + 1 for source in sources]
        self._spans = [slice(*span) for span in pairwise([0, *accumulate(lengths)])]
        known = self._model.encoded or {}
        found = [known.get((*source, END)) for source in sources]
        unknown = [index for index, states in enumerate(found) if states is None]
        for batch in batches_by_length([lengths[index] for index in unknown], _ENCODED_TOGETHER):
            indices = [unknown[number] for number in batch]
            source_BS = padded([sources[index] for index in indices], self.device)
            memory_BSD = self._model.encode(source_BS, source_mask(source_BS))
            for index, states_SD in zip(indices, memory_BSD, strict=True):
                found[index] = states_SD[: lengths[index]]
        memory_SD = torch.cat([states for states in found if states is not None])
        self._memories_S2D = [layer.cross.inputs(memory_SD) for layer in self._layers]

    def expand(
        self, tokens_R: Tensor, paths_RT: Tensor, depths_R: Tensor, sentences_R: Tensor
    ) -> Tensor:
        """Feed a token to each prefix and give the logits (R, V) of the next."""
        model = self._model
        stream = model.stream(model.embed_target(tokens_R) + model.positions[depths_R])
        rows = PooledRows(paths_RT, depths_R, sentences_R)
        for layer, pool, memory in zip(
            self._layers, self._pools_P2D, self._memories_S2D, strict=True
        ):
            decoder_block(layer, stream, PooledTarget(rows, pool, memory, self._spans))
        return model.logits(stream.normed(model.decoder_norm))


class PooledRows:
    """Where prefixes lie, the same in every layer."""

    def __init__(self, paths_RT: Tensor, depths_R: Tensor, sentences_R: Tensor) -> None:
        self.own_R = paths_RT.gather(1, depths_R.long().unsqueeze(1)).squeeze(1)
        positions_T = torch.arange(paths_RT.size(1), device=paths_RT.device)
        self.real_RT = positions_T <= depths_R.unsqueeze(1)
        self.paths_RT = paths_RT.masked_fill(~self.real_RT, 0)
        # Those that share a source attend to it together.
        self.order_R = sentences_R.argsort(stable=True)
        groups = sentences_R[self.order_R].unique_consecutive(return_counts=True)
        self.sources, self.counts = (numbers.tolist() for numbers in groups)


@dataclass
class PooledTarget:
    """The last positions of prefixes, over the rows on their paths through the pool."""

    rows: PooledRows
    pool_P2D: Tensor
    memory_S2D: Tensor
    spans: list[slice]

    def itself(self, attention: Attention, x_RD: Tensor) -> Tensor:
        size, rows = x_RD.size(1), self.rows
        queries_RD, new_R2D = attention.inputs(x_RD).split((size, 2 * size), dim=1)
        self.pool_P2D[rows.own_R] = new_R2D
        heads = (2, attention.heads, -1)
        keys, values = self.pool_P2D[rows.paths_RT].unflatten(2, heads).permute(2, 0, 3, 1, 4)
        mixed_RH1K = functional.scaled_dot_product_attention(
            queries_RD.unflatten(1, (attention.heads, 1, -1)),
            keys,
            values,
            attn_mask=rows.real_RT[:, None, None, :],
        )
        return mixed_RH1K.flatten(1)

    def source(self, attention: Attention, x_RD: Tensor) -> Tensor:
        rows = self.rows
        queries_RD = attention.queries(x_RD)[rows.order_R]
        mixed_RD = torch.empty_like(queries_RD)
        mixed_RD[rows.order_R] = torch.cat(
            [
                self._attend_together(queries, self.memory_S2D[self.spans[source]], attention.heads)
                for source, queries in zip(rows.sources, queries_RD.split(rows.counts), strict=True)
            ]
        )
        return mixed_RD

    def _attend_together(self, queries_rD: Tensor, memory_s2D: Tensor, heads: int) -> Tensor:
        """Let prefixes of one sentence attend to its source."""
        queries_HrK = queries_rD.unflatten(1, (heads, -1)).transpose(0, 1)
        keys_HsK, values_HsK = memory_s2D.unflatten(1, (2, heads, -1)).permute(1, 2, 0, 3)
        mixed_HrK = functional.scaled_dot_product_attention(
            queries_HrK[None], keys_HsK[None], values_HsK[None]
        )[0]
        return mixed_HrK.transpose(0, 1).flatten(1)


# What exact search knows about its sentences: bounds, what was found, what was left.
#
# Numbers that every round needs are on the device, one per sentence; translations are on the host.
#
# Shape letters: N sentences, R prefixes.

_NEVER = float("-inf")
Spelling = Callable[[tuple[int, ...]], Hashable]
"""What tokens spell, such as their text: those that spell the same are one translation."""


@dataclass
class _Sentence:
    first: list[Hypothesis]
    """What beam search found."""
    found: dict[tuple[int, ...], Hypothesis] = field(default_factory=dict)
    best: dict[Hashable, float] = field(default_factory=dict)
    """The scores of the n best texts, each that of its best tokens."""
    empty: float | None = None
    stopped_by: Limit | None = None


class SearchState:
    """Bounds, counts and translations of every sentence of a search."""

    def __init__(
        self,
        first: Sequence[list[Hypothesis]],
        options: ExactOptions,
        tolerance: float,
        number_format: str,
        arithmetic: str,
        device: torch.device,
        spelling: Spelling,
    ) -> None:
        self._options = options
        self._tolerance = tolerance
        self._number_format, self._arithmetic = number_format, arithmetic
        self._spelling = spelling
        self._sentences = [_Sentence(found) for found in first]
        for about in self._sentences:
            for one in about.first:
                if one.finished:
                    # A little less, so that this search finds it again, with its own score.
                    self._weigh(about, one.tokens, (one.log_prob or 0.0) - tolerance)
        bounds = [self._bound(about) for about in self._sentences]
        self.bounds_N = torch.tensor(bounds, dtype=torch.float64, device=device)
        """What has to be passed: scores below cannot matter."""
        self.stopped_N = torch.zeros(len(bounds), dtype=torch.bool, device=device)
        self._states_N = torch.zeros(len(bounds), dtype=torch.long, device=device)
        self._seconds_N = torch.zeros_like(self.bounds_N)
        self._pruned_N = torch.full_like(self.bounds_N, _NEVER)
        """The best score of what was not looked at."""
        self._too_long_N = torch.full_like(self.bounds_N, _NEVER)
        """The best score of what was too long."""

    def __len__(self) -> int:
        return len(self._sentences)

    def _weigh(self, about: _Sentence, tokens: tuple[int, ...], score: float) -> None:
        """Let a translation count for its sentence's bound."""
        text = self._spelling(tokens)
        about.best[text] = max(score, about.best.get(text, score))

    def _bound(self, about: _Sentence) -> float:
        if self._options.threshold is not None:
            return math.log(self._options.threshold)
        # Of texts: if one that was found twice counted twice, another would be missed.
        ranked = sorted(about.best.items(), key=lambda one: one[1], reverse=True)
        about.best = dict(ranked[: self._options.n_best])
        return min(about.best.values()) if len(about.best) == self._options.n_best else _NEVER

    def passes(self, scores: Tensor, sentences: Tensor) -> Tensor:
        """Which scores are of interest."""
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
        about, score = self._sentences[sentence], hypothesis.log_prob
        assert score is not None
        if not hypothesis.tokens:
            about.empty = score
        if self._options.threshold is not None:
            if score >= math.log(self._options.threshold):
                about.found[hypothesis.tokens] = hypothesis
            return
        about.found[hypothesis.tokens] = hypothesis
        self._weigh(about, hypothesis.tokens, score)

    def raise_bounds(self, sentences: list[int]) -> None:
        """Let the bounds of sentences follow what was found."""
        bounds = [self._bound(self._sentences[sentence]) for sentence in sentences]
        self.bounds_N[sentences] = self.bounds_N.new_tensor(bounds)

    def beyond_limits(self, prefixes: Prefixes) -> Tensor:
        """Which prefixes their sentences may not expand any more, and stop those sentences."""
        sentences = prefixes.sentences.long()
        # The number of each among those of its sentence, the best, which is the last, first.
        order = sentences.flip(0).argsort(stable=True)
        in_order = sentences.flip(0)[order]
        numbers = torch.empty_like(order)
        ranks = torch.arange(len(order), device=order.device)
        numbers[order] = ranks - torch.searchsorted(in_order, in_order)
        over = self._states_N[sentences] + numbers.flip(0) >= self._options.max_states
        late = torch.zeros_like(over)
        if self._options.sentence_seconds is not None:
            late = self._seconds_N[sentences] >= self._options.sentence_seconds
        beyond = over | late
        if bool(beyond.any()):
            self.stop(sentences[late].unique().tolist(), "time")
            self.stop(sentences[over & ~late].unique().tolist(), "states")
            self.note_pruned(prefixes, beyond)
        return beyond

    def stop(self, sentences: list[int], limit: Limit) -> None:
        """Let sentences end here, because of a limit."""
        for sentence in sentences:
            if self._sentences[sentence].stopped_by is None:
                self._sentences[sentence].stopped_by = limit
        self.stopped_N[sentences] = True

    def note_pruned(self, prefixes: Prefixes, which: Tensor) -> None:
        """Remember how good prefixes were that will not be looked at."""
        _raise(self._pruned_N, prefixes.sentences, torch.where(which, prefixes.scores, _NEVER))

    def note_too_long(self, sentences: Tensor, scores: Tensor) -> None:
        """Remember how good prefixes were that were too long."""
        _raise(self._too_long_N, sentences, scores)

    # In the end.

    def results(self, sentences: list[int]) -> list[ExactResult]:
        columns = (self._pruned_N, self._too_long_N, self._states_N, self._seconds_N, self.bounds_N)
        numbers = zip(*(column[sentences].tolist() for column in columns), strict=True)
        return [
            self._result(self._sentences[sentence], max(pruned, too_long), states, seconds, bound)
            for sentence, (pruned, too_long, states, seconds, bound) in zip(
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
            arithmetic=self._arithmetic,
            beam_log_prob=beam,
            search_error=error,
            tolerance=self._tolerance,
            empty_log_prob=about.empty,
        )
        return ExactResult(ranked, certificate)

    def _ranked(self, about: _Sentence) -> list[Hypothesis]:
        """Put what both searches found into order; of the same tokens, our score counts."""
        found = about.found
        if self._options.threshold is None:
            found = {h.tokens: h for h in about.first if h.finished} | found
            if not found:
                return about.first[:1]
        ranked = sorted(found.values(), key=lambda one: one.log_prob or 0.0, reverse=True)
        if self._options.threshold is not None:
            return ranked
        listed: list[Hypothesis] = []
        texts: set[Hashable] = set()
        for one in ranked:
            if len(texts) == self._options.n_best:
                break
            listed.append(one)
            texts.add(self._spelling(one.tokens))
        return listed


def _raise(numbers_N: Tensor, sentences: Tensor, scores: Tensor) -> None:
    numbers_N.scatter_reduce_(0, sentences.long(), scores, "amax")
