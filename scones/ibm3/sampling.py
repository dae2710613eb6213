"""Sampling translations from IBM Model 3 at a temperature: sentences, texts and whole stores.

It is the story of `scones.ibm3.sampling`, compiled, on all cores. Sentences have numbers, and what
a sentence becomes depends on its number, the seed, the parameters and the temperature alone; so the
same seed gives the same corpus whatever the number of threads and the size of chunks. In a store
the training pairs are numbered from 0, those of the development set from `FIRST_DEV`; in a text the
lines are numbered from 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scones.errors import SconesError
from scones.files import new_folder, write_json
from scones.ibm3.parameters import Parameters
from scones.text.store import (
    FlatSentences,
    ParallelTokens,
    StoreWriter,
    TokenStore,
    flat_sentences,
)
from scones.text.workers import usable_cores
from scones.version import versions

# How IBM Model 3 makes a target sentence, told step by step, a sentence at a time.
#
# Given a source sentence of l words and a temperature γ,
#
# 1.  every source word draws its fertility from n, how many target words it becomes;
# 2.  NULL's fertility is drawn from the binomial distribution of as many trials as there are words
#     so far, with probability p1: each of them may bring along one that the source does not
#     explain;
# 3.  the target length m is the sum of all fertilities;
# 4.  every target word is drawn from t, given the source word, or NULL, that it comes from;
# 5.  source word by source word, every target word draws its place from d among the places that are
#     still vacant: d is restricted to them and divided by what remains of it. Where d gives none of
#     them any probability, all are equally probable. So no two words collide, and the probabilities
#     of all outcomes sum to one;
# 6.  NULL's words go to the places that are left, in any order with equal probability. As they are
#     all drawn from one distribution, filling the places from left to right is the same thing.
#
# The temperature turns P(c) into P(c)^(1/γ), divided by the sum over all c, in steps 1, 4 and 5.
# Restricting d and changing its temperature can be done in either order. The number and the places
# of NULL's words keep their own randomness at all temperatures. From `FROZEN` down, the most
# probable choice is always taken, the first of equal ones.
#
# What the story leaves open:
#
# - A source word that was never seen, because n or t has nothing for it, becomes the target word
# that
#   is spelled the same (with pieces of both languages: itself); where there is none it is dropped.
# - If NULL has no translations, it has no fertility.
# - A source longer than the limit has no translation. A target longer than the limit is thrown away
#   and drawn again from step 1, so that what comes out has the distribution of targets that fit;
#   after `ATTEMPTS` vain ones there is no translation.
#
# This module is the version to read, and to test the other one against; `scones.ibm3.sampling` does
# the same many times as fast.

MAX_LENGTH = 250
"""The longest source and target, where nothing else is said."""
ATTEMPTS = 100
FROZEN = 1e-6
"""From this temperature down only the most probable choices are taken.

