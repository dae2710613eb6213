"""Is the fused output layer faster than the plain one on a CPU, and how much smaller is it?

    python benchmarks/cpu_head.py [--layer softmax] [--precision bf16 ...] [--json FILE]

Both compute the same loss; the plain one holds all logits. Two cases with 32,000 pieces and 4,096
tokens: `head`, forward and backward pass of the output layer alone at a model size of 512; `step`,
a whole training step (forward, backward, clipping, LAMB) of the default preset. Each contender's
peak memory is that of a process of its own, beyond that of a process that only makes the inputs
(for `step`: model and optimiser, without its state). Times are taken in turns in one process.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from common import facts, flags, number, save, seconds, show, take_turns
from torch import nn

from scones.model.config import ModelOptions
from scones.model.transformer import Transformer
from scones.outputs import OutputLayer, output_layer
from scones.text import PAD
from scones.training.optimizers import make_optimizer
from scones.training.options import TrainOptions

PRECISIONS = ("float32", "bf16")
OURS, PEER, INPUTS, RATIO = "fused", "plain", "inputs", "plain/fused"
CPU = torch.device("cpu")
FIGURES = {"seconds": 2, "peak_megabytes": 0, "process_megabytes": 0}
"""What is printed, with how many digits behind the point."""

Run = Callable[[str], None]
"""Does the work once, by the contender that it is told."""


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = flags(__doc__)
    parser.add_argument("--layer", choices=["scones", "softmax"], default="scones")
    parser.add_argument("--precision", choices=PRECISIONS, action="append")
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--alone", nargs=3, help=argparse.SUPPRESS)  # a process of its own
    options = parser.parse_args()
    if options.alone:
        case, precision, contender = options.alone
        print(json.dumps(peak_of(case, precision, contender, options.layer, options.toy)))
        return
    result = facts(CPU) | {"layer": options.layer, "results": []}
    print(f"{result['device']}, {result['threads']} threads, {options.layer}")
    rows = list(product(options.case or CASES, options.precision or PRECISIONS))
    # Memory first: a process inherits the peak of the one that started it.
    peaks = {row: peaks_of(*row, options) for row in rows}
    for case, precision in rows:
        times = times_of(case, precision, options)
        figures = compared(times, peaks[case, precision])
        result["results"].append({"case": case, "precision": precision, **figures})
        lines = [
            (name, *(number(row[key], 2 if name == RATIO else FIGURES[key]) for key in FIGURES))
            for name, row in figures.items()
        ]
        show(f"{case}, {precision}", ("seconds", "MB", "MB of the process"), lines)
    save(result, options.json)


def peaks_of(case: str, precision: str, options: argparse.Namespace) -> dict[str, float]:
    """Measure the memory of both contenders, and of the inputs alone."""
    return {
        name: peak_in_own_process(case, precision, name, options) for name in (INPUTS, PEER, OURS)
    }


def times_of(case: str, precision: str, options: argparse.Namespace) -> dict[str, list[float]]:
    """Let both contenders work in turns, after a first time that does not count."""
    run = CASES[case](precision, options.layer, options.toy)
    for name in (PEER, OURS):
        run(name)

    def timed(name: str) -> Callable[[], float]:
        return lambda: seconds(lambda: run(name), CPU)

    return take_turns({name: timed(name) for name in (PEER, OURS)}, options.repeats)


def compared(times: dict[str, list[float]], peaks: dict[str, float]) -> dict[str, dict[str, Any]]:
    """Put the figures of both contenders, and how often ours go into the other's, side by side."""
    rows: dict[str, dict[str, Any]] = {
        name: {
            "seconds": statistics.median(times[name]),
            "peak_megabytes": peaks[name] - peaks[INPUTS],
            "process_megabytes": peaks[name],
            "all_seconds": times[name],
        }
        for name in (PEER, OURS)
    }
    rows[RATIO] = {key: rows[PEER][key] / rows[OURS][key] for key in FIGURES}
    return rows


def peak_in_own_process(
    case: str, precision: str, contender: str, options: argparse.Namespace
) -> float:
    """Start this script anew for one contender alone."""
    command = [sys.executable, __file__, "--layer", options.layer]
    command += ["--toy"] if options.toy else []
    command += ["--alone", case, precision, contender]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return float(json.loads(done.stdout))


def peak_of(case: str, precision: str, contender: str, layer: str, toy: bool) -> float:
    """Do the work twice (an optimiser's state comes with its first step); give the peak in MB."""
    run = CASES[case](precision, layer, toy)
    for _ in range(0 if contender == INPUTS else 2):
        run(contender)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def head(precision: str, layer: str, toy: bool) -> Run:
    """Make the inputs of the output layer alone."""
    torch.manual_seed(1)
    tokens, size, vocabulary = (64, 16, 100) if toy else (4096, 512, 32_000)
    output = output_layer({"layer": layer})
    hidden = torch.randn(tokens, size, requires_grad=True)
    weight = (torch.randn(vocabulary, size) * size**-0.5).requires_grad_()
    bias = torch.full((vocabulary,), output.initial_bias(vocabulary), requires_grad=True)
    targets = torch.randint(1, vocabulary, (tokens,))
    leaves = (hidden, weight, bias)

    def run(contender: str) -> None:
        with autocast(precision):
            loss = loss_by(contender, output)(*leaves, targets)
        (loss / tokens).backward()
        for leaf in leaves:
            leaf.grad = None

    return run


def step(precision: str, layer: str, toy: bool) -> Run:
    """Make a model, its optimiser and a batch of sentences of one length."""
    torch.manual_seed(1)
    options, vocabulary = TrainOptions(max_steps=1), 100 if toy else 32_000
    output, model = output_layer({"layer": layer}), default_model(vocabulary, toy)
    nn.init.constant_(model.output_bias, output.initial_bias(vocabulary))
    optimizer = make_optimizer(model, options)
    source_BS, target_BT = torch.randint(3, vocabulary, (2, 2 if toy else 128, 32))
    inputs_BT = target_BT.roll(1, dims=1)
    inputs_BT[:, 0] = PAD

    def run(contender: str) -> None:
        with autocast(precision):
            hidden_ND = model(source_BS, inputs_BT).flatten(0, 1)
            loss = loss_by(contender, output)(
                hidden_ND, model.output_weight, model.output_bias, target_BT.flatten()
            )
        (loss / target_BT.numel()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), options.clip_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return run


CASES: dict[str, Callable[[str, str, bool], Run]] = {"head": head, "step": step}


def default_model(vocabulary: int, toy: bool) -> Transformer:
    """Make the model that `scones train` makes where no sizes are given."""
    return Transformer(ModelOptions(preset="tiny" if toy else "small").build(vocabulary))


def loss_by(contender: str, output: OutputLayer) -> Callable[..., torch.Tensor]:
    """Give the layer's own loss, or the one that every layer has: over all logits at once."""
    return output.loss if contender == OURS else OutputLayer.loss.__get__(output)


def autocast(precision: str) -> torch.autocast:
    """Give the arithmetic in which training runs."""
    return torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16")


if __name__ == "__main__":
    main()
