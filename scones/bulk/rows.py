"""Rows of large files: where shards begin, the texts of a shard, its rows with what was added.

A file is text, JSON lines or Parquet, here or wherever fsspec reads. One that is packed has no
middle to begin at: a worker keeps it open and reads on, past what others take.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import Any

from scones.errors import SconesError, optional_import
from scones.text.reading import (
    BYTE_ORDER_MARK,
    DAMAGED,
    MAX_LINE_BYTES,
    bad_byte,
    checked_first_line,
    skip_rest_of_line,
    unpacked,
)

_ABSENT = "The package {} is needed; install it with pip install 'scones[bulk]'."


@dataclass(frozen=True)
class Fault:
    """Why a row has nothing to translate or to score."""

    reason: str


Texts = tuple[str, ...] | Fault
"""Of a row: a sentence, or one and its translation."""


@dataclass(frozen=True)
class Shard:
    """Some rows of an input, the unit of work."""

    number: int
    """Counted over all inputs: it depends on them, and on how many rows a shard has, alone."""
    input: str
    start: int
    """Its first byte, unpacked; of Parquet its first row."""
    rows: int


Added = Mapping[str, tuple[str, Sequence[Any]]]
"""New columns by name: what Arrow calls their type, and their values."""

ALTERNATIVES = "alternatives"
"""A type of ours: a list of translations, each with its text and what is known of it."""


@dataclass(frozen=True)
class Rows:
    """The rows of a shard: objects of JSON lines, or a table of Parquet."""

    texts: Sequence[Texts]
    content: Any

    def rendered(self, added: Added) -> bytes:
        """The file of these rows with new columns."""
        if isinstance(self.content, list):
            new = zip(*(values for _, values in added.values()), strict=True)
            named = (dict(zip(added, values, strict=True)) for values in new)
            rows = (row | more for row, more in zip(self.content, named, strict=True))
            return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
        table, file = self.content, io.BytesIO()
        for name, (kind, values) in added.items():
            table = table.append_column(name, _arrow().array(values, _type_of(kind)))
        _arrow("pyarrow.parquet").write_table(table, file, compression="zstd")
        return file.getvalue()


def _arrow(module: str = "pyarrow") -> Any:
    return optional_import(module, _ABSENT.format("pyarrow"))


def _type_of(kind: str) -> Any:
    """What Arrow takes for a type: mostly its name."""
    known = {"text": "string", "log_prob": "float64", "confidence": "float64"}
    return _arrow().list_(_arrow().struct(known)) if kind == ALTERNATIVES else kind


# Files, wherever they are.


def file_system(url: str) -> tuple[Any, str]:
    """What reads and writes there, and the name that it has there."""
    fsspec = optional_import("fsspec", _ABSENT.format("fsspec"))
    try:
        found: tuple[Any, str] = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as problem:
        raise SconesError(f"{url} cannot be opened ({problem}).") from None
    return found


def is_local(system: Any) -> bool:
    return "file" in system.protocol


def expanded(urls: Sequence[str]) -> list[str]:
    """The files that were named, by patterns too where no shell expands them."""
    files: list[str] = []
    for url in urls:
        system, path = file_system(url)
        names = sorted(system.glob(path)) if "*" in path else [path]
        if not names:
            raise SconesError(f"{url} stands for no file.")
        files += names if is_local(system) else map(system.unstrip_protocol, names)
    return files


def format_of(url: str) -> str:
    """What a file holds: "text", "jsonl" or "parquet", by its name without what packed it."""
    name = PurePosixPath(url)
    suffix = PurePosixPath(name.stem if name.suffix in (".gz", ".xz", ".zst") else name).suffix
    return {".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl"}.get(suffix, "text")


def state_of(url: str) -> list[Any]:
    """Size and time of change, which tell that a file is not what it was."""
    system, path = file_system(url)
    with explained(url):
        info, changed = system.info(path), ""
        if info["type"] == "directory":
            raise IsADirectoryError
        with suppress(NotImplementedError):
            changed = str(system.modified(path))
    return [info["size"], changed]


@contextmanager
def explained(url: str) -> Iterator[None]:
    """Say what is wrong with a file as a whole."""
    try:
        yield
    except FileNotFoundError:
        raise SconesError(f"{url} does not exist.") from None
    except IsADirectoryError:
        raise SconesError(f"{url} is a folder; name the files in it.") from None
    except DAMAGED as problem:
        raise SconesError(
            f"{url} is damaged or cut off ({problem}); download or compress it again."
        ) from None
    except OSError as problem:
        raise SconesError(f"{url} cannot be read ({problem.strerror or problem}).") from None
    except ValueError as problem:  # Arrow's errors are such
        why = str(problem).partition("\n")[0].rstrip(".")
        raise SconesError(f"{url} is damaged or no Parquet file ({why}).") from None


@lru_cache(1)
def _opened(url: str) -> Any:
    """The file that was read last stays open: the next shard mostly lies behind this one."""
    system, path = file_system(url)
    # What fsspec reads from afar it reads in Python; around it a buffer in C.
    file = Path(path) if is_local(system) else io.BufferedReader(system.open(path))
    return unpacked(file, PurePosixPath(path))


@lru_cache(1)
def _table(url: str) -> Any:
    system, path = file_system(url)
    return _arrow("pyarrow.parquet").ParquetFile(system.open(path))


@lru_cache(1)
def _row_group(url: str, number: int) -> Any:
    return _table(url).read_row_group(number)


# Where shards begin.


def divided(
    url: str, columns: Sequence[str], added: Sequence[str], most: int
) -> list[tuple[int, int]]:
    """Start and number of rows of the shards of a file; what is wrong with all of it shows now."""
    for cached in (_opened, _table, _row_group):  # another file may have had the name
        cached.cache_clear()
    with explained(url):
        if format_of(url) == "parquet":
            types = {field.name: str(field.type) for field in _table(url).schema_arrow}
            _check_names(url, types, columns, added)
            for name in columns:
                if "string" not in types[name]:
                    raise SconesError(f"The column {name!r} of {url} is {types[name]}, not text.")
            return list(_of_table(url, most))
        file = _opened(url)
        file.seek(0)
        first = checked_first_line(Path(url), file.readline(MAX_LINE_BYTES))
        if not first:
            raise SconesError(f"{url} is empty; give a file with at least one line.")
        if format_of(url) == "jsonl":
            found = _object_in(first.rstrip(b"\r\n"))
            if isinstance(found, Fault):
                raise SconesError(f"{url}, line 1 {found.reason}; give JSON lines.")
            _check_names(url, found, columns, added)
        return list(_of_lines(file, most))


def _of_table(url: str, most: int) -> Iterator[tuple[int, int]]:
    """No shard is in two row groups: a row group is what is read of such a file."""
    for _, first, rows in _row_groups(url):
        for start in range(first, first + rows, most):
            yield start, min(most, first + rows - start)


def _row_groups(url: str) -> Iterator[tuple[int, int, int]]:
    """Number, first row and rows of each."""
    file, first = _table(url), 0
    for number in range(file.num_row_groups):
        rows = file.metadata.row_group(number).num_rows
        yield number, first, rows
        first += rows


def _of_lines(file: Any, most: int) -> Iterator[tuple[int, int]]:
    file.seek(0)
    start = position = rows = 0
    ended = True
    for piece in iter(partial(file.readline, MAX_LINE_BYTES), b""):
        position += len(piece)
        ended = piece.endswith(b"\n")
        rows += ended
        if rows == most:
            yield start, rows
            start, rows = position, 0
    if rows := rows + (not ended):
        yield start, rows


def _check_names(
    url: str, known: Mapping[str, Any], columns: Sequence[str], added: Sequence[str]
) -> None:
    for name in columns:
        if name not in known:
            raise SconesError(
                f"{url} has no column {name!r}, but {', '.join(known)}; say which with --column "
                "and, for pairs, --target-column."
            )
    for name in added:
        if name in known:
            raise SconesError(
                f"{url} has a column {name!r} already; let the new names begin with a --prefix."
            )


# The rows of a shard.


def read(shard: Shard, columns: Sequence[str]) -> Rows:
    """Read a shard; what is wrong with a row is its `Fault`."""
    with explained(shard.input):
        if format_of(shard.input) == "parquet":
            table = _slice_of(shard)
            chosen = zip(*(table[name].to_pylist() for name in columns), strict=True)
            return Rows([_texts(row) for row in chosen], table)
        lines = list(_lines_of(shard))
    if len(lines) < shard.rows:
        raise SconesError(f"{shard.input} has changed since its rows were counted; start anew.")
    is_json = format_of(shard.input) == "jsonl"
    objects, texts = list[dict[str, Any]](), list[Texts]()
    for line in lines:
        found = _object_in(line) if is_json else _columns_in(line, columns)
        if isinstance(found, Fault):
            objects.append({"line": line.decode(errors="backslashreplace")})
            texts.append(found)
        else:
            objects.append(found)
            texts.append(_texts([found.get(name) for name in columns]))
    return Rows(texts, objects)


def _slice_of(shard: Shard) -> Any:
    for number, first, rows in _row_groups(shard.input):
        if shard.start < first + rows:
            return _row_group(shard.input, number).slice(shard.start - first, shard.rows)
    raise SconesError(f"{shard.input} has changed since its rows were counted; start anew.")


def _lines_of(shard: Shard) -> Iterator[bytes]:
    """Its lines without their ends; one that is far too long is cut, which its length tells."""
    file = _opened(shard.input)
    file.seek(shard.start)
    for number in range(shard.rows):
        line = file.readline(MAX_LINE_BYTES + 1)
        if not line:
            return
        if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            skip_rest_of_line(file)
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        yield line.removeprefix(BYTE_ORDER_MARK) if shard.start == number == 0 else line


def _texts(values: Sequence[Any]) -> Texts:
    if all(isinstance(value, str) for value in values):
        return tuple(values)
    return Fault("has no text" if None in values else "has something that is not text")


def _columns_in(line: bytes, columns: Sequence[str]) -> dict[str, Any] | Fault:
    """A line of text as a row: one column, or two with a TAB between them."""
    if fault := _fault_of(line):
        return fault
    texts = line.decode().split("\t") if len(columns) > 1 else [line.decode()]
    if len(texts) != len(columns):
        return Fault(f"has {len(texts) - 1} TAB characters instead of one")
    return dict(zip(columns, texts, strict=True))


def _object_in(line: bytes) -> dict[str, Any] | Fault:
    """A line of JSON lines as a row."""
    if fault := _fault_of(line):
        return fault
    try:
        found = json.loads(line)
        json.dumps(found, ensure_ascii=False).encode()  # half a character could not be written
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else Fault("is no JSON object")


def _fault_of(line: bytes) -> Fault | None:
    if len(line) > MAX_LINE_BYTES:
        return Fault(f"is longer than {MAX_LINE_BYTES:,} bytes")
    fault = bad_byte(line)
    return Fault(f"is not UTF-8 text ({fault})") if fault else None
