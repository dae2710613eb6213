"""How many target tokens a second does a training step take, here and in Hugging Face?

    python benchmarks/training.py STORE [--preset paper] [--json FILE]

A step is forward, backward, clipping and optimiser, with dropout 0.1, on real batches of a store
that lie on the device already. Ours trains SCONES and softmax with LAMB and repeats small steps as
CUDA graphs; the peer is the Pegasus class of the same sizes and weights with PyTorch's fused AdamW,
eager and compiled. All get the same sentence pairs, the peer padded as it needs them, each at its
best batch size of a few. Counted are real target tokens, no padding; compilation and warm-up are
not counted, but told.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from common import (
    OUT_OF_MEMORY,
    facts,
    flags,
    free_memory,
    has_compiler,
    if_it_fits,
    number,
    save,
    seconds,
    show,
    take_turns,
)
from numpy.typing import NDArray
from peer import hugging_face_model
from torch import Tensor, nn
from toys import toy_store

from scones.hardware import choose_device, choose_precision
from scones.model.config import ModelOptions
from scones.model.folder import ModelFacts, ModelFolder
from scones.model.transformer import Transformer
from scones.outputs import OutputLayer
from scones.outputs.scones import Scones
from scones.outputs.softmax import Softmax
from scones.text import PAD
from scones.text.batches import pad_batch, plan_batches
from scones.text.store import ParallelTokens, TokenStore
from scones.training.data import Batch, make_batch
from scones.training.data import LossModule as Objective
from scones.training.gpu import PackedBatch, Replays, grain, make_packed_batch, replays_pay
from scones.training.loop import new_model
from scones.training.optimizers import finite_step, make_optimizer
from scones.training.options import Experiment, TrainOptions

OURS, OUR_SOFTMAX = "SCONES, ours", "softmax, ours"
OURS_EAGER = "SCONES, ours, without graphs"
PEER, PEER_COMPILED = "Hugging Face", "Hugging Face, compiled"
RATE = 1e-4
"""The learning rate: small, for nothing is to be learnt and nothing to break."""

GPU_SIZES = [16_384, 32_768, 65_536, 131_072]
CPU_SIZES, TOY_SIZES = [1_024, 2_048], [128, 256]
GPU_ROUND, CPU_ROUND, TOY_ROUND = 1_048_576, 4_096, 256
"""Padded tokens that a contender takes in one round."""


class Trainer(Protocol):
    """What can make training steps."""

    def batch(self, tokens: ParallelTokens, pairs: NDArray[Any], size: int) -> Any:
        """Put sentence pairs of at most `size` padded tokens on the device, as `step` needs."""

    def step(self, batch: Any) -> None:
        """Move the weights once."""


class Ours:
    """The product's own step."""

    def __init__(
        self, experiment: Experiment, store: TokenStore, precision: torch.dtype, graphs: bool
    ) -> None:
        self.model = new_model(experiment, store).train()
        self.clip_norm = experiment.train.clip_norm
        self.objective = Objective(self.model, experiment.output, precision)
        self.replays = Replays(self.objective) if graphs else None
        self._repeats = False
        """Whether steps of the batch size at hand are repeated."""
        self.optimizer = make_optimizer(self.model, experiment.train)

    def batch(self, tokens: ParallelTokens, pairs: NDArray[Any], size: int) -> Batch:
        """Put sentence pairs on the device."""
        if not self.objective.packed:
            return make_batch(tokens, pairs, by_sentence=False).to(self.model.device)
        packed = make_packed_batch(tokens, pairs, by_sentence=False)
        self._repeats = self.replays is not None and replays_pay(self.objective, size)
        settled = packed.settled(grain(size)) if self._repeats else packed
        return settled.to(self.model.device)

    def step(self, batch: Batch) -> None:
        """Do what the training loop does in one step."""
        if self.replays is not None and self._repeats and isinstance(batch, PackedBatch):
            loss = self.replays.gradient(batch, batch.total) / batch.total
        else:
            loss = self.objective(batch) / batch.total
            loss.backward()
        finite_step(self.optimizer, RATE, loss.detach(), self.clip_norm)


