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
from difflib import SequenceMatcher
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray

from scones.errors import SconesError
from scones.outputs import Labels
from scones.text import END
from scones.text.batches import pad_sentences
from scones.text.reading import read_texts
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
    translations: Translations | None = None

    def told(self, indices: Ints, draw: int) -> tuple[ParallelTokens, Ints, Labels]:
        """The labels of some pairs, and the pairs with what has to be read for labels alone."""
        labels = self.labels(indices)
        wrong = [] if self.omissions is None else self.omissions(indices, draw)
        wrong += [] if self.translations is None else self.translations(indices)
        return self._behind(indices, labels, wrong) if wrong else (self, indices, labels)

    def _behind(
        self, indices: Ints, labels: Labels, wrong: list[Wrong]
    ) -> tuple[ParallelTokens, Ints, Labels]:
        """Put wrong translations behind the pairs of a batch, with labels where they are wrong."""
        targets = sentences([*(self.targets[pair] for pair in indices), *(w.target for w in wrong)])
        owners = [*indices, *(indices[one.row] for one in wrong)]
        pairs = ParallelTokens(sentences([self.sources[pair] for pair in owners]), targets)
        every = np.arange(len(pairs))
        tokens_N, starts = joined(targets, every)
        places = zip(starts[len(indices) :], wrong, strict=True)
        rows_K = np.concatenate([start + one.places for start, one in places])
        each = [one.weight for one in wrong]
        weights_K = np.repeat(np.array(each, np.float32), [len(one.places) for one in wrong])
        # Nothing else counts there, so that no α is taken off.
        zeros_K, tokens_K = torch.zeros(len(rows_K)), torch.from_numpy(tokens_N[rows_K])
        told = (torch.from_numpy(rows_K), tokens_K, zeros_K, torch.from_numpy(weights_K), zeros_K)
        ones_K = torch.ones(len(labels.rows_K))
        known = (labels.rows_K, labels.tokens_K, labels.right_K, labels.wrong_K, ones_K)
        return pairs, every, Labels(*map(torch.cat, zip(known, told, strict=True)))

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
    tokens, wrong = store.split("train"), options.negatives or 0.0
    if not options.labels:
        return tokens
    return LabelledTokens(
        tokens.sources,
        tokens.targets,
        tokens.groups,
        None if options.references is None else References(store),
        None if options.negatives is None else Spoilers(store, options.seed),
        None if options.mistakes is None else Mistakes(options.mistakes, store),
        wrong,
        None if options.omissions is None else Omissions(store, options.omissions, options.seed),
        None if (file := options.translations) is None else Translations(store, file, wrong),
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
        mark = ~said & ~self._word
        mark[END] = True
        self.begins = self._word | mark
        """Whether a piece begins a word, or is a mark."""
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
        heads = np.flatnonzero(self.begins[targets_N])
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
        heads = np.flatnonzero(self.begins[targets_N])
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


@dataclass(frozen=True)
class Wrong:
    """A translation that is not right as a whole: read for labels alone."""

    row: int
    """Whose source it has, of a batch."""
    target: Ints
    places: Ints
    """Where its tokens, of which the end is one, are wrong; of the others nothing is said."""
    weight: float


class Omissions:
    """References that lack one of their words: whatever they say, they are not whole at their end.

    Only the end can tell. Where the word should stand another may be right too, and what follows
    is right as far as it goes: nothing else is said of such a sentence.
    """

    def __init__(self, store: TokenStore, weight: float, seed: int) -> None:
        self._weight = weight
        self._spoilers = Spoilers(store, seed)
        self._targets = store.split("train").targets
        grouped = store.split("train").groups is not None
        self._references = References(store) if grouped else None

    def __call__(self, indices: Ints, draw: int) -> list[Wrong]:
        targets_N, starts = joined(self._targets, indices)
        drawn = self._spoilers.a_word(indices, targets_N, starts, draw)
        lacking = [
            (row, np.delete(self._targets[indices[row]], slice(*(np.array(word) - starts[row]))))
            for row, *word in zip(*drawn, strict=True)
        ]
        return [
            Wrong(row, target, np.array([len(target)]), self._weight)
            for row, target in lacking
            if not self._is_said(indices[row], target)
        ]

    def _is_said(self, pair: int, target: Ints) -> bool:
        """Whether another reference of the source says just that."""
        if self._references is None or self._references.different[pair] == 1:
            return False
        others, _ = self._references.others(np.array([pair]))
        return any(np.array_equal(target, self._targets[other]) for other in others)


class Translations:
    """What a model made of training sources, and which of its words no reference says.

    Words are aligned with those of every reference, in their order. That is a guess: what nobody
    wrote down looks the same as what is wrong.
    """

    def __init__(self, store: TokenStore, path: Path, weight: float) -> None:
        lines = [line.split("\t") for line in read_texts(path)]
        if any(len(line) != 2 for line in lines):
            raise SconesError(f"{path} must have lines of source TAB translation.")
        self._weight = weight
        self._begins = Spoilers(store, 0).begins
        tokens = store.split("train")
        sources, texts = (store.subwords.encode(side) for side in zip(*lines, strict=True))
        kind = tokens.sources[0].dtype
        keys = [np.array(source, kind).tobytes() for source in sources]
        owners: dict[bytes, list[int]] = {key: [] for key in keys}
        for pair in range(len(tokens)):
            if (known := owners.get(tokens.sources[pair].tobytes())) is not None:
                known.append(pair)
        self._wrong: dict[int, tuple[Ints, Ints]] = {}
        for key, text in zip(keys, texts, strict=True):
            target = np.array(text, np.int64)
            places = self._unsaid(target, [tokens.targets[pair] for pair in owners[key]])
            self._wrong |= dict.fromkeys(owners[key], (target, places))
        if not self._wrong:
            raise SconesError(f"No source of {path} is among the training pairs of {store.path}.")

    def __call__(self, indices: Ints) -> list[Wrong]:
        rows = [row for row, pair in enumerate(indices) if pair in self._wrong]
        found = [Wrong(row, *self._wrong[indices[row]], self._weight) for row in rows]
        return [one for one in found if len(one.places)]

    def _unsaid(self, target: Ints, references: list[Ints]) -> Ints:
        """The places of the words that no reference has there."""
        words, said = self._words(target), set[int]()
        for reference in references:
            match = SequenceMatcher(None, words, self._words(reference), autojunk=False)
            for block in match.get_matching_blocks():
                said |= {*range(block.a, block.a + block.size)}
        whose = np.repeat(np.arange(len(words)), [len(word) for word in words])
        return np.flatnonzero(~np.isin(whose, [*said]))

    def _words(self, target: Ints) -> list[tuple[int, ...]]:
        heads = np.flatnonzero(self._begins[target])
        return [tuple(word) for word in np.split(target, heads) if len(word)]


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
