"""Gold tokens, put right in a gradient that was made as if there were none.

Whether a token is gold concerns one logit in a row. So a kernel that looks at all of them need not
ask. Before it, another computes for every row what its gold token changes: its own logit is enough
for that. After it, a third puts this where it belongs, a chunk at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from scones.kernels.turns import TILE_ROWS, Chunk, log1p


@triton.jit(do_not_specialize=["rows"])
def _find(
    hidden, weight, bias, targets, weights, gold_slopes, sum_changes, loss_changes,
    rows, vocabulary, hidden_stride, weight_stride, alpha, smoothing,
    WEIGHTED: tl.constexpr, ROWS: tl.constexpr, SIZE: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    order = tl.arange(0, ROWS)
    row = tl.program_id(0) * ROWS + order
    target = tl.load(targets + row, mask=row < rows, other=-1)
    here = (target >= 0) & (target < vocabulary)
    factor = tl.where(here, 1.0, 0.0)
    if WEIGHTED:
        factor *= tl.load(weights + row, mask=here, other=0.0).to(tl.float32)
    states = hidden + row.to(tl.int64)[:, None] * hidden_stride
    vectors = weight + target.to(tl.int64)[:, None] * weight_stride
    products = tl.zeros((ROWS, PIECE), dtype=tl.float32)
    for k in tl.static_range(0, SIZE, PIECE):
        part = (k + tl.arange(0, PIECE))[None, :]
        real = here[:, None] & (part < SIZE)
        state = tl.load(states + part, mask=real, other=0.0).to(tl.float32)
        products += state * tl.load(vectors + part, mask=real, other=0.0).to(tl.float32)
    z = tl.sum(products, axis=1) + tl.load(bias + target, mask=here, other=0.0).to(tl.float32)
    e = tl.exp(-tl.abs(z))
    large = 1.0 / (1.0 + e)
    small = e * large
    slope = factor * (smoothing - tl.where(z > 0, small, large))
    slope_before = factor * alpha * (tl.where(z > 0, large, small) - smoothing)
    loss = tl.maximum(-z, 0.0) + log1p(e) + smoothing * z
    loss_before = alpha * (tl.maximum(z, 0.0) + log1p(e) - smoothing * z)
    # Of rows with the same gold token the first brings what all change in the token's sum.
    key = tl.where(here, target, -1 - order).to(tl.int32)
    same = key[:, None] == key[None, :]
    change = tl.sum(tl.where(same, (slope - slope_before)[None, :], 0.0), axis=1)
    is_first = tl.min(tl.where(same, order[None, :], ROWS), axis=1) == order
    tl.store(gold_slopes + row, slope, mask=row < rows)
    tl.store(sum_changes + row, tl.where(is_first, change, 0.0), mask=row < rows)
    tl.store(loss_changes + row, factor * (loss - loss_before), mask=row < rows)


@triton.jit(do_not_specialize=["rows", "first"])
def _put(
    targets, gold_slopes, sum_changes, loss_changes, gradient, sums, losses,
    rows, columns, row_stride, sums_stride, first, ROWS: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    row = tile * ROWS + tl.arange(0, ROWS)
    # All is loaded at once, also what is not needed, for loads that wait for others take longer.
    place = tl.load(targets + row, mask=row < rows, other=-1).to(tl.int64) - first
    slope = tl.load(gold_slopes + row, mask=row < rows, other=0.0)
    change = tl.load(sum_changes + row, mask=row < rows, other=0.0)
    loss_change = tl.load(loss_changes + row, mask=row < rows, other=0.0)
    loss = tl.load(losses + tile)
    here = (place >= 0) & (place < columns)
    there = gradient + row.to(tl.int64) * row_stride + place
    tl.store(there, slope.to(gradient.dtype.element_ty), mask=here)
    brings = here & (change != 0)
    sum_there = sums + tile.to(tl.int64) * sums_stride + place
    before = tl.load(sum_there, mask=brings, other=0.0)
    tl.store(sum_there, before + change, mask=brings)
    tl.store(losses + tile, loss + tl.sum(tl.where(here, loss_change, 0.0)))


@dataclass(frozen=True)
class Gold:
    """What gold tokens make of a gradient; nothing where they are none of the vocabulary."""

    slopes_N: Tensor
    """The gradients of the gold logits."""
    sum_changes_N: Tensor
    """Of the gradient's sums over tiles of rows; 0 where an earlier row of the tile brings it."""
    loss_changes_N: Tensor

    @classmethod
    def find(
        cls,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor,
        targets_N: Tensor,
        weights_N: Tensor | None,
        alpha: float,
        smoothing: float,
    ) -> Gold:
        """Compute it from the gold tokens' logits alone."""
        rows, size = hidden_ND.shape
        gold = cls(*(hidden_ND.new_empty(rows, dtype=torch.float32) for _ in range(3)))
        if rows:
            _find[(triton.cdiv(rows, TILE_ROWS),)](
                hidden_ND, weight_VD, bias_V, targets_N, weights_N,
                gold.slopes_N, gold.sum_changes_N, gold.loss_changes_N,
                rows, len(weight_VD), hidden_ND.stride(0), weight_VD.stride(0), alpha, smoothing,
                WEIGHTED=weights_N is not None, ROWS=TILE_ROWS, SIZE=size, PIECE=64, num_warps=16,
            )  # fmt: skip
        return gold

    def put(self, chunk: Chunk, losses: Tensor) -> None:
        """Put it into a chunk's gradient and sums; add to losses what it changes.

        The chunk begins with a tile of rows.
        """
        rows, columns = chunk.gradient_nc.shape
        n = slice(chunk.first_row, chunk.first_row + rows)
        _put[(len(chunk.sums_tc),)](
            chunk.targets_n, self.slopes_N[n], self.sum_changes_N[n], self.loss_changes_N[n],
            chunk.gradient_nc, chunk.sums_tc, losses, rows, columns,
            chunk.gradient_nc.stride(0), chunk.sums_tc.stride(0), chunk.first_token,
            ROWS=TILE_ROWS, num_warps=4,
        )  # fmt: skip
