"""Sampling translations from IBM Model 3 at a temperature: sentences, texts and whole stores.

The generative process. Given a source sentence of l words and a temperature γ,

1.  every source word draws its fertility from n, how many target words it becomes;
2.  NULL's fertility is drawn from the binomial distribution of as many trials as there are words
    so far, with probability p1: each of them may bring along one that the source does not explain;
3.  the target length m is the sum of all fertilities;
4.  every target word is drawn from t, given the source word, or NULL, that it comes from;
5.  source word by source word, every target word draws its position from d among those that are
    still vacant: d is restricted to them and divided by what remains of it. Where d gives none of
    them any probability, all are equally probable. So no two words collide, and the probabilities
    of all outcomes sum to one;
6.  NULL's words go to the positions that are left, in any order with equal probability. As they are
    all drawn from one distribution, filling them from left to right is the same thing.

The temperature turns P(c) into P(c)^(1/γ), divided by the sum over all c, in steps 1, 4 and 5.
Restricting d and changing its temperature can be done in either order. The number and the positions
of NULL's words keep their own randomness at all temperatures. From `FROZEN` down, the most probable
choice is always taken, the first of equal ones.

What the process leaves open:

-   A source word that was never seen, because n or t has nothing for it, becomes the target word
    that is spelled the same (with pieces of both languages: itself); where there is none it is
    dropped. This is the OOV policy.
-   If NULL has no translations, it has no fertility.
-   A source longer than the limit has no translation. A target longer than the limit is thrown away
    and drawn again from step 1, so that what comes out has the distribution of targets that fit;
    after `ATTEMPTS` vain ones there is no translation.

`scones.ibm3.compiled` does this, on all cores; tests/ibm3/generative.py is the same in plain NumPy,
a version to read and to test the other one against. Sentences have numbers, and what a sentence
becomes depends on its number, the seed, the parameters and the temperature alone; so the same seed
gives the same corpus whatever the number of threads and the size of chunks. In a store the training
pairs are numbered from 0, those of the development set from `FIRST_DEV`; in a text the lines are
numbered from 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from enum import IntEnum
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scones.errors import SconesError, optional_import
from scones.files import new_folder, versions, write_json
from scones.hardware import usable_cores
from scones.ibm3.options import MAX_LENGTH, SampleOptions
from scones.ibm3.parameters import Parameters
from scones.text.store import KIND as STORE
from scones.text.store import (
    FlatSentences,
    ParallelTokens,
    StoreWriter,
    TokenStore,
    flat_sentences,
)

ATTEMPTS = 100
FROZEN = 1e-6
"""From this temperature down only the most probable choices are taken.

Probabilities that differ by a hundred-thousandth would not be chosen between at random here."""

SEEN, DROPPED = -2, -1
"""The OOV policy of a source word, unless it is the number of a target word to copy it to."""

FIRST_DEV = 2**40
"""The number of the first sentence of a development set."""

CHUNK = 8192
"""Sentences that are in memory at a time, or fewer if they may be very long."""
# Bounds the memory of a chunk: its rows have room for sentences of the greatest length.
_MOST_WORDS = 1 << 22
_SHARE = 256
"""Rows that a thread takes at a time."""

Ids = NDArray[np.int32]
Lengths = NDArray[np.int64]


class Outcome(IntEnum):
    """What became of a source sentence."""

    TRANSLATED = 0
    SOURCE_TOO_LONG = 1
    TARGET_TOO_LONG = 2
    EMPTY = 3
    """The source is empty, or no word of it became any."""


def check_temperature(temperature: float) -> None:
    if not (math.isfinite(temperature) and temperature > 0):
        raise SconesError(f"The temperature must be above 0 and finite, not {temperature}.")


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
    """For each target word the position of its source word, from 1; 0 is NULL."""
    position_entropies: NDArray[np.float64]
    """For each sentence the sum of the entropies of its positions in nats, where measured."""

    @classmethod
    def joined(cls, parts: Sequence[Samples]) -> Samples:
        names = [field.name for field in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def split_flat(tokens: Ids, lengths: Lengths) -> list[list[int]]:
    words, ends = tokens.tolist(), np.cumsum(lengths).tolist()
    return [words[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


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

    def add(self, policy: Ids, samples: Samples) -> None:
        """Count some sentences, given the OOV policy of each of their source words."""
        self.sentences += len(samples.lengths)
        for outcome in Outcome:
            name = outcome.name.lower()
            count = int(np.count_nonzero(samples.outcomes == outcome))
            setattr(self, name, getattr(self, name) + count)
        self.source_words += len(policy)
        self.never_seen_and_copied += int(np.count_nonzero(policy >= 0))
        self.never_seen_and_dropped += int(np.count_nonzero(policy == DROPPED))
        self.target_words += len(samples.tokens)


class Vocabulary:
    """The words of both languages of a model, pieces or not, and the OOV policy."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._sources = _numbered(parameters.source_words)
        self._targets = _numbered(parameters.target_words)
        self.oov_policy = self._oov_policy()

    def _oov_policy(self) -> Ids:
        """For each source word: `SEEN`, `DROPPED`, or the target word of the same spelling."""
        t = self._parameters.translations
        # How many entries of t are above zero before each source word.
        possible = np.concatenate([[0], np.cumsum(t.probs > 0)])[t.begins[:-1]]
        seen = (np.diff(possible) > 0) & (self._parameters.fertilities.sum(axis=1) > 0)
        policy = np.full(len(seen), SEEN, np.int32)
        # Words never seen are few, so that a loop over them will do.
        for word in np.flatnonzero(~seen).tolist():
            policy[word] = self._targets.get(self._parameters.source_words[word], DROPPED)
        return policy

    def policy_of(self, tokens: Ids) -> Ids:
        """The OOV policy of each token, as `encode` numbers them."""
        # With one word more, since a model without source words has nothing to index.
        policy = np.append(self.oov_policy, np.int32(DROPPED))
        return np.where(tokens < 0, -2 - tokens, policy[np.maximum(tokens, 0)])

    def encode(self, texts: Sequence[str]) -> FlatSentences:
        """Split texts into pieces, or at spaces, and give their numbers as `sample` takes them.

        A word that is not in the source vocabulary has a negative number, which holds its OOV
        policy: -1 is dropped, -2 is copied to the target word 0, and so on.
        """
        if self._parameters.subwords is not None:
            return flat_sentences(self._parameters.subwords.encode(texts))
        return flat_sentences([[self._number(word) for word in text.split()] for text in texts])

    def _number(self, word: str) -> int:
        number = self._sources.get(word)
        return number if number is not None else -2 - self._targets.get(word, DROPPED)

    def decode(self, tokens: Ids, lengths: Lengths) -> list[str]:
        """Join target words to texts, each of a single line."""
        sentences = split_flat(tokens, lengths)
        if self._parameters.subwords is None:
            words = self._parameters.target_words
            return [" ".join(words[number] for number in sentence) for sentence in sentences]
        # Pieces can spell a line end in bytes.
        return [text.replace("\n", " ") for text in self._parameters.subwords.decode(sentences)]


