"""Where pairs of sentences come from: a store, or two text files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from scones.errors import SconesError
from scones.text import reading
from scones.text.store import TokenStore
from scones.text.subwords import Subwords

_AT_ONCE = 10_000

Pair = tuple[Sequence[int] | NDArray[Any], Sequence[int] | NDArray[Any]]


@dataclass(frozen=True)
class StorePairs:
    """The training pairs of a store, or some of them from all over it."""

    store: TokenStore
    limit: int | None = None

    @property
    def source_words(self) -> list[str]:
        """The pieces."""
        return self.subwords.pieces(range(len(self.subwords)))

    target_words = source_words

    @property
    def subwords(self) -> Subwords:
        """The model whose pieces are the words."""
        return self.store.subwords

    def __iter__(self) -> Iterator[Pair]:
        pairs = self.store.split("train")
        for index in range(len(pairs)):
            if _is_chosen(index, len(pairs), self.limit):
                yield pairs.source(index), pairs.target(index)


@dataclass
class FilePairs:
    """The lines of two files, split by a subword model or else at spaces."""

    source: Path
    target: Path
    subwords: Subwords | None = None
    limit: int | None = None
    dos: bool = False
    _words: tuple[dict[str, int], dict[str, int]] = field(default_factory=lambda: ({}, {}))
    _lines: int = 0

    def __post_init__(self) -> None:
        """Read the files once, for their words and their number of lines."""
        for texts in self._texts():
            self._lines += 1
            if not self.subwords:
                for words, text in zip(self._words, texts, strict=True):
                    for word in text.split():
                        words.setdefault(word, len(words))

    @property
    def source_words(self) -> list[str]:
        """The pieces, or all words of the source file as they come."""
        return self._all_words(0)

    @property
    def target_words(self) -> list[str]:
        """The pieces, or all words of the target file as they come."""
        return self._all_words(1)

    def _all_words(self, side: int) -> list[str]:
        if self.subwords:
            return self.subwords.pieces(range(len(self.subwords)))
        return list(self._words[side])

    def __iter__(self) -> Iterator[Pair]:
        chosen = (
            texts
            for number, texts in enumerate(self._texts())
            if _is_chosen(number, self._lines, self.limit)
        )
        while some := list(islice(chosen, _AT_ONCE)):
            yield from zip(
                *(self._encode(side, texts) for side, texts in enumerate(zip(*some, strict=True))),
                strict=True,
            )

    def _encode(self, side: int, texts: Sequence[str]) -> list[list[int]]:
        if self.subwords:
            return self.subwords.encode(texts)
        words = self._words[side]
        return [[words[word] for word in text.split()] for text in texts]

    def _texts(self) -> Iterator[tuple[str, str]]:
        lines = reading.pairs(self.source, self.target, dos=self.dos)
        for number, pair in enumerate(lines, start=1):
            for path, line in zip((self.source, self.target), pair, strict=True):
                if fault := reading.bad_byte(line):
                    raise SconesError(
                        f"{path}, line {number:,} is not UTF-8 text ({fault}); clean the text "
                        "with scones prepare, and fit to its store."
                    )
            yield pair[0].decode(), pair[1].decode()


def _is_chosen(index: int, total: int, limit: int | None) -> bool:
    """Say whether this is one of `limit` places that are spread evenly over `total`."""
    if limit is None or limit >= total:
        return True
    return (index + 1) * limit // total > index * limit // total
