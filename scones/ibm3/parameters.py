"""The parameters of IBM Model 3, in memory and as a folder of memory-mapped arrays.

The model tells how a target sentence y comes from a source sentence x of l words, and its tables
are all conditioned on the source: t(y | x), how often a word x becomes the word y; n(φ | x), into
how many words it becomes; d(j | i, l, m), at which of m positions a word from the i-th goes; p1,
how likely it is that behind a word comes another that nothing in the source accounts for, and
which is said to come from NULL. Positions count from 1.

A folder of parameters:

    ibm3.json                            p1, the spread of positions, sizes, what it was fitted to
    source.txt, target.txt               the words, one per line, by their numbers
    subwords.model                       where words are pieces of a SentencePiece model
    translations.{begins,words,probs}    t: sources one after another, NULL as the last
    fertilities.probs                    n: a row per source word
    distortions.{begins,rows,probs}      d: a block a pair of lengths

Shape letters: S source words, T target words, P pairs of t, F the largest fertility, L and M the
largest lengths of d.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scones.cache import check_digests
from scones.errors import SconesError
from scones.files import (
    FolderKind,
    damaged,
    file_digest,
    new_folder,
    read_json,
    read_lines,
    regular,
    write_file,
    write_json,
)
from scones.ibm3.options import Cut
from scones.text.subwords import Subwords

FORMAT = 1
KIND = FolderKind(
    "an IBM Model 3", "ibm3.json", ("*.npy", "source.txt", "target.txt", "subwords.model")
)
ANY = 0
"""The source length of a table that holds for all source lengths."""

# The tables that are several arrays, by the names of their files.
_ARRAYS = {
    "translations": ("begins", "words", "probs"),
    "distortions": ("begins", "rows", "probs"),
}
_REMEDY = "make the model again"
_damaged = partial(damaged, remedy=_REMEDY)

Numbers = NDArray[Any]
Entries = tuple[Numbers, Numbers, Numbers]
"""Two conditions of a table's entries, the number of the source word first; and probabilities."""
Probs = NDArray[np.float32]
Example = tuple[str, list[tuple[str, float]]]
"""A source word, and its most probable translations."""


@dataclass(frozen=True)
class Translations:
    """t(y | x): the target words of each source word, the most probable first; NULL is row S."""

    begins: NDArray[np.int64]
    """(S + 2,) where the words of a source word begin, and the end of the last."""
    words: NDArray[np.int32]
    """(P,)"""
    probs: Probs
    """(P,)"""

    def of(self, word: int) -> tuple[NDArray[np.int32], Probs]:
        """The translations of a source word and their probabilities; none if never seen."""
        there = slice(int(self.begins[word]), int(self.begins[word + 1]))
        return self.words[there], self.probs[there]


@dataclass(frozen=True)
class Distortions:
    """d(j | i, l, m): for a pair of lengths, a block with a row of m positions for every i.

    A word takes the row of exactly its lengths, or else of its target length and any source
    length, or else one that falls off from the diagonal on both sides. A row of zeros was never
    seen.
    """

    begins: NDArray[np.int64]
    """(L + 1, M + 1) where the block of (l, m) begins in probs, or -1; l = `ANY`: of every l."""
    rows: NDArray[np.int32]
    """(L + 1, M + 1) how many i the block has."""
    probs: Probs
    spread: float
    """How much less probable a position is for each step from the diagonal, without a row."""


