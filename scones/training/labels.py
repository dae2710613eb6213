"""What a batch is told beside its targets: other right continuations, and known wrong ones.

The mathematics is in docs/several.md. Every label stands at a true prefix, so that nothing but the
output layer computes more: at the place where another reference parts from this one its next token
is right too, and where a spoilt translation parts from it, its next token is wrong. A word that is
dropped, or changes places with the next, parts where it should stand, by the first piece of a word
behind it; one that is doubled, just behind it, by its own first piece again.

A word begins with a piece that begins with ▁. Punctuation marks stand for themselves: a word may be
dropped before one, but no mark is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray

from scones.errors import SconesError
from scones.outputs import Labels
from scones.text import END
from scones.text.batches import pad_sentences
from scones.text.store import Ints, ParallelTokens, Sentences, TokenStore, same_number, sentences
from scones.training.options import TrainOptions

Places = tuple[Ints, Ints]
"""Positions in the joined targets of a batch, and a token for each."""

Draw = Callable[[int, Ints], NDArray[np.uint64]]
"""A number for each of some positions, other ones for every kind."""

_NEGATIONS = {
    "de": ["▁nicht", "▁kein", "▁keine", "▁nie"],
    "en": ["▁not", "▁no", "▁never"],
    "fi": ["▁ei", "▁en", "▁eivät"],
    "lt": ["▁ne", "▁nėra", "▁niekada"],
}
_SKIPPED = (1, 2)
"""How many words are dropped at a time."""


@dataclass(frozen=True)
class LabelledTokens(ParallelTokens):
    """Training pairs that make labels for their batches."""

    references: References | None = None
    spoilers: Spoilers | None = None
    mistakes: Mistakes | None = None
    weight: float = 0.0
    """What a wrong token counts; any other token that is not right counts α."""
    omissions: Omissions | None = None

    def told(self, indices: Ints, draw: int) -> tuple[ParallelTokens, Ints, Labels]:
        """The labels of some pairs, and the pairs with what has to be read for labels alone."""
        labels = self.labels(indices)
        if self.omissions is None:
            return self, indices, labels
        return self.omissions.added(self, indices, draw, labels)

    def labels(self, indices: Ints) -> Labels:
        """The labels of some pairs, whose targets stand one behind another, each with its end."""
        targets_N, starts = joined(self.targets, indices)
        right = [] if self.references is None else self.references(indices, starts)
        wrong = [] if self.spoilers is None else [*self.spoilers(indices, targets_N, starts)]
        wrong += [] if self.mistakes is None else self.mistakes(indices, starts)
        # A place and a token as one number: each once, targets never, what is right never wrong.
        own = _as_numbers(np.arange(len(targets_N)), targets_N)
        right_K = np.setdiff1d(_numbers(right), own)
        wrong_K = np.setdiff1d(_numbers(wrong), np.union1d(right_K, own))
        rows, tokens = np.divmod(np.concatenate([right_K, wrong_K]), _TOKENS)
        is_right = (np.arange(len(rows)) < len(right_K)).astype(np.float32)
        return Labels(
            torch.from_numpy(rows),
            torch.from_numpy(tokens),
            torch.from_numpy(is_right),
            torch.from_numpy((1 - is_right) * np.float32(self.weight)),
        )


def labelled(store: TokenStore, options: TrainOptions) -> ParallelTokens:
    """The training pairs of a store, with labels where the options ask for any."""
    tokens = store.split("train")
    if not options.labels:
        return tokens
    return LabelledTokens(
        tokens.sources,
        tokens.targets,
        tokens.groups,
        None if options.references is None else References(store),
        None if options.negatives is None else Spoilers(store, options.seed),
        None if options.mistakes is None else Mistakes(options.mistakes, store),
        options.negatives or 0.0,
        None if options.omissions is None else Omissions(store, options.omissions, options.seed),
    )


_TOKENS = 1 << 32


def _as_numbers(rows: Ints, tokens: Ints) -> Ints:
    return rows.astype(np.int64) * _TOKENS + tokens


def _numbers(places: list[Places]) -> Ints:
    return np.concatenate([np.zeros(0, np.int64), *(_as_numbers(*one) for one in places)])


def joined(targets: Sentences, indices: Ints) -> tuple[Ints, Ints]:
    """Targets one behind another, each with its end, and where each begins."""
    tokens, lengths = targets.gather(indices)
    ends = np.cumsum(lengths)
    return np.insert(tokens.astype(np.int64), ends, END), ends - lengths + np.arange(len(lengths))


class References:
    """The next tokens of a source's other references, where they part from this one."""

    def __init__(self, store: TokenStore) -> None:
        tokens = store.split("train")
        if tokens.groups is None:
            raise SconesError(
                f"{store.path} does not say which pairs have the same source; prepare it again "
                "with --group-sources."
            )
        self._targets = tokens.targets
        self._groups = tokens.groups
        self._sizes = np.bincount(tokens.groups)
        self._begins = np.cumsum(np.insert(self._sizes, 0, 0))
        self._pairs = Sentences(np.argsort(tokens.groups, kind="stable"), self._begins)
        """By the number of a source, instead of tokens."""
        both = np.stack([tokens.groups.astype(np.int64), same_number(tokens.targets)])
        self.different = np.bincount(np.unique(both, axis=1)[0])[tokens.groups]
        """How many different references the source of each pair has."""

    def epoch(self, seed: int, epoch: int) -> Ints:
        """The pairs of an epoch: every source once, with one of its references, drawn anew.

        So a source counts the same however many references it has, and a prefix that they share is
        not learnt once for each. One whose pairs stand there several times comes as often.
        """
        keys = np.random.default_rng([seed, epoch, 1]).random(len(self._groups))
        order = np.lexsort((keys, self._groups))
        groups = self._groups[order]
        ranks = np.arange(len(order)) - self._begins[groups]
        return np.sort(order[ranks * self.different[order] < self._sizes[groups]])

    def others(self, indices: Ints) -> tuple[Ints, Ints]:
        """The pairs with the sources of these, themselves among them, and whose each is."""
        pairs, sizes = self._pairs.gather(self._groups[indices])
        return pairs, np.repeat(np.arange(len(indices)), sizes)

    def __call__(self, indices: Ints, starts: Ints) -> list[Places]:
        # One place for each other reference: before it both say the same, behind it this one's
        # prefix is no prefix of the other.
        others, owners = self.others(indices)
        both = pad_sentences(self._targets, np.concatenate([indices[owners], others]))
        own, other = np.split(both, 2)
        parting = (own != other).argmax(axis=1)
        differs = (own != other).any(axis=1)
        tokens = other[np.arange(len(other)), parting]
        return [((starts[owners] + parting)[differs], tokens[differs])]


