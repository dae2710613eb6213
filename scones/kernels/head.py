"""The output layer on a GPU: logits become their own gradient, chunk by chunk.

Of a chunk of logits one kernel makes losses and gradient in place, reading and writing every number
once; the matrix products before and after it are cuBLAS'. So the output layer costs its three
products and one pass over the logits, of which only a chunk exists at a time.

SCONES' kernel takes any tile of the logits, for no logit asks for another. Softmax's needs whole
rows, which makes its chunks few rows and all of the vocabulary: worse shapes for the products.

Shape letters: n rows and c columns of a chunk, t tiles of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
import triton
import triton.language as tl
from torch import Tensor

from scones.kernels import IGNORED
from scones.kernels.products import product_into

_CHUNK = 2**26
"""Logits that exist at a time: 128 MB in bf16."""


class Turn(Protocol):
    """A kernel that turns a chunk of logits into gradients."""

    @property
    def most_rows(self) -> int:
        """Of a chunk, so that what is multiplied has a good shape."""

    @property
    def whole_rows(self) -> bool:
        """Whether a chunk has to hold all columns."""

    def __call__(
        self,
        logits_nc: Tensor,
        bias_c: Tensor,
        targets_n: Tensor,
        weights_n: Tensor | None,
        first: int,
        sums_tc: Tensor,
    ) -> Tensor:
        """Write the gradient over the logits, which lack their bias, and its sums over tiles.

        `first` is the token of the first column. Gives losses, in parts that have to be added.
        """

    def tiles(self, rows: int) -> int:
        """Say over how many tiles of rows it sums the gradient."""


def loss_and_gradients(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    weights_N: Tensor | None,
    turn: Turn,
    wanted: bool,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Sum the losses; give the gradients, in float32, of states, matrix and bias where wanted."""
    tokens, vocabulary = len(targets_N), len(weight_VD)
    losses = []
    make = torch.empty_like if tokens else torch.zeros_like
    to_hidden, to_weight = (make(tensor, dtype=torch.float32) for tensor in (hidden_ND, weight_VD))
    to_bias = torch.zeros_like(bias_V, dtype=torch.float32)
    rows, columns = _chunk_shape(tokens, vocabulary, turn)
    space = hidden_ND.new_empty(rows, columns)
    sums_tV = to_bias.new_empty(turn.tiles(rows), vocabulary)
    for n in _slices(tokens, rows):
        weights_n = None if weights_N is None else weights_N[n]
        sums_tV = sums_tV[: turn.tiles(n.stop - n.start)]
        for c in _slices(vocabulary, columns):
            logits_nc = space[: n.stop - n.start, : c.stop - c.start]
            torch.mm(hidden_ND[n], weight_VD[c].T, out=logits_nc)
            losses.append(
                turn(logits_nc, bias_V[c], targets_N[n], weights_n, c.start, sums_tV[:, c])
            )
            if wanted:
                product_into(logits_nc, weight_VD[c], to_hidden[n], begins=c.start == 0)
                product_into(logits_nc.T, hidden_ND[n], to_weight[c], begins=n.start == 0)
        to_bias += sums_tV.sum(dim=0)
    total = torch.cat(losses).sum() if losses else to_bias.new_zeros(())
    return total, (to_hidden, to_weight, to_bias) if wanted else ()


