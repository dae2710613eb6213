"""The tables that GIZA++ and MGIZA leave behind, read into ours.

    PREFIX.t3.final      source word (0 is NULL), target word, t
    PREFIX.n3.final      source word, n of fertility 0, 1, 2, …
    PREFIX.d3.final      j, i, l, m, d: the place in the target comes first
    PREFIX.p0_3.final    1 - p1
    *.vcb                number, word, how often

GIZA calls "source" the language of its flag -S, which the other is generated from; so do we. Unless
told otherwise it writes the same l everywhere, which means that places do not depend on it.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scones.errors import SconesError
from scones.ibm3.options import Cut
from scones.ibm3.parameters import ANY, Parameters, pack
from scones.text.reading import read_texts
from scones.text.subwords import Subwords

NULL = 0
UNKNOWN = (1, "UNK")
"""A line of many vocabularies, of a word that stands for those that are not on it."""

LONGEST = 2000
"""No sentence of GIZA's is longer; its own limit is 101 words."""

# GIZA writes six digits, and sums of many such numbers are off by some of the last.
_SURPLUS = 1.01

Table = NDArray[np.float64]


@dataclass(frozen=True)
class Vocabulary:
    """The words of a language, and which of GIZA's numbers is which of them."""

    path: Path
    words: Sequence[str]
    theirs: NDArray[np.int64]
    """GIZA's numbers that have a word, rising,"""
    ours: NDArray[np.int64]
    """and ours of the same words."""
    counts: NDArray[np.int64]
    """By our number, how often the word occurs."""

    @classmethod
    def read(cls, path: Path, subwords: Subwords | None = None) -> Vocabulary:
        """Read a .vcb file; with `subwords`, its words must be pieces and get their numbers."""
        found: dict[int, tuple[str, int]] = {}
        pieces = subwords.pieces() if subwords else []
        known = {piece: number for number, piece in enumerate(pieces)}
        for line, text in enumerate(read_texts(path), start=1):
            match re.split(r"[ \t]+", text.strip(" \t")):
                case [number, word, count] if number.isdecimal() and count.isdecimal():
                    pass
                case _:
                    raise _wrong(path, "is not a number, a word and a count", line)
            if int(number) in found or not NULL < int(number) < 1 << 31:
                raise _wrong(
                    path, f"has the number {number}, which is taken or no number of a word", line
                )
            # It stands for no piece, and no table of a model fitted to pieces names it.
            if subwords and (int(number), word) == UNKNOWN:
                continue
            if subwords and word not in known:
                raise _wrong(path, f"has the word {word!r}, no piece of the subword model", line)
            found[int(number)] = word, int(count)
        theirs = sorted(found)
        words = pieces or [found[number][0] for number in theirs]
        ours = np.arange(len(theirs))
        if subwords:
            ours = np.array([known[found[number][0]] for number in theirs], np.int64)
        counts = np.zeros(len(words), np.int64)
        counts[ours] = [found[number][1] for number in theirs]
        return cls(Path(path), words, np.array(theirs, np.int64), ours, counts)

    def numbers(self, theirs: Table, place: Path, null: int = -1) -> NDArray[np.int64]:
        """Turn a column of GIZA's numbers into ours; one without a word is refused.

        `null` is our number of NULL, where the column may have it.
        """
        numbers = theirs.astype(np.int64)
        # A number beyond the last finds the last word, and is refused as another one.
        spots = np.searchsorted(self.theirs, numbers).clip(max=len(self.theirs) - 1)
        result = np.where(self.theirs[spots] == numbers, self.ours[spots], -1)
        result[numbers == NULL] = null
        if len(bad := np.flatnonzero(result < 0)):
            raise _wrong(
                place,
                f"has the number {numbers[bad[0]]}, which is no word of {self.path}; give the "
                "vocabularies of this model, each as what it is",
                int(bad[0]) + 1,
            )
        return result


