"""Standard input in chunks: what waits together comes together, what does not does not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO

import pytest

from scones.errors import SconesError
from scones.text.reading import chunks_of_lines


@pytest.fixture
def pipe() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """The two ends of a pipe: one to read, one to write, unbuffered."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "wb", buffering=0) as writer:
        yield reader, writer


Pipe = tuple[BinaryIO, BinaryIO]


def chunks_of(pipe: Pipe, data: bytes, most: int) -> list[list[tuple[int, str]]]:
    reader, writer = pipe
    writer.write(data)
    writer.close()
    return list(chunks_of_lines(reader, most))


def test_a_chunk_holds_at_most_so_many_lines(pipe: Pipe) -> None:
    found = chunks_of(pipe, b"a\nb\nc\nd\ne\n", most=2)
    assert found == [[(1, "a"), (2, "b")], [(3, "c"), (4, "d")], [(5, "e")]]


def test_a_line_is_answered_before_the_next_one_comes(pipe: Pipe) -> None:
    reader, writer = pipe
    chunks = chunks_of_lines(reader, most=100)
    writer.write(b"one\n")
    assert next(chunks) == [(1, "one")]
    writer.write(b"two\nthree\nfo")
    assert next(chunks) == [(2, "two"), (3, "three")]
    writer.write(b"ur\n")
    assert next(chunks) == [(4, "four")]
    writer.close()
    assert list(chunks) == []


@pytest.mark.parametrize("data", [b"", b"\n", b"\n\n", b"a", b"a\n\nb", "ä\u2028ö\x0bü\n".encode()])
def test_lines_end_in_a_newline_and_nowhere_else(pipe: Pipe, data: bytes) -> None:
    expected = data.decode().removesuffix("\n").split("\n") if data else []
    found = [text for chunk in chunks_of(pipe, data, 100) for _, text in chunk]
    assert found == expected


def test_what_windows_adds_is_taken_off(pipe: Pipe) -> None:
    found = chunks_of(pipe, b"\xef\xbb\xbfa\r\nb\r\n\xef\xbb\xbfc\n", 100)
    assert found == [[(1, "a"), (2, "b"), (3, "\ufeffc")]]


def test_a_line_longer_than_a_block_stays_whole(pipe: Pipe) -> None:
    reader, writer = pipe
    chunks = chunks_of_lines(reader, most=100)
    line = "ä" * 30_000
    for _ in range(3):  # a pipe holds 64 KiB; each write fits after the one before was read
        writer.write(line.encode())
        writer.write(b"\n")
        assert [text for _, text in next(chunks)] == [line]


@pytest.mark.parametrize(
    ("bad", "said"),
    [(b"g\xc3t", "Line 3 .*UTF-8 text .byte 2 is 0xC3"), (b"g\0t", "Line 3 .*NUL byte")],
)
def test_the_lines_before_a_bad_one_are_given_first(pipe: Pipe, bad: bytes, said: str) -> None:
    reader, writer = pipe
    writer.write(b"a\nb\n" + bad + b"\nd\n")
    chunks = chunks_of_lines(reader, most=100)
    assert next(chunks) == [(1, "a"), (2, "b")]
    with pytest.raises(SconesError, match=said):
        next(chunks)