@dataclass(frozen=True)
class Parameters:
    """All that a sampler has to know."""

    source_words: Sequence[str]
    target_words: Sequence[str]
    translations: Translations
    fertilities: Probs
    """(S, F + 1); a row of zeros belongs to a word that was never seen."""
    distortions: Distortions
    p1: float
    subwords: Subwords | None = None
    """Where words are the pieces of both languages, their model."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What the parameters were made of, and with what."""

    @property
    def null(self) -> int:
        """The row of NULL among the translations."""
        return len(self.source_words)

    def __post_init__(self) -> None:
        # A folder whose files are whole but of different models gets here too.
        sources, pairs = len(self.source_words), len(self.translations.words)
        begins = self.translations.begins
        blocks = self.distortions
        sizes = blocks.rows.astype(np.int64) * np.arange(blocks.rows.shape[1])
        ends = np.where(blocks.begins >= 0, blocks.begins + sizes, 0)
        for wrong, problem in (
            (len(begins) != sources + 2, "t has another number of source words"),
            (len(self.translations.probs) != pairs, "t has not as many probabilities as words"),
            (begins[0] != 0 or begins[-1] != pairs or np.any(np.diff(begins) < 0),
             "the rows of t do not fit its words"),
            (pairs and not 0 <= self.translations.words.min() <= self.translations.words.max()
             < len(self.target_words), "t names target words that there are not"),
            (self.fertilities.ndim != 2 or len(self.fertilities) != sources,
             "n has another number of source words"),
            (blocks.begins.shape != blocks.rows.shape or ends.max(initial=0) > len(blocks.probs),
             "the blocks of d do not fit its probabilities"),
            (not 0 <= self.p1 < 1, f"p1 is {self.p1}"),
            (not 0 < blocks.spread < 1, f"the spread of places is {blocks.spread}"),
            *((not np.all(np.isfinite(probs)) or np.any(probs < 0),
               f"{name} holds numbers that are no probabilities")
              for name, probs in (("t", self.translations.probs), ("n", self.fertilities),
                                  ("d", blocks.probs))),
            (self.subwords is not None
             and {sources, len(self.target_words)} != {len(self.subwords)},
             "its words are not the pieces of its subword model"),
        ):  # fmt: skip
            if wrong:
                raise SconesError(f"These tables of IBM Model 3 do not fit together: {problem}.")

    def frequent_words(
        self, counts: NDArray[np.int64], number: int, best: int = 5
    ) -> list[Example]:
        """The most frequent source words of three letters or more, with their translations.

        Where words are pieces, only those that begin a word: a reader can judge them.
        """
        found: list[Example] = []
        for word in np.argsort(-counts, kind="stable"):
            text = self.source_words[word]
            bare = text.removeprefix("▁")
            if counts[word] == 0 or len(found) == number:
                break
            if len(bare) >= 3 and bare.isalpha() and (not self.subwords or bare != text):
                targets, probs = self.translations.of(int(word))
                shown = zip(targets[:best], probs[:best], strict=True)
                found.append((text, [(self.target_words[y], float(p)) for y, p in shown]))
        return found

    def save(self, folder: Path, *, overwrite: bool = False) -> None:
        """Write a folder, in one step."""
        arrays = {"fertilities.probs": self.fertilities}
        for table, parts in _ARRAYS.items():
            arrays |= {f"{table}.{part}": getattr(getattr(self, table), part) for part in parts}
        facts = {
            "format": FORMAT,
            "p1": self.p1,
            "spread": self.distortions.spread,
            "source_words": len(self.source_words),
            "target_words": len(self.target_words),
            "facts": self.facts,
        }
        with new_folder(Path(folder), KIND, overwrite=overwrite) as new:
            for name, array in arrays.items():
                np.save(new / f"{name}.npy", array, allow_pickle=False)
            for name, words in (("source", self.source_words), ("target", self.target_words)):
                write_file(new / f"{name}.txt", "".join(f"{word}\n" for word in words))
            if self.subwords:
                self.subwords.save(new / "subwords.model")
            facts["digests"] = {path.name: file_digest(path) for path in sorted(new.iterdir())}
            write_json(new / "ibm3.json", facts)

    @classmethod
    def load(cls, folder: Path) -> Parameters:
        """Open a folder; a damaged one is refused in a sentence."""
        folder = Path(folder)
        if not (folder / "ibm3.json").is_file():
            raise SconesError(
                f"{folder} holds no IBM Model 3, it has no ibm3.json; make one with "
                "`scones ibm3 fit` or `scones ibm3 import`."
            )
        facts = read_json(folder / "ibm3.json")
        try:
            if facts["format"] != FORMAT:
                raise SconesError(
                    f"{folder} is an IBM Model 3 of format {facts['format']}, and this version of "
                    f"scones reads format {FORMAT}; make it again."
                )
            digests = facts.get("digests", {})  # those that earlier versions made have none
            names = [path.name for path in folder.iterdir() if path.name in digests]
            check_digests(folder, {name: digests[name] for name in names}, _REMEDY)
            t, d = (
                [_array(folder, f"{table}.{part}") for part in parts]
                for table, parts in _ARRAYS.items()
            )
            subwords = folder / "subwords.model"
            return cls(
                _words(folder / "source.txt", facts["source_words"]),
                _words(folder / "target.txt", facts["target_words"]),
                Translations(*t),
                _array(folder, "fertilities.probs"),
                Distortions(d[0], d[1], d[2], facts["spread"]),
                facts["p1"],
                Subwords.load(subwords) if subwords.exists() else None,
                facts["facts"],
            )
        except (KeyError, TypeError, IndexError, ValueError, AttributeError):
            raise _damaged(folder / "ibm3.json", "an entry is missing or wrong") from None


def _array(folder: Path, name: str) -> NDArray[Any]:
    path = folder / f"{name}.npy"
    try:
        # A plain array over the map: indexing a np.memmap costs several times as much.
        return np.asarray(np.load(regular(path), mmap_mode="r", allow_pickle=False))
    except (ValueError, EOFError, OSError, SyntaxError, TokenError):
        raise _damaged(path, "it is no array") from None