def _numbered(words: Sequence[str]) -> dict[str, int]:
    return {word: number for number, word in enumerate(words)}


@dataclass
class Sampler:
    """Translates by drawing from the parameters at a temperature.

    Getting ready takes a moment: n and t are brought to the temperature and made into tables.
    """

    parameters: Parameters
    temperature: float = 1.0
    seed: int = 0
    max_length: int = MAX_LENGTH
    threads: int | None = None

    def __post_init__(self) -> None:
        check_temperature(self.temperature)
        SampleOptions(self.seed, self.max_length, self.threads)  # refuses what makes no sense
        self._compiled = _compiled()
        self._threads = self.threads or usable_cores()
        # Threads and not processes: compiled code releases the GIL, and the tables are shared.
        self._pool = ThreadPoolExecutor(self._threads)
        self.vocabulary = Vocabulary(self.parameters)
        self._prepare(np.inf if self.temperature <= FROZEN else 1 / self.temperature)

    def _prepare(self, exponent: float) -> None:
        n, t = self.parameters.fertilities, self.parameters.translations
        d = self.parameters.distortions
        rows = np.arange(len(n) + 1, dtype=np.int64) * n.shape[1]
        fertilities, self.fertility_entropies = self._alias(rows, n.ravel(), exponent)
        translations, self.word_entropies = self._alias(t.begins, t.probs, exponent)
        positions = self._compiled.Positions(
            _fixed(d.begins, np.int64),
            _fixed(d.rows, np.int32),
            _fixed(d.probs, np.float32),
            float(d.spread),
            exponent,
        )
        # Without a translation for NULL a word of its could not be drawn.
        null_translates = t.of(self.parameters.null)[1].any()
        self.p1 = float(self.parameters.p1) if null_translates else 0.0
        self._tables = self._compiled.Tables(
            _fixed(np.append(self.vocabulary.oov_policy, SEEN), np.int32),
            fertilities,
            translations,
            _fixed(t.words, np.int32),
            positions,
            self.p1,
        )

    def _alias(
        self, begins: NDArray[Any], probs: NDArray[Any], exponent: float
    ) -> tuple[Any, NDArray[np.float64]]:
        # A row of nothing but zeros stays as it is here, and is never drawn from; so does a cell
        # that is all for itself.
        keeps, others = np.ones(len(probs), np.float32), np.zeros(len(probs), np.int32)
        entropies = np.zeros(len(begins) - 1)
        begins, probs = _fixed(begins, np.int64), _fixed(probs, np.float32)
        arguments = (begins, probs, exponent, keeps, others, entropies)
        self._share(self._compiled.fill_aliases, len(entropies), *arguments)
        alias = (begins, _fixed(keeps, np.float32), _fixed(others, np.int32))
        return self._compiled.Alias(*alias), entropies

    def _share(self, function: Callable[..., None], rows: int, *arguments: Any) -> None:
        """Let the threads call a compiled function, each for some of the rows at a time."""
        # A little work is done at once: handing it over would take longer.
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

        `first_number` is the number of the first; `measured`: with the entropies of positions.
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
        # How long a target becomes is known only afterwards, so every row gets the greatest length.
        targets, origins = (np.empty((rows, self.max_length), np.int32) for _ in range(2))
        lengths, outcomes = np.empty(rows, np.int64), np.empty(rows, np.int8)
        entropies = np.empty(rows)
        numbers = (np.uint64(self.seed), np.uint64(first_number))
        sources = (_fixed(tokens, np.int32), _fixed(begins, np.int64))
        found = (targets, origins, lengths, outcomes, entropies)
        arguments = (self._tables, *numbers, *sources, *found, measured)
        self._share(self._compiled.sample_rows, rows, *arguments)
        ends = np.cumsum(lengths)
        flat = []
        for rows_of_words in (targets, origins):
            joined = np.empty(lengths.sum(), np.int32)
            self._share(self._compiled.join, rows, rows_of_words, lengths, ends, joined)
            flat.append(joined)
        return Samples(flat[0], lengths, outcomes, flat[1], entropies)

    def sample_texts(
        self, texts: Sequence[str], first_number: int = 0, counts: Counts | None = None
    ) -> list[str]:
        """Translate texts; one without a translation gives an empty text."""
        tokens, lengths = self.vocabulary.encode(texts)
        samples = self.sample(tokens, lengths, first_number)
        if counts is not None:
            counts.add(self.vocabulary.policy_of(tokens), samples)
        return self.vocabulary.decode(samples.tokens, samples.lengths)

    def facts(self) -> dict[str, Any]:
        """How it was sampled, for a report."""
        return {
            "temperature": self.temperature,
            "seed": self.seed,
            "max_length": self.max_length,
            "model": self.parameters.facts,
            "versions": versions(),
        }