def import_tables(
    prefix: Path,
    source_vocabulary: Path,
    target_vocabulary: Path,
    subwords: Subwords | None = None,
    cut: Cut | None = None,
) -> tuple[Parameters, NDArray[np.int64]]:
    """Read all tables of a prefix; gives also how often every source word occurs."""
    cut = cut or Cut()
    source = Vocabulary.read(source_vocabulary, subwords)
    target = Vocabulary.read(target_vocabulary, subwords)
    t, n, d = (Path(f"{prefix}.{name}3.final") for name in "tnd")

    entries = _read(t, 3)
    sources = source.numbers(entries[:, 0], t, null=len(source.words))
    _check_sums(t, sources, entries[:, 2])
    targets = target.numbers(entries[:, 1], t)

    table = _read(n, None)
    width, probs = table.shape[1] - 1, table[:, 1:].ravel()
    words = np.repeat(source.numbers(table[:, 0], n), width)
    _check_sums(n, words, probs)
    numbers = np.tile(np.arange(width), len(table))

    packed, lost = pack(
        (sources, targets, entries[:, 2]),
        (words, numbers, probs),
        _read_distortions(d),
        source.counts,
        cut,
    )
    facts = {"made_by": "GIZA++", "tables": str(prefix), "lost": lost}
    p1 = _read_p1(Path(f"{prefix}.p0_3.final"))
    parameters = Parameters(source.words, target.words, *packed, p1, subwords, facts)
    return parameters, source.counts


def _read_distortions(path: Path) -> tuple[NDArray[np.int64], Table]:
    """Read d into rows of (i, l, m, j), and their probabilities."""
    table = _read(path, 5)
    table = table[table[:, 1] > 0]  # of NULL, whose words go where there is room
    j, i, source, target = table[:, :4].astype(np.int64).T
    outside = (j < 1) | (j > target) | (i > source) | (np.maximum(source, target) > LONGEST)
    for wrong in np.flatnonzero(outside):
        raise _wrong(
            path,
            f"puts a word at place {j[wrong]} of {target[wrong]}, from the one at {i[wrong]} of "
            f"{source[wrong]}; it should hold j, i, l, m up to {LONGEST:,} and a probability",
        )
    # One l in the whole file is a placeholder, and stands for all.
    if len(np.unique(source)) == 1:
        source = np.full_like(source, ANY)
    entries = np.stack((i, source, target, j), axis=1)
    _, row = np.unique(entries[:, :3], axis=0, return_inverse=True)
    _check_sums(path, row.ravel(), table[:, 4])
    return entries, table[:, 4]


def _read_p1(path: Path) -> float:
    table = _read(path, 1)
    if len(table) != 1:
        raise _wrong(path, f"holds {len(table)} numbers instead of one, p0")
    p0 = float(table[0, 0])
    if not 0 < p0 <= 1:
        raise _wrong(path, f"holds {p0:g}, which is no probability above 0", 1)
    return 1 - p0


def _read(path: Path, columns: int | None) -> Table:
    """Read a table of numbers, none negative; None: as many columns as the first line has."""
    if not path.is_file():
        raise SconesError(
            f"{path} does not exist; GIZA++ writes it where IBM Model 3 is its last model, or "
            "with -model345dumpfrequency 1."
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an empty file is an error of ours
            # Fast, but silent about where a problem is: `_first_problem` looks for it slowly.
            table = np.loadtxt(path, comments=None, ndmin=2)
        good = bool(table.size) and np.all(np.isfinite(table)) and table.min() >= 0
        if good and table.shape[1] == (columns or max(2, table.shape[1])):
            return table
    except ValueError:
        pass
    raise _first_problem(path, columns)


def _first_problem(path: Path, columns: int | None) -> SconesError:
    """Find the line that is wrong: slowly, and only where there is one."""
    line = 0
    with path.open(errors="replace") as file:
        for line, text in enumerate(file, start=1):
            if not (parts := text.split()):
                continue  # as the fast reader does
            columns = columns or max(2, len(parts))
            if len(parts) != columns:
                return _wrong(path, f"has {len(parts)} columns instead of {columns}", line)
            for part in parts:
                try:
                    good = 0 <= float(part) < math.inf
                except ValueError:
                    good = False
                if not good:
                    return _wrong(path, f"has {part!r} where a number of 0 or more is due", line)
    return _wrong(path, "is empty" if not line else "is not a table of numbers")


def _check_sums(path: Path, rows: NDArray[np.int64], probs: Table) -> None:
    """Refuse probabilities that are not conditioned on what their rows are."""
    # Columns or vocabularies that were exchanged show here: rows no longer sum to 1.
    sums = np.bincount(rows, probs)
    if len(sums) and sums.max() > _SURPLUS:
        line = int(np.flatnonzero(rows == sums.argmax())[0])
        raise _wrong(
            path,
            f"has probabilities that sum to {sums.max():.3g} where they should to 1 (entry "
            f"{line + 1:,} and those with the same condition); its columns must stand as GIZA++ "
            "writes them",
        )


def _wrong(path: Path, problem: str, line: int | None = None) -> SconesError:
    place = f"{path}, line {line:,}" if line else f"{path}"
    return SconesError(f"{place} {problem}.")
