"""Exact duplicates in a corpus of any size, in bounded memory.

Each pair has a 16-byte digest. Digests go to 256 files by their first byte, so that equal ones
meet in the same file; afterwards each file is sorted alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

DIGEST_BYTES = 16
BUCKETS = 256

_DIGEST = np.dtype([("low", "<u8"), ("high", "<u8")])
_RECORD = np.dtype([*_DIGEST.descr, ("number", "<u8")])


class DuplicateFinder:
    """Collects digests on disk and marks every pair that was seen before."""

    def __init__(self, folder: Path, buffered: int = 500_000) -> None:
        """Keep the files in `folder`, and up to `buffered` digests (24 bytes each) in memory."""
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._limit = buffered
        self._waiting: list[bytes] = []
        self._waiting_count = 0
        self._written = 0

    def __len__(self) -> int:
        return self._written + self._waiting_count

    def add(self, digests: bytes) -> None:
        """Add the digests of the next pairs, joined to one string of 16 bytes each."""
        if len(digests) % DIGEST_BYTES:
            raise ValueError(f"{len(digests)} bytes are no whole number of digests")
        self._waiting.append(digests)
        self._waiting_count += len(digests) // DIGEST_BYTES
        if self._waiting_count >= self._limit:
            self._flush()

    def mark(self) -> NDArray[np.bool_]:
        """One truth value a pair, from a file: whether an earlier pair has the same digest."""
        self._flush()
        if not self._written:
            return np.zeros(0, bool)
        _write_zeros(self._folder / "marks", self._written)
        marks = np.memmap(self._folder / "marks", dtype=bool, mode="r+")
        for path in self._folder.glob("bucket.*"):
            marks[_repeated(np.fromfile(path, _RECORD))] = True
            path.unlink()
        return marks

    def _flush(self) -> None:
        digests = np.frombuffer(b"".join(self._waiting), _DIGEST)
        records = np.empty(len(digests), _RECORD)
        records["low"], records["high"] = digests["low"], digests["high"]
        records["number"] = self._written + np.arange(len(digests))
        buckets = digests["low"] % BUCKETS
        order = np.argsort(buckets, kind="stable")
        records, bounds = records[order], np.searchsorted(buckets[order], np.arange(BUCKETS + 1))
        for bucket in range(BUCKETS):
            # One file open at a time: some systems allow a process only 256.
            if bounds[bucket] < bounds[bucket + 1]:
                with (self._folder / f"bucket.{bucket:02x}").open("ab") as file:
                    file.write(records[bounds[bucket] : bounds[bucket + 1]].tobytes())
        self._written += len(records)
        self._waiting, self._waiting_count = [], 0


def _write_zeros(path: Path, count: int) -> None:
    """Fill a file, for a full disk is an error here but kills a process that writes to a map."""
    with path.open("wb") as file:
        while count > 0:
            count -= file.write(bytes(min(count, 1 << 20)))


def _repeated(records: NDArray[Any]) -> NDArray[np.uint64]:
    """The pair numbers of a bucket whose digest a smaller number has too."""
    ordered = records[np.lexsort((records["number"], records["high"], records["low"]))]
    later, earlier = ordered[1:], ordered[:-1]
    same = (later["low"] == earlier["low"]) & (later["high"] == earlier["high"])
    repeated: NDArray[np.uint64] = later["number"][same]
    return repeated
