"""How many sentences a second do we translate, and how many does Hugging Face's `generate`?

    SCONES_DATA=... python benchmarks/decoding.py --scones runs/a --softmax runs/b [--json FILE]

Both get the same ids and have the same weights, in float32 and in bf16. Questions (`--only`):

    greedy   greedy search, each at its best batch size of a few
    single   greedy search, one sentence at a time
    beam     beam search of 4 with the softmax model, each at its best batch size
    paper    on our decoder: SCONES greedy against softmax beam 4, batches of 4 and the best
    growth   with the sentences in a batch, with the beam, with the length of the source

A batch of n means that n sentences of like length are handed over at a time. Outputs are compared
line by line; where they differ, by their log-probability under our model in float32.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from common import facts, flags, free_memory, if_it_fits, number, save, seconds, show, take_turns
from peer import Generate, Ids, hugging_face_model
from toys import toy_model, toy_pairs

from scones.evaluation.metrics import bleu
from scones.hardware import choose_device, gpu_path
from scones.model.folder import ModelFolder
from scones.outputs import output_layer
from scones.search.engine import padded, read_batch, searcher, token_scores
from scones.search.searcher import SearchOptions
from scones.text import END
from scones.text.reading import read_texts
from scones.text.subwords import Subwords

OURS, PEER = "ours", "Hugging Face"
QUESTIONS = ("greedy", "single", "beam", "paper", "growth")
PRECISIONS = {"float32": torch.float32, "bf16": torch.bfloat16}
GREEDY = SearchOptions(scores=False)
BEAM = SearchOptions("beam", beam_size=4, scores=False)

Entry = dict[str, Any]
Translate = Callable[[Ids, SearchOptions], Ids]


@dataclass(frozen=True)
class Plan:
    """How much to measure."""

    batch_tokens: tuple[int | None, ...] = (None, 16_384, 65_536)
    """Padded tokens of a batch to choose from; None: as many as each likes."""
    few: int = 24
    """Sentences that are enough where few are translated at a time."""
    batches: tuple[int, ...] = (4, 16, 64, 256, 1_024)
    beams: tuple[int, ...] = (1, 2, 4, 8, 16)
    beam_batch: int = 64
    lengths: tuple[int, ...] = (10, 20, 30, 40, 60, 80)
    """The longest sources, in pieces, of the groups by length."""


CPU_PLAN = Plan((1_024, 2_048, 4_096, 8_192), 20, (1, 4, 16, 64), (1, 2, 4, 8), 16)
TOY_PLAN = Plan((64, 256), 4, (1, 4), (1, 2), 4, (8, 12))


class Model:
    """One model folder, opened by us and by the peer in one number format."""

    def __init__(self, path: Path, device: torch.device, precision: str, cache: str | None) -> None:
        self.exact = ModelFolder.load(path, device)
        folder = ModelFolder.load(path, device)
        if not gpu_path(folder.model):  # whose kernels have a format of their own
            folder.model.to(PRECISIONS[precision])
        output = output_layer(folder.facts.output)
        self.searcher = searcher(folder.model, output, PRECISIONS[precision])
        self.peer = Generate(hugging_face_model(path, device, PRECISIONS[precision]).eval(), cache)

    def ours(self, sources: Ids, options: SearchOptions) -> Ids:
        """Translate by our search."""
        found = self.searcher.search(sources, options)
        return [[*best.tokens, *([END] if best.finished else [])] for best, *_ in found]

    @torch.inference_mode()
    def log_prob(self, source: list[int], translation: list[int]) -> float:
        """Score a translation, its end of sentence included, in float32."""
        model, output = self.exact.model, output_layer(self.exact.facts.output)
        target_BT = torch.tensor([translation], device=model.device)
        source_BS, scores = padded([source], model.device), partial(token_scores, output)
        return sum(read_batch(model, source_BS, target_BT, scores)[0])


@dataclass
class Runner:
    """One way to translate some sentences, and what came of it."""

    translate: Translate
    options: SearchOptions
    sources: Ids
    device: torch.device
    portion: int | None = None
    """Sentences handed over at a time; None for all, in batches of `options.max_tokens`."""
    output: Ids = field(default_factory=list)

    def run(self) -> float:
        """Translate, and give the seconds that it took."""
        return seconds(self._translate, self.device)

    def prepare(self, batch_tokens: tuple[int | None, ...]) -> None:
        """Warm up; where the batch size is free, find the fastest."""
        if self.portion is not None:
            self.run()
            return
        times = {}
        for tokens in batch_tokens:
            self.options = replace(self.options, max_tokens=tokens)
            if if_it_fits(self.run) is not None:  # the first run of a size warms it up
                times[tokens] = self.run()
        if not times:
            sys.exit("No batch size fits into the memory.")
        self.options = replace(self.options, max_tokens=min(times, key=times.__getitem__))

    def figures(self, times: list[float]) -> dict[str, Any]:
        """Give what the times of some runs come to."""
        median = statistics.median(times)
        return {
            "sentences_per_second": len(self.sources) / median,
            "tokens_per_second": sum(map(len, self.output)) / median,
            "batch_tokens": None if self.portion else self.options.max_tokens,
            "seconds": times,
        }

    def _translate(self) -> None:
        if self.portion is None:
            self.output = self.translate(self.sources, self.options)
            return
        self.output = [[] for _ in self.sources]
        order = sorted(range(len(self.sources)), key=lambda index: -len(self.sources[index]))
        for begin in range(0, len(order), self.portion):
            part = order[begin : begin + self.portion]
            longest = len(self.sources[part[0]]) + 1
            whole = replace(self.options, max_tokens=longest * len(part) * self.options.beams)
            found = self.translate([self.sources[index] for index in part], whole)
            for index, ids in zip(part, found, strict=True):
                self.output[index] = ids


@dataclass
class Benchmark:
    """The questions, and what they share: the text, the machine, how much to measure."""

    sources: Ids
    references: list[str] | None
    subwords: Subwords
    device: torch.device
    repeats: int
    plan: Plan
    exact_outputs: dict[tuple[str, str], Ids] = field(default_factory=dict)
    """Our output in float32, by model and search."""

    def answers(self, models: dict[str, Model], precision: str, only: list[str]) -> Iterator[Entry]:
        """Give an entry for every question that these models can answer."""
        few = self.sources[: self.plan.few]
        for name, model in models.items():
            if "greedy" in only:
                entry = self._whole(name, model, GREEDY, precision)
                yield {"question": "greedy", "model": name} | entry
        if "single" in only:
            name, model = next(iter(models.items()))
            entry = self._against_peer(model, GREEDY, few, 1)
            yield {"question": "single", "model": name} | entry
        softmax = models.get("softmax")
        if softmax is not None and "beam" in only:
            entry = self._whole("softmax", softmax, BEAM, precision)
            yield {"question": "beam", "model": "softmax"} | entry
        if softmax is not None and "scones" in models and "paper" in only:
            for sources, portion in ((self.sources[: 10 * len(few)], 4), (self.sources, None)):
                yield {"question": "paper"} | self._paper(models, sources, portion)

    def growth(self, models: dict[str, Model]) -> Iterator[Entry]:
        """Measure how speed grows with batch, beam and length."""
        name, model = next(iter(models.items()))
        few = self.plan.few
        for batch in self.plan.batches:
            entry = self._against_peer(model, GREEDY, self.sources[: max(few, batch)], batch)
            yield {"question": "growth with the batch", "model": name, "x": batch} | entry
        for low, high in zip((0, *self.plan.lengths), self.plan.lengths, strict=False):
            group = [source for source in self.sources if low < len(source) <= high][:few]
            if group:
                entry = self._against_peer(model, GREEDY, group, few)
                yield {"question": "growth with the length", "model": name, "x": high} | entry
        if "softmax" in models:  # the peer's beam search applies a softmax
            sources = self.sources[: max(few, self.plan.beam_batch)]
            for beams in self.plan.beams:
                options = replace(BEAM, beam_size=beams)
                model, portion = models["softmax"], self.plan.beam_batch
                entry = self._against_peer(model, options, sources, portion)
                yield {"question": "growth with the beam", "model": "softmax", "x": beams} | entry

    def _whole(self, name: str, model: Model, options: SearchOptions, precision: str) -> Entry:
        """Translate everything at the best batch size; the output is judged too."""
        runners = self._both(model, options, self.sources, None)
        entry = self._race(runners) | self._difference(model, runners)
        ours, key = runners[OURS].output, (name, options.search)
        if precision == "float32":
            self.exact_outputs[key] = ours
        elif key in self.exact_outputs:
            entry["ours_equal_to_float32"] = _share_equal(ours, self.exact_outputs[key])
        for system, runner in runners.items() if self.references else ():
            score = bleu(self.subwords.decode(runner.output), [self.references or []])
            entry["systems"][system] |= {"bleu": score.value, "signature": score.signature}
        return entry

    def _against_peer(
        self, model: Model, options: SearchOptions, sources: Ids, portion: int
    ) -> Entry:
        runners = self._both(model, options, sources, portion)
        return self._race(runners) | self._difference(model, runners)

    def _paper(self, models: dict[str, Model], sources: Ids, portion: int | None) -> Entry:
        greedy = Runner(models["scones"].ours, GREEDY, sources, self.device, portion)
        beam = Runner(models["softmax"].ours, BEAM, sources, self.device, portion)
        return self._race({"SCONES, greedy": greedy, "softmax, beam 4": beam})

    def _both(
        self, model: Model, options: SearchOptions, sources: Ids, portion: int | None
    ) -> dict[str, Runner]:
        ways: dict[str, Translate] = {OURS: model.ours, PEER: model.peer}
        return {
            name: Runner(translate, options, sources, self.device, portion)
            for name, translate in ways.items()
        }

    def _race(self, runners: dict[str, Runner]) -> Entry:
        """Let all take turns; the ratio is that of the first to the second."""
        for runner in runners.values():
            runner.prepare(self.plan.batch_tokens)
        times = take_turns({name: runner.run for name, runner in runners.items()}, self.repeats)
        rows = {name: runner.figures(times[name]) for name, runner in runners.items()}
        first, second = (row["sentences_per_second"] for row in rows.values())
        runner = next(iter(runners.values()))
        free_memory()
        return {
            "batch": runner.portion or "best",
            "sentences": len(runner.sources),
            "ratio": first / second,
            "systems": rows,
        }

    def _difference(self, model: Model, runners: dict[str, Runner]) -> Entry:
        """Compare line by line; where lines differ, give our score less the peer's."""
        ours, theirs = runners[OURS], runners[PEER]
        gaps = [
            model.log_prob(source, mine) - model.log_prob(source, other)
            for source, mine, other in zip(ours.sources, ours.output, theirs.output, strict=True)
            if mine != other
        ]
        return {"equal": _share_equal(ours.output, theirs.output), "score_gaps": sorted(gaps)}