Probabilities that differ by a hundred-thousandth would not be chosen between at random here."""

SEEN, DROPPED = -2, -1
"""What becomes of a source word apart from the number of a target word that it is copied to."""

Floats = NDArray[np.float64]


class Outcome(IntEnum):
    """What became of a source sentence."""

    TRANSLATED = 0
    SOURCE_TOO_LONG = 1
    TARGET_TOO_LONG = 2
    EMPTY = 3
    """The source is empty, or no word of it became any."""


@dataclass(frozen=True)
class Told:
    """A sampled sentence; without words where the outcome is not a translation."""

    outcome: Outcome
    words: tuple[int, ...] = ()
    origins: tuple[int, ...] = ()
    """For every target word the place of its source word, from 1; 0 is NULL."""


def check_temperature(temperature: float) -> None:
    """Refuse what is no temperature."""
    if not (math.isfinite(temperature) and temperature > 0):
        raise SconesError(f"The temperature must be above 0 and finite, not {temperature}.")


def tempered(probs: NDArray[np.floating], temperature: float) -> Floats:
    """Give the distribution proportional to probs^(1/γ); nothing but zeros stays zeros."""
    highest = probs.max(initial=0.0)
    if highest == 0:
        return np.zeros(len(probs))
    if temperature <= FROZEN:
        certain = np.zeros(len(probs))
        certain[np.argmax(probs)] = 1.0
        return certain
    with np.errstate(divide="ignore"):
        logs = np.log(probs.astype(np.float64))
    weights = np.exp((logs - logs.max()) / temperature)
    return weights / weights.sum()


def fates(parameters: Parameters) -> NDArray[np.int32]:
    """Say for each source word: `SEEN`, `DROPPED`, or the target word of the same spelling."""
    begins = parameters.translations.begins[:-1]
    possible = np.concatenate([[0], np.cumsum(parameters.translations.probs > 0)])
    translated = possible[begins[1:]] > possible[begins[:-1]]
    seen = translated & (parameters.fertilities.sum(axis=1) > 0)
    result = np.full(len(seen), SEEN, np.int32)
    numbers = {word: number for number, word in enumerate(parameters.target_words)}
    for word in np.flatnonzero(~seen).tolist():
        result[word] = numbers.get(parameters.source_words[word], DROPPED)
    return result


class Story:
    """The story of one set of parameters at one temperature."""

    def __init__(
        self, parameters: Parameters, temperature: float = 1.0, max_length: int = MAX_LENGTH
    ) -> None:
        check_temperature(temperature)
        self.parameters = parameters
        self.temperature = temperature
        self.max_length = max_length

    @cached_property
    def _fates(self) -> NDArray[np.int32]:
        return fates(self.parameters)

    def tell(self, source: Sequence[int], random: np.random.Generator) -> Told:
        """Sample a translation of a sentence of source words."""
        if len(source) > self.max_length:
            return Told(Outcome.SOURCE_TOO_LONG)
        for _ in range(ATTEMPTS):
            fertilities = [self._fertility(word, random) for word in source]
            null = self._null_fertility(sum(fertilities), random)
            length = sum(fertilities) + null
            if length == 0:
                return Told(Outcome.EMPTY)
            if length <= self.max_length:
                return self._fill(source, fertilities, length, random)
        return Told(Outcome.TARGET_TOO_LONG)

    def _fertility(self, word: int, random: np.random.Generator) -> int:
        if self._fates[word] != SEEN:
            return 0 if self._fates[word] == DROPPED else 1
        return _draw(tempered(self.parameters.fertilities[word], self.temperature), random)

    def _null_fertility(self, words: int, random: np.random.Generator) -> int:
        if not self.parameters.translations.of(self.parameters.null)[1].any():
            return 0
        return int(random.binomial(words, self.parameters.p1))

    def _word(self, word: int, random: np.random.Generator) -> int:
        if word != self.parameters.null and self._fates[word] != SEEN:
            return int(self._fates[word])
        words, probs = self.parameters.translations.of(word)
        return int(words[_draw(tempered(probs, self.temperature), random)])

    def _place(
        self, i: int, source: int, vacant: NDArray[np.bool_], random: np.random.Generator
    ) -> int:
        probs = self.parameters.distortions.of(i, source, len(vacant))
        left = np.where(vacant, probs, 0.0)
        if not left.any():
            left = vacant.astype(np.float64)
        return _draw(tempered(left, self.temperature), random)

    def _fill(
        self, source: Sequence[int], fertilities: Sequence[int], length: int,
        random: np.random.Generator,
    ) -> Told:  # fmt: skip
        words, origins = np.full(length, -1), np.zeros(length, int)
        for i, (word, fertility) in enumerate(zip(source, fertilities, strict=True), start=1):
            for _ in range(fertility):
                place = self._place(i, len(source), words < 0, random)
                words[place] = self._word(word, random)
                origins[place] = i
        for place in np.flatnonzero(words < 0).tolist():
            words[place] = self._word(self.parameters.null, random)
        return Told(Outcome.TRANSLATED, tuple(words.tolist()), tuple(origins.tolist()))


def _draw(probs: Floats, random: np.random.Generator) -> int:
    return int(random.choice(len(probs), p=probs))


# Sampled translations of many sentences as flat arrays, and what is counted of them.

Ids = NDArray[np.int32]
Lengths = NDArray[np.int64]


@dataclass(frozen=True)
class Samples:
    """Translations of several sentences, as flat arrays.

    A sentence without a translation has the length 0, and an outcome that says why.
    """

    tokens: Ids
    """The target words of all sentences, one after another."""
    lengths: Lengths
    outcomes: NDArray[np.int8]
    """For each sentence an `Outcome`."""
    origins: Ids
    """For each target word the place of its source word, from 1; 0 is NULL."""
    place_entropies: NDArray[np.float64]
    """For each sentence the sum of the entropies of its places in nats, where measured."""

    def split(self) -> list[list[int]]:
        """Give the target words sentence by sentence."""
        words, ends = self.tokens.tolist(), np.cumsum(self.lengths).tolist()
        return [words[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    @classmethod
    def joined(cls, parts: Sequence[Samples]) -> Samples:
        """Put samples one behind another."""
        names = ("tokens", "lengths", "outcomes", "origins", "place_entropies")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@dataclass
class Counts:
    """What became of many sentences."""

    sentences: int = 0
    translated: int = 0
    source_too_long: int = 0
    target_too_long: int = 0
    empty: int = 0
    source_words: int = 0
    """Of all sentences, as those behind it."""
    never_seen_and_copied: int = 0
    never_seen_and_dropped: int = 0
    target_words: int = 0

    def add(self, fates: Ids, samples: Samples) -> None:
        """Count what came of some sentences, given the fates of their words."""
        self.sentences += len(samples.lengths)
        for outcome in Outcome:
            name = outcome.name.lower()
            count = int(np.count_nonzero(samples.outcomes == outcome))
            setattr(self, name, getattr(self, name) + count)
        self.source_words += len(fates)
        self.never_seen_and_copied += int(np.count_nonzero(fates >= 0))
        self.never_seen_and_dropped += int(np.count_nonzero(fates == DROPPED))
        self.target_words += len(samples.tokens)


# Text to the numbers of source words, the numbers of target words to text.


class Vocabulary:
    """The words of both languages of a model, pieces or not, and what becomes of them."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self.fates = fates(parameters)

    def encode(self, texts: Sequence[str]) -> FlatSentences:
        """Split texts into pieces, or at spaces, and give their numbers as `sample` takes them.

        A word that is not in the source vocabulary has a negative number, which says what becomes
        of it: -1 nothing, -2 the target word 0, and so on.
        """
        if self._parameters.subwords is not None:
            return flat_sentences(self._parameters.subwords.encode(texts))
        return flat_sentences([[self._number(word) for word in text.split()] for text in texts])

    def _number(self, word: str) -> int:
        sources, targets = self._numbers
        number = sources.get(word)
        return number if number is not None else -2 - targets.get(word, DROPPED)

    @cached_property
    def _numbers(self) -> tuple[dict[str, int], dict[str, int]]:
        sides = (self._parameters.source_words, self._parameters.target_words)
        sources, targets = ({word: i for i, word in enumerate(words)} for words in sides)
        return sources, targets

    def decode(self, samples: Samples) -> list[str]:
        """Join target words to texts, each of a single line."""
        sentences = samples.split()
        if self._parameters.subwords is None:
            words = self._parameters.target_words
            return [" ".join(words[number] for number in sentence) for sentence in sentences]
        # Pieces can spell a line end in bytes.
        return [text.replace("\n", " ") for text in self._parameters.subwords.decode(sentences)]

    def fates_of(self, tokens: Ids) -> Ids:
        """Say what becomes of source words: seen, dropped, or copied to a target word."""
        there = np.where(tokens < 0, 0, tokens)
        known = self.fates[there] if len(self.fates) else np.full(len(tokens), SEEN, np.int32)
        return np.where(tokens < 0, -2 - tokens, known)


