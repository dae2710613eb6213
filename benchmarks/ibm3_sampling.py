"""How many sentences a second do we sample from IBM Model 3, and how much memory does it take?

    python benchmarks/ibm3_sampling.py --model de-en.ibm3 --store data/de-en [--json FILE]
    SCONES_DATA=... python benchmarks/ibm3_sampling.py ... --lines 100000 1000000

The compiled sampler, on all cores and on one, and the readable version of the same story in plain
NumPy take turns at the training sources of a store; the plain one has fewer sentences, as it takes
its time. With `--lines` the command `scones ibm3 sample` then translates so many lines of text, a
process each, from text to text: seconds, and the most memory that the process ever held, which
should not grow with the text.
"""

from __future__ import annotations

import argparse
import lzma
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from common import facts, flags, number, save, seconds, show, take_turns
from toys import toy_pairs, toy_store

from scones.hardware import usable_cores
from scones.ibm3.parameters import Distortions, Parameters, Translations
from scones.ibm3.sampling import Sampler
from scones.text.store import Sentences, TokenStore
from scones.text.subwords import Subwords

# The plain process is the oracle of the tests.
sys.path.append(str(Path(__file__).parents[1] / "tests" / "ibm3"))
from generative import GenerativeProcess  # type: ignore[import-not-found]

CPU = torch.device("cpu")
ALL, ONE, PLAIN = "compiled, all cores", "compiled, one thread", "plain NumPy"
COMMAND = [sys.executable, "-m", "scones", "ibm3", "sample"]


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = flags(__doc__)
    parser.add_argument("--model", type=Path, help="a folder of scones ibm3 fit")
    parser.add_argument("--store", type=Path, help="a store with its pieces")
    parser.add_argument("--temperature", type=float, nargs="+", default=[0.1, 0.5, 1.0])
    parser.add_argument("--sentences", type=int, default=50_000, help="the first of the store")
    parser.add_argument("--plain-sentences", type=int, default=200, help="for plain NumPy")
    parser.add_argument("--lines", type=int, nargs="*", default=[], help="lines of text to sample")
    parser.add_argument("--text", type=Path, help="Europarl's German of SCONES_DATA if unset")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        if options.toy:
            make_toys(options, Path(scratch))
        elif not options.model or not options.store:
            parser.error("give --model and --store, or --toy")
        parameters = Parameters.load(options.model)
        sources = TokenStore.open(options.store).split("train").sources
        result = facts(CPU) | {"cores": usable_cores(), "seed": 0}
        result["speed"] = [race(parameters, sources, γ, options) for γ in options.temperature]
        show_speed(result["speed"])
        result["text"] = [translate(options, lines, Path(scratch)) for lines in options.lines]
        if result["text"]:
            show_text(result["text"])
    save(result, options.json)


def race(
    parameters: Parameters, sources: Sentences, temperature: float, options: argparse.Namespace
) -> dict[str, Any]:
    """Sample the same sentences by all contenders, in turns."""
    count = min(options.sentences, len(sources))
    few = min(options.plain_sentences, count)
    tokens, lengths = sources.gather(np.arange(count))
    begin = time.perf_counter()
    samplers = {
        ALL: Sampler(parameters, temperature),
        ONE: Sampler(parameters, temperature, threads=1),
    }
    ready = (time.perf_counter() - begin) / len(samplers)
    samples = samplers[ALL].sample(tokens, lengths)  # and warm up
    process, rng = GenerativeProcess(parameters, temperature), np.random.default_rng(0)
    # Evenly from all, so that they are as long as all.
    sentences = [sources[int(row)].tolist() for row in np.linspace(0, count - 1, few)]

    def sample_plainly() -> None:
        for sentence in sentences:
            process.sample(sentence, rng)

    runs: dict[str, Callable[[], object]] = {
        name: partial(sampler.sample, tokens, lengths) for name, sampler in samplers.items()
    }
    runs[PLAIN] = sample_plainly
    clocked = {name: partial(seconds, run, CPU) for name, run in runs.items()}
    times = take_turns(clocked, options.repeats)
    sizes = {ALL: count, ONE: count, PLAIN: few}
    speeds = {name: sizes[name] / statistics.median(found) for name, found in times.items()}
    return {
        "temperature": temperature,
        "sentences": sizes,
        "source_words": float(lengths.mean()),
        "target_words": float(samples.lengths.mean()),
        "seconds_to_get_ready": ready,
        "sentences_per_second": speeds,
        "times": times,
        "ratio": speeds[ALL] / speeds[PLAIN],
    }


