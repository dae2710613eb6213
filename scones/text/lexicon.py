"""Which target pieces go with a source piece: IBM Model 1, learnt from a corpus in a few passes.

Model 1 lets every target piece of a sentence pair be explained by one of the source pieces, each
with its share, and adds the shares up over the corpus. Sources compete, so that "Haus" gets
"house" and not "the", which the articles explain. At the same size its lists hold more of unseen
translations than those by Dice's coefficient or mutual information (`benchmarks/shortlist.py`
measures what they hold).

Shape letters: P pairs of a source and a target piece that stand in one sentence pair somewhere,
X such meetings in a chunk of the corpus.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scones.ids import END
from scones.text.store import ParallelTokens, Sentences

_ITERATIONS = 3
_CHUNK = 10_000  # sentence pairs; bounds the memory of their meetings


@dataclass(frozen=True)
class Lexicon:
    """How often, for one occurrence of a source piece, a target piece is its translation."""

    vocabulary: int
    keys: NDArray[np.int64]
    """(P,) source * vocabulary + target, ascending."""
    rates: NDArray[np.float64]
    """(P,) occurrences of the target that the source explains, for each one of the source."""

    def best(self, source: int, count: int) -> NDArray[np.int64]:
        """Give the `count` target pieces that go best with a source piece, in no order."""
        begin, end = np.searchsorted(
            self.keys, [source * self.vocabulary, (source + 1) * self.vocabulary]
        )
        targets = self.keys[begin:end] - source * self.vocabulary
        if len(targets) <= count:
            return targets
        return targets[np.argpartition(-self.rates[begin:end], count)[:count]]


def learn_lexicon(
    pairs: ParallelTokens, vocabulary: int, ignored: NDArray[Any], max_pairs: int
) -> Lexicon:
    """Learn from at most `max_pairs` sentence pairs, taken evenly from the whole corpus.

    Target pieces among `ignored` are left out; leaving out the few hundred that stand everywhere
    saves most of the work. Memory grows with the number of pairs P, not with the corpus.
    """
    chosen = np.linspace(0, len(pairs) - 1, min(len(pairs), max_pairs)).astype(np.int64)
    chunks = [chosen[begin : begin + _CHUNK] for begin in range(0, len(chosen), _CHUNK)]
    wanted = np.ones(vocabulary, dtype=bool)
    wanted[ignored] = False

    def meetings() -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        return (_meetings(pairs, chunk, wanted) for chunk in chunks)

    keys = _distinct(np.concatenate([_distinct(keys_X) for keys_X, _ in meetings()]))
    occurrences = np.zeros(vocabulary)
    for chunk in chunks:
        occurrences += np.bincount(_types(pairs.sources, chunk, END)[1], minlength=vocabulary)

    rates = np.ones(len(keys))  # at first every source piece of a sentence has the same share
    for _ in range(_ITERATIONS):
        explained = np.zeros(len(keys))
        for keys_X, target_X in meetings():
            place_X = np.searchsorted(keys, keys_X)
            share_X = rates[place_X]
            share_X /= np.bincount(target_X, share_X)[target_X]
            np.add.at(explained, place_X, share_X)
        rates = explained / occurrences[keys // vocabulary]
    return Lexicon(vocabulary, keys, rates)


def _meetings(
    pairs: ParallelTokens, chunk: NDArray[np.int64], wanted: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give the key of every source piece with every target piece of its sentence pair.

    And a number for that target piece, by which its shares are added up. Meetings of one source
    piece stand together: looking up their keys is then twice as fast.
    """
    sentences, sources = _types(pairs.sources, chunk, END)
    target_sentences, targets = _types(pairs.targets, chunk)
    kept = wanted[targets]
    target_sentences, targets = target_sentences[kept], targets[kept]
    order = np.argsort(sources, kind="stable")
    sentences, sources = sentences[order], sources[order]

    begins = np.searchsorted(target_sentences, np.arange(len(chunk) + 1))
    counts = np.diff(begins)[sentences]
    before = np.cumsum(counts) - counts
    target_X = np.repeat(begins[sentences] - before, counts) + np.arange(counts.sum())
    return np.repeat(sources, counts) * len(wanted) + targets[target_X], target_X


def _types(
    side: Sentences, chunk: NDArray[np.int64], also: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give the different pieces of every sentence, as (sentence number, piece), ascending.

    `also` is one more piece of every sentence: the end of the source explains what no word does.
    """
    tokens, lengths = side.gather(chunk)
    numbers = np.repeat(np.arange(len(chunk)), lengths)
    if also is not None:
        numbers = np.concatenate([numbers, np.arange(len(chunk))])
        tokens = np.concatenate([tokens, np.full(len(chunk), also, tokens.dtype)])
    width = int(tokens.max(initial=0)) + 1
    both = _distinct(numbers * width + tokens)
    return both // width, both % width


def _distinct(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give the different numbers, ascending; np.unique now hashes, which takes far longer here."""
    ordered = np.sort(numbers)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]
