"""Bias, dropout, residual and layer norm in one pass over the numbers, and in one pass back.

Between the matrix products of two blocks of a Transformer numbers are only added, dropped and
normed: a handful of operations that each would read and write everything. Numbers are dropped by
the same hash as in `scones.model.transformer`.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

# Which numbers are dropped: those whose place and seed hash to the lowest values.
#
# The hash is that of `scones.model.transformer`.


@triton.jit
def kept(place, seed, lowest_kept):
    """Say which numbers are not dropped."""
    number = (place ^ tl.load(seed)) * -0x61C88647
    number = (number ^ ((number >> 16) & 0xFFFF)) * -0x7A143595
    return (number ^ ((number >> 13) & 0x7FFFF)) * -0x3D4D51CB >= lowest_kept


def dropping(rate: float) -> dict[str, Any]:
    """Give the settings of a kernel that drops at this rate."""
    return {
        "lowest_kept": round(rate * 2**32) - 2**31,
        "lift": 1 / (1 - rate),
        "DROPS": rate > 0,
    }


_ROWS = 2
"""Rows of a block, one for each warp."""
_BLOCKS = 2112
"""Blocks that share the way back; each sums the slopes of the vectors over its rows."""
_AHEAD = 3
"""Rows that a block reads ahead on that way."""


@triton.jit(do_not_specialize=["rows"])
def _forward(
    x, added, bias, scale, shift, seed, total, normed, means, factors,
    rows, size, epsilon, lowest_kept, lift,
    ADDS: tl.constexpr, DROPS: tl.constexpr, ROWS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    part = tl.arange(0, SIZE)
    real = (row < rows)[:, None] & (part < size)[None, :]
    place = row[:, None] * size + part[None, :]
    column = part < size
    value = tl.load(x + place, mask=real, other=0.0).to(tl.float32)
    if ADDS:
        more = tl.load(added + place, mask=real, other=0.0).to(tl.float32)
        more += tl.load(bias + part, mask=column, other=0.0)[None, :]
        if DROPS:
            more = tl.where(kept(place, seed, lowest_kept), more * lift, 0.0)
        # What is normed is what is stored, in fewer digits or not: the way back starts from it.
        value = (value + more).to(total.dtype.element_ty)
        tl.store(total + place, value, mask=real)
        value = value.to(tl.float32)
    mean = tl.sum(value, axis=1) / size
    apart = tl.where(real, value - mean[:, None], 0.0)
    factor = 1.0 / tl.sqrt(tl.sum(apart * apart, axis=1) / size + epsilon)
    gain = tl.load(scale + part, mask=column, other=0.0)
    offset = tl.load(shift + part, mask=column, other=0.0)
    result = apart * factor[:, None] * gain[None, :] + offset[None, :]
    tl.store(normed + place, result.to(normed.dtype.element_ty), mask=real)
    tl.store(means + row, mean, mask=row < rows)
    tl.store(factors + row, factor, mask=row < rows)


@triton.jit(do_not_specialize=["rows"])
def _backward(
    to_total, to_normed, total, scale, seed, means, factors, to_x, to_added, to_vectors,
    rows, size, lowest_kept, lift,
    ADDS: tl.constexpr, DROPS: tl.constexpr, ROWS: tl.constexpr, SIZE: tl.constexpr,
    AHEAD: tl.constexpr,
):  # fmt: skip
    part = tl.arange(0, SIZE)
    column = part < size
    gain = tl.load(scale + part, mask=column, other=0.0)
    gains = tl.zeros((ROWS, SIZE), dtype=tl.float32)
    offsets = tl.zeros((ROWS, SIZE), dtype=tl.float32)
    biases = tl.zeros((ROWS, SIZE), dtype=tl.float32)
    step = tl.num_programs(0) * ROWS
    for begin in tl.range(tl.program_id(0) * ROWS, rows, step, num_stages=AHEAD):
        row = begin + tl.arange(0, ROWS)
        real_row = row < rows
        real = real_row[:, None] & column[None, :]
        place = row[:, None] * size + part[None, :]
        mean = tl.load(means + row, mask=real_row, other=0.0)
        factor = tl.load(factors + row, mask=real_row, other=0.0)
        value = tl.load(total + place, mask=real, other=0.0).to(tl.float32)
        slope = tl.load(to_normed + place, mask=real, other=0.0).to(tl.float32)
        unit = tl.where(real, (value - mean[:, None]) * factor[:, None], 0.0)
        gains += slope * unit
        offsets += slope
        slope *= gain[None, :]
        along = tl.sum(slope * unit, axis=1) / size
        level = tl.sum(slope, axis=1) / size
        back = (slope - level[:, None] - unit * along[:, None]) * factor[:, None]
        back += tl.load(to_total + place, mask=real, other=0.0).to(tl.float32)
        tl.store(to_x + place, back.to(to_x.dtype.element_ty), mask=real)
        if ADDS:
            if DROPS:
                back = tl.where(kept(place, seed, lowest_kept), back * lift, 0.0)
            biases += back
            tl.store(to_added + place, back.to(to_added.dtype.element_ty), mask=real)
    mine = to_vectors + tl.program_id(0) * 3 * size + part
    tl.store(mine, tl.sum(biases, axis=0), mask=column)
    tl.store(mine + size, tl.sum(gains, axis=0), mask=column)
    tl.store(mine + 2 * size, tl.sum(offsets, axis=0), mask=column)


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, scale_D: Tensor, shift_D: Tensor, *how: Any) -> Any:
        added_ND, bias_D, epsilon, seed, rate = how
        rows, size = x_ND.shape
        adds = added_ND is not None
        total, normed = torch.empty_like(x_ND) if adds else x_ND, torch.empty_like(x_ND)
        means, factors = x_ND.new_empty(2, rows, dtype=torch.float32)
        _forward[(triton.cdiv(rows, _ROWS),)](
            x_ND, added_ND, bias_D, scale_D, shift_D, seed, total, normed, means, factors,
            rows, size, epsilon, **dropping(rate), ADDS=adds,
            ROWS=_ROWS, SIZE=triton.next_power_of_2(size), num_warps=_ROWS,
        )  # fmt: skip
        ctx.save_for_backward(total, scale_D, seed, means, factors)
        ctx.rate, ctx.adds = rate, adds
        return total, normed

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        to_total, to_normed = (slope.contiguous() for slope in slopes)
        total, scale_D, seed, means, factors = ctx.saved_tensors
        rows, size = total.shape
        to_x, to_added = torch.empty_like(total), torch.empty_like(total) if ctx.adds else None
        blocks = min(_BLOCKS, triton.cdiv(rows, _ROWS))
        to_vectors = means.new_empty(blocks, 3, size)
        _backward[(blocks,)](
            to_total, to_normed, total, scale_D, seed, means, factors, to_x, to_added, to_vectors,
            rows, size, **dropping(ctx.rate), ADDS=ctx.adds,
            ROWS=_ROWS, SIZE=triton.next_power_of_2(size), AHEAD=_AHEAD, num_warps=_ROWS,
        )  # fmt: skip
        to_bias, to_scale, to_shift = to_vectors.sum(dim=0)
        return to_x, to_scale, to_shift, to_added, to_bias if ctx.adds else None, None, None, None


def add_and_norm(
    x_ND: Tensor,
    added_ND: Tensor,
    bias_D: Tensor,
    scale_D: Tensor,
    shift_D: Tensor,
    epsilon: float,
    seed: Tensor,
    rate: float,
) -> tuple[Tensor, Tensor]:
    """Add to a stream what a block made, with its bias and dropped at `rate`.

    Gives the sum and its norm; sums are made in float32 and kept in the stream's number format.
    """
    total, normed = _Norm.apply(x_ND, scale_D, shift_D, added_ND, bias_D, epsilon, seed, rate)
    return total, normed


def norm(x_ND: Tensor, scale_D: Tensor, shift_D: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Give a stream itself, to go on with, and its norm."""
    total, normed = _Norm.apply(x_ND, scale_D, shift_D, None, None, epsilon, None, 0.0)
    return total, normed