def _chunk_shape(tokens: int, vocabulary: int, turn: Turn) -> tuple[int, int]:
    """Divide logits evenly into chunks; their rows begin where vectors of 16 bytes do."""
    if turn.whole_rows:
        columns = _rounded(vocabulary, 64)
        return max(1, min(tokens, _CHUNK // columns)), columns
    blocks = max(1, triton.cdiv(tokens, turn.most_rows))
    rows = _rounded(max(1, triton.cdiv(tokens, blocks)), 128)
    parts = triton.cdiv(vocabulary * rows, _CHUNK)
    return max(1, min(rows, tokens)), _rounded(triton.cdiv(vocabulary, parts), 64)


def _rounded(number: int, step: int) -> int:
    return triton.cdiv(number, step) * step


def _slices(length: int, size: int) -> Iterator[slice]:
    return (slice(begin, min(begin + size, length)) for begin in range(0, length, size))


@triton.jit
def _exp2(x, FAST: tl.constexpr):
    if FAST:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return tl.exp2(x)


@triton.jit
def _reciprocal(x, FAST: tl.constexpr):
    if FAST:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return 1.0 / x


@triton.jit
def _log1p(x):
    """The logarithm of 1 + x for x ≥ 0, to float32's digits where x is small too."""
    return tl.where(x < 1e-3, x - 0.5 * x * x, tl.log(1.0 + x))


@triton.jit
def _scones(
    logits, bias, targets, weights, losses, sums,
    rows, columns, row_stride, sums_stride, first, alpha, smoothing,
    IGNORED: tl.constexpr, WEIGHTED: tl.constexpr, SMOOTHED: tl.constexpr, FAST: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    left, tile = tl.program_id(0) * COLUMNS, tl.program_id(1)
    column = left + tl.arange(0, COLUMNS)
    real = column < columns
    shift = tl.load(bias + column, mask=real, other=0.0).to(tl.float32)
    slopes = tl.zeros((COLUMNS,), dtype=tl.float32)
    loss = tl.zeros((COLUMNS,), dtype=tl.float32)
    product = tl.zeros((COLUMNS,), dtype=tl.float32)
    gold_loss = tl.cast(0.0, tl.float32)
    top = tile * ROWS
    begin = logits + top.to(tl.int64) * row_stride + column
    for row in tl.range(top, tl.minimum(top + ROWS, rows), num_stages=STAGES):
        target = tl.load(targets + row)
        counts = target != IGNORED
        target -= first
        weight = tl.where(counts, 1.0, 0.0)
        if WEIGHTED:
            weight *= tl.load(weights + row).to(tl.float32)
        place = begin + (row - top) * row_stride
        z = tl.load(place, mask=real, other=0.0).to(tl.float32) + shift
        e = _exp2(tl.abs(z) * -1.4426950408889634, FAST)
        large = _reciprocal(1.0 + e, FAST)
        small = e * large
        slope = tl.where(z > 0, large, small)
        above = tl.maximum(z, 0.0)
        if SMOOTHED:
            slope -= smoothing
            above -= smoothing * z
        slope *= alpha * weight
        if (target >= left) & (target < tl.minimum(left + COLUMNS, columns)):
            gold = column == target
            gold_slope = smoothing - tl.where(z > 0, small, large)
            slope = tl.where(gold, weight * gold_slope, slope)
            gold_losses = tl.maximum(-z, 0.0) + _log1p(e) + smoothing * z
            gold_loss += weight * tl.sum(tl.where(gold, gold_losses, 0.0))
            above = tl.where(gold, 0.0, above)
            e = tl.where(gold, 0.0, e)
        tl.store(place, slope.to(logits.dtype.element_ty), mask=real)
        slopes += slope
        # The logarithms of 1 + e are added by multiplying all 1 + e: one logarithm for all rows.
        if WEIGHTED:
            loss += weight * (above + _log1p(e))
        elif counts:
            loss += above
            product = product * e + (product + e)
        if (row - top) % 64 == 63:  # 2**64, the largest product of 64 rows, is still a float32
            loss += _log1p(product)
            product = tl.zeros((COLUMNS,), dtype=tl.float32)
    loss += _log1p(product)
    tl.store(sums + tile.to(tl.int64) * sums_stride + column, slopes, mask=real)
    part = tile * tl.num_programs(0) + tl.program_id(0)
    tl.store(losses + part, alpha * tl.sum(tl.where(real, loss, 0.0)) + gold_loss)


_TILE_ROWS = 128


@dataclass(frozen=True)
class SconesTurn:
    """The gradient of a logit is α(σ(z) - λ), or λ - σ(-z) where its token is gold."""

    alpha: float
    label_smoothing: float
    most_rows: int = 8192
    whole_rows: bool = False

    def __call__(
        self,
        logits_nc: Tensor,
        bias_c: Tensor,
        targets_n: Tensor,
        weights_n: Tensor | None,
        first: int,
        sums_tc: Tensor,
    ) -> Tensor:
        """Turn a chunk; see `Turn`."""
        rows, columns = logits_nc.shape
        grid = (triton.cdiv(columns, 1024), self.tiles(rows))
        losses = bias_c.new_empty(grid[0] * grid[1], dtype=torch.float32)
        _scones[grid](
            logits_nc, bias_c, targets_n, weights_n, losses, sums_tc,
            rows, columns, logits_nc.stride(0), sums_tc.stride(0), first,
            self.alpha, self.label_smoothing,
            IGNORED=IGNORED, WEIGHTED=weights_n is not None, SMOOTHED=self.label_smoothing > 0,
            FAST=logits_nc.is_cuda, ROWS=_TILE_ROWS, COLUMNS=1024, STAGES=4, num_warps=4,
        )  # fmt: skip
        return losses

    def tiles(self, rows: int) -> int:
        """Tiles of rows that fit into the kernel's product."""
        return triton.cdiv(rows, _TILE_ROWS)


@triton.jit
def _softmax(
    logits, bias, targets, weights, losses, columns, row_stride, smoothing,
    IGNORED: tl.constexpr, WEIGHTED: tl.constexpr, SMOOTHED: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    place = logits + row.to(tl.int64) * row_stride
    best = tl.cast(float("-inf"), tl.float32)
    total = tl.cast(0.0, tl.float32)
    whole = tl.cast(0.0, tl.float32)
    for left in range(0, columns, COLUMNS):
        column = left + tl.arange(0, COLUMNS)
        real = column < columns
        shift = tl.load(bias + column, mask=real, other=0.0).to(tl.float32)
        z = tl.load(place + column, mask=real, other=0.0).to(tl.float32) + shift
        if SMOOTHED:
            whole += tl.sum(tl.where(real, z, 0.0))
        z = tl.where(real, z, float("-inf"))
        better = tl.maximum(best, tl.max(z))
        total = total * tl.exp(best - better) + tl.sum(tl.exp(z - better))
        best = better
    norm = best + tl.log(total)
    target = tl.load(targets + row)
    weight = tl.where(target != IGNORED, 1.0, 0.0)
    target = tl.maximum(target, 0)
    if WEIGHTED:
        weight *= tl.load(weights + row).to(tl.float32)
    gold_logit = tl.load(place + target).to(tl.float32) + tl.load(bias + target).to(tl.float32)
    loss = norm - (1.0 - smoothing) * gold_logit - smoothing * whole / columns
    tl.store(losses + row, weight * loss)
    for left in range(0, columns, COLUMNS):
        column = left + tl.arange(0, COLUMNS)
        real = column < columns
        shift = tl.load(bias + column, mask=real, other=0.0).to(tl.float32)
        z = tl.load(place + column, mask=real, other=0.0).to(tl.float32) + shift
        slope = tl.exp(z - best) / total - smoothing / columns
        slope = tl.where(column == target, slope - (1.0 - smoothing), slope)
        tl.store(place + column, (weight * slope).to(logits.dtype.element_ty), mask=real)


@dataclass(frozen=True)
class SoftmaxTurn:
    """The gradient of a logit is its token's probability minus its smoothed label."""

    label_smoothing: float
    most_rows: int = 0
    whole_rows: bool = True

    def __call__(
        self,
        logits_nc: Tensor,
        bias_c: Tensor,
        targets_n: Tensor,
        weights_n: Tensor | None,
        first: int,
        sums_tc: Tensor,
    ) -> Tensor:
        """Turn whole rows; see `Turn`."""
        rows, columns = logits_nc.shape
        losses = bias_c.new_empty(rows, dtype=torch.float32)
        _softmax[(rows,)](
            logits_nc, bias_c, targets_n, weights_n, losses,
            columns, logits_nc.stride(0), self.label_smoothing,
            IGNORED=IGNORED, WEIGHTED=weights_n is not None, SMOOTHED=self.label_smoothing > 0,
            COLUMNS=4096, num_warps=8,
        )  # fmt: skip
        torch.sum(logits_nc, dim=0, keepdim=True, dtype=torch.float32, out=sums_tc)
        return losses

    def tiles(self, rows: int) -> int:
        """One: PyTorch sums."""
        return 1