def _share_equal(some: Ids, others: Ids) -> float:
    return sum(a == b for a, b in zip(some, others, strict=True)) / len(some)


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = flags(__doc__)
    parser.add_argument("--scones", type=Path, help="a model folder")
    parser.add_argument("--softmax", type=Path, help="a model folder")
    parser.add_argument("--source", type=Path, help="text; newstest2019 of SCONES_DATA if unset")
    parser.add_argument("--reference", type=Path, help="its translation, for BLEU")
    parser.add_argument(
        "--sentences", type=int, help="the first so many; all on a GPU, 200 on a CPU"
    )
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, default=list(QUESTIONS))
    parser.add_argument("--batch-tokens", type=int, nargs="+", help="batch sizes to choose from")
    parser.add_argument("--peer-cache", choices=("dynamic", "static"), help="generate's cache")
    options = parser.parse_args()
    device = choose_device(options.device)
    plan = TOY_PLAN if options.toy else Plan() if device.type == "cuda" else CPU_PLAN
    if options.batch_tokens:
        plan = replace(plan, batch_tokens=tuple(options.batch_tokens))
    sentences = options.sentences or (None if device.type == "cuda" else 200)
    texts, references = read(options.source, options.reference, sentences, options.toy)
    result = facts(device) | {"peer_cache": options.peer_cache or "dynamic", "results": []}
    with tempfile.TemporaryDirectory() as scratch:
        given = {"scones": options.scones, "softmax": options.softmax}
        paths = {name: path for name, path in given.items() if path is not None}
        if not paths and options.toy:
            paths = toy_models(Path(scratch))
        elif not paths:
            parser.error("give --scones or --softmax, or --toy")
        result["models"] = {name: str(path) for name, path in paths.items()}
        subwords = Subwords(ModelFolder.load(next(iter(paths.values()))).subwords)
        sources = subwords.encode(texts)
        benchmark = Benchmark(sources, references, subwords, device, options.repeats, plan)
        for precision in options.precision:
            models = {
                name: Model(path, device, precision, options.peer_cache)
                for name, path in paths.items()
            }
            found = benchmark.answers(models, precision, options.only)
            if "growth" in options.only and precision == options.precision[-1]:
                found = chain(found, benchmark.growth(models))
            for entry in found:
                result["results"].append({"precision": precision} | entry)
                save(result, options.json)  # what is known is kept, should time run out
    report(result["results"])


