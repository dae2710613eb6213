"""Reading standard input line by line, in as large chunks as are waiting."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import BinaryIO

from scones.errors import SconesError


def chunks_of_lines(stream: BinaryIO, most: int) -> Iterator[list[tuple[int, str]]]:
    """Give lists of (line number, text), each holding what has arrived, `most` lines at the most.

    Someone who types gets an answer after every line; a file is read in full chunks. Lines end
    in a newline alone; a carriage return before it and a byte-order mark are taken off.
    """
    lines: queue.Queue[bytes | BaseException | None] = queue.Queue(maxsize=2 * most)

    def read() -> None:
        try:
            for line in stream:
                lines.put(line)
            lines.put(None)
        except BaseException as problem:  # handed on to whoever reads
            lines.put(problem)

    threading.Thread(target=read, daemon=True).start()
    number = 0
    more = True
    while more:
        chunk: list[tuple[int, str]] = []
        while len(chunk) < most:
            try:
                line = lines.get(block=not chunk)
            except queue.Empty:
                break
            if isinstance(line, BaseException):
                raise line
            if line is None:
                more = False
                break
            number += 1
            try:
                chunk.append((number, _text(line, number)))
            except SconesError as mistake:
                # The lines before it are answered first.
                if chunk:
                    yield chunk
                raise mistake from None
        if chunk:
            yield chunk


def _text(line: bytes, number: int) -> str:
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    if number == 1:
        line = line.removeprefix(b"\xef\xbb\xbf")
    try:
        text = line.decode()
    except UnicodeDecodeError as problem:
        raise SconesError(
            f"Line {number} of the input is not UTF-8 (byte 0x{line[problem.start]:02x} at "
            f"position {problem.start + 1}); convert it first, for example with iconv."
        ) from None
    if "\0" in text:
        raise SconesError(f"Line {number} of the input holds a NUL byte; remove it first.")
    return text
