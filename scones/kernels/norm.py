"""Residual, dropout and layer norm in one pass over the numbers, and in one pass back.

Between two blocks of a Transformer their outputs are only added, dropped and normed: a handful of
operations that each would read and write everything. Numbers are dropped by the same hash as in
`scones.model.dropout`.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS = 4
"""Rows of a block, one for each warp."""
_BLOCKS = 1024
"""Blocks that share the way back; each sums the slopes of scale and shift over its rows."""


@triton.jit
def _kept(place, seed, lowest_kept):
    number = (place ^ tl.load(seed)) * -0x61C88647
    number = (number ^ ((number >> 16) & 0xFFFF)) * -0x7A143595
    return (number ^ ((number >> 13) & 0x7FFFF)) * -0x3D4D51CB >= lowest_kept


@triton.jit(do_not_specialize=["rows"])
def _forward(
    x, added, scale, shift, seed, total, normed, means, factors,
    rows, size, epsilon, lowest_kept, lift,
    DROPS: tl.constexpr, ROWS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    part = tl.arange(0, SIZE)
    real = (row < rows)[:, None] & (part < size)[None, :]
    place = row[:, None] * size + part[None, :]
    more = tl.load(added + place, mask=real, other=0.0).to(tl.float32)
    if DROPS:
        more = tl.where(_kept(place, seed, lowest_kept), more * lift, 0.0)
    value = tl.load(x + place, mask=real, other=0.0) + more
    tl.store(total + place, value, mask=real)
    mean = tl.sum(value, axis=1) / size
    apart = tl.where(real, value - mean[:, None], 0.0)
    factor = 1.0 / tl.sqrt(tl.sum(apart * apart, axis=1) / size + epsilon)
    column = part < size
    gain = tl.load(scale + part, mask=column, other=0.0)
    offset = tl.load(shift + part, mask=column, other=0.0)
    result = apart * factor[:, None] * gain[None, :] + offset[None, :]
    tl.store(normed + place, result.to(normed.dtype.element_ty), mask=real)
    tl.store(means + row, mean, mask=row < rows)
    tl.store(factors + row, factor, mask=row < rows)


@triton.jit(do_not_specialize=["rows"])
def _backward(
    to_total, to_normed, total, scale, seed, means, factors, to_x, to_added, to_scale, to_shift,
    rows, size, lowest_kept, lift,
    DROPS: tl.constexpr, ROWS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    part = tl.arange(0, SIZE)
    column = part < size
    gain = tl.load(scale + part, mask=column, other=0.0)
    gains = tl.zeros((ROWS, SIZE), dtype=tl.float32)
    offsets = tl.zeros((ROWS, SIZE), dtype=tl.float32)
    for begin in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        row = begin + tl.arange(0, ROWS)
        real_row = row < rows
        real = real_row[:, None] & column[None, :]
        place = row[:, None] * size + part[None, :]
        mean = tl.load(means + row, mask=real_row, other=0.0)
        factor = tl.load(factors + row, mask=real_row, other=0.0)
        value = tl.load(total + place, mask=real, other=0.0)
        slope = tl.load(to_normed + place, mask=real, other=0.0).to(tl.float32)
        unit = tl.where(real, (value - mean[:, None]) * factor[:, None], 0.0)
        gains += slope * unit
        offsets += slope
        slope *= gain[None, :]
        along = tl.sum(slope * unit, axis=1) / size
        level = tl.sum(slope, axis=1) / size
        back = (slope - level[:, None] - unit * along[:, None]) * factor[:, None]
        back += tl.load(to_total + place, mask=real, other=0.0)
        tl.store(to_x + place, back, mask=real)
        if DROPS:
            back = tl.where(_kept(place, seed, lowest_kept), back * lift, 0.0)
        tl.store(to_added + place, back.to(to_added.dtype.element_ty), mask=real)
    mine = tl.program_id(0) * size + part
    tl.store(to_scale + mine, tl.sum(gains, axis=0), mask=column)
    tl.store(to_shift + mine, tl.sum(offsets, axis=0), mask=column)


def _dropping(rate: float) -> dict[str, Any]:
    return {
        "lowest_kept": round(rate * 2**32) - 2**31,
        "lift": 1 / (1 - rate),
        "DROPS": rate > 0,
    }


@torch.library.custom_op("scones::add_and_norm", mutates_args=())
def _add_and_norm(
    x_ND: Tensor,
    added_ND: Tensor,
    scale_D: Tensor,
    shift_D: Tensor,
    seed: Tensor,
    rate: float,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows, size = x_ND.shape
    total, normed = torch.empty_like(x_ND), torch.empty_like(added_ND)
    means, factors = x_ND.new_empty(rows), x_ND.new_empty(rows)
    _forward[(triton.cdiv(rows, _ROWS),)](
        x_ND, added_ND, scale_D, shift_D, seed, total, normed, means, factors,
        rows, size, epsilon, **_dropping(rate),
        ROWS=_ROWS, SIZE=triton.next_power_of_2(size), num_warps=_ROWS,
    )  # fmt: skip
    return total, normed, means, factors


@_add_and_norm.register_fake
def _(
    x_ND: Tensor,
    added_ND: Tensor,
    scale_D: Tensor,
    shift_D: Tensor,
    seed: Tensor,
    rate: float,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows = x_ND.size(0)
    return (
        torch.empty_like(x_ND), torch.empty_like(added_ND), x_ND.new_empty(rows),
        x_ND.new_empty(rows),
    )  # fmt: skip


@torch.library.custom_op("scones::add_and_norm_backward", mutates_args=())
def _add_and_norm_backward(
    to_total: Tensor,
    to_normed: Tensor,
    total: Tensor,
    scale_D: Tensor,
    seed: Tensor,
    means: Tensor,
    factors: Tensor,
    rate: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows, size = total.shape
    to_x, to_added = torch.empty_like(total), torch.empty_like(to_normed)
    blocks = min(_BLOCKS, triton.cdiv(rows, _ROWS))
    to_scale, to_shift = (total.new_empty(blocks, size) for _ in range(2))
    _backward[(blocks,)](
        to_total.contiguous(), to_normed.contiguous(), total, scale_D, seed, means, factors,
        to_x, to_added, to_scale, to_shift, rows, size, **_dropping(rate),
        ROWS=_ROWS, SIZE=triton.next_power_of_2(size), num_warps=_ROWS,
    )  # fmt: skip
    return to_x, to_added, to_scale.sum(dim=0), to_shift.sum(dim=0)


@_add_and_norm_backward.register_fake
def _(
    to_total: Tensor,
    to_normed: Tensor,
    total: Tensor,
    scale_D: Tensor,
    seed: Tensor,
    means: Tensor,
    factors: Tensor,
    rate: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    size = total.size(1)
    return (
        torch.empty_like(total), torch.empty_like(to_normed), total.new_empty(size),
        total.new_empty(size),
    )  # fmt: skip


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    _, _, scale, _, seed, ctx.rate, _ = inputs
    total, _, means, factors = output
    ctx.save_for_backward(total, scale, seed, means, factors)


def _differentiate(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
    gradients = _add_and_norm_backward(slopes[0], slopes[1], *ctx.saved_tensors, ctx.rate)
    return *gradients, None, None, None


_add_and_norm.register_autograd(_differentiate, setup_context=_keep)


def add_and_norm(
    x_ND: Tensor,
    added_ND: Tensor,
    scale_D: Tensor,
    shift_D: Tensor,
    epsilon: float,
    seed: Tensor,
    rate: float,
) -> tuple[Tensor, Tensor]:
    """Add to a float32 stream what a block made, dropped at `rate`; give the sum and its norm.

    The norm is in the number format of what was added.
    """
    total, normed, _, _ = _add_and_norm(x_ND, added_ND, scale_D, shift_D, seed, rate, epsilon)
    return total, normed