def translate(options: argparse.Namespace, lines: int, scratch: Path) -> dict[str, Any]:
    """Run the command on so many lines, and ask the system what it took."""
    text = scratch / "text"
    with text.open("wb") as file:
        file.writelines(islice(text_lines(options), lines))
    command = [*COMMAND, str(options.model), "--temperature", "0.5"]
    begin = time.perf_counter()
    peak = 0
    with text.open("rb") as given, (scratch / "output").open("wb") as output:
        process = subprocess.Popen(command, stdin=given, stdout=output, stderr=subprocess.PIPE)
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            with suppress(psutil.Error):  # it ended in between
                peak = max(peak, watched.memory_info().rss)
            time.sleep(0.02)
        said = process.communicate()[1].decode()
    if process.returncode:
        sys.exit(f"scones ibm3 sample failed: {said}")
    taken = time.perf_counter() - begin
    with (scratch / "output").open("rb") as output:
        written = sum(1 for _ in output)
    if written != lines:
        sys.exit(f"{written:,} lines came out where {lines:,} went in.")
    return {
        "lines": lines,
        "seconds": taken,
        "lines_per_second": lines / taken,
        "peak_megabytes": peak / 1e6,
        "report": said.strip(),
    }


def text_lines(options: argparse.Namespace) -> Iterator[bytes]:
    """Give lines of text, from the beginning again where it ends."""
    if options.toy:
        return chain.from_iterable(repeat([f"{text}\n".encode() for text in toy_pairs()[0]]))
    if options.text is None and "SCONES_DATA" not in os.environ:
        sys.exit("Set SCONES_DATA to the folder that holds europarl/train.de-en.de.xz, or --text.")
    file = options.text or Path(os.environ["SCONES_DATA"]) / "europarl" / "train.de-en.de.xz"
    open_file = lzma.open if file.suffix == ".xz" else open
    return chain.from_iterable(open_file(file, "rb") for _ in repeat(None))


def make_toys(options: argparse.Namespace, scratch: Path) -> None:
    """Make a store, and a model in which every piece becomes itself or the one behind it."""
    options.store, options.model = scratch / "store", scratch / "model"
    toy_store(options.store)
    subwords = Subwords.load(options.store / "subwords.model")
    size = len(subwords)
    pieces = subwords.pieces(range(size))
    places = Distortions(
        np.full((1, 1), -1), np.zeros((1, 1), np.int32), np.zeros(0, np.float32), 0.5
    )
    itself = np.arange(size + 1) % size
    Parameters(
        pieces,
        pieces,
        Translations(
            np.arange(size + 2) * 2,
            np.stack([itself, (itself + 1) % size], axis=1).ravel().astype(np.int32),
            np.tile([0.8, 0.2], size + 1).astype(np.float32),
        ),
        np.tile(np.array([0.1, 0.8, 0.1], np.float32), (size, 1)),
        places,
        p1=0.1,
        subwords=subwords,
    ).save(options.model)


def show_speed(rows: Sequence[dict[str, Any]]) -> None:
    """Print sentences a second, a line for each temperature."""
    head = [ALL, ONE, PLAIN, "ratio", "words in", "words out", "s to get ready"]
    lines = []
    for row in rows:
        speeds = row["sentences_per_second"]
        cells = [number(speeds[name]) for name in (ALL, ONE, PLAIN)]
        cells += [number(row["ratio"]), number(row["source_words"], 1)]
        cells += [number(row["target_words"], 1), number(row["seconds_to_get_ready"], 2)]
        lines.append([f"γ = {row['temperature']:g}", *cells])
    show("sentences/s", head, lines)


def show_text(rows: Sequence[dict[str, Any]]) -> None:
    """Print what the command took, a line for each size."""
    head = ["seconds", "lines/s", "peak MB"]
    keys = ("seconds", "lines_per_second", "peak_megabytes")
    lines = [[f"{row['lines']:,}", *(number(row[key]) for key in keys)] for row in rows]
    show("lines of text", head, lines)
    print("\n".join(row["report"] for row in rows))


if __name__ == "__main__":
    main()
