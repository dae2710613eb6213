"""Writing to disk so that nothing is ever half-written: write beside, sync, rename.

The rule of the whole package: what we did not make is never removed or replaced. A folder that is
overwritten is of the kind that takes its place and holds nothing else (`FolderKind`); a file that
a user names is refused if it holds something else (`check_file`); a device or a pipe is written
to. What a killed process was writing is removed by the next that writes in its place.

Files of results say how their numbers were made: `Provenance`.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scones.errors import SconesError
from scones.version import __version__

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FolderKind:
    """A kind of folder that we make."""

    name: str
    marker: str
    """The file that makes a folder one of this kind; it is written last."""
    others: tuple[str, ...]
    """Patterns of the names of its other files."""

    def check(self, folder: Path, overwrite: bool) -> None:
        """Refuse a name under which such a folder must not be made, since something is there."""
        _remove_leftovers(real(folder).parent, real(folder).name)  # all but this may be done
        if not folder.exists():
            return
        if not overwrite:
            raise SconesError(f"{folder} exists already; choose another name or pass --overwrite.")
        names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        if self.marker not in names:
            raise SconesError(
                f"{folder} is not {self.name}, and --overwrite replaces nothing else; choose "
                "another name."
            )
        for name in names:
            if not any(fnmatchcase(name, known) for known in (self.marker, *self.others)):
                raise SconesError(
                    f"{folder} holds {name!r}, which is no part of {self.name}, so it is not "
                    "overwritten; choose another name."
                )


@contextmanager
def new_folder(
    target: Path, kind: FolderKind | None = None, *, overwrite: bool = False
) -> Iterator[Path]:
    """A hidden folder to fill; it takes target's place when all went well.

    On any exception it is removed, with the parents that were made for it, and `target` is as it
    was before. What may be overwritten is for its `kind` to say.
    """
    given, target = target, real(target)
    _remove_leftovers(target.parent, target.name)
    if kind is not None:
        kind.check(given, overwrite)
    elif target.exists():
        raise SconesError(f"{given} exists already; choose another name.")
    with _made(target.parent), _beside(target) as hidden:
        new, old = hidden / "new", hidden / "old"
        new.mkdir()
        yield new
        for path in (*sorted(new.rglob("*")), new):
            _sync_entry(path)
        try:
            if target.exists():
                target.rename(old)
            new.rename(target)
        finally:
            if old.exists() and not target.exists():
                old.rename(target)
        _sync_entry(target.parent)


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A hidden folder beside `target`, locked while it is in use; then, or next time, it goes."""
    _remove_leftovers(target.parent, target.name)
    # Beside it, not in /tmp: a rename is one step only within a file system.
    hidden = target.parent / f".{target.name}.writing-{os.getpid()}"
    with ExitStack() as held:
        while True:
            hidden.mkdir()
            with suppress(OSError):  # a file system without locks
                fcntl.flock(held.enter_context(_opened(hidden)), fcntl.LOCK_EX)
            if hidden.is_dir():  # until it is locked another process takes it for a leftover
                break
        held.callback(shutil.rmtree, hidden, ignore_errors=True)
        yield hidden


def _remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Remove what killed processes were writing; what one had moved away is back.

    Of all that they wrote in this folder, or of one file or folder in it.
    """
    for left in folder.iterdir() if folder.is_dir() else ():
        written = re.fullmatch(r"\.(.+)\.writing-\d+", left.name)
        if written and name in (None, written[1]):
            with suppress(OSError):
                _remove_leftover(left, folder / written[1])


def _remove_leftover(left: Path, target: Path) -> None:
    with _opened(left) as handle:
        # The system frees a lock when a process ends, however it ends.
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not left.is_dir():
            left.unlink()  # earlier versions wrote a file so
            return
        if (left / "old").exists() and not target.exists():
            (left / "old").rename(target)
        shutil.rmtree(left)


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Make a folder and its parents; those in which nothing was put are removed in the end."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):  # stops at the first that is not empty
            for path in made:
                path.rmdir()


@contextmanager
def sole_use(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Keep other processes from a folder to write to, which is made; leftovers in it go.

    One that is in use is refused, or waited for. The system frees the folder when a process ends,
    however it ends.
    """
    with _made(folder), _opened(folder) as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise SconesError(
                f"Another process is writing to {folder}; wait for it, or choose another folder."
            ) from None
        except OSError:  # a file system without locks
            pass
        _remove_leftovers(folder)
        yield


def write_file(path: Path, content: bytes | str) -> None:
    """Replace `path` by `content` in one step: a reader sees the old file or the new one.

    A device or a pipe is written to; a pipe that nobody reads is refused, not waited for.
    """
    path, content = Path(path), content.encode() if isinstance(content, str) else content
    if path.exists() and not path.is_file():
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_NONBLOCK), "wb") as device:
            os.set_blocking(device.fileno(), True)
            device.write(content)
        return
    with replaced(path) as beside:
        beside.write_bytes(content)


def real(path: Path) -> Path:
    """Where links lead: they stay, and lead to what is new."""
    return Path(os.path.realpath(path))  # unlike `resolve` it takes links that lead to themselves


