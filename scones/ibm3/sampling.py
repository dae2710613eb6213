"""Sampling translations from IBM Model 3 at a temperature: sentences, texts and whole stores.

It is the story of `scones.ibm3.story`, compiled, on all cores. Sentences have numbers, and what a
sentence becomes depends on its number, the seed, the parameters and the temperature alone; so the
same seed gives the same corpus whatever the number of threads and the size of chunks. In a store
the training pairs are numbered from 0, those of the development set from `FIRST_DEV`; in a text the
lines are numbered from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scones.errors import SconesError
from scones.files import new_folder, write_json
from scones.ibm3.parameters import Parameters
from scones.ibm3.samples import Counts, Ids, Lengths, Samples
from scones.ibm3.story import FROZEN, MAX_LENGTH, Outcome, check_temperature
from scones.ibm3.vocabulary import Vocabulary
from scones.text.store import (
    FlatSentences,
    ParallelTokens,
    StoreWriter,
    TokenStore,
    flat_sentences,
)
from scones.text.workers import usable_cores
from scones.version import versions

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