def _words(path: Path, count: int) -> list[str]:
    words = read_lines(path, _REMEDY)
    if len(words) != count:
        raise _damaged(path, f"it has {len(words):,} words where {count:,} are due")
    return words


# Estimators leave long lists of single entries, most of them of next to no probability. The
# functions below prune them, renormalise what is left and lay it out in the arrays above; they also
# say what share of each row was cut off.


Packed = tuple[Translations, Probs, Distortions]


def pack(
    t: Entries, n: Entries, d: tuple[Numbers, Numbers], counts: NDArray[np.int64], cut: Cut
) -> tuple[Packed, dict[str, float]]:
    """Pack all tables; gives also what pruning took, on average over the words of a text.

    `counts` says how often each source word occurs in it.
    """
    rows = len(counts)
    translations, lost_t = pack_translations(*t, rows + 1, cut)
    fertilities, lost_n = pack_fertilities(*n, rows, cut)
    # By how often words occur: pruning a rare word's row matters little.
    weights = counts / max(1, counts.sum())
    lost = {
        "t": float(lost_t[:rows] @ weights),
        "t of NULL": float(lost_t[rows]),
        "n": float(lost_n @ weights),
    }
    return (translations, fertilities, pack_distortions(*d)), lost


def pack_translations(
    sources: Numbers, targets: Numbers, probs: Numbers, rows: int, cut: Cut
) -> tuple[Translations, NDArray[np.float64]]:
    """Sort the entries of t into rows; gives also the share that every row has lost.

    The most probable word of a row stays whatever its probability: a row that was seen is not
    empty.
    """
    kept = probs > 0
    sources, targets, probs = sources[kept], targets[kept], probs[kept].astype(np.float64)
    # By source word, the most probable first; equals by number, so that a fit is reproducible.
    order = np.lexsort((targets, -probs, sources))
    sources, targets, probs = sources[order], targets[order], probs[order]
    before = np.bincount(sources, probs, rows)
    # The rank of each entry in its row.
    rank = np.arange(len(sources)) - np.searchsorted(sources, np.arange(rows))[sources]
    kept = (rank == 0) | ((probs >= cut.threshold * before[sources]) & (rank < cut.best))
    sources, targets, probs = sources[kept], targets[kept], probs[kept]
    after = np.bincount(sources, probs, rows)
    begins = np.searchsorted(sources, np.arange(rows + 1))
    packed = (probs / after[sources]).astype(np.float32)
    return Translations(begins, targets.astype(np.int32), packed), _lost(before, after)


def pack_fertilities(
    sources: Numbers, fertilities: Numbers, probs: Numbers, rows: int, cut: Cut
) -> tuple[Probs, NDArray[np.float64]]:
    """Put the entries of n into a row per word; gives also the share that every row has lost."""
    table = np.zeros((rows, int(fertilities.max(initial=0)) + 1))
    table[sources, fertilities] = probs
    # Relative to the row, since estimates need not sum to 1.
    before = table.sum(1)
    # The best entries stay even below the threshold: a row that was seen is not empty.
    best = table == table.max(1, keepdims=True)
    table[(table < cut.threshold * before[:, None]) & ~best] = 0
    after = table.sum(1)
    largest = int(np.flatnonzero(table.any(0)).max(initial=0))
    seen = np.where(after > 0, after, 1)
    packed = (table[:, : largest + 1] / seen[:, None]).astype(np.float32)
    return packed, _lost(before, after)


def pack_distortions(entries: Numbers, probs: Numbers) -> Distortions:
    """Put the entries (i, l, m, j) of d, a row each, into blocks by lengths.

    Those of NULL, with an i of 0, are left out: its words go where there is room.
    """
    kept = (probs > 0) & (entries[:, 0] > 0)
    i, source, target, j = entries[kept].astype(np.int64).T
    lengths = (int(source.max(initial=ANY)) + 1, int(target.max(initial=0)) + 1)
    rows = np.zeros(lengths, np.int32)
    np.maximum.at(rows, (source, target), i.astype(np.int32))
    # A block of (l, m) has m probabilities for each of its rows.
    sizes = rows.astype(np.int64) * np.arange(lengths[1])
    begins = np.where(sizes > 0, (np.cumsum(sizes) - sizes.ravel()).reshape(lengths), -1)
    packed = np.zeros(int(sizes.sum()), np.float64)
    row = begins[source, target] + (i - 1) * target
    packed[row + j - 1] = probs[kept]
    sums = np.bincount(row, probs[kept], len(packed) + 1)
    packed[row + j - 1] /= sums[row]
    return Distortions(begins, rows, packed.astype(np.float32), _spread(row, j, packed))


def _spread(row: Numbers, j: Numbers, packed: Numbers) -> float:
    """How much less probable a position is for each step from where a word is expected.

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
