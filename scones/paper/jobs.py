"""Commands of this package as processes, several at once; what is done is not done again.

A job writes NAME.log and, when it has ended well, NAME.done.json with what it was made with. Jobs
that need one another are a chain: trained, then translated, then searched. Chains go on side by
side, without waiting for one another; where one breaks, the others go on to their ends. Whatever
was stopped goes on from there when it is started again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scones.errors import SconesError
from scones.files import read_json, write_json
from scones.hardware import SHARES
from scones.training.loop import interruptible

_PAUSE = 0.1
"""Seconds between two looks at what is running."""
_GRACE = 60.0
"""Seconds that a process has for a last checkpoint."""


@dataclass(frozen=True)
class Job:
    """A command, and how to know it again."""

    name: str
    """What people are told."""
    command: Sequence[str]
    """The words behind `scones`."""
    log: Path
    made_with: Mapping[str, Any] | None
    """What decides the outcome, as JSON knows it; no paths, so that folders can be moved. None: the
    outcome itself shows whether it was done, and only jobs that were not are made."""
    makes: Path | None = None
    """What it leaves; where that was removed, the job is not done."""

    @property
    def is_done(self) -> bool:
        """Whether the very same was done already."""
        if self.made_with is None or not self._marker.exists():
            return False
        if self.makes is not None and not self.makes.exists():
            return False
        return bool(read_json(self._marker) == self.made_with)

    def start(self, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Begin, in a session of its own, so that Ctrl-C comes once: from here."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "scones", *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )

    def end(self, code: int) -> None:
        """Take note that it ended well, or say why not."""
        if code == 0:
            if self.made_with is not None:
                write_json(self._marker, self.made_with)
            return
        lines = self.log.read_text(errors="replace").splitlines() or ["nothing was said"]
        said = lines[-1].removeprefix("scones: ").rstrip(".")
        raise SconesError(f"{self.name} failed: {said} (exit code {code}, see {self.log}).")

    @property
    def _marker(self) -> Path:
        return self.log.with_suffix(".done.json")


def run_all(chains: Sequence[Iterable[Job]], at_once: int, say: Callable[[str], None]) -> None:
    """Run the jobs that are not done, so many at once; Ctrl-C stops all of them.

    The next job of a chain is asked for when the one before has ended well. One that fails ends its
    chain; that is said at once, and raised when all others have ended.
    """
    waiting: deque[Iterator[Job]] = deque(iter(chain) for chain in chains)
    running: list[_Running] = []
    failures: list[SconesError] = []
    environment = _environment(min(at_once, len(chains)))
    with interruptible() as interrupted:
        try:
            while waiting or running:
                while waiting and len(running) < at_once:
                    try:
                        if begun := _begin(waiting.popleft(), environment, say):
                            running.append(begun)
                    except SconesError as failure:
                        say(str(failure))
                        failures.append(failure)
                time.sleep(_PAUSE)
                for one in [*running]:
                    if (code := one.process.poll()) is not None:
                        running.remove(one)
                        try:
                            one.job.end(code)
                        except SconesError as failure:
                            say(str(failure))
                            failures.append(failure)
                        else:
                            say(f"{one.job.name}: done")
                            waiting.appendleft(one.chain)  # what was begun is ended first
                if interrupted.is_set():
                    raise KeyboardInterrupt
        finally:
            _stop([one.process for one in running])
    if failures:
        raise failures[0]


@dataclass(frozen=True)
class _Running:
    """A job that has begun, and the chain that it is of."""

    job: Job
    process: subprocess.Popen[bytes]
    chain: Iterator[Job]


def _begin(
    chain: Iterator[Job], environment: Mapping[str, str], say: Callable[[str], None]
) -> _Running | None:
    """Begin the next job of a chain that is not done; None where there is none left."""
    for job in chain:
        if not job.is_done:
            process = job.start(environment)
            say(f"{job.name}: begins")
            return _Running(job, process, chain)
    return None


def _environment(at_once: int) -> dict[str, str]:
    """Share the cores and a GPU's memory out; what the user has set stands."""
    if at_once <= 1:
        return dict(os.environ)
    threads = max(1, (os.cpu_count() or 1) // at_once)
    return {"OMP_NUM_THREADS": str(threads), SHARES: str(at_once), **os.environ}


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask politely, which lets a training write a checkpoint, and then no more."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + _GRACE
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
