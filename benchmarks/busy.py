"""What is left of training and translating while other programs keep the cores busy?

    python benchmarks/busy.py STORE SENTENCES --loops 0 2 --against HEAD~1 --json FILE
    python benchmarks/busy.py STORE SENTENCES --loops 0 --speedup      two threads against one

Counted are the steps of 30 seconds of `scones train` (a pocket model's sizes) and the CPU time per
sentence of translating, as people do (int8, scores included) and in float32 by PyTorch, beside so
many endless loops. All cores, the same with one thread, and all cores at an older revision take
turns; --speedup gives sentences/s for 1,000 sentences.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import torch
from common import facts, flags, number, save, show, take_turns

HERE, OLD, ONE = "all cores", "before", "one thread"
SIZES = ["--preset", "small", "--encoder-layers", "8", "--decoder-layers", "2", "--device", "cpu"]
TRANSLATE = """
import json, sys, time, scones
lines = open(sys.argv[1], encoding="utf-8").read().splitlines()
size, limit, how = int(sys.argv[2]), float(sys.argv[3]), json.loads(sys.argv[4])
translator = scones.load("pocket-de-en", device="cpu", **how)
translator.translate(lines[:4])  # warm
done, begin, cpu = 0, time.perf_counter(), time.process_time()
while not done or (time.perf_counter() - begin < limit and done + size <= len(lines)):
    translator.translate(lines[done : done + size])
    done += size
wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
print(json.dumps({"rate": done / wall, "cpu": 1000 * cpu / done}))
"""
# As the model is stored, and so as most people run it; and in float32.
WAYS = {"int8": {}, "float32": {"precision": "float32", "engine": "torch"}}


@dataclass(frozen=True)
class Contender:
    """A checkout, with a number of threads or all cores."""

    checkout: Path
    threads: int | None = None

    def call(self, *words: object) -> dict[str, float]:
        """Run Python with these words; it prints what it measured."""
        environment = {**os.environ, "PYTHONPATH": str(self.checkout.resolve())}
        # Importing the benchmarks has set what is to be measured.
        for name in ("OMP_NUM_THREADS", "GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
            environment.pop(name, None)
        if self.threads is not None:
            environment["OMP_NUM_THREADS"] = str(self.threads)
        command = [sys.executable, *map(str, words)]
        done = subprocess.run(  # Python looks into the folder that it is started in first
            command, env=environment, capture_output=True, text=True, check=True, cwd=self.checkout
        )
        measured: dict[str, float] = json.loads(done.stdout)
        return measured

    def steps(self, options: argparse.Namespace) -> float:
        """Steps in 30 s of training."""
        with tempfile.TemporaryDirectory() as scratch:
            words = ["-m", "scones", "train", options.store, f"{scratch}/model", *SIZES, "--json"]
            words += ["--precision", options.precision, "--max-tokens", options.max_tokens]
            result = self.call(*words, "--max-minutes", options.seconds / 60)
        return 30 * result["steps"] / result["seconds"]

    def sentence(self, way: str, options: argparse.Namespace) -> float:
        """CPU milliseconds a sentence, small batches as a person would have them."""
        how = json.dumps(WAYS[way])
        return self.call("-c", TRANSLATE, options.sentences, 20, options.seconds, how)["cpu"]

    def rate(self, way: str, options: argparse.Namespace) -> float:
        """Sentences a second, of 1,000 given at once."""
        how = json.dumps(WAYS[way])
        return self.call("-c", TRANSLATE, options.sentences, 1000, 0, how)["rate"]


@contextmanager
def beside(loops: int) -> Iterator[None]:
    """Keep so many endless loops running."""
    endless = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for one in endless:
            one.kill()
            one.wait()


@contextmanager
def worktree(revision: str) -> Iterator[Path]:
    """Check out a revision for as long as it is needed."""
    git = ["git", "-C", str(Path(__file__).parents[1]), "worktree"]
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "before")
        subprocess.run([*git, "add", "--detach", path, revision], check=True, capture_output=True)
        try:
            yield path
        finally:
            subprocess.run([*git, "remove", "--force", path], check=True, capture_output=True)


def measure(
    contenders: dict[str, Contender], options: argparse.Namespace
) -> dict[str, dict[str, list[float]]]:
    """Let all of them take turns at everything."""
    what, task = ("sentences/s", Contender.rate) if options.speedup else ("ms", Contender.sentence)
    tasks: dict[str, Callable[[Contender], float]] = {
        f"{what}, {way}": partial(task, way=way, options=options) for way in WAYS
    }
    if not options.speedup:
        tasks["steps"] = partial(Contender.steps, options=options)
    results = {}
    for loops in options.loops:
        with beside(loops):
            for what, measured in tasks.items():
                runs = {name: partial(measured, one) for name, one in contenders.items()}
                results[f"{what}, {loops} loops"] = take_turns(runs, options.repeats)
    return results


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = flags(__doc__)
    parser.add_argument("store", type=Path, help="a store to train on")
    parser.add_argument("sentences", type=Path, help="German text, one sentence a line")
    parser.add_argument("--loops", type=int, nargs="+", default=[0, 2], help="other programs")
    parser.add_argument("--against", metavar="REV", help="a revision to measure too")
    parser.add_argument("--seconds", type=float, default=10, help="length of a run")
    parser.add_argument("--precision", default="bf16", help="of training: bf16 or float32")
    parser.add_argument("--max-tokens", type=int, default=2048, help="of a training batch")
    parser.add_argument("--speedup", action="store_true", help="sentences/s of many sentences")
    options = parser.parse_args()
    options.store, options.sentences = options.store.resolve(), options.sentences.resolve()
    if options.toy:
        options.seconds = 1
    with ExitStack() as held:
        here = Path(__file__).resolve().parents[1]
        contenders = {HERE: Contender(here), ONE: Contender(here, 1)}
        if options.against:
            contenders[OLD] = Contender(held.enter_context(worktree(options.against)))
        results = measure(contenders, options)
    rows = []
    for what, found in results.items():
        medians = {name: median(values) for name, values in found.items()}
        ratios = [medians[HERE] / medians[name] for name in medians if name != HERE]
        cells = [number(value, 1) for value in medians.values()]
        rows.append([what, *cells, *(number(ratio, 2) for ratio in ratios)])
    others = [f"to {name}" for name in contenders if name != HERE]
    show("", [*contenders, *others], rows)
    save(facts(torch.device("cpu")) | {"results": results}, options.json)


if __name__ == "__main__":
    main()
