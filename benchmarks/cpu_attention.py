"""Is plain attention faster than PyTorch's fused kernel for short sentences in bf16 on a CPU?

    python benchmarks/cpu_attention.py

Forward and backward of both in one run; prints milliseconds (median) and the ratio.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from scones.model.transformer import plain_attention

# sentences, heads, tokens, size of a head
SHAPES = [(400, 4, 9, 32), (400, 4, 9, 48), (400, 2, 9, 96), (150, 4, 20, 48), (60, 4, 50, 48)]


def milliseconds(attention: Callable[..., Tensor], inputs: list[Tensor], mask: Tensor) -> float:
    """Give the median time of a forward and a backward pass."""
    times = []
    for _ in range(25):
        begin = time.perf_counter()
        attention(*inputs, attn_mask=mask, dropout_p=0.0, is_causal=False).sum().backward()
        times.append(1000 * (time.perf_counter() - begin))
    return statistics.median(times[5:])


def main() -> None:
    """Measure all shapes."""
    torch.manual_seed(1)
    print(f"{'B×H×T×K':>16} {'fused':>8} {'plain':>8} {'fused/plain':>12}")
    for sentences, heads, length, size in SHAPES:
        shape = (sentences, length, heads, size)
        inputs = [
            torch.randn(shape, dtype=torch.bfloat16).transpose(1, 2).requires_grad_()
            for _ in range(3)
        ]
        mask = torch.rand(sentences, 1, 1, length) > 0.1
        mask[..., 0] = True
        fused = milliseconds(functional.scaled_dot_product_attention, inputs, mask)
        plain = milliseconds(plain_attention, inputs, mask)
        name = "×".join(map(str, (sentences, heads, length, size)))
        print(f"{name:>16} {fused:8.1f} {plain:8.1f} {fused / plain:12.1f}")


if __name__ == "__main__":
    main()