FIRST_DEV = 2**40
"""The number of the first sentence of a development set."""

CHUNK = 8192
"""Sentences that are in memory at a time, or fewer if they may be very long."""
_MOST_WORDS = 1 << 22
_SHARE = 256
"""Rows that a thread takes at a time."""


class Sampler:
    """Translates by drawing from the parameters at a temperature.

    Getting ready takes a moment: n and t are brought to the temperature and made into tables.
    """

    def __init__(
        self,
        parameters: Parameters,
        temperature: float = 1.0,
        seed: int = 0,
        max_length: int = MAX_LENGTH,
        threads: int | None = None,
    ) -> None:
        """Take the parameters; `threads` are all cores by default."""
        check_temperature(temperature)
        if not 0 <= seed < 2**64:
            raise SconesError(f"The seed must be at least 0 and below 2**64, not {seed}.")
        if max_length < 1:
            raise SconesError(f"The longest sentence must have at least 1 word, not {max_length}.")
        if threads is not None and threads < 1:
            raise SconesError(f"There must be at least 1 thread, not {threads}.")
        self._compiled = _compiled()
        self._threads = threads or usable_cores()
        self._pool = ThreadPoolExecutor(self._threads)
        self.parameters = parameters
        self.temperature = temperature
        self.seed = seed
        self.max_length = max_length
        self.vocabulary = Vocabulary(parameters)
        self._prepare(np.inf if temperature <= FROZEN else 1 / temperature)

    def _prepare(self, exponent: float) -> None:
        n, t, d = (
            self.parameters.fertilities,
            self.parameters.translations,
            self.parameters.distortions,
        )
        rows = np.arange(len(n) + 1, dtype=np.int64) * n.shape[1]
        fertilities, self.fertility_entropies = self._alias(rows, n.ravel(), exponent)
        translations, self.word_entropies = self._alias(t.begins, t.probs, exponent)
        places = self._compiled.Places(
            _fixed(d.begins, np.int64),
            _fixed(d.rows, np.int32),
            _fixed(d.probs, np.float32),
            float(d.spread),
            exponent,
        )
        null_speaks = self.parameters.translations.of(self.parameters.null)[1].any()
        self.p1 = float(self.parameters.p1) if null_speaks else 0.0
        self._tables = self._compiled.Tables(
            _fixed(self.vocabulary.fates, np.int32),
            fertilities,
            translations,
            _fixed(t.words, np.int32),
            places,
            self.p1,
        )

    def _alias(
        self, begins: NDArray[Any], probs: NDArray[Any], exponent: float
    ) -> tuple[Any, NDArray[np.float64]]:
        keeps, others = np.ones(len(probs), np.float32), np.zeros(len(probs), np.int32)
        entropies = np.zeros(len(begins) - 1)
        begins, probs = _fixed(begins, np.int64), _fixed(probs, np.float32)
        arguments = (begins, probs, exponent, keeps, others, entropies)
        self._share(self._compiled.fill_aliases, len(entropies), *arguments)
        alias = (begins, _fixed(keeps, np.float32), _fixed(others, np.int32))
        return self._compiled.Alias(*alias), entropies

    def _share(self, function: Callable[..., None], rows: int, *arguments: Any) -> None:
        """Let the threads call a compiled function, each for some of the rows at a time."""
        if rows <= _SHARE or self._threads == 1:
            function(0, rows, *arguments)
            return
        firsts = range(0, rows, _SHARE)
        shares = [(first, min(first + _SHARE, rows)) for first in firsts]
        for done in [self._pool.submit(function, *share, *arguments) for share in shares]:
            done.result()

    @property
    def chunk(self) -> int:
        """How many sentences to hand over at a time."""
        return max(1, min(CHUNK, _MOST_WORDS // self.max_length))

    def sample(
        self,
        tokens: NDArray[Any],
        lengths: NDArray[Any],
        first_number: int = 0,
        *,
        measured: bool = False,
    ) -> Samples:
        """Translate sentences of source words, given one after another with their lengths.

        `first_number` is the number of the first; `measured`: with the entropies of places.
        """
        tokens = np.ascontiguousarray(tokens, np.int32)
        begins = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        self._check(tokens)
        parts = [
            self._sample(tokens, begins[row : row + self.chunk + 1], first_number + row, measured)
            for row in range(0, max(1, len(lengths)), self.chunk)
        ]
        return parts[0] if len(parts) == 1 else Samples.joined(parts)

    def _check(self, tokens: Ids) -> None:
        known = len(self.parameters.source_words)
        copies = -2 - len(self.parameters.target_words)
        for number in (tokens.max(initial=-1), tokens.min(initial=-1)):
            if not copies < number < known:
                raise SconesError(
                    f"A sentence holds the word number {number}, and the model has {known:,} "
                    "source words; give it text split by its own vocabulary."
                )

    def _sample(self, tokens: Ids, begins: Lengths, first_number: int, measured: bool) -> Samples:
        rows = len(begins) - 1
        targets, origins = (np.empty((rows, self.max_length), np.int32) for _ in range(2))
        lengths, outcomes = np.empty(rows, np.int64), np.empty(rows, np.int8)
        entropies = np.empty(rows)
        self._share(
            self._compiled.tell_all,
            rows,
            self._tables,
            np.uint64(self.seed),
            np.uint64(first_number),
            _fixed(tokens, np.int32),
            _fixed(begins, np.int64),
            targets,
            origins,
            lengths,
            outcomes,
            entropies,
            measured,
        )
        ends = np.cumsum(lengths)
        flat = []
        for rows_of_words in (targets, origins):
            joined = np.empty(lengths.sum(), np.int32)
            self._share(self._compiled.join, rows, rows_of_words, lengths, ends, joined)
            flat.append(joined)
        return Samples(flat[0], lengths, outcomes, flat[1], entropies)

    def sample_sentences(
        self, sources: Sequence[Sequence[int]], first_number: int = 0
    ) -> list[list[int]]:
        """Translate lists of source words; a sentence without a translation gives an empty list."""
        return self.sample(*flat_sentences(sources), first_number).split()

    def sample_texts(
        self, texts: Sequence[str], first_number: int = 0, counts: Counts | None = None
    ) -> list[str]:
        """Translate texts; one without a translation gives an empty text."""
        tokens, lengths = self.vocabulary.encode(texts)
        samples = self.sample(tokens, lengths, first_number)
        if counts is not None:
            counts.add(self.vocabulary.fates_of(tokens), samples)
        return self.vocabulary.decode(samples)

    def facts(self) -> dict[str, Any]:
        """Give what a report says about how it was sampled."""
        return {
            "temperature": self.temperature,
            "seed": self.seed,
            "max_length": self.max_length,
            "model": self.parameters.facts,
            "versions": versions(),
        }


def sample_store(
    store: Path,
    parameters: Parameters,
    output: Path,
    temperature: float,
    seed: int = 0,
    *,
    max_length: int = MAX_LENGTH,
    threads: int | None = None,
    pairs: int | None = None,
    overwrite: bool = False,
    progress: Callable[[str, int], None] = lambda split, done: None,
) -> dict[str, Any]:
    """Make a store with the sources of another one and sampled targets; gives its report.json.

    Training pairs (the first `pairs` of them) and the development set are sampled; a source without
    a translation is left out. The languages keep their names. Memory does not grow with the store.
    """
    opened = TokenStore.open(store)
    check_pieces(opened, parameters)
    sampler = Sampler(parameters, temperature, seed, max_length, threads)
    counts = {"train": Counts()}
    languages = opened.source_language, opened.target_language
    with (
        new_folder(output, overwrite=overwrite) as folder,
        StoreWriter(folder, opened.subwords, *languages) as writer,
    ):
        train = opened.split("train")
        for part in _sampled(sampler, train, 0, pairs, counts["train"]):
            writer.append_flat("train", *part.pairs())
            progress("train", counts["train"].sentences)
        if opened.dev_texts is not None:
            counts["dev"] = Counts()
            _sample_dev(sampler, opened, writer, counts["dev"])
            progress("dev", counts["dev"].sentences)
        if not counts["train"].translated:
            raise SconesError(
                f"No training sentence of {store} could be translated: "
                f"{counts['train'].source_too_long:,} are longer than {max_length} words and "
                f"{counts['train'].empty:,} have no word that the model translates."
            )
        report = sampler.facts() | {
            "store": str(store),
            "store_digest": opened.digest,
            "digest": writer.finish(),
            "splits": {name: asdict(found) for name, found in counts.items()},
        }
        write_json(folder / "report.json", report)
    return report


def check_pieces(store: TokenStore, parameters: Parameters) -> None:
    """Refuse a store whose pieces are not the words of the model."""
    if parameters.subwords is None:
        raise SconesError(
            f"The model's words are no pieces of a subword model, so it cannot read {store.path}; "
            "give text on standard input, or fit a model to a store."
        )
    if parameters.subwords.digest != store.subwords.digest:
        raise SconesError(
            f"The pieces of {store.path} are not those that the model was fitted to; prepare the "
            "store with --subwords and the model's subwords.model, or fit the model to it."
        )


@dataclass(frozen=True)
class _Part:
    """Some sources of a split, and what became of them."""

    first: int
    tokens: Ids
    lengths: Lengths
    samples: Samples

    @property
    def kept(self) -> NDArray[np.bool_]:
        return self.samples.outcomes == Outcome.TRANSLATED

    def pairs(self) -> tuple[FlatSentences, FlatSentences]:
        """Give the sources that have a translation, and the translations."""
        sources = self.tokens[np.repeat(self.kept, self.lengths)], self.lengths[self.kept]
        # what is not kept has no target words
        return sources, (self.samples.tokens, self.samples.lengths[self.kept])


def _sampled(
    sampler: Sampler, split: ParallelTokens, first_number: int, pairs: int | None, counts: Counts
) -> Iterator[_Part]:
    end = len(split) if pairs is None else min(pairs, len(split))
    for first in range(0, end, sampler.chunk):
        there = np.arange(first, min(first + sampler.chunk, end))
        tokens, lengths = split.sources.gather(there)
        tokens = tokens.astype(np.int32)
        samples = sampler.sample(tokens, lengths, first_number + first)
        counts.add(sampler.vocabulary.fates_of(tokens), samples)
        yield _Part(first, tokens, lengths, samples)


def _sample_dev(sampler: Sampler, store: TokenStore, writer: StoreWriter, counts: Counts) -> None:
    given = store.dev_texts[0] if store.dev_texts else []
    sources: list[str] = []
    targets: list[str] = []
    for part in _sampled(sampler, store.split("dev"), FIRST_DEV, None, counts):
        writer.append_flat("dev", *part.pairs())
        kept = np.flatnonzero(part.kept)
        texts = sampler.vocabulary.decode(part.samples)
        sources += [given[part.first + row] for row in kept]
        targets += [texts[row] for row in kept]
    writer.write_dev_texts(sources, targets)


def _fixed(array: NDArray[Any], kind: Any) -> NDArray[Any]:
    """Give a read-only view: numba compiles once more for every kind of array it meets."""
    view = np.ascontiguousarray(array, kind).view()
    view.flags.writeable = False
    return view


def _compiled() -> ModuleType:
    try:
        import numba  # noqa: F401
    except ImportError:
        raise SconesError("Sampling from IBM Model 3 needs numba; install scones[ibm3].") from None
    from scones.ibm3 import compiled

    return compiled
