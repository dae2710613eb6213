"""The user's cache folder: what was found out once and need not be found out again.

It is `$SCONES_CACHE`, or else `scones` in the system's folder for such things. Nothing in it is
needed, and one that cannot be read or written only costs time.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from scones.errors import SconesError
from scones.files import (
    FolderKind,
    damaged,
    file_digest,
    new_folder,
    read_json,
    real,
    write_file,
    write_json,
)

_SETTLED = 2.0
"""Seconds after which a file that is changed again has another time, on any file system."""


def cache_folder() -> Path:
    if told := os.environ.get("SCONES_CACHE"):
        return Path(told)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "scones"
    except RuntimeError:  # a user without a home
        return Path(os.devnull) / "scones"


def once_a_state(
    files: Iterable[Path], wanted: str, check: Callable[[], None], force: bool = False
) -> None:
    """Call `check`, unless it has passed before with the files as they are and `wanted` the same.

    The state of a file is its size, inode and time of change, which no program can set back.
    """
    try:
        stats = {str(real(path)): path.stat() for path in files}
    except OSError:  # something is missing, which the check will say
        check()
        return
    state = {name: (one.st_size, one.st_ino, one.st_ctime_ns) for name, one in stats.items()}
    seen = json.dumps([wanted, state])
    stamp = cache_folder() / "checked" / hashlib.sha256("\0".join(stats).encode()).hexdigest()
    if not force:
        with suppress(OSError):
            if stamp.read_text(encoding="utf-8") == seen:
                return
    check()
    if all(time.time() - one.st_ctime > _SETTLED for one in stats.values()):
        with suppress(OSError):
            stamp.parent.mkdir(parents=True, exist_ok=True)
            write_file(stamp, seen)


def check_digests(
    folder: Path, digests: Mapping[str, str], remedy: str, force: bool = False
) -> None:
    """Refuse a folder in which a file is not what its digest says; see `once_a_state`."""

    def check() -> None:
        for name, digest in digests.items():
            if file_digest(folder / name) != digest:
                raise damaged(folder / name, "it is not what was written there", remedy)

    once_a_state([folder / name for name in digests], json.dumps(digests), check, force)


_KIND = FolderKind("a folder of this cache", "digests.json", ("*",))


@contextmanager
def made_once(name: str, wanted: str, make: Callable[[Path], None]) -> Iterator[Path]:
    """A folder that `make` fills, in the cache the next time; `wanted` says all that decides it.

    What the cache has is used if it is what was written there. Where nothing can be kept, the
    folder is gone when the context is left.
    """
    kept = cache_folder() / name / hashlib.sha256(wanted.encode()).hexdigest()
    try:
        check_digests(kept, read_json(kept / _KIND.marker), "")
    except (SconesError, OSError, AttributeError, TypeError):
        pass
    else:
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="scones-") as temporary:
        made = Path(temporary)
        make(made)
        with suppress(OSError, SconesError), new_folder(kept, _KIND, overwrite=True) as hidden:
            shutil.copytree(made, hidden, dirs_exist_ok=True)
            digests = {path.name: file_digest(path) for path in made.iterdir()}
            write_json(hidden / _KIND.marker, digests)
        yield made