class HuggingFace:
    """The Pegasus class in autocast, with fused AdamW and the same clipping."""

    def __init__(
        self, folder: Path, device: torch.device, precision: torch.dtype, backend: str | None
    ) -> None:
        self.model = hugging_face_model(folder, device).train()
        self.device = device
        self.precision = precision
        self.forward = self.model
        if backend is not None:  # batches come in ever new shapes
            torch._dynamo.config.recompile_limit = 64  # beyond it, code would run uncompiled
            self.forward = torch.compile(self.model, dynamic=True, backend=backend)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE, fused=True)

    def batch(self, tokens: ParallelTokens, pairs: NDArray[Any], size: int) -> dict[str, Tensor]:
        """Put sentence pairs, padded, on the device."""
        source, target = (torch.from_numpy(ids).to(self.device) for ids in pad_batch(tokens, pairs))
        return {
            "input_ids": source,
            "attention_mask": (source != PAD).long(),
            "labels": target.masked_fill(target == PAD, -100),
        }

    def step(self, batch: dict[str, Tensor]) -> None:
        """Make a step as its users write it."""
        reduced = self.precision != torch.float32
        with torch.autocast(self.device.type, self.precision, enabled=reduced):
            loss = self.forward(**batch).loss
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


@dataclass
class Contender:
    """A trainer with the batches of one round."""

    trainer: Trainer
    tokens: ParallelTokens
    round_tokens: int
    device: torch.device
    facts: dict[str, Any] = field(default_factory=dict)
    _batches: list[Any] = field(default_factory=list)
    _targets: int = 0

    def choose_size(self, sizes: list[int], limit: float) -> None:
        """Keep the fastest of the batch sizes, those that fit and can be tried in time."""
        begin = time.perf_counter()
        tried: dict[int, float] = {}
        self.facts = {"warm_up_seconds": {}, "tried": {}}
        for size in sizes:
            if tried and time.perf_counter() - begin > limit:
                self.facts["tried"][size] = "no time left"
                continue
            speed = if_it_fits(partial(self._try, size))
            self.facts["tried"][size] = OUT_OF_MEMORY if speed is None else speed
            if speed is not None:
                tried[size] = speed
        if tried:
            self.facts["batch_tokens"] = max(tried, key=tried.__getitem__)
            self._load(self.facts["batch_tokens"])

    def run(self) -> float:
        """Make a round of steps, and give the target tokens a second."""
        return self._targets / seconds(self._steps, self.device)

    def _try(self, size: int) -> float:
        self._load(size)
        self.facts["warm_up_seconds"][size] = seconds(self._warm_up, self.device)
        return self.run()

    def _load(self, size: int) -> None:
        """Put the first batches of the plan on the device."""
        self._batches = []
        free_memory()
        lengths = self.tokens.sources.lengths, self.tokens.targets.lengths
        plan = plan_batches(*lengths, size, seed=1, epoch=0)
        count = min(len(plan), max(1, self.round_tokens // size))
        chosen = [plan[index] for index in range(count)]
        pairs = np.concatenate(chosen)
        self._targets = int(self.tokens.targets.lengths_of(pairs).sum()) + len(pairs)
        self._batches = [self.trainer.batch(self.tokens, indices, size) for indices in chosen]

    def _warm_up(self) -> None:
        self._steps()
        self._steps()  # a shape that has come before is worth recording

    def _steps(self) -> None:
        for batch in self._batches:
            self.trainer.step(batch)


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = flags(__doc__)
    parser.add_argument("store", type=Path, nargs="?", help="a store; a toy one without it")
    parser.add_argument("--preset", help="sizes of the model; paper on a GPU, tiny on a CPU")
    parser.add_argument("--optimizer", default="lamb", help="ours: lamb or adamw")
    parser.add_argument("--batch-tokens", type=int, nargs="+", help="batch sizes to choose from")
    parser.add_argument("--limit", type=float, default=120, help="seconds to choose one in")
    parser.add_argument("--attention-dropout", type=float, default=0.0, help="for all alike")
    parser.add_argument("--no-eager", action="store_true", help="of the peer, only compiled")
    parser.add_argument("--no-compile", action="store_true", help="the peer's eager alone")
    options = parser.parse_args()
    if options.store is None and not options.toy:
        parser.error("give a store, or --toy")
    device = choose_device(options.device)
    on_gpu = device.type == "cuda"
    options.preset = options.preset or ("paper" if on_gpu else "tiny")
    usual = TOY_SIZES if options.toy else GPU_SIZES if on_gpu else CPU_SIZES
    sizes = options.batch_tokens or usual
    round_tokens = TOY_ROUND if options.toy else GPU_ROUND if on_gpu else CPU_ROUND
    result = facts(device)
    with tempfile.TemporaryDirectory() as scratch:
        if options.store is None:
            options.store = Path(scratch) / "store"
            toy_store(options.store)
        store = TokenStore.open(options.store)
        tokens = store.split("train")
        precision = choose_precision("auto", device)
        result |= {
            "store": str(options.store),
            "data_digest": store.digest,
            "preset": options.preset,
            "optimizer": options.optimizer,
            "dropout": ModelOptions().dropout,
            "attention_dropout": options.attention_dropout,
            "precision": str(precision).removeprefix("torch."),
            "round_tokens": round_tokens,
        }
        trainers = make_trainers(options, store, device, precision, Path(scratch))
        racing = {
            name: Contender(trainer, tokens, round_tokens, device)
            for name, trainer in trainers.items()
        }
        result["parameters"] = sum(p.numel() for p in trainers[OURS].model.parameters())
        result["results"] = race(racing, sizes, options.limit, options.repeats)
    result["ratios"] = ratios(result["results"])
    report(result)
    save(result, options.json)


def make_trainers(
    options: argparse.Namespace,
    store: TokenStore,
    device: torch.device,
    precision: torch.dtype,
    scratch: Path,
) -> dict[str, Ours | HuggingFace]:
    """Make ours and the peer's, with the same weights in softmax and the peer."""

    on_gpu = device.type == "cuda"

    def ours(output: OutputLayer, graphs: bool = on_gpu) -> Ours:
        train = TrainOptions(
            max_steps=1,
            optimizer=options.optimizer,
            learning_rate=RATE,
            device=str(device),
        )
        sizes = ModelOptions(options.preset, attention_dropout=options.attention_dropout)
        experiment = Experiment(sizes, output, train)
        return Ours(experiment, store, precision, graphs)

    trainers: dict[str, Ours | HuggingFace] = {
        OURS: ours(Scones()),
        OUR_SOFTMAX: (softmax := ours(Softmax())),
    }
    if on_gpu:
        trainers[OURS_EAGER] = ours(Scones(), graphs=False)
    folder = scratch / "model"
    _save(softmax.model, store, folder)
    if not options.no_eager:
        trainers[PEER] = HuggingFace(folder, device, precision, None)
    if not options.no_compile and (options.toy or has_compiler()):
        backend = "eager" if options.toy else "inductor"
        trainers[PEER_COMPILED] = HuggingFace(folder, device, precision, backend)
    return trainers


def _save(model: Transformer, store: TokenStore, folder: Path) -> None:
    languages = store.source_language, store.target_language
    facts = ModelFacts(Softmax().to_config(), *languages)
    ModelFolder(model, store.subwords.model, facts).save(folder)


def race(
    racing: dict[str, Contender], sizes: list[int], limit: float, repeats: int
) -> dict[str, dict[str, Any]]:
    """Let all choose a batch size, then take turns; gives a row of figures for each."""
    for contender in racing.values():
        contender.choose_size(sizes, limit)
    able: dict[str, Callable[[], float]] = {
        name: contender.run
        for name, contender in racing.items()
        if "batch_tokens" in contender.facts
    }
    rows = {name: contender.facts for name, contender in racing.items()}
    for name, speeds in take_turns(able, repeats).items():
        rows[name]["tokens_per_second"] = statistics.median(speeds)
        rows[name]["all_tokens_per_second"] = speeds
    return rows


def ratios(rows: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Give the ratios that answer the question."""
    speeds = {name: row["tokens_per_second"] for name, row in rows.items() if "batch_tokens" in row}
    pairs = ((OURS, PEER_COMPILED), (OURS, PEER), (OURS, OUR_SOFTMAX), (OUR_SOFTMAX, PEER_COMPILED))
    return {
        f"{ours} / {other}": speeds[ours] / speeds[other]
        for ours, other in pairs
        if ours in speeds and other in speeds
    }


def report(result: dict[str, Any]) -> None:
    """Print the table and the ratios."""
    rows = result["results"]
    lines = []
    for name, row in rows.items():
        size = row.get("batch_tokens")
        warm_up = row["warm_up_seconds"].get(size)
        note = OUT_OF_MEMORY if size is None else number(row["tokens_per_second"])
        lines.append([name, note, number(size), number(warm_up, 1)])
    title = f"{result['parameters'] / 1e6:.1f}M parameters, {result['precision']}"
    show(title, ("target tokens/s", "batch", "warm-up s"), lines)
    for name, ratio in result["ratios"].items():
        print(f"{name}: {ratio:.2f}")


if __name__ == "__main__":
    main()
