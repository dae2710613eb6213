"""How a command ended, and what it left behind."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO

import pytest

from scones.cli import run

PROGRESS = re.compile(
    r"[\w ]+: [\d,]+( of [\d,]+)? (pairs|rows)|step +\d+ .*|\w+: (greedy|beam \d+)(: 0 of .*)?"
    r"|\S+: \d of \d sets"
)


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


def called(*words):
    """Run a command in this process, where no fixture is there to catch what it says."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = run([str(word) for word in words])
    return Done(code, out.getvalue(), err.getvalue())


def ended_well(*words):
    done = called(*words)
    assert done.code == 0, done.err
    return done


@contextmanager
def no_file_larger_than(size):
    """Let no file grow beyond so many bytes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.MonkeyPatch.context() as patches:
        # Else git, asked for the commit, may refresh its index, die of the limit and leave a lock.
        patches.setenv("GIT_OPTIONAL_LOCKS", "0")
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def in_a_process(*words, stdin, first=None, launcher=()):
    """Run a command in a process of its own, in which something else is done first."""
    process = subprocess.run(
        [sys.executable, *launcher, "-m", "scones", *map(str, words)],
        input=stdin,
        capture_output=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        timeout=60,
        preexec_fn=first,
    )
    return Done(process.returncode, process.stdout.decode(), process.stderr.decode())


def assert_refusal(done, said):
    """Check that a command ended with one clear sentence, progress before it aside."""
    assert done.code == 2, done
    *earlier, sentence = done.err.splitlines()
    assert all(PROGRESS.fullmatch(line) for line in earlier), done.err
    assert re.fullmatch(r"scones: \S.*[.?]", sentence), sentence
    assert re.search(said, sentence), sentence


def contents(folder):
    """Give all that lies under a folder, hidden things included: bytes by name."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }
