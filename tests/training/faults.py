"""Runs that are broken off while they write; a program of its own, for it forks.

Every case trains in a fork until the fault and goes on in another fork, which compares its end with
that of a run that nothing happened to. Prints a JSON object a case; takes a store and a folder.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import torch._dynamo  # every optimiser imports it, which takes seconds: once is enough
from tiny_run import assert_same_end, make_experiment

from scones.training.loop import train

STEPS = 4
FAULTY = "step-00000002"


def run(store: Path, folder: Path) -> None:
    """Train to the end, from wherever the folder stands."""
    options = {"checkpoint_every": 1, "average_last": 2, "validate_every": 3, "dev_sentences": 1}
    train(make_experiment({**options, "max_steps": STEPS}), store, folder, quiet=True)


def in_a_fork(work: Callable[..., None], *arguments: Any) -> int:
    """Do something in a copy of this process; gives its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        work(*arguments)
        code = 0
    except OSError:
        code = 2
    finally:
        os._exit(code)


def break_off(store: Path, folder: Path, kind: str, number: int) -> None:
    """Train until the `number`-th thing that is done to the disk for one checkpoint goes wrong."""
    done = 0

    def broken(real: Callable[..., Any]) -> Callable[..., Any]:
        def stand_in(*arguments: Any, **options: Any) -> Any:
            nonlocal done
            paths = [str(part) for part in arguments if isinstance(part, str | Path)]
            if real is fsync:
                paths = [str(Path(f"/proc/self/fd/{arguments[0]}").readlink())]
            counts = any(FAULTY in path for path in paths)
            done += counts
            if not counts or done != number:
                return real(*arguments, **options)
            if kind == "full disk":
                raise OSError(errno.ENOSPC, "No space left on device", paths[0])
            real(*arguments, **options)
            if real in (write_bytes, save_file):  # the next thing done is broken behind a whole one
                os.truncate(paths[-1], Path(paths[-1]).stat().st_size // 2)
            return os.kill(os.getpid(), signal.SIGKILL)

        return stand_in

    fsync, write_bytes, save_file = os.fsync, Path.write_bytes, safetensors.torch.save_file
    Path.write_bytes = broken(write_bytes)  # type: ignore[method-assign]
    safetensors.torch.save_file = broken(save_file)
    for name in ("fsync", "rename", "replace", "mkdir", "chmod"):
        setattr(os, name, broken(getattr(os, name)))
    shutil.rmtree = broken(shutil.rmtree)  # type: ignore[assignment]
    run(store, folder)


def go_on(store: Path, folder: Path, straight: Path) -> None:
    """Train to the end, which must be that of a run that nothing happened to."""
    run(store, folder)
    assert_same_end(straight, folder, STEPS)
    for name in ("model.safetensors", "last/model.safetensors"):
        assert (straight / name).read_bytes() == (folder / name).read_bytes(), name


def cases(store: Path, place: Path) -> Iterator[dict[str, Any]]:
    """Break every single step of writing a checkpoint."""
    straight, folder = place / "straight", place / "run"
    if in_a_fork(run, store, straight):
        raise RuntimeError("the run that nothing happens to failed")
    for kind in ("full disk", "killed"):
        for number in range(1, 1000):
            code = in_a_fork(break_off, store, folder, kind, number)
            if code == 0:  # nothing is left to break
                shutil.rmtree(folder)
                break
            again = in_a_fork(go_on, store, folder, straight)
            shutil.rmtree(folder)
            yield {"case": kind, "number": number, "code": code, "again": again}


if __name__ == "__main__":
    torch.set_num_threads(1)
    os.fsync = lambda descriptor: None  # no power is cut here, and hundreds of them take minutes
    for case in cases(Path(sys.argv[1]), Path(sys.argv[2])):
        print(json.dumps(case), flush=True)  # noqa: T201
