"""One way to run experiments: commands of `scones` as processes, in chains, several at once.

A job writes NAME.log and, when it has ended well, NAME.done.json with what it was made with. Jobs
that need one another are a chain: trained, then translated, then searched. Chains go on side by
side, without waiting for one another; where one breaks, the others go on to their ends. Whatever
was stopped goes on from there when it is started again.

What stands beside one another must have been made alike: `differences` says in what it was not.
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

from replication.plan import EvaluationSet, SearchSettings, Training
from replication.results import Json
from scones.errors import SconesError
from scones.files import read_json, write_json
from scones.hardware import SHARES
from scones.text.store import TokenStore
from scones.training.loop import interruptible

Say = Callable[[str], None]
"""Told whenever something begins or ends."""

_ROOT = Path(__file__).resolve().parents[1]
_PAUSE = 0.1
"""Seconds between two looks at what is running."""
_GRACE = 60.0
"""Seconds that a process has for a last checkpoint."""


# Made alike?


def differences(asked: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """In which settings two things differ, each as "max_states 20, not 21": found, then asked.

    What only one of them tells is no difference; what only one section of a recipe has is.
    """
    said = []
    for name in (one for one in asked if one in found):
        ours, theirs = asked[name], found[name]
        if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
            keys = dict.fromkeys((*theirs, *ours))
            said += [f"{name} {one}" for one in differences({**keys, **ours}, {**keys, **theirs})]
        elif ours != theirs:
            said.append(f"{name} {_shown(theirs)}, not {_shown(ours)}")
    return said


def require_alike(place: Path, asked: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Refuse to put what is asked for beside what was made with something else."""
    if said := differences(asked, found):
        raise SconesError(
            f"{place} was made with {said[0]}; give the same again, choose another folder, or "
            "remove it."
        )


def _shown(value: Any) -> str:
    return "nothing" if value is None else str(value)


# Jobs, and chains of them.


@dataclass(frozen=True)
class Job:
    """A command, and how to know it again."""

    name: str
    """What people are told."""
    command: Sequence[str]
    """The words behind `scones`."""
    log: Path
    made_with: Json | None = None
    """What decides the outcome, as JSON knows it; no paths, so that folders can be moved. None: the
    outcome itself shows whether it was done, and only jobs that were not are made."""
    made: Path = Path()
    """What it leaves; where that was removed, the job is not done."""

    @property
    def is_done(self) -> bool:
        """Whether the very same was done already."""
        if self.made_with is None or not self.marker.exists() or not self.made.exists():
            return False
        return bool(read_json(self.marker) == self.made_with)

    @property
    def marker(self) -> Path:
        return self.log.with_suffix(".done.json")

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
        if code:
            lines = self.log.read_text(errors="replace").splitlines() or ["nothing was said"]
            said = lines[-1].removeprefix("scones: ").rstrip(".")
            raise SconesError(f"{self.name} failed: {said} (exit code {code}, see {self.log}).")
        if self.made_with is not None:
            write_json(self.marker, self.made_with)


def run_all(chains: Sequence[Iterable[Job]], at_once: int, say: Say) -> None:
    """Run the jobs that are not done, so many at once; Ctrl-C stops all of them.

    The next job of a chain is asked for when the one before has ended well. One that fails ends its
    chain; that is said at once, and raised when all others have ended.
    """
    environment = _environment(min(at_once, len(chains)))
    waiting = deque(_processes(chain, environment, say) for chain in chains)
    running: dict[subprocess.Popen[bytes], Iterator[subprocess.Popen[bytes]]] = {}
    failures: list[Exception] = []
    with interruptible() as interrupted:
        try:
            while waiting or running:
                while waiting and len(running) < at_once:
                    chain = waiting.popleft()
                    try:
                        if process := next(chain, None):
                            running[process] = chain
                    except (SconesError, OSError) as failure:
                        say(str(failure))
                        failures.append(failure)
                time.sleep(_PAUSE if running else 0)
                for process in [one for one in running if one.poll() is not None]:
                    waiting.appendleft(running.pop(process))  # what was begun is ended first
                if interrupted.is_set():
                    raise KeyboardInterrupt
        finally:
            _stop(running)
    if failures:
        raise failures[0]


def _processes(
    chain: Iterable[Job], environment: Mapping[str, str], say: Say
) -> Iterator[subprocess.Popen[bytes]]:
    """Start the jobs of a chain that are not done; asked for the next when the last has ended."""
    for job in chain:
        if not job.is_done:
            process = job.start(environment)
            say(f"{job.name}: begins")
            yield process
            job.end(process.returncode)
            say(f"{job.name}: done")


def _environment(at_once: int) -> dict[str, str]:
    """Share the cores and a GPU's memory out; what the user has set stands."""
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    if at_once <= 1:
        return environment
    threads = max(1, (os.cpu_count() or 1) // at_once)
    return {"OMP_NUM_THREADS": str(threads), SHARES: str(at_once), **environment}


def _stop(processes: Iterable[subprocess.Popen[bytes]]) -> None:
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


# The two jobs that all experiments have; a model's logs and searches lie beside its folder.


def training_job(
    name: str, training: Training, store: Path, model: Path, output: Json, seed: int
) -> Job:
    """Train a model: `training` is what all of an experiment share, the rest is its own."""
    words = ["train", str(store), str(model), "--recipe", str(training.recipe)]
    for key, value in output.items():
        words += ["--output-layer" if key == "layer" else flag(key), str(value)]
    words += ["--seed", str(seed), "--device", training.device]
    for key, value in training.budget.items():
        words += [flag(key), str(value)]
    made_with = {
        "data": TokenStore.open(store).digest,
        "recipe": {**training.sections, "output": {**training.output, **output}},
        "seed": seed,
        **training.budget,
    }
    log = model.with_name(f"{model.name}.train.log")
    return Job(f"{name}: training", words, log, made_with, model)


def search_job(
    name: str,
    model: Path,
    test: EvaluationSet,
    search: SearchSettings,
    device: str,
    made_with: Json | None = None,
) -> Job:
    """Search a test set with beams and exactly; MODEL.search holds what was found."""
    found = model.with_name(f"{model.name}.search")
    words = ["analyze", f"{model.name}={model}", "--source", str(test.source)]
    words += ["--reference", str(test.reference), "--output", str(found)]
    words += ["--sentences", str(search.sentences), "--device", device]
    words += ["--max-states", str(search.max_states)]
    if search.max_memory is not None:
        words += ["--max-memory", str(search.max_memory)]
    for size in search.beams:
        words += ["--beam-size", str(size)]
    return Job(f"{name}: search", words, found.with_name(f"{found.name}.log"), made_with, found)


def output_of(alpha: float | None) -> Json:
    """The output layer's settings: SCONES with an α, or softmax."""
    return {"layer": "softmax"} if alpha is None else {"layer": "scones", "alpha": alpha}


def flag(name: str) -> str:
    """How an option is written on the command line."""
    return f"--{name.replace('_', '-')}"
