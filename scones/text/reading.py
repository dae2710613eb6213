"""Reading text: two line-aligned files or one TSV, plain or compressed, in bounded memory.

A line ends at `\\n` or, as Windows writes it, `\\r\\n`, and nowhere else, because real corpora hold
other Unicode separators inside a sentence. What is wrong with a whole file (missing, empty, UTF-16,
unequal numbers of lines, a cut-off download) is a `SconesError`. What is wrong with one line of a
large corpus is no error here: the line is handed on as it is, and the cleaner counts it.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib
import io
import lzma
import os
import select
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, zip_longest
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, Final

from scones.errors import SconesError

# Part of Python from 3.14 on; before that an extra of scones, without which there is no `.zst`.
zstd: Any = None
with contextlib.suppress(ImportError):
    zstd = importlib.import_module(
        "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    )

MAX_LINE_BYTES: Final = 1 << 20
"""A longer line is cut to one byte more than this, so that its length tells that it was cut."""

NOT_TWO_COLUMNS: Final = b"\n"
"""Stands for the target of a TSV line without exactly one TAB; no real line can hold it."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
DAMAGED: Final = (
    EOFError,
    zlib.error,
    lzma.LZMAError,
    gzip.BadGzipFile,
    *([zstd.ZstdError] if zstd else []),
)
_MAGIC = {".gz": b"\x1f\x8b", ".xz": b"\xfd7zXZ\x00", ".zst": b"\x28\xb5\x2f\xfd"}


def lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file without their ends; `.gz`, `.xz` and `.zst` are unpacked.

    What Windows adds is no text: a byte-order mark, and the `\\r` of a line's end. A line of more
    than `MAX_LINE_BYTES` comes cut to `MAX_LINE_BYTES + 1` bytes. The file is opened when the first
    line is asked for, and that is when its defects are raised.
    """
    path = Path(path)
    try:
        with _open(path) as file:
            first = True
            while line := file.readline(MAX_LINE_BYTES + 1):
                if line.endswith(b"\n"):
                    line = line[:-1]
                elif len(line) > MAX_LINE_BYTES:
                    skip_rest_of_line(file)
                if first:
                    line = checked_first_line(path, line)
                    first = False
                yield line.removesuffix(b"\r")
            if first:
                raise SconesError(f"{path} is empty; give a file with at least one line.")
    except DAMAGED as problem:
        raise SconesError(
            f"{path} is damaged or cut off ({problem}); download or compress it again."
        ) from None
    except OSError as problem:
        raise SconesError(f"{path} cannot be read ({problem.strerror or problem}).") from None


def pairs(
    source: Path, target: Path | None = None, *, several: bool = False
) -> Iterator[tuple[bytes, bytes]]:
    """Yield (source, target) lines of two aligned files, or of one TSV where `target` is None.

    A TSV whose first line is not two columns is refused; a later such line comes whole, with
    `NOT_TWO_COLUMNS` for its target. With `several`, each column behind the first makes a pair.
    """
    if target is None:
        yield from _columns(source, several)
        return
    left, right = lines(source), lines(target)
    # Not zip(strict=True): the refusal names both numbers of lines, so the longer file is counted.
    for number, (source_line, target_line) in enumerate(zip_longest(left, right)):
        if source_line is None or target_line is None:
            longer = number + 1 + sum(1 for _ in (right if source_line is None else left))
            counts = (number, longer) if source_line is None else (longer, number)
            raise SconesError(
                f"{source} has {counts[0]:,} lines but {target} has {counts[1]:,}; the two files "
                "must be translations of each other line by line."
            )
        yield source_line, target_line


def read_texts(path: Path) -> list[str]:
    """Read a small file (a development or test set) whole; any broken line is an error."""
    return list(_texts(path))


def _texts(path: Path) -> Iterator[str]:
    for number, line in enumerate(lines(path), start=1):
        if len(line) > MAX_LINE_BYTES:
            raise SconesError(
                f"{path}, line {number} is longer than {MAX_LINE_BYTES:,} bytes; "
                "split it into sentences."
            )
        yield _decoded(line, f"{path}, line {number}")


def read_aligned(paths: Sequence[Path]) -> list[list[str]]:
    """Read small files that must have equally many lines."""
    texts = [read_texts(path) for path in paths]
    for path, lines_there in zip(paths, texts, strict=True):
        if len(lines_there) != len(texts[0]):
            raise SconesError(
                f"{paths[0]} has {len(texts[0]):,} lines but {path} has {len(lines_there):,}; "
                "they must match line by line."
            )
    return texts


def _decoded(line: bytes, place: str) -> str:
    if fault := bad_byte(line):
        raise SconesError(
            f"{place} is not UTF-8 text ({fault}); convert it first, for example with "
            "iconv -f latin1 -t utf-8, or mend the line."
        )
    return line.decode()


def bad_byte(line: bytes) -> str | None:
    """Say which byte keeps a line from being UTF-8 text ("byte 3 is 0xE4"), if one does."""
    try:
        line.decode()
    except UnicodeDecodeError as problem:
        position = problem.start
    else:
        position = line.find(b"\0")
    return f"byte {position + 1} is 0x{line[position]:02X}" if position >= 0 else None


def _columns(path: Path, several: bool) -> Iterator[tuple[bytes, bytes]]:
    for number, line in enumerate(lines(path)):
        source, *targets = line.split(b"\t")
        if len(targets) == 1 or (several and targets):
            yield from ((source, target) for target in targets)
        elif number == 0:
            raise SconesError(
                f"{path}, line 1 has {len(targets)} TAB characters instead of one; give a TSV file "
                "of source TAB target (one with several targets to --several), or two line-aligned "
                "files."
            )
        else:
            yield line, NOT_TWO_COLUMNS


def skip_rest_of_line(file: IO[bytes]) -> None:
    while (piece := file.readline(MAX_LINE_BYTES)) and not piece.endswith(b"\n"):
        pass


def checked_first_line(path: Path, line: bytes) -> bytes:
    """Refuse a file whose first line shows another encoding; returns the line to hand on."""
    # Only the first line: what is wrong with a whole file shows there, and the others cost time.
    for ending, magic in _MAGIC.items():
        if line.startswith(magic):
            raise SconesError(f"{path} is compressed; unpack it, or let its name end in {ending}.")
    if line.startswith(_UTF_16_MARKS) or b"\0" in line:
        raise SconesError(
            f"{path}, line 1 looks like UTF-16 (it holds NUL bytes or a UTF-16 mark); convert the "
            "file with iconv -f utf-16 -t utf-8."
        )
    return line.removeprefix(BYTE_ORDER_MARK)


def _open(path: Path) -> IO[bytes]:
    if not path.exists():
        raise SconesError(f"{path} does not exist.")
    if path.is_dir():
        raise SconesError(f"{path} is a folder; give a text file.")
    # To xz and zstd no bytes at all are a cut-off file; an empty file should be called empty.
    if path.is_file() and path.stat().st_size == 0:
        return path.open("rb")
    return unpacked(path, path)


def unpacked(file: Path | IO[bytes], name: Path | PurePosixPath) -> IO[bytes]:
    """Read a file, or one that is open, as its name says that it is packed."""
    unpackers: dict[str, Any] = {".gz": gzip, ".xz": lzma, ".zst": zstd}
    suffix = name.suffix.lower()
    if suffix not in unpackers:
        return file.open("rb") if isinstance(file, Path) else file
    if unpackers[suffix] is None:
        raise SconesError(
            f"{name} needs the package backports.zstd; install it with pip install 'scones[zstd]'."
        )
    # The unpacked files read lines in Python; a BufferedReader around them does it in C.
    return io.BufferedReader(unpackers[suffix].open(file))


# Text to translate, line by line, in chunks: of files, or of standard input what is waiting.

_BLOCK: Final = 1 << 16
_SILENCE: Final = 0.01  # seconds; a program that writes a file into a pipe never waits for so long


def check_beginning(path: Path) -> None:
    """Refuse a file that cannot be read; what a pipe has given is gone, so it is left alone."""
    if not path.is_fifo():
        next(lines(path))


def chunks_of_files(paths: Iterable[Path], most: int) -> Iterator[list[tuple[int, str]]]:
    """Give lists of (line number, text) of files, one behind the other, `most` lines each."""
    texts = chain.from_iterable(_texts(path) for path in paths)
    numbered = enumerate(texts, start=1)
    while chunk := list(islice(numbered, most)):
        yield chunk


def chunks_of_lines(stream: BinaryIO, most: int) -> Iterator[list[tuple[int, str]]]:
    """Give lists of (line number, text), each holding what has arrived, `most` lines at the most.

    Someone who types gets an answer after every line; a file is read in full chunks. Lines end
    in a newline alone; a carriage return before it and a byte-order mark are taken off.
    """
    number = 0
    chunk: list[tuple[int, str]] = []
    for line in _arriving(stream.fileno()):
        if line is not None:
            number += 1
            try:
                chunk.append((number, _text_of(line, number)))
            except SconesError:
                if chunk:  # the lines before it are answered first
                    yield chunk
                raise
        if len(chunk) == most or (chunk and line is None):
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _arriving(descriptor: int) -> Iterator[bytes | None]:
    """Give every line as it arrives, and None before each wait for the next one.

    It reads the descriptor itself, with no thread: a thread that waits in a buffered read keeps a
    lock without which Python cannot exit.
    """
    rest = b""
    while True:
        if not select.select([descriptor], [], [], _SILENCE)[0]:
            yield None
        block = os.read(descriptor, _BLOCK)
        if not block:
            break
        *whole, rest = (rest + block).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _text_of(line: bytes, number: int) -> str:
    line = line.removesuffix(b"\r")
    if number == 1:
        line = checked_first_line(Path("The input"), line)
    return _decoded(line, f"Line {number} of the input")
