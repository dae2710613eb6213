"""Single passes over whole tensors, before and after the output layer."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from scones.kernels import IGNORED

_BLOCK = 4096


@triton.jit
def _without_ignored(
    hidden, targets, kept, kept_targets, size, stride, ignored,
    IGNORED: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    row, part = tl.program_id(0), tl.arange(0, SIZE)
    target = tl.load(targets + row)
    counts = target != ignored
    state = tl.load(hidden + row.to(tl.int64) * stride + part, mask=part < size, other=0.0)
    state = tl.where(counts, state, 0.0).to(kept.dtype.element_ty)
    tl.store(kept + row.to(tl.int64) * size + part, state, mask=part < size)
    tl.store(kept_targets + row, tl.where(counts, target, IGNORED))


def without_ignored(
    hidden_ND: Tensor, targets_N: Tensor, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """Copy states and targets; where the target is to be ignored, zeros and `IGNORED`."""
    rows, size = hidden_ND.shape
    if hidden_ND.stride(1) != 1:
        hidden_ND = hidden_ND.contiguous()
    kept_ND, kept_N = hidden_ND.new_empty(rows, size), torch.empty_like(targets_N)
    if rows:
        _without_ignored[(rows,)](
            hidden_ND, targets_N.contiguous(), kept_ND, kept_N, size, hidden_ND.stride(0),
            ignore_index, IGNORED=IGNORED, SIZE=triton.next_power_of_2(size), num_warps=1,
        )  # fmt: skip
    return kept_ND, kept_N


@triton.jit
def _scale(numbers, factor, scaled, count, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    number = tl.load(numbers + place, mask=place < count, other=0.0).to(tl.float32)
    number *= tl.load(factor)
    tl.store(scaled + place, number.to(scaled.dtype.element_ty), mask=place < count)


def scaled(numbers: Tensor, factor: Tensor, kind: torch.dtype) -> Tensor:
    """Multiply contiguous numbers by one, in float32, into another number format."""
    result = torch.empty_like(numbers, dtype=kind)
    if count := numbers.numel():
        _scale[(triton.cdiv(count, _BLOCK),)](
            numbers, factor, result, count, BLOCK=_BLOCK, num_warps=8
        )
    return result
