"""Linear layers over rows: what surrounds their matrix products costs as little as it can.

A ReLU is part of the product before it. On the way back one kernel cuts it off and sums the slopes
for the bias in the same pass; gradients of matrices leave their product in float32.

Shape letters: N rows, D size of the input, E size of the output, b blocks of rows.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from scones.kernels.head import product_into

_ROWS, _COLUMNS = 16, 128
"""The tile of numbers that a program holds."""
_AHEAD = 3
"""Tiles that it reads ahead."""
_PROGRAMS = 1056
"""Programs among which a matrix is divided, about."""


@triton.jit(do_not_specialize=["rows"])
def _sum_slopes(
    slopes, results, cut, sums, rows, columns,
    RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    real_column = column < columns
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    step = tl.num_programs(1) * ROWS
    for begin in tl.range(tl.program_id(1) * ROWS, rows, step, num_stages=AHEAD):
        row = begin + tl.arange(0, ROWS)
        real = (row < rows)[:, None] & real_column[None, :]
        place = row.to(tl.int64)[:, None] * columns + column[None, :]
        slope = tl.load(slopes + place, mask=real, other=0.0)
        if RELU:
            result = tl.load(results + place, mask=real, other=0.0)
            slope = tl.where(result > 0, slope, 0.0)
            tl.store(cut + place, slope, mask=real)
        total += slope.to(tl.float32)
    mine = sums + tl.program_id(1) * columns + column
    tl.store(mine, tl.sum(total, axis=0), mask=real_column)


def sum_slopes(slopes_NE: Tensor, results_NE: Tensor | None) -> tuple[Tensor, Tensor]:
    """Sum the slopes of all rows, in float32; where a ReLU gave results, cut them off before.

    Gives what is left of the slopes, and the sum.
    """
    rows, columns = slopes_NE.shape
    across = triton.cdiv(columns, _COLUMNS)
    blocks = max(1, min(triton.cdiv(rows, _ROWS), triton.cdiv(_PROGRAMS, across)))
    cut_NE = slopes_NE if results_NE is None else torch.empty_like(slopes_NE)
    sums_bE = slopes_NE.new_empty(blocks, columns, dtype=torch.float32)
    _sum_slopes[(across, blocks)](
        slopes_NE, results_NE, cut_NE, sums_bE, rows, columns,
        RELU=results_NE is not None, ROWS=_ROWS, COLUMNS=_COLUMNS, AHEAD=_AHEAD, num_warps=4,
    )  # fmt: skip
    return cut_NE, sums_bE.sum(dim=0)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x_ND: Tensor, weight_ED: Tensor, bias_E: Tensor | None, relu: bool
    ) -> Tensor:
        matrix_ED = weight_ED.to(x_ND.dtype)
        if bias_E is None:
            results_NE = x_ND @ matrix_ED.T
        else:
            apply = torch._addmm_activation if relu else torch.addmm
            results_NE = apply(bias_E.to(x_ND.dtype), x_ND, matrix_ED.T)
        ctx.save_for_backward(x_ND, matrix_ED, results_NE if relu else None)
        ctx.has_bias = bias_E is not None
        return results_NE

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        x_ND, matrix_ED, results_NE = ctx.saved_tensors
        slopes_NE, to_bias = outer[0].contiguous(), None
        if ctx.has_bias:
            slopes_NE, to_bias = sum_slopes(slopes_NE, results_NE)
        to_weight = torch.empty_like(matrix_ED, dtype=torch.float32)
        product_into(slopes_NE.T, x_ND, to_weight)
        return slopes_NE @ matrix_ED, to_weight, to_bias, None


def linear(x_ND: Tensor, weight_ED: Tensor, bias_E: Tensor | None, relu: bool = False) -> Tensor:
    """Multiply rows by a matrix and add a bias; `relu` cuts what is negative, and needs a bias.

    Computes in autocast's number format, or in that of the rows.
    """
    kind = x_ND.device.type
    if torch.is_autocast_enabled(kind):
        x_ND = x_ND.to(torch.get_autocast_dtype(kind))
    with torch.autocast(kind, enabled=False):
        results: Tensor = _Linear.apply(x_ND, weight_ED, bias_E, relu)
    return results