class Spoilers:
    """What would be wrong: words dropped, doubled, swapped, inserted or changed, and wrong ends.

    What is drawn follows from the seed, the pair and the place in it alone.
    """

    def __init__(self, store: TokenStore, seed: int) -> None:
        self._targets = store.split("train").targets
        self._seed = seed
        pieces = store.subwords.pieces()
        texts = [piece.lstrip("▁") for piece in pieces]
        starting = np.array([piece.startswith("▁") for piece in pieces])
        said = np.array([any(map(str.isalnum, text)) for text in texts])
        self._word = starting & (said | np.array([not text for text in texts]))
        """Whether a piece begins a word."""
        self._mark = ~said & ~self._word
        self._mark[END] = True
        number = np.array([any(map(str.isdigit, text)) and "<" not in text for text in texts])
        name = np.array([text[:1].isupper() for text in texts]) & self._word
        kinds = (number & starting, number & ~starting, name & ~number)
        self._kinds = [(kind, np.flatnonzero(kind)) for kind in kinds]
        negations = _NEGATIONS.get(store.target_language, [])
        self._negations = np.flatnonzero(np.isin(pieces, negations))

    def __call__(self, indices: Ints, targets_N: Ints, starts: Ints) -> Iterator[Places]:
        sentences_N = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(targets_N))))
        places_N = np.arange(len(targets_N)) - starts[sentences_N]

        def drawn(kind: int, rows: Ints) -> NDArray[np.uint64]:
            return _hashed(self._seed, kind, indices[sentences_N[rows]], places_N[rows])

        word_N = self._word[targets_N]
        heads = np.flatnonzero(word_N | self._mark[targets_N])
        words = heads[word_N[heads]]
        for skipped in _SKIPPED:
            here, later = heads[:-skipped], heads[skipped:]
            fits = word_N[here] & (sentences_N[here] == sentences_N[later])
            yield here[fits], targets_N[later[fits]]  # dropped, or swapped
        here, later = heads[:-1], heads[1:]  # of a word, if only the end
        yield later[word_N[here]], targets_N[here[word_N[here]]]  # doubled
        yield words, np.full(len(words), END)  # ended too early
        yield from self._inserted(heads, words, drawn)
        for number, (kind, choices) in enumerate(self._kinds):
            if len(choices) > 1:
                rows = np.flatnonzero(kind[targets_N] & (places_N > 0))
                others = 1 + (drawn(number, rows) % np.uint64(len(choices) - 1)).astype(np.int64)
                own = np.searchsorted(choices, targets_N[rows])
                yield rows, choices[(own + others) % len(choices)]

    def a_word(
        self, indices: Ints, targets_N: Ints, starts: Ints, draw: int
    ) -> tuple[Ints, Ints, Ints]:
        """One of several words in every fourth sentence: whose, where it begins and ends."""
        heads = np.flatnonzero(self._word[targets_N] | self._mark[targets_N])
        words = np.flatnonzero(self._word[targets_N[heads]])
        first = np.searchsorted(heads[words], starts)
        counts = np.diff(np.append(first, len(words)))
        draws = _hashed(self._seed, 20, indices, np.full_like(indices, draw))
        rows = np.flatnonzero((draws % np.uint64(4) == 0) & (counts > 1))
        which = (draws[rows] >> np.uint64(2)) % counts[rows].astype(np.uint64)
        chosen = words[first[rows] + which.astype(np.int64)]
        return rows, heads[chosen], heads[chosen + 1]

    def _inserted(self, heads: Ints, words: Ints, drawn: Draw) -> Iterator[Places]:
        """Any word at all, as often as it is said, also behind the end; and a negation."""
        ids = self._targets.drawn(drawn(10, heads))
        yield heads[self._word[ids]], ids[self._word[ids]]
        if len(self._negations):
            some = words[drawn(11, words) % np.uint64(4) == 0]
            yield some, self._negations[drawn(12, some) % np.uint64(len(self._negations))]