def toy_models(folder: Path) -> dict[str, Path]:
    """Write a SCONES and a softmax model of random weights."""
    paths = {layer: folder / layer for layer in ("scones", "softmax")}
    for layer, path in paths.items():
        toy_model(path, layer)
    return paths


def read(
    source: Path | None, reference: Path | None, sentences: int | None, toy: bool
) -> tuple[list[str], list[str] | None]:
    """Read the text to translate, and its references where there are any."""
    if toy and source is None:
        sources, targets = toy_pairs()
        return sources[:12], targets[:12]
    if source is None:
        if "SCONES_DATA" not in os.environ:
            sys.exit("Give --source, or set SCONES_DATA to the folder that holds newstest.")
        folder = Path(os.environ["SCONES_DATA"]) / "newstest"
        source, reference = (folder / f"newstest2019.de-en.{code}.xz" for code in ("de", "en"))
    texts = read_texts(source)[:sentences]
    return texts, None if reference is None else read_texts(reference)[:sentences]


def report(entries: list[Entry]) -> None:
    """Print a table: two systems a line, ours first, and the ratio of their speeds."""
    head = ("sentences", "batch", "first/s", "second/s", "ratio", "equal", "largest gap", "BLEU")
    lines = []
    for entry in entries:
        keys = ("precision", "question", "x", "model")
        name = " ".join(str(entry[key]) for key in keys if key in entry)
        speeds = [row["sentences_per_second"] for row in entry["systems"].values()]
        scores = [row["bleu"] for row in entry["systems"].values() if "bleu" in row]
        gaps = entry.get("score_gaps")
        lines.append(
            [
                name,
                number(entry["sentences"]),
                str(entry["batch"]),
                *(number(speed, 1) for speed in speeds),
                number(entry["ratio"], 2),
                f"{100 * entry['equal']:.1f}%" if "equal" in entry else "–",
                f"{max(map(abs, gaps)):.1e}" if gaps else "–",
                " / ".join(f"{score:.2f}" for score in scores) or "–",
            ]
        )
    show("", head, lines)


if __name__ == "__main__":
    main()