def sample_store(
    store: Path,
    sampler: Sampler,
    output: Path,
    *,
    pairs: int | None = None,
    overwrite: bool = False,
    progress: Callable[[str, int], None] = lambda split, done: None,
) -> dict[str, Any]:
    """Make a store with the sources of another one and sampled targets; gives its report.json.

    Training pairs (the first `pairs` of them) and the development set are sampled; a source without
    a translation is left out. The languages keep their names. Memory does not grow with the store.
    """
    opened = TokenStore.open(store)
    check_pieces(opened, sampler.parameters)
    counts = {"train": Counts()}
    train, dev = opened.split("train"), opened.dev_texts
    languages = opened.source_language, opened.target_language
    with (
        new_folder(output, STORE, overwrite=overwrite) as folder,
        StoreWriter(folder, opened.subwords, *languages) as writer,
    ):
        for _, sources, targets in _sampled(sampler, train, 0, pairs, counts["train"]):
            writer.append_flat("train", sources, targets)
            progress("train", counts["train"].sentences)
        if dev is not None:
            counts["dev"] = Counts()
            texts: tuple[list[str], list[str]] = [], []
            for kept, sources, targets in _sampled(
                sampler, opened.split("dev"), FIRST_DEV, None, counts["dev"]
            ):
                writer.append_flat("dev", sources, targets)
                texts[0].extend(dev[0][row] for row in kept)
                texts[1].extend(sampler.vocabulary.decode(*targets))
            writer.write_dev_texts(*texts)
            progress("dev", counts["dev"].sentences)
        # Raised inside the `with`, so that no folder is left behind.
        if not counts["train"].translated:
            raise SconesError(
                f"No training sentence of {store} could be translated: "
                f"{counts['train'].source_too_long:,} are longer than {sampler.max_length} words "
                f"and {counts['train'].empty:,} have no word that the model translates."
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


def _sampled(
    sampler: Sampler, split: ParallelTokens, first_number: int, pairs: int | None, counts: Counts
) -> Iterator[tuple[Lengths, FlatSentences, FlatSentences]]:
    """The rows of a split that have a translation, their sources and their targets, by chunks."""
    end = len(split) if pairs is None else min(pairs, len(split))
    for first in range(0, end, sampler.chunk):
        rows = np.arange(first, min(first + sampler.chunk, end))
        tokens, lengths = split.sources.gather(rows)
        tokens = tokens.astype(np.int32)
        samples = sampler.sample(tokens, lengths, first_number + first)
        counts.add(sampler.vocabulary.policy_of(tokens), samples)
        kept = samples.outcomes == Outcome.TRANSLATED
        sources = tokens[np.repeat(kept, lengths)], lengths[kept]
        # A sentence that is not kept has no target words that would have to go.
        yield rows[kept], sources, (samples.tokens, samples.lengths[kept])


def _fixed(array: NDArray[Any], kind: Any) -> NDArray[Any]:
    """A read-only view: numba compiles once more for every kind of array it meets."""
    view = np.ascontiguousarray(array, kind).view()
    view.flags.writeable = False
    return view


def _compiled() -> ModuleType:
    optional_import("numba", "Sampling from IBM Model 3 needs numba; install scones[ibm3].")
    from scones.ibm3 import compiled

    return compiled
