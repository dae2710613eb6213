"""What does the output layer cost beyond its three matrix products, in time and in memory?

    python benchmarks/output_layer.py [--case 16384x512x32000 ...] [--json FILE]

Forward and backward pass of hidden states (tokens, size) through an output matrix (vocabulary,
size) and a loss: the three products alone; cross-entropy plain, compiled, by Liger where it is
installed, and ours; SCONES plain, compiled and ours. All in one run on the same fresh random
numbers, in bf16 on a GPU. Time is the GPU's own (CUDA events). Memory is the peak beyond inputs,
gradients and one accumulator of the output matrix in float32. Losses and gradients are compared
with float64.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Any

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
    show,
    take_turns,
)
from torch import Tensor
from torch.nn import functional

from scones import fused_scones_loss, scones_loss
from scones.hardware import choose_device
from scones.outputs.scones import Scones
from scones.outputs.softmax import Softmax

PRODUCTS, OURS, PEER = "three products", "SCONES, ours", "cross-entropy, compiled"
ALPHA = 0.5
RUNS = 4
"""Timed passes of a contender in one round, after one that is not."""

VOCABULARIES = (8_000, 16_000, 32_000, 64_000, 128_000, 256_000)
GPU_CASES = [*((16_384, 512, vocabulary) for vocabulary in VOCABULARIES), (65_536, 512, 32_000)]
CPU_CASES = [(1_024, 512, 32_000)]
TOY_CASES = [(24, 16, 50), (24, 16, 100)]

Sizes = tuple[int, int, int]
Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
Exact = Callable[[Tensor, Tensor], Tensor]
"""Turns a chunk of float64 logits into their gradient, and gives the summed loss."""
Truth = tuple[float, tuple[Tensor, Tensor, Tensor]]
"""A loss and its gradients by hidden states, matrix and bias."""


@dataclass(frozen=True)
class Contender:
    """A way to compute a loss; without one it is the three products alone."""

    loss: Loss | None
    exact: Exact | None = None
    replayable: bool = True
    """Whether a pass needs no answer from the host, so that it can be captured and replayed."""


@dataclass(frozen=True)
class Case:
    """The inputs of one case."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor
    targets: Tensor

    @classmethod
    def draw(cls, sizes: Sizes, device: torch.device, precision: torch.dtype) -> Case:
        """Draw states as a layer norm gives them, and logits as an untrained model gives them."""
        tokens, size, vocabulary = sizes
        hidden = torch.randn(tokens, size, device=device)
        weight = torch.randn(vocabulary, size, device=device) * size**-0.5
        bias = torch.randn(vocabulary, device=device) + Scones(ALPHA).initial_bias(vocabulary)
        targets = torch.randint(1, vocabulary, (tokens,), device=device)
        states, matrix, offset = (
            tensor.to(precision).requires_grad_() for tensor in (hidden, weight, bias)
        )
        return cls(states, matrix, offset, targets)

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """What gradients are wanted of."""
        return self.hidden, self.weight, self.bias

    def forget_gradients(self) -> None:
        """Free them."""
        for tensor in self.inputs:
            tensor.grad = None


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = flags(__doc__)
    parser.add_argument("--case", type=sizes_of, action="append", help="TOKENSxSIZExVOCABULARY")
    options = parser.parse_args()
    device = choose_device(options.device)
    precision = torch.bfloat16 if device.type == "cuda" else torch.float32
    ours = GPU_CASES if device.type == "cuda" else CPU_CASES
    result = facts(device) | {"precision": str(precision).removeprefix("torch."), "cases": []}
    result["seed"] = torch.seed()
    for sizes in options.case or (TOY_CASES if options.toy else ours):
        case = Case.draw(sizes, device, precision)
        rows = measure(case, contenders(options.toy), options.repeats)
        names = ("tokens", "size", "vocabulary")
        result["cases"].append(dict(zip(names, sizes, strict=True)) | {"rows": rows})
        save(result, options.json)  # what is known is kept, should time run out
        show_case(sizes, rows)
        del case
        torch.compiler.reset()  # else the next sizes would be compiled as dynamic ones
        free_memory()


def sizes_of(text: str) -> Sizes:
    """Read TOKENSxSIZExVOCABULARY."""
    tokens, size, vocabulary = map(int, text.split("x"))
    return tokens, size, vocabulary


