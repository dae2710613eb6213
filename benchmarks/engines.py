"""How many sentences a second do PyTorch, Hugging Face and CTranslate2 translate on this CPU?

    SCONES_DATA=... python benchmarks/engines.py --scones runs/a [--softmax runs/b] [--json FILE]

All engines get the same ids of the same sentences, each in batches of the size that suits it best
of a few. Their runs take turns, so that whatever else the machine does hits all alike; the median
counts. OMP_NUM_THREADS sets the number of threads, for all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from peer import Generate, hugging_face_model

from scones.bridges.ctranslate2 import CTranslate2Searcher, convert, gap
from scones.evaluation.metrics import bleu
from scones.files import commit
from scones.model.folder import ModelFolder
from scones.outputs import output_layer
from scones.search.engine import Searcher, SearchOptions, searcher
from scones.text import END
from scones.text.reading import read_texts
from scones.text.subwords import Subwords

BATCH_TOKENS = (256, 512, 1024, 2048, 4096, 8192)
GREEDY = SearchOptions(scores=False)
BEAM = SearchOptions("beam", beam_size=4, scores=False)
CPU = torch.device("cpu")
OURS, PEER, EXACT = "PyTorch", "Hugging Face", "CTranslate2 float32"

Ids = list[list[int]]
Translate = Callable[[Ids, SearchOptions], Ids]


@dataclass
class Engine:
    """One way to translate, and what was measured of it."""

    name: str
    translate: Translate
    options: SearchOptions
    seconds: list[float] = field(default_factory=list)
    output: Ids = field(default_factory=list)

    def run(self, sources: Ids) -> float:
        """Translate, and give the seconds that it took."""
        begin = time.perf_counter()
        self.output = self.translate(sources, self.options)
        return time.perf_counter() - begin

    def choose_batch(self, sources: Ids) -> None:
        """Try all batch sizes, after a warm-up, and keep the fastest."""
        self.run(sources[:50])
        times = {}
        for tokens in BATCH_TOKENS:
            self.options = replace(self.options, max_tokens=tokens)
            times[tokens] = self.run(sources)
        fastest = min(times, key=times.__getitem__)
        self.options = replace(self.options, max_tokens=fastest)


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = argparse.ArgumentParser(description="Sentences a second of three engines.")
    parser.add_argument("--scones", type=Path, help="a model folder: greedy search")
    parser.add_argument("--softmax", type=Path, help="a model folder: greedy search and beam 4")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the numbers to this file too")
    options = parser.parse_args()
    if "SCONES_DATA" not in os.environ or not (options.scones or options.softmax):
        sys.exit("Set SCONES_DATA to the folder of the corpora, and give --scones or --softmax.")
    data = Path(os.environ["SCONES_DATA"]) / "tatoeba"
    texts, references = (
        read_texts(data / f"test.de-en.{language}.xz")[: options.sentences]
        for language in ("de", "en")
    )
    result = facts(len(texts))
    print(f"{result['processor']}, {result['threads']} threads, {len(texts):,} sentences")
    for name, path, searches in (
        ("SCONES", options.scones, {"greedy": GREEDY}),
        ("softmax", options.softmax, {"greedy": GREEDY, "beam 4": BEAM}),
    ):
        for search, how in searches.items() if path else ():
            rows = measure(path, how, texts, references, options.repeats)
            result["results"].append({"model": str(path), "search": search, "engines": rows})
            show(f"{name}, {search}", rows)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


def measure(
    path: Path, search: SearchOptions, texts: list[str], references: list[str], repeats: int
) -> dict[str, dict[str, Any]]:
    """Let all engines translate in turns, and give a row of figures for each."""
    folder = ModelFolder.load(path)
    subwords = Subwords(folder.subwords)
    sources = subwords.encode(texts)
    engines = [
        Engine(OURS, by(searcher(folder.model, output_layer(folder.facts.output))), search),
        Engine(PEER, Generate(hugging_face_model(path, CPU).eval(), None), search),
        Engine(EXACT, by(ctranslate2(folder, "float32")), search),
        Engine("CTranslate2 int8", by(ctranslate2(folder, "int8")), search),
    ]
    for engine in engines:
        engine.choose_batch(sources)
    for repeat in range(repeats):
        first = repeat % len(engines)
        for engine in engines[first:] + engines[:first]:
            engine.seconds.append(engine.run(sources))
    expected = engines[0].output
    rows = {}
    for engine in engines:
        parted = [index for index, ids in enumerate(engine.output) if ids != expected[index]]
        score = bleu(subwords.decode(engine.output), [references])
        rows[engine.name] = {
            "sentences_per_second": len(texts) / statistics.median(engine.seconds),
            "seconds": engine.seconds,
            "batch_tokens": engine.options.max_tokens,
            "bleu": score.value,
            "signature": score.signature,
            "equal": 1 - len(parted) / len(texts),
        }
        if search.search == "greedy":
            rows[engine.name]["logit_gaps"] = [
                gap(folder.model, sources[index], expected[index], engine.output[index])
                for index in parted
            ]
    return rows


def by(searcher: Searcher) -> Translate:
    """Translate by one of our searchers."""

    def translate(sources: Ids, options: SearchOptions) -> Ids:
        found = searcher.search(sources, options)
        return [[*best.tokens, *([END] if best.finished else [])] for best, *_ in found]

    return translate


def ctranslate2(folder: ModelFolder, quantization: str) -> Searcher:
    """Convert a model and open it."""
    with tempfile.TemporaryDirectory() as place:
        convert(folder, Path(place), quantization)
        return CTranslate2Searcher(Path(place), folder)


def show(title: str, rows: dict[str, dict[str, Any]]) -> None:
    """Print a table."""
    print(f"\n{title:22}{'sent/s':>8}{'× HF':>7}{'× ours':>8}{'batch':>7}{'BLEU':>7}{'equal':>8}")
    speeds = {name: row["sentences_per_second"] for name, row in rows.items()}
    for name, row in rows.items():
        ratios = f"{speeds[name] / speeds[PEER]:7.2f}{speeds[name] / speeds[OURS]:8.2f}"
        print(
            f"{name:22}{speeds[name]:8.1f}{ratios}{row['batch_tokens']:7}{row['bleu']:7.2f}"
            f"{100 * row['equal']:7.1f}%"
        )
    for name in (PEER, EXACT):
        if gaps := rows[name].get("logit_gaps"):
            print(f"{name} parts where our logits differ by", *(f"{gap:.1e}" for gap in gaps))


def facts(sentences: int) -> dict[str, Any]:
    """Say what was measured where."""
    names = ("torch", "transformers", "ctranslate2")
    return {
        "command": " ".join(["python", *sys.argv]),
        "commit": commit(),
        "python": platform.python_version(),
        **{name: version(name) for name in names},
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "load_before": os.getloadavg()[0],
        "sentences": sentences,
        "results": [],
    }


def processor() -> str:
    """Name the CPU."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(": ")[2]
    return platform.processor()


if __name__ == "__main__":
    main()
