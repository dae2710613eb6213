"""What do labels cost: four right tokens a position, and wrong ones, against one right token?

    python benchmarks/labels.py [--precision bf16 ...] [--json FILE]

The fused SCONES loss, forward and backward, on a CPU: 4,096 positions, at the size of the paper
(512, 32,000 pieces) and of the pocket models (256, 8,000). `one`: the usual loss; `four`:
three more right tokens at every position; `spoilt`: known wrong ones, also three a position.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from itertools import product

import torch
from common import facts, flags, number, save, seconds, show, take_turns

from scones.outputs import Labels, OutputLayer, output_layer

CPU = torch.device("cpu")
SIZES = {"paper": (4096, 512, 32_000), "pocket": (4096, 256, 8_000), "toy": (64, 16, 100)}
MORE = 3


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = flags(__doc__)
    parser.add_argument("--precision", choices=["float32", "bf16"], action="append")
    options = parser.parse_args()
    result = facts(CPU) | {"results": []}
    sizes = ["toy"] if options.toy else ["paper", "pocket"]
    for size, precision in product(sizes, options.precision or ["float32", "bf16"]):
        runs = contenders(size, precision)
        for run in runs.values():
            run()
        times = take_turns({name: timed(run) for name, run in runs.items()}, options.repeats)
        middle = {name: statistics.median(values) for name, values in times.items()}
        ratios = {name: value / middle["one"] for name, value in middle.items()}
        result["results"].append({"size": size, "precision": precision, "seconds": times})
        rows = [(name, number(middle[name], 3), number(ratios[name], 3)) for name in runs]
        show(f"{size}, {precision}", ("seconds", "against one"), rows)
    save(result, options.json)


def timed(run: Callable[[], None]) -> Callable[[], float]:
    """Time a call."""
    return lambda: seconds(run, CPU)


def contenders(size: str, precision: str) -> dict[str, Callable[[], None]]:
    """Make the inputs once, and what is done with them."""
    torch.manual_seed(1)
    rows, width, vocabulary = SIZES[size]
    layer = output_layer({"layer": "scones"})
    hidden = torch.randn(rows, width, requires_grad=True)
    weight = (torch.randn(vocabulary, width) * width**-0.5).requires_grad_()
    bias = torch.full((vocabulary,), layer.initial_bias(vocabulary), requires_grad=True)
    # Different tokens at every position: the target, and MORE beside it.
    tokens = (torch.randint(vocabulary, (rows, 1)) + 7 * torch.arange(1 + MORE)) % vocabulary
    ones = torch.ones(rows * MORE)
    told = (torch.arange(rows).repeat_interleave(MORE), tokens[:, 1:].flatten())
    labels = {
        "one": None,
        "four": Labels(*told, ones, 0 * ones),
        "spoilt": Labels(*told, 0 * ones, 10 * ones),
    }
    leaves = (hidden, weight, bias)

    def run(told: Labels | None) -> None:
        loss_of(layer, leaves, tokens[:, 0], told, precision).div(rows).backward()
        for leaf in leaves:
            leaf.grad = None

    def of(name: str) -> Callable[[], None]:
        return lambda: run(labels[name])

    return {name: of(name) for name in labels}


def loss_of(
    layer: OutputLayer,
    leaves: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    targets: torch.Tensor,
    labels: Labels | None,
    precision: str,
) -> torch.Tensor:
    """Compute the loss as training does."""
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        loss = layer.loss(*leaves, targets)
        return loss if labels is None else loss + layer.label_loss(*leaves, labels)


if __name__ == "__main__":
    main()
