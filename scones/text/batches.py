"""Batches by token count: pairs of like length together, in an order that each epoch shuffles.

Pairs are sorted by length on both sides, or padding would fill a third of a batch: first into
strips of like target length, inside a strip by source length. Equal lengths stay in random order,
and so do the batches; both depend on the seed and the epoch and on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scones.errors import SconesError
from scones.text import END, PAD
from scones.text.store import Ints, ParallelTokens, Sentences

Lengths = NDArray[Any]
"""The numbers of tokens of many sentences."""

LEAST_FILL = 0.9
"""Where more than a tenth would be padding (small corpora), batches end before they are full."""


@dataclass(frozen=True)
class BatchPlan:
    """The batches of one epoch: `plan[i]` holds the pair numbers of batch i.

    `order` lists every pair once; batch i is `order[starts[i]:ends[i]]`. That takes 8 bytes
    per pair, whatever the corpus.
    """

    order: Ints
    starts: Ints
    ends: Ints
    fill: float
    """Real tokens in padded tokens, both sides together, ends of sentence included."""

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> Ints:
        return self.order[self.starts[index] : self.ends[index]]

    def __iter__(self) -> Iterator[Ints]:
        return (self[index] for index in range(len(self)))


def plan_batches(
    source_lengths: Lengths,
    target_lengths: Lengths,
    max_tokens: int,
    *,
    seed: int,
    epoch: int,
    pool: int = 1_000_000,
) -> BatchPlan:
    """Put every pair into one batch of at most `max_tokens` padded tokens on either side.

    Lengths are without the end of sentence, which is counted here: a batch of n sentences takes
    (longest + 1) × n tokens on each side. A pair that is too long even alone is an error, since
    the limit stands for what fits into memory. `pool` pairs, drawn at random, are sorted at a
    time, which bounds the working memory and costs a large corpus nothing.
    """
    source = np.asarray(source_lengths) + 1
    target = np.asarray(target_lengths) + 1
    _check(source, target, max_tokens)
    random = np.random.default_rng([seed, epoch])
    # Shuffled first and sorted stably after: pairs of equal lengths meet others in each epoch.
    order = random.permutation(len(source))
    starts = []
    for begin in range(0, len(order), pool):
        part = order[begin : begin + pool]
        part[:] = part[_sort(source[part], target[part], max_tokens, random)]
        starts += [begin + cut for cut in _filled_cuts(source[part], target[part], max_tokens)]
    bounds = np.array([*starts, len(order)], dtype=np.int64)
    fill = _fill(source[order], target[order], bounds)
    shuffled = random.permutation(len(starts))
    return BatchPlan(order, bounds[:-1][shuffled], bounds[1:][shuffled], fill)


def pad_batch(tokens: ParallelTokens, indices: NDArray[Any]) -> tuple[Ints, Ints]:
    """The source ids and target ids of some pairs, each ended by 1 and padded with 0."""
    return pad_sentences(tokens.sources, indices), pad_sentences(tokens.targets, indices)


def pad_sentences(sentences: Sentences, indices: NDArray[Any]) -> Ints:
    """The ids of some sentences, each ended by 1 and padded with 0."""
    flat, lengths = sentences.gather(indices)
    width = int(lengths.max(initial=0)) + 1
    ids = np.full((len(lengths), width), PAD, dtype=np.int64)
    ids[np.arange(width) < lengths[:, None]] = flat
    ids[np.arange(len(lengths)), lengths] = END
    return ids


def _check(source: Lengths, target: Lengths, max_tokens: int) -> None:
    longer = np.maximum(source, target)
    if len(longer) and longer.max() > max_tokens:
        worst = int(longer.argmax())
        raise SconesError(
            f"Pair {worst} has {longer[worst]} tokens on one side (end of sentence included), more "
            f"than the {max_tokens} of a batch; allow larger batches, or prepare the store "
            "with a smaller --max-pieces."
        )


def _sort(source: Lengths, target: Lengths, max_tokens: int, random: np.random.Generator) -> Ints:
    """An order of a pool in which neighbours are alike in both lengths.

    With b batches to make, strips and batches in a strip should both grow as √b, so that the two
    lengths have equally little room to differ. The factor is measured: the fill is best and flat
    around it, from 1,000 to 1,000,000 pairs.
    """
    by_target = np.argsort(target, kind="stable")
    batches = max(1.0, float(np.maximum(source, target).sum()) / max_tokens)
    # Strips of equal tokens, not of equal sentences: long sentences vary more and need more room.
    tokens = np.cumsum(target[by_target], dtype=np.float64)
    strips = round(1.5 * np.sqrt(batches))
    # Strips that begin elsewhere each time part even those whose length nobody shares.
    strip = (tokens * (strips / tokens[-1]) + random.random()).astype(np.int64)
    # Every other strip runs backwards, so that a batch across a boundary is no ragged one.
    direction = np.where(strip % 2 == 0, 1, -1)
    return by_target[np.lexsort((source[by_target] * direction, strip))]


def _filled_cuts(source: Lengths, target: Lengths, max_tokens: int) -> list[int]:
    """Where batches begin, with as little cut short as the least fill asks for."""
    cuts: list[int] = []
    # Full batches are the fastest; shorter ones are tried only where full ones hold much padding.
    for least in (0.0, 0.8, 0.85, LEAST_FILL):
        cuts = list(_cuts(source, target, max_tokens, least))
        if _fill(source, target, np.array([*cuts, len(source)], dtype=np.int64)) >= LEAST_FILL:
            break
    return cuts


def _cuts(source: Lengths, target: Lengths, max_tokens: int, least: float) -> Iterator[int]:
    """Where batches begin, each as large as the limits and its own least fill allow."""
    longer = np.maximum(source, target)
    start = 0
    while start < len(longer):
        yield start
        # The longest of a batch is at least its first, so no more sentences than this can fit.
        part = slice(start, start + max_tokens // int(longer[start]))
        widths = [np.maximum.accumulate(lengths[part]) for lengths in (source, target)]
        sizes = np.arange(1, len(widths[0]) + 1)
        fits = np.maximum(*widths) * sizes <= max_tokens
        # A batch ends where it would not fit, or where padding would be too large a part of it.
        real = np.cumsum(source[part] + target[part], dtype=np.int64)
        fits &= real >= least * (widths[0] + widths[1]) * sizes
        # Up to the first sentence that does not fit; the first of all always does.
        start += len(fits) if fits.all() else int(fits.argmin())


def _fill(source: Lengths, target: Lengths, bounds: Ints) -> float:
    if len(source) == 0:
        return 1.0
    sizes = np.diff(bounds)
    padded = sum(
        int((np.maximum.reduceat(lengths, bounds[:-1]) * sizes).sum())
        for lengths in (source, target)
    )
    return int(source.sum() + target.sum()) / padded
