"""Reading standard input line by line, in as large chunks as are waiting."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from typing import BinaryIO

from scones.errors import SconesError
from scones.text.reading import bad_byte

_BLOCK = 1 << 16
_PATIENCE = 0.01  # seconds; a program that writes a file into a pipe is never silent for so long


def chunks_of_lines(stream: BinaryIO, most: int) -> Iterator[list[tuple[int, str]]]:
    """Give lists of (line number, text), each holding what has arrived, `most` lines at the most.

    Someone who types gets an answer after every line; a file is read in full chunks. Lines end
    in a newline alone; a carriage return before it and a byte-order mark are taken off.
    """
    number = 0
    chunk: list[tuple[int, str]] = []
    for line in _lines(stream.fileno()):
        if line is not None:
            number += 1
            try:
                chunk.append((number, _text(line, number)))
            except SconesError:
                if chunk:  # the lines before it are answered first
                    yield chunk
                raise
        if len(chunk) == most or (chunk and line is None):
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _lines(descriptor: int) -> Iterator[bytes | None]:
    """Give every line as it arrives, and None before each wait for the next one.

    It reads the descriptor itself, with no thread: a thread that waits in a buffered read keeps a
    lock without which Python cannot exit.
    """
    rest = b""
    while True:
        if not select.select([descriptor], [], [], _PATIENCE)[0]:
            yield None
        block = os.read(descriptor, _BLOCK)
        if not block:
            break
        *whole, rest = (rest + block).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _text(line: bytes, number: int) -> str:
    line = line.removesuffix(b"\r")
    if number == 1:
        line = line.removeprefix(b"\xef\xbb\xbf")
    if fault := bad_byte(line):
        raise SconesError(
            f"Line {number} of the input is not UTF-8 text ({fault}); convert it first, for "
            "example with iconv."
        )
    return line.decode()
