"""What does it cost to translate in shards: `scones bulk`, alone and on Ray, beside `translate`?

    python benchmarks/bulk.py --json docs/results/performance/bulk.json
    python benchmarks/bulk.py --memory 1000000 --model MODEL

All take turns on the built-in corpus. What counts is steady state: a long and a short run of each,
and the difference between the two, so that opening a model or starting Ray is left out. CPU seconds
are those of every process that a contender started; on a machine with other work they tell more
than the clock. With --memory, the most memory of `bulk` for a tenth of the sentences and for all.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median

import psutil
import torch
from common import facts, flags, number, save, show, take_turns

from scones.text.creamtea import CreamTea

Times = tuple[float, float]
"""CPU seconds of all processes, and seconds by the clock."""

_ADOPT = 36  # PR_SET_CHILD_SUBREAPER: what its parent leaves behind becomes a child of this process


def measured(words: list[str], stdin: Path | None = None) -> Times:
    """Run a command, and whatever it starts, to its end."""
    before, clock = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with (stdin or Path(os.devnull)).open("rb") as file:
        command = [sys.executable, "-m", "scones", *words]
        subprocess.run(command, stdin=file, capture_output=True, check=True)
    passed = time.perf_counter() - clock
    left = psutil.Process().children(recursive=True)
    psutil.wait_procs(left, timeout=20)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, passed


def contender(name: str, model: str, sentences: list[str], rows: int) -> Times:
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary) / "source.txt"
        source.write_text("".join(f"{sentence}\n" for sentence in sentences))
        if name == "translate":
            return measured(["translate", model], source)
        words = ["bulk", model, str(source), f"{temporary}/out", "--text", "--rows", str(rows)]
        launcher, _, workers = name.partition(" ")
        more = ["--launcher", launcher] + (["--workers", workers] if workers else [])
        return measured([*words, *more])


def steady(runs: dict[str, list[Times]], contenders: list[str]) -> dict[str, list[Times]]:
    """Long runs less short ones, round by round."""
    return {
        name: [
            (long[0] - short[0], long[1] - short[1])
            for long, short in zip(runs[f"{name} long"], runs[f"{name} short"], strict=True)
        ]
        for name in contenders
    }


def peak(words: list[str]) -> int:
    """The most memory that a command's processes have at a time, shared pages counted once each."""
    process, most, done = subprocess.Popen(words, stderr=subprocess.DEVNULL), 0, threading.Event()
    while process.poll() is None:
        with suppress(psutil.Error):
            family = psutil.Process(process.pid)
            each = [family, *family.children(recursive=True)]
            most = max(most, sum(one.memory_info().rss for one in each))
        done.wait(0.2)
    assert process.returncode == 0
    return most


def memory(model: str, rows: int) -> Iterator[tuple[int, int]]:
    texts = [example.source for example in CreamTea.load().sample(10_000, seed=1)]
    for count in (rows // 10, rows):
        with tempfile.TemporaryDirectory() as temporary:
            source = Path(temporary) / "source.txt"
            with source.open("w") as file:
                for line in range(count):
                    file.write(f"{texts[line % len(texts)]}\n")
            words = ["bulk", model, str(source), f"{temporary}/out", "--text"]
            yield count, peak([sys.executable, "-m", "scones", *words])


def main() -> None:
    """Measure, print, save."""
    parser = flags(__doc__)
    parser.add_argument("--model", default="pocket-de-en")
    parser.add_argument("--sentences", type=int, default=6000, help="of the long run")
    parser.add_argument("--contender", action="append", help='and others: "ray 1", one worker')
    parser.add_argument("--memory", type=int, default=0, help="measure that, with so many")
    options = parser.parse_args()
    if options.memory:
        rows = [
            (f"{count:,}", [number(most / 1e6)])
            for count, most in memory(options.model, options.memory)
        ]
        show("sentences", ["MB at most"], ([name, *cells] for name, cells in rows))
        return
    ctypes.CDLL(None).prctl(_ADOPT, 1)
    count = 300 if options.toy else options.sentences
    texts = [example.source for example in CreamTea.load().sample(count, seed=1)]
    contenders = ["translate", "local"]
    contenders += ["ray"] if importlib.util.find_spec("ray") else []
    contenders += options.contender or []
    sizes = {"long": texts, "short": texts[: count // 6]}
    runs = take_turns(
        {
            f"{name} {size}": partial(contender, name, options.model, some, max(1, count // 12))
            for name in contenders
            for size, some in sizes.items()
        },
        1 if options.toy else options.repeats,
    )
    found = steady(runs, contenders)
    base = median(cpu for cpu, _ in found["translate"])
    clock = median(passed for _, passed in found["translate"])
    table = []
    for name, times in found.items():
        cpu, passed = (median(column) for column in zip(*times, strict=True))
        table.append(
            [
                name,
                number(cpu, 2),
                number(base / cpu, 2),
                number(passed, 2),
                number(clock / passed, 2),
            ]
        )
    show("steady state", ["CPU s", "× translate", "s", "× translate"], table)
    about = {"facts": facts(torch.device("cpu")), "sentences": len(texts) - len(texts) // 6}
    save({**about, "runs": runs, "steady": found}, options.json)


if __name__ == "__main__":
    main()