def contenders(toy: bool) -> dict[str, Contender | None]:
    """Give what is compared; None for what is not installed."""

    def plain(loss: Callable[[Tensor, Tensor], Tensor]) -> Loss:
        def whole(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
            return loss(functional.linear(hidden, weight, bias), targets)

        return whole

    def compiled(loss: Callable[[Tensor, Tensor], Tensor], exact: Exact) -> Contender | None:
        if not toy and not has_compiler():
            return None
        backend = "eager" if toy else "inductor"
        return Contender(torch.compile(plain(loss), dynamic=False, backend=backend), exact)

    def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(logits.float(), targets)

    def our_cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        return Softmax().loss(hidden, weight, bias, targets) / targets.numel()

    liger = _liger()
    return {
        PRODUCTS: Contender(None),
        "cross-entropy, plain": Contender(plain(cross_entropy), exact_softmax),
        PEER: compiled(cross_entropy, exact_softmax),
        "cross-entropy, Liger": None if liger is None else Contender(liger, exact_softmax, False),
        "cross-entropy, ours": Contender(our_cross_entropy, exact_softmax),
        "SCONES, plain": Contender(plain(scones_loss), exact_scones),
        "SCONES, compiled": compiled(scones_loss, exact_scones),
        OURS: Contender(fused_scones_loss, exact_scones),
    }


def _liger() -> Loss | None:
    try:
        loss = import_module("liger_kernel.transformers").LigerFusedLinearCrossEntropyLoss()
    except ImportError:
        return None

    def whole(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        total: Tensor = loss(weight, hidden, targets, bias)
        return total

    return whole


def measure(
    case: Case, contenders: dict[str, Contender | None], repeats: int
) -> dict[str, dict[str, Any]]:
    """Give a row of figures for each contender."""
    rows: dict[str, dict[str, Any]] = {}
    truth = cache(lambda exact: reference(case, exact))
    for name, contender in contenders.items():
        if contender is None:
            rows[name] = {"note": "not installed"}
            continue
        try:
            rows[name] = _first_time(case, contender, truth)
        except torch.OutOfMemoryError:
            rows[name] = {"note": OUT_OF_MEMORY}
        free_memory()
    truth.cache_clear()
    able = {
        name: contender
        for name, contender in contenders.items()
        if contender is not None and "note" not in rows[name]
    }

    def turn(contender: Contender) -> Callable[[], list[dict[str, float]] | None]:
        return lambda: if_it_fits(lambda: _burst(case, contender))

    runs = take_turns({name: turn(contender) for name, contender in able.items()}, repeats)
    for name, bursts in runs.items():
        passes = [one for burst in bursts for one in burst or ()]
        if not passes:  # beside what the others still hold, or its own graph
            rows[name]["note"] = OUT_OF_MEMORY
            del able[name]
            continue
        rows[name]["milliseconds"] = statistics.median(one["milliseconds"] for one in passes)
        rows[name]["all_milliseconds"] = [one["milliseconds"] for one in passes]
        if "milliseconds_with_host" in passes[0]:
            rows[name]["milliseconds_with_host"] = statistics.median(
                one["milliseconds_with_host"] for one in passes
            )
        if "megabytes" in passes[0]:
            rows[name]["megabytes"] = max(one["megabytes"] for one in passes)
    for name in able:
        for other, key in ((PRODUCTS, "times_products"), (OURS, "times_ours")):
            if "milliseconds" in rows[other]:
                rows[name][key] = rows[name]["milliseconds"] / rows[other]["milliseconds"]
    return rows


def _first_time(
    case: Case, contender: Contender, truth: Callable[[Exact], Truth]
) -> dict[str, Any]:
    """Compile and warm up, and compare with float64."""
    case.forget_gradients()
    begin = time.perf_counter()
    loss = _step(case, contender)
    if loss is None:
        return {}
    row: dict[str, Any] = {"loss": float(loss), "first_pass_seconds": time.perf_counter() - begin}
    found = [tensor.grad for tensor in case.inputs]
    case.forget_gradients()
    assert contender.exact is not None
    exact_loss, exact = truth(contender.exact)
    row["loss_error"] = abs(row["loss"] - exact_loss) / exact_loss
    for name, gradient, wanted in zip(("hidden", "weight", "bias"), found, exact, strict=True):
        assert gradient is not None
        row[f"{name}_gradient_error"] = float((gradient.double() - wanted).norm() / wanted.norm())
    return row


def _step(case: Case, contender: Contender) -> Tensor | None:
    """Make one forward and backward pass."""
    if contender.loss is None:
        with torch.no_grad():
            logits = case.hidden @ case.weight.T
            _ = logits @ case.weight, logits.T @ case.hidden
        return None
    loss = contender.loss(*case.inputs, case.targets)
    loss.backward()
    return loss.detach()


def _burst(case: Case, contender: Contender) -> list[dict[str, float]]:
    """Time a few passes one after another; the first finds the memory and does not count."""
    if case.hidden.is_cuda:
        passes = _passes_on_gpu(case, contender)
        replays = _replays_on_gpu(case, contender)
        for one, milliseconds in zip(passes, replays, strict=bool(replays)):
            one["milliseconds"] = milliseconds
        torch.cuda.empty_cache()  # the next one shall find the memory as this one did
        return passes
    return [_pass_on_cpu(case, contender) for _ in range(1 + RUNS)][1:]


def _pass_on_cpu(case: Case, contender: Contender) -> dict[str, float]:
    case.forget_gradients()
    begin = time.perf_counter()
    _step(case, contender)
    return {"milliseconds": 1000 * (time.perf_counter() - begin)}


def _passes_on_gpu(case: Case, contender: Contender) -> list[dict[str, float]]:
    """Give the GPU all passes without waiting in between, as a training loop does."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    case.forget_gradients()
    held = torch.cuda.memory_allocated()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2 + RUNS)]
    events[0].record()
    for event in events[1:]:
        case.forget_gradients()
        _step(case, contender)
        event.record()
    torch.cuda.synchronize()
    # The products alone are given their gradients too, for they make them.
    gradients = sum(tensor.numel() * tensor.element_size() for tensor in case.inputs)
    accumulator = 4 * case.weight.numel()
    beyond = torch.cuda.max_memory_allocated() - held - gradients - accumulator
    return [
        {
            "milliseconds": begin.elapsed_time(end),
            "milliseconds_with_host": begin.elapsed_time(end),
            "megabytes": max(0.0, beyond / 1e6),
        }
        for begin, end in pairwise(events[1:])
    ]


def _replays_on_gpu(case: Case, contender: Contender) -> list[float]:
    """Time the GPU alone, without gaps between launches; nothing where a pass asks the host."""
    if not contender.replayable:
        return []
    torch.cuda.empty_cache()  # every stream, and the graph, keeps memory of its own
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(2):
            case.forget_gradients()
            _step(case, contender)
    torch.cuda.current_stream().wait_stream(aside)
    case.forget_gradients()
    torch.cuda.empty_cache()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        _step(case, contender)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2 + RUNS)]
    for event in events:
        graph.replay()
        event.record()
    torch.cuda.synchronize()
    case.forget_gradients()
    return [begin.elapsed_time(end) for begin, end in pairwise(events[1:])]


@torch.no_grad()
def reference(case: Case, gradient_of: Exact) -> Truth:
    """Compute the mean loss and its gradients in float64, a chunk of tokens at a time."""
    hidden, weight, bias = (tensor.double() for tensor in case.inputs)
    to_hidden, to_weight, to_bias = (torch.zeros_like(tensor) for tensor in (hidden, weight, bias))
    total, tokens = 0.0, len(hidden)
    rows = max(1, 2**26 // len(weight))
    for begin in range(0, tokens, rows):
        part = slice(begin, begin + rows)
        logits = hidden[part] @ weight.T + bias
        total += float(gradient_of(logits, case.targets[part].unsqueeze(1)))
        to_hidden[part] = logits @ weight / tokens
        to_weight += logits.T @ hidden[part] / tokens
        to_bias += logits.sum(dim=0) / tokens
    return total / tokens, (to_hidden, to_weight, to_bias)


def exact_softmax(logits: Tensor, gold: Tensor) -> Tensor:
    """Turn logits into the gradient of cross-entropy, and give the summed loss."""
    logits -= logits.logsumexp(dim=1, keepdim=True)
    loss = -logits.gather(1, gold).sum()
    logits.exp_().scatter_add_(1, gold, -torch.ones_like(gold, dtype=logits.dtype))
    return loss


def exact_scones(logits: Tensor, gold: Tensor) -> Tensor:
    """Turn logits into the gradient of the SCONES loss, and give the summed loss."""
    zero = logits.new_zeros(())
    gold_logits = logits.gather(1, gold)
    negatives = torch.logaddexp(logits, zero).scatter_(1, gold, 0.0)
    loss = torch.logaddexp(-gold_logits, zero).sum() + ALPHA * negatives.sum()
    logits.sigmoid_().mul_(ALPHA).scatter_(1, gold, -torch.sigmoid(-gold_logits))
    return loss


def show_case(sizes: Sizes, rows: dict[str, dict[str, Any]]) -> None:
    """Print the table of one case."""
    tokens, size, vocabulary = sizes
    head = ("ms", "× products", "× ours", "MB beyond", "loss error", "gradient error")
    lines = []
    for name, row in rows.items():
        errors = [row.get(f"{part}_gradient_error") for part in ("hidden", "weight", "bias")]
        known = [error for error in errors if error is not None]
        cells = [
            row.get("note") or number(row["milliseconds"], 3),
            number(row.get("times_products"), 2),
            number(row.get("times_ours"), 2),
            number(row.get("megabytes")),
            f"{row['loss_error']:.1e}" if "loss_error" in row else "–",
            f"{max(known):.1e}" if known else "–",
        ]
        lines.append([name, *cells])
    show(f"{tokens:,} × {size} × {vocabulary:,}", head, lines)


if __name__ == "__main__":
    main()