def write_tensors(
    path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Write a safetensors file in one step; a full disk is an `OSError`, as it is elsewhere."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    if path.exists():
        regular(path)
    try:
        with replaced(path) as beside:
            save_file(tensors, beside, metadata)
            mask = os.umask(0)  # the only way to ask for it is to set it
            os.umask(mask)
            beside.chmod(0o666 & ~mask)  # safetensors lets nobody else read it
    except SafetensorError as problem:
        number = re.search(r"os error (\d+)", str(problem))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from problem


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, in one step."""
    write_file(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def damaged(path: Path | str, why: object, remedy: str = "") -> SconesError:
    """The error for a file that cannot be what it should be; `remedy` says what to do then."""
    return SconesError(f"{path} is damaged: {why}{'; ' if remedy else ''}{remedy}.")


def regular(path: Path) -> Path:
    """The path of a file that is there, and is one: a pipe in its place would be waited for.

    Below /dev it was named by the user, as the shell does it for `<(…)`.
    """
    if not path.exists():
        raise SconesError(f"{path} does not exist.")
    if not path.is_file() and path.parts[:2] != ("/", "dev"):
        raise SconesError(f"{path} is not a regular file.")
    return path


def file_digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with regular(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path) -> Any:
    """Read a JSON file; a missing or damaged one is a sentence, not a traceback."""
    content = regular(Path(path)).read_bytes()
    try:
        value = json.loads(content)
        if b"\\u" in content:  # half a character, which nothing could print, is written so
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except (ValueError, RecursionError) as problem:
        raise damaged(path, f"it is not valid JSON ({problem})") from None


def read_lines(path: Path, remedy: str) -> list[str]:
    """Read a text that we wrote ourselves; `remedy` is what helps where it is gone or damaged."""
    try:
        # Not splitlines(), which also breaks at characters that a line may hold.
        return regular(path).read_bytes().decode().split("\n")[:-1]
    except (SconesError, UnicodeDecodeError):
        raise damaged(path, "the text is missing or is not UTF-8", remedy) from None


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A hidden name to write to; that file takes the place of `path` when all went well."""
    path = real(path)
    with _beside(path) as hidden:
        yield hidden / "new"
        _sync_entry(hidden / "new")
        (hidden / "new").replace(path)
        _sync_entry(path.parent)


def check_file(path: Path, kind: str, is_ours: Callable[[Path], bool]) -> None:
    """Refuse a name for a file whose place something else has, before the work is done."""
    if path.is_file() and path.stat().st_size and not is_ours(path):
        raise SconesError(f"{path} exists and is not {kind}; choose another name.")


def check_result(path: Path, key: str) -> None:
    """The same for a JSON file of results, which are ours if they have a certain key."""

    def is_ours(path: Path) -> bool:
        try:
            return key in read_json(path)
        except (SconesError, TypeError):
            return False

    check_file(path, "a result of this command", is_ours)


def _sync_entry(path: Path) -> None:
    """Push a file, or the list of what is in a folder, to the disk itself."""
    with _opened(path) as handle:
        os.fsync(handle)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """A handle of a file or a folder; closed, it is locked no more. A pipe is not waited for."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield handle
    finally:
        os.close(handle)


@dataclass(frozen=True)
class Provenance:
    """How numbers were made; it stands beside them in every file of results.

    The order of the fields is that of the files; None is not written, but for the commit.
    """

    command: str
    models: dict[str, str] | None
    """Where the models lay, by name."""
    commit: str | None
    scones: str
    torch: str
    python: str
    machine: str
    device: str
    threads: int
    seed: int | None = None
    data_digest: str | None = None

    @classmethod
    def now(cls, device: str = "cpu", models: Mapping[str, Path] | None = None) -> Provenance:
        """That of what the running command computes on a device."""
        import torch

        on_gpu = device != "cpu" and torch.cuda.is_available()
        return cls(
            command=" ".join(["scones", *sys.argv[1:]]),
            models=None if models is None else {name: str(path) for name, path in models.items()},
            commit=commit(),
            scones=__version__,
            torch=torch.__version__,
            python=platform.python_version(),
            machine=platform.machine(),
            device=torch.cuda.get_device_name() if on_gpu else "cpu",
            threads=torch.get_num_threads(),
        )

    def to_json(self) -> dict[str, Any]:
        said = asdict(self).items()
        return {name: value for name, value in said if value is not None or name == "commit"}


# The version and the commit that made a number.


def versions() -> str:
    """Everything that decides a run's numbers: scones, its commit, PyTorch and Python."""
    from importlib.metadata import version

    source = commit()
    at = f" (commit {source})" if source else ""
    # Asking the installed package is a thousand times faster than importing it.
    return (
        f"scones {__version__}{at}, PyTorch {version('torch')}, Python {platform.python_version()}"
    )


@functools.cache
def commit() -> str | None:
    """The git commit of the source tree, "+" behind it if changed; None when installed.

    A copy of the tree without its history is told by the variable SCONES_COMMIT.
    """
    if told := os.environ.get("SCONES_COMMIT"):
        return told
    here = Path(__file__).resolve().parent
    if not (here.parent / ".git").exists():
        return None

    def git(*words: str) -> str:
        # Without locks: a git that dies, on a full disk say, would leave one behind.
        command = ["git", "--no-optional-locks", *words]
        done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "-s", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return None
