"""Clean text on its way from the cleaner to the store: written once, read twice, then removed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

LINE_TYPE = np.dtype("<u8")


class CleanPair(NamedTuple):
    """A pair that passed the cleaner, the line it stood in, and whether it was there before."""

    line: int
    source: str
    target: str
    duplicate: bool


class CleanText:
    """The clean pairs of several corpora in a scratch folder.

    `marks` are the duplicates among all pairs in the order of writing; without them none is one.
    """

    def __init__(self, folder: Path, corpora: int) -> None:
        self.marks: NDArray[np.bool_] | None = None
        self._files = [
            [folder / f"{corpus}.{part}" for part in ("source", "target", "lines")]
            for corpus in range(corpora)
        ]
        folder.mkdir(parents=True, exist_ok=True)
        for paths in self._files:
            for path in paths:
                path.touch()

    def append(
        self, corpus: int, lines: Sequence[int], sources: Sequence[str], targets: Sequence[str]
    ) -> None:
        """Add the next pairs of a corpus; corpora come one after another."""
        contents = (_joined(sources), _joined(targets), np.array(lines, LINE_TYPE).tobytes())
        for path, content in zip(self._files[corpus], contents, strict=True):
            with path.open("ab") as file:
                file.write(content)

    def pairs(self, corpus: int) -> Iterator[CleanPair]:
        """Read the pairs of a corpus back."""
        first = sum(self._count(earlier) for earlier in range(corpus))
        source_path, target_path, line_path = self._files[corpus]
        with ExitStack() as stack:
            sources = stack.enter_context(source_path.open(encoding="utf-8", newline="\n"))
            targets = stack.enter_context(target_path.open(encoding="utf-8", newline="\n"))
            lines = stack.enter_context(line_path.open("rb"))
            for number, line in enumerate(_numbers(lines), start=first):
                yield CleanPair(
                    line,
                    next(sources)[:-1],
                    next(targets)[:-1],
                    self.marks is not None and bool(self.marks[number]),
                )

    def sample(self, size: int) -> Iterator[CleanPair]:
        """Pairs of about `size` bytes in all, evenly spread over the corpora, no duplicates."""
        total = sum(path.stat().st_size for paths in self._files for path in paths[:2])
        share = min(1.0, size / total)
        fresh = 0
        for corpus in range(len(self._files)):
            for pair in self.pairs(corpus):
                if pair.duplicate:
                    continue
                fresh += 1
                if int(fresh * share) > int((fresh - 1) * share):
                    yield pair

    def _count(self, corpus: int) -> int:
        return self._files[corpus][2].stat().st_size // LINE_TYPE.itemsize


def _joined(texts: Sequence[str]) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


def _numbers(file: BinaryIO) -> Iterator[Any]:
    while block := file.read(LINE_TYPE.itemsize * 10_000):
        yield from np.frombuffer(block, LINE_TYPE).tolist()