class Omissions:
    """References that lack one of their words: whatever they say, they are not whole at their end.

    Only the end can tell. Where the word should stand another may be right too, and what follows
    is right as far as it goes: nothing else is said of such a sentence.
    """

    def __init__(self, store: TokenStore, weight: float, seed: int) -> None:
        self._weight = weight
        self._spoilers = Spoilers(store, seed)
        grouped = store.split("train").groups is not None
        self._references = References(store) if grouped else None

    def added(
        self, tokens: ParallelTokens, indices: Ints, draw: int, labels: Labels
    ) -> tuple[ParallelTokens, Ints, Labels]:
        """Put them behind the pairs of a batch, with a label at the end of each."""
        targets_N, starts = joined(tokens.targets, indices)
        rows, begins, ends = self._spoilers.a_word(indices, targets_N, starts, draw)
        whole = [tokens.targets[pair] for pair in indices]
        lacking = [
            np.delete(whole[row], slice(begin - starts[row], end - starts[row]))
            for row, begin, end in zip(rows, begins, ends, strict=True)
        ]
        wrong = self._wrong(tokens.targets, indices[rows], lacking)
        lacking = [target for target, is_wrong in zip(lacking, wrong, strict=True) if is_wrong]
        targets = sentences([*whole, *lacking])
        sources = sentences([tokens.sources[pair] for pair in [*indices, *indices[rows[wrong]]]])
        ends_K = np.cumsum(targets.lengths + 1)[len(indices) :] - 1
        pairs = ParallelTokens(sources, targets)
        return pairs, np.arange(len(pairs)), self._labelled(labels, torch.from_numpy(ends_K))

    def _wrong(self, targets: Sentences, pairs: Ints, lacking: list[Ints]) -> NDArray[np.bool_]:
        """Which of these no other reference of their source says."""
        wrong = np.ones(len(pairs), np.bool_)
        if self._references is None:
            return wrong
        for place in np.flatnonzero(self._references.different[pairs] > 1):
            others, _ = self._references.others(pairs[place : place + 1])
            wrong[place] = not any(np.array_equal(lacking[place], targets[pair]) for pair in others)
        return wrong

    def _labelled(self, labels: Labels, ends_K: torch.Tensor) -> Labels:
        """Tell of the ends: nothing else counts there, so that no α is taken off."""
        zeros_K = torch.zeros(len(ends_K))
        ends = (ends_K, torch.full_like(ends_K, END), zeros_K, zeros_K + self._weight, zeros_K)
        ones_K = torch.ones(len(labels.rows_K))
        known = (labels.rows_K, labels.tokens_K, labels.right_K, labels.wrong_K, ones_K)
        return Labels(*map(torch.cat, zip(known, ends, strict=True)))


UNREADABLE = (OSError, ValueError, KeyError, EOFError, BadZipFile)


class Mistakes:
    """What a model once took for right, and no reference says (`scones mine`)."""

    @staticmethod
    def read(path: Path) -> tuple[str, list[Ints]]:
        """The digest of the store that a file is for, and its pairs, places and tokens."""
        with np.load(path, allow_pickle=False) as file:
            parts = [file[name].astype(np.int64) for name in ("pairs", "places", "tokens")]
            return str(file["store"]), parts

    def __init__(self, path: Path, store: TokenStore) -> None:
        try:
            digest, parts = self.read(path)
        except UNREADABLE as problem:
            raise SconesError(
                f"{path} cannot be read ({problem}); make it with `scones mine {store.path}`."
            ) from None
        if digest != store.digest:
            raise SconesError(
                f"{path} was made for another store than {store.path}; make it again with "
                f"`scones mine {store.path}`."
            )
        self._pairs, self._places, self._tokens = parts

    def __call__(self, indices: Ints, starts: Ints) -> list[Places]:
        first, last = (np.searchsorted(self._pairs, indices, side) for side in ("left", "right"))
        owners = np.repeat(np.arange(len(indices)), last - first)
        chosen = np.arange(len(owners)) + np.repeat(last - np.cumsum(last - first), last - first)
        return [(starts[owners] + self._places[chosen], self._tokens[chosen])]


def _hashed(seed: int, kind: int, *numbers: Ints) -> NDArray[np.uint64]:
    """Numbers that look random and follow from what they are made of (SplitMix64)."""
    state = np.full(numbers[0].shape, (seed * 64 + kind) % (1 << 64), np.uint64)
    for number in numbers:  # arrays wrap round in silence, which is meant
        state = (state ^ number.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
        state ^= state >> np.uint64(31)
    return state
