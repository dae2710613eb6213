"""What the benchmarks share: flags, turns, clocks, facts for the JSON file, tables.

A benchmark lets its contenders take turns in one run, so that whatever else the machine does hits
all alike, and lets the median count.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import torch

from scones.files import commit, write_json

OUT_OF_MEMORY = "out of memory"

_PACKAGES = ("torch", "triton", "transformers", "liger_kernel", "ctranslate2")

T = TypeVar("T")


def flags(documentation: str | None) -> argparse.ArgumentParser:
    """Make a parser with the flags that every benchmark has."""
    question = (documentation or "").partition("\n")[0]
    parser = argparse.ArgumentParser(description=question)
    parser.add_argument("--toy", action="store_true", help="tiny sizes: try the script, not speed")
    parser.add_argument("--repeats", type=int, default=5, help="rounds, in which all take turns")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--json", type=Path, help="write the numbers to this file too")
    return parser


def take_turns(runs: Mapping[str, Callable[[], T]], repeats: int) -> dict[str, list[T]]:
    """Run all of them `repeats` times in turns; every round begins with another one."""
    names = list(runs)
    results: dict[str, list[T]] = {name: [] for name in names}
    for repeat in range(repeats):
        first = repeat % len(names)
        for name in names[first:] + names[:first]:
            results[name].append(runs[name]())
    return results


def seconds(run: Callable[[], object], device: torch.device) -> float:
    """Time a call by the wall clock, until the device has done all of it."""
    wait(device)
    begin = time.perf_counter()
    run()
    wait(device)
    return time.perf_counter() - begin


def wait(device: torch.device) -> None:
    """Let the device finish what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def if_it_fits(run: Callable[[], T]) -> T | None:
    """Give what a call gives, or None where the device has not enough memory for it."""
    try:
        return run()
    except torch.OutOfMemoryError:
        pass  # the traceback holds tensors; they are free only after this block
    free_memory()
    return None


def free_memory() -> None:
    """Give what nobody uses any more back to the GPU."""
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()


def has_compiler() -> bool:
    """Say whether torch.compile finds the C++ compiler that it needs."""
    return shutil.which(os.environ.get("CXX", "g++")) is not None


def facts(device: torch.device) -> dict[str, Any]:
    """Say what was measured where: command, commit, device, versions."""
    on_gpu = device.type == "cuda"
    return {
        "command": " ".join(["python", *sys.argv]),
        "commit": commit(),
        "device": torch.cuda.get_device_name(device) if on_gpu else processor(),
        "threads": torch.get_num_threads(),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        **{name: _version(name) for name in _PACKAGES},
    }


def processor() -> str:
    """Name the CPU."""
    place = Path("/proc/cpuinfo")
    for line in place.read_text().splitlines() if place.exists() else ():
        if line.startswith("model name"):
            return line.partition(": ")[2]
    return platform.processor()


def save(result: Mapping[str, Any], path: Path | None) -> None:
    """Write the JSON file where one is asked for."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, result)


def show(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; its title stands over the first column, numbers to the right."""
    lines = [[title, *head], *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    print()
    for name, *cells in lines:
        right = "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True))
        print(f"{name:{widths[0]}}{right}", flush=True)


def number(value: float | None, digits: int = 0) -> str:
    """Write a number for a table; a dash where there is none."""
    return "–" if value is None else f"{value:,.{digits}f}"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
