"""Tables of IBM Model 3 from their single entries: pruned, renormalised, packed.

An estimator leaves long lists of entries, most of them of next to no probability. Here they become
the arrays of `scones.ibm3.parameters`, and what was cut off is counted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scones.ibm3.options import Cut
from scones.ibm3.parameters import ANY, Distortions, Probs, Translations

Numbers = NDArray[Any]


def pack_translations(
    sources: Numbers, targets: Numbers, probs: Numbers, rows: int, cut: Cut
) -> tuple[Translations, NDArray[np.float64]]:
    """Sort the entries of t into rows; gives also the share that every row has lost.

    The most probable word of a row stays whatever its probability: a row that was seen is not
    empty.
    """
    kept = probs > 0
    sources, targets, probs = sources[kept], targets[kept], probs[kept].astype(np.float64)
    order = np.lexsort((targets, -probs, sources))
    sources, targets, probs = sources[order], targets[order], probs[order]
    before = np.bincount(sources, probs, rows)
    ends = np.cumsum(np.bincount(sources, minlength=rows))
    rank = np.arange(len(sources)) - (ends - np.bincount(sources, minlength=rows))[sources]
    kept = (rank == 0) | ((probs >= cut.threshold * before[sources]) & (rank < cut.best))
    sources, targets, probs = sources[kept], targets[kept], probs[kept]
    after = np.bincount(sources, probs, rows)
    begins = np.concatenate(([0], np.cumsum(np.bincount(sources, minlength=rows))))
    table = Translations(
        begins.astype(np.int64),
        targets.astype(np.int32),
        (probs / after[sources]).astype(np.float32),
    )
    return table, _lost(before, after)


def pack_fertilities(
    sources: Numbers, fertilities: Numbers, probs: Numbers, rows: int, cut: Cut
) -> tuple[Probs, NDArray[np.float64]]:
    """Put the entries of n into a row a word; gives also the share that every row has lost."""
    table = np.zeros((rows, int(fertilities.max(initial=0)) + 1))
    table[sources, fertilities] = probs
    before = table.sum(1)
    best = table == table.max(1, keepdims=True)
    table[(table < cut.threshold * before[:, None]) & ~best] = 0
    after = table.sum(1)
    largest = int(np.flatnonzero(table.any(0)).max(initial=0))
    seen = np.where(after > 0, after, 1)
    packed = (table[:, : largest + 1] / seen[:, None]).astype(np.float32)
    return packed, _lost(before, after)


def pack_distortions(entries: Numbers, probs: Numbers) -> Distortions:
    """Put the entries (i, l, m, j) of d, a row each, into blocks by lengths; no i is 0."""
    kept = probs > 0
    i, source, target, j = entries[kept].astype(np.int64).T
    lengths = (int(source.max(initial=ANY)) + 1, int(target.max(initial=0)) + 1)
    rows = np.zeros(lengths, np.int32)
    np.maximum.at(rows, (source, target), i.astype(np.int32))
    sizes = rows.astype(np.int64) * np.arange(lengths[1])
    begins = np.where(sizes > 0, (np.cumsum(sizes) - sizes.ravel()).reshape(lengths), -1)
    packed = np.zeros(int(sizes.sum()), np.float64)
    places = begins[source, target] + (i - 1) * target
    packed[places + j - 1] = probs[kept]
    sums = np.bincount(places, probs[kept], len(packed) + 1)
    packed[places + j - 1] /= sums[places]
    return Distortions(begins, rows, packed.astype(np.float32), _spread(places, j, packed))


def _spread(row: Numbers, j: Numbers, packed: Numbers) -> float:
    """How much less probable a place is for each step from where a word is expected.

    Steps that get less probable by a factor q, on both sides, are 2q / (1 - q²) long on average;
    that of all rows of the table is looked up, and this solved for q.
    """
    probs = packed[row + j - 1]
    mean = np.bincount(row, probs * j)
    steps = np.bincount(row, probs * np.abs(j - mean[row]))
    step = float(steps[np.unique(row)].mean()) if len(row) else 0.0
    return float(np.clip((np.sqrt(1 + step**2) - 1) / step if step else 0.5, 0.05, 0.95))


def _lost(before: Numbers, after: Numbers) -> NDArray[np.float64]:
    return np.where(before > 0, 1 - after / np.where(before > 0, before, 1), 0.0)
