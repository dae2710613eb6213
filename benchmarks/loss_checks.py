r"""What does it cost that the losses check their inputs?

    MALLOC_MMAP_THRESHOLD_=33554432 MALLOC_TRIM_THRESHOLD_=4294967296 \
        python benchmarks/loss_checks.py [--repeats N] [--json FILE]

Forward and backward pass over 64 tokens and 32,000 pieces (states of 512 numbers) on one thread of
a CPU, with the checks and with nothing in their place, in turns; the process's own time counts,
and the median of all rounds. The variables make glibc keep its memory: to ask the system for more
takes up to twice as long as the loss, now and then.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from common import facts, flags, number, save, show, take_turns
from torch import Tensor

import scones
from scones import outputs
from scones.outputs import fused, loss

CHECKED, UNCHECKED = "with checks", "without"
PLACES = (
    (outputs, "check_tensors"),
    (loss, "check_numbers"),
    (fused, "check_tensors"),
    (fused, "check_numbers"),
)
"""Where the losses find their checks."""


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = flags(__doc__)
    parser.set_defaults(repeats=100)
    options = parser.parse_args()
    torch.set_num_threads(1)
    result = facts(torch.device("cpu")) | {"results": []}
    rows = []
    for name, run in contenders(*((4, 8, 50) if options.toy else (64, 512, 32_000))).items():
        times = times_of(run, options.repeats)
        medians = {way: statistics.median(times[way]) for way in times}
        ratio = medians[CHECKED] / medians[UNCHECKED]
        result["results"].append({"loss": name, "seconds": medians, "ratio": ratio, "all": times})
        rows.append((name, *(number(1e3 * medians[way], 3) for way in times), number(ratio, 4)))
    show("ms of CPU time", (CHECKED, UNCHECKED, "ratio"), rows)
    save(result, options.json)


def contenders(tokens: int, size: int, vocabulary: int) -> dict[str, Callable[[], None]]:
    """Make the inputs, and a forward and backward pass of each loss."""
    torch.manual_seed(1)
    targets = torch.randint(1, vocabulary, (tokens,))
    logits = torch.randn(tokens, vocabulary, requires_grad=True)
    states = (
        torch.randn(tokens, size, requires_grad=True),
        (torch.randn(vocabulary, size) * size**-0.5).requires_grad_(),
        torch.zeros(vocabulary, requires_grad=True),
    )

    def both_passes(loss: Callable[..., Tensor], *leaves: Tensor) -> Callable[[], None]:
        return lambda: torch.autograd.backward(loss(*leaves, targets), inputs=leaves)

    return {
        "scones_loss": both_passes(scones.scones_loss, logits),
        "fused_scones_loss": both_passes(scones.fused_scones_loss, *states),
        "fused_cross_entropy": both_passes(scones.fused_cross_entropy, *states),
    }


def times_of(run: Callable[[], None], repeats: int) -> dict[str, list[float]]:
    """Let the loss run with its checks and without, in turns, after a first time."""
    checks = [getattr(module, name) for module, name in PLACES]

    def timed(instead: list[Any]) -> Callable[[], float]:
        def once() -> float:
            for (module, name), check in zip(PLACES, instead, strict=True):
                setattr(module, name, check)
            begin = time.process_time()
            run()
            return time.process_time() - begin

        return once

    run()
    ways = {CHECKED: timed(checks), UNCHECKED: timed([lambda *_, **__: None] * len(PLACES))}
    try:
        return take_turns(ways, repeats)
    finally:
        for (module, name), check in zip(PLACES, checks, strict=True):
            setattr(module, name, check)


if __name__ == "__main__":
    main()
