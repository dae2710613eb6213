"""How fast does a CPU translate: ours, CTranslate2 by hand, and the code of another revision?

    SCONES_DATA=... OMP_NUM_THREADS=1 python benchmarks/cpu.py --against main~10
    SCONES_DATA=... python benchmarks/cpu.py --task greedy --task beam --json FILE

Every measurement is a process of its own, and all contenders take turns; the median counts. What is
timed comes behind a warm-up, tokenising included; "start" and "load" are whole processes that
translate one sentence. "peer" is CTranslate2 in int8 and SentencePiece, called by hand, without
scores. "products" is a limit: what greedy search would take if there were nothing but its matrix
products, at the speed that PyTorch's have here in int8 (ours) and in float32.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# How many sentences each task translates, and how; None stands for one at a time.
TASKS: dict[str, tuple[int, dict[str, Any] | None]] = {
    "greedy": (1000, {"search": "greedy"}),
    "one": (100, None),
    "beam": (200, {"search": "beam", "beam_size": 4, "length_penalty": 0.0}),
    "all": (100, {"search": "all", "threshold": 0.1}),
    "exact": (50, {"search": "exact"}),
    "score": (500, {}),
    "start": (1, {}),
    "load": (1, {}),
    "products": (1000, {}),
}
PEER = ("greedy", "one")

Times = tuple[float, float]
"""CPU seconds, of all threads, and seconds by the clock."""


# In a process of its own.


def work(task: str, contender: str, model: str, texts: list[str]) -> Times:
    """Open a model, warm up, and time a task."""
    if task == "products":
        return products(contender, model, texts)
    run = by_hand(model) if contender == "peer" else by_scones(task, contender, model)
    how = TASKS[task][1]
    run(texts[:8])
    cpu, clock = time.process_time(), time.perf_counter()
    for part in [texts] if how is not None else [[text] for text in texts]:
        run(part)
    return time.process_time() - cpu, time.perf_counter() - clock


def products(contender: str, model: str, texts: list[str]) -> Times:
    """The time of the products of greedy search alone, as fast as products of its sizes are."""
    import torch

    import scones

    torch.set_num_threads(1)
    translator = scones.load(model, "cpu")
    sizes = translator.model.config
    sources = sum(len(ids) + 1 for ids in translator.subwords.encode(texts))
    targets = sum(len(one.tokens) + 1 for (one,) in translator.translate(texts))
    square, forward = sizes.size**2, sizes.size * sizes.feed_forward
    a_source = sizes.encoder_layers * (4 * square + 2 * forward) + sizes.decoder_layers * 2 * square
    a_target = sizes.decoder_layers * (6 * square + 2 * forward) + sizes.size * sizes.vocabulary
    left, right = torch.ones(512, sizes.size), torch.ones(sizes.size, sizes.feed_forward)
    product: Callable[[Any, Any], object] = torch.mm
    if contender == "ours":
        left, right, product = left.to(torch.int8), right.to(torch.int8), torch._int_mm
    times = []
    for _ in range(500):
        begin = time.thread_time()
        product(left, right)
        times.append(time.thread_time() - begin)
    seconds = median(times) / (512 * forward) * (sources * a_source + targets * a_target)
    return seconds, seconds


def by_scones(task: str, contender: str, model: str) -> Callable[[list[str]], object]:
    import scones

    precision: dict[str, Any] = {"precision": "float32"} if contender == "float32" else {}
    translator = scones.load(model, "cpu", **precision)
    if task == "score":
        return lambda texts: translator.score([(text, text) for text in texts])
    return partial(translator.translate, **(TASKS[task][1] or {}))


def by_hand(model: str) -> Callable[[list[str]], object]:
    import ctranslate2
    from sentencepiece import SentencePieceProcessor

    subwords = SentencePieceProcessor(model_file=f"{model}/subwords.model")
    threads = int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0)))
    engine = ctranslate2.Translator(
        model, compute_type="int8", inter_threads=threads, intra_threads=1
    )

    def translate(texts: list[str]) -> object:
        found = engine.translate_batch(
            subwords.encode(texts, out_type=str),
            beam_size=1,
            max_batch_size=1024,
            batch_type="tokens",
        )
        return subwords.decode([one.hypotheses[0] for one in found])

    return translate


# Of whole processes.


def measured(command: list[str], checkout: Path, text: str) -> tuple[Times, str]:
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    done = subprocess.run(
        command,
        input=text,
        env=environment,
        cwd=checkout,  # where `python -m` looks first
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    clock, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (cpu, clock), done.stdout


def once(task: str, contender: str, checkout: Path, model: str, texts: list[str]) -> Times:
    """Measure a contender at a task."""
    python = [sys.executable]
    if task == "start":
        return measured([*python, "-m", "scones", "translate", model], checkout, "Hallo.\n")[0]
    if task == "load":
        program = f"import scones; print(scones.load({model!r}).translate(['Hallo.']))"
        return measured([*python, "-c", program], checkout, "")[0]
    command = [*python, __file__, "--work", task, contender, model]
    cpu, clock = json.loads(measured(command, checkout, json.dumps(texts))[1].splitlines()[-1])
    return cpu, clock


@contextmanager
def checkout_of(revision: str | None) -> Iterator[Path | None]:
    """A worktree of another revision, for as long as it is measured."""
    if revision is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as place:
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", f"{place}/old", revision], check=True)
        try:
            yield Path(place, "old")
        finally:
            subprocess.run([*git, "remove", "--force", f"{place}/old"], check=True)


def converted(model: str, place: Path) -> Path:
    """The model as the peer opens it."""
    from scones.bridges.ctranslate2 import convert
    from scones.model.folder import SUBWORDS, FolderConfig, OpenedFolder

    opened = OpenedFolder.of(FolderConfig.read(model))
    convert(opened, place, "int8")
    (place / SUBWORDS).write_bytes(opened.subwords)
    return place


def sentences(toy: bool) -> dict[str, list[str]]:
    """News and everyday sentences, or for a try some of the built-in corpus."""
    from scones.text.creamtea import CreamTea
    from scones.text.reading import read_texts

    if toy:
        return {"creamtea": [one.source for one in CreamTea.load().sample(5, seed=1)]}
    data = Path(os.environ["SCONES_DATA"])
    return {
        "news": read_texts(data / "newstest" / "newstest2019.de-en.de.xz"),
        "everyday": read_texts(data / "tatoeba" / "test.de-en.de.xz"),
    }


def main() -> None:
    """Measure and print; or, behind --work, be one of the processes."""
    if sys.argv[1:2] == ["--work"]:
        task, contender, model = sys.argv[2:]
        print(json.dumps(work(task, contender, model, json.load(sys.stdin))))
        return
    import torch
    from common import facts, flags, number, save, show, take_turns

    from scones.bridges.ctranslate2 import library

    parser = flags(__doc__)
    parser.add_argument("--model", default="pocket-de-en")
    parser.add_argument("--task", action="append", choices=[*TASKS], help="may be repeated")
    parser.add_argument("--against", metavar="REV", help="a revision of git to compare with")
    parser.add_argument("--sentences", type=float, default=1.0, help="times as many sentences")
    options = parser.parse_args()
    library()  # the peer gets the instructions that we choose, which it inherits
    result: dict[str, Any] = {**facts(torch.device("cpu")), "results": []}
    with tempfile.TemporaryDirectory() as place, checkout_of(options.against) as old:
        peer = converted(options.model, Path(place))
        for text, lines in sentences(options.toy).items():
            for task in options.task or TASKS:
                # The mode of one long sentence can take minutes to prove.
                fit = [line for line in lines if task != "exact" or len(line.split()) < 13]
                some = fit[: max(1, int(TASKS[task][0] * options.sentences))]
                runs = {"ours": partial(once, task, "ours", ROOT, options.model, some)}
                if task not in ("score", "start", "load"):
                    runs["float32"] = partial(once, task, "float32", ROOT, options.model, some)
                if task in PEER:
                    runs["peer"] = partial(once, task, "peer", ROOT, str(peer), some)
                if old is not None and task != "products":
                    runs["old"] = partial(once, task, "old", old, options.model, some)
                times = take_turns(runs, options.repeats)
                rows = {name: middle(found) for name, found in times.items()}
                result["results"].append({"text": text, "task": task, "n": len(some), "of": times})
                cells = [
                    [name, number(cpu, 3), number(clock, 3), number(len(some) / cpu, 1)]
                    + [number(row_cpu / cpu, 2) for row_cpu, _ in rows.values()]
                    for name, (cpu, clock) in rows.items()
                ]
                ratios = [f"× {name}" for name in rows]
                show(f"{text}, {task}", ["CPU s", "clock s", "/CPU s", *ratios], cells)
    save(result, options.json)


def middle(times: list[Times]) -> Times:
    return median(cpu for cpu, _ in times), median(clock for _, clock in times)


if __name__ == "__main__":
    main()
