"""Gold tokens, put right in a gradient that was made as if there were none.

Whether a token is gold concerns one logit in a row. So a kernel that looks at all of them need not
ask; afterwards one that looks at rows computes the logits of their gold tokens once more, and from
these what they change in the gradient, its sums and the loss.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from scones.kernels.turns import TILE_ROWS, Chunk, log1p


@triton.jit(do_not_specialize=["rows", "first"])
def _put_gold(
    hidden, weight, bias, targets, weights, gradient, sums, losses,
    rows, columns, hidden_stride, weight_stride, row_stride, sums_stride, first, alpha, smoothing,
    WEIGHTED: tl.constexpr, ROWS: tl.constexpr, SIZE: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    order = tl.arange(0, ROWS)
    row = tile * ROWS + order
    place = tl.load(targets + row, mask=row < rows, other=-1).to(tl.int64) - first
    here = (place >= 0) & (place < columns)
    factor = tl.where(here, 1.0, 0.0)
    if WEIGHTED:
        factor *= tl.load(weights + row, mask=here, other=0.0).to(tl.float32)
    row = row.to(tl.int64)
    z = tl.load(bias + place, mask=here, other=0.0).to(tl.float32)
    for k in tl.static_range(0, SIZE, PIECE):
        part = (k + tl.arange(0, PIECE))[None, :]
        real = here[:, None] & (part < SIZE)
        state = tl.load(hidden + row[:, None] * hidden_stride + part, mask=real, other=0.0)
        vector = tl.load(weight + place[:, None] * weight_stride + part, mask=real, other=0.0)
        z += tl.sum(state.to(tl.float32) * vector.to(tl.float32), axis=1)
    e = tl.exp(-tl.abs(z))
    large = 1.0 / (1.0 + e)
    small = e * large
    slope = factor * (smoothing - tl.where(z > 0, small, large))
    slope_before = factor * alpha * (tl.where(z > 0, large, small) - smoothing)
    loss = tl.maximum(-z, 0.0) + log1p(e) + smoothing * z
    loss_before = alpha * (tl.maximum(z, 0.0) + log1p(e) - smoothing * z)
    loss_change = tl.sum(factor * (loss - loss_before))
    tl.store(losses + tile, tl.load(losses + tile) + loss_change)
    there = gradient + row * row_stride + place
    tl.store(there, slope.to(gradient.dtype.element_ty), mask=here)
    # Of rows with the same gold token the first brings what all change in the token's sum.
    key = tl.where(here, place, -1 - order)
    same = key[:, None] == key[None, :]
    change = tl.sum(tl.where(same, (slope - slope_before)[None, :], 0.0), axis=1)
    brings = here & (tl.min(tl.where(same, order[None, :], ROWS), axis=1) == order)
    sum_there = sums + tile.to(tl.int64) * sums_stride + place
    before = tl.load(sum_there, mask=brings, other=0.0)
    tl.store(sum_there, before + change, mask=brings)


def put_gold(chunk: Chunk, losses: Tensor, alpha: float, smoothing: float) -> None:
    """Put gold tokens right in the gradient and its sums; add to losses what they change."""
    rows, columns = chunk.gradient_nc.shape
    _put_gold[(len(chunk.sums_tc),)](
        chunk.hidden_nD, chunk.weight_cD, chunk.bias_c, chunk.targets_n, chunk.weights_n,
        chunk.gradient_nc, chunk.sums_tc, losses, rows, columns,
        chunk.hidden_nD.stride(0), chunk.weight_cD.stride(0), chunk.gradient_nc.stride(0),
        chunk.sums_tc.stride(0), chunk.first, alpha, smoothing,
        WEIGHTED=chunk.weights_n is not None, ROWS=TILE_ROWS, SIZE=chunk.hidden_nD.size(1),
        PIECE=64, num_warps=16,
    )  # fmt: skip
