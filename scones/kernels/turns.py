"""Kernels that turn logits into their own gradient.

Each reads and writes every number once. SCONES' takes any tile of the logits, for no logit asks
for another. Softmax's needs whole rows, which makes its chunks few rows and all of the vocabulary:
worse shapes for the products.

Shape letters: n rows and c columns of a chunk, D size of a state, t tiles of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import triton
import triton.language as tl
from torch import Tensor

from scones.kernels import IGNORED


@dataclass(frozen=True)
class Chunk:
    """Some rows and columns of the logits: what they are made of, and what is made of them."""

    hidden_nD: Tensor
    weight_cD: Tensor
    bias_c: Tensor
    targets_n: Tensor
    weights_n: Tensor | None
    first_row: int
    """Its number among all rows."""
    first_token: int
    """That of the first column."""
    gradient_nc: Tensor
    """A place for the gradient, and for logits before it."""
    sums_tc: Tensor
    """A place for the sums of the gradient over tiles of rows."""

    def multiply(self) -> Tensor:
        """Write the logits, which lack their bias, in the gradient's place."""
        return torch.mm(self.hidden_nD, self.weight_cD.T, out=self.gradient_nc)


class Turn(Protocol):
    """What makes the gradient of a chunk of logits."""

    @property
    def most_rows(self) -> int:
        """Of a chunk, so that what is multiplied has a good shape."""

    @property
    def whole_rows(self) -> bool:
        """Whether a chunk has to hold all columns."""

    def __call__(self, chunk: Chunk) -> Tensor:
        """Write the gradient and its sums; gives losses, in parts that have to be added."""

    def tiles(self, rows: int) -> int:
        """Say over how many tiles of rows it sums the gradient."""


@triton.jit
def exp2(x, FAST: tl.constexpr):
    """2 to the power of x; fast, by the instruction of an NVIDIA GPU."""
    if FAST:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return tl.exp2(x)


@triton.jit
def reciprocal(x, FAST: tl.constexpr):
    """1 / x; fast, by the instruction of an NVIDIA GPU."""
    if FAST:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return 1.0 / x


@triton.jit
def log1p(x):
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
        e = exp2(tl.abs(z) * -1.4426950408889634, FAST)
        large = reciprocal(1.0 + e, FAST)
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
            gold_losses = tl.maximum(-z, 0.0) + log1p(e) + smoothing * z
            gold_loss += weight * tl.sum(tl.where(gold, gold_losses, 0.0))
            above = tl.where(gold, 0.0, above)
            e = tl.where(gold, 0.0, e)
        tl.store(place, slope.to(logits.dtype.element_ty), mask=real)
        slopes += slope
        # The logarithms of 1 + e are added by multiplying all 1 + e: one logarithm for all rows.
        if WEIGHTED:
            loss += weight * (above + log1p(e))
        elif counts:
            loss += above
            product = product * e + (product + e)
        if (row - top) % 64 == 63:  # 2**64, the largest product of 64 rows, is still a float32
            loss += log1p(product)
            product = tl.zeros((COLUMNS,), dtype=tl.float32)
    loss += log1p(product)
    tl.store(sums + tile.to(tl.int64) * sums_stride + column, slopes, mask=real)
    part = tile * tl.num_programs(0) + tl.program_id(0)
    tl.store(losses + part, alpha * tl.sum(tl.where(real, loss, 0.0)) + gold_loss)


TILE_ROWS = 128
"""Rows over which SCONES' kernels sum the gradient."""


@dataclass(frozen=True)
class SconesTurn:
    """The gradient of a logit is α(σ(z) - λ), or λ - σ(-z) where its token is gold."""

    alpha: float
    label_smoothing: float
    most_rows: int = 8192
    whole_rows: bool = False

    def __call__(self, chunk: Chunk) -> Tensor:
        """Multiply, then turn in place; see `Turn`."""
        logits_nc, sums_tc = chunk.multiply(), chunk.sums_tc
        rows, columns = logits_nc.shape
        grid = (triton.cdiv(columns, 1024), self.tiles(rows))
        losses = logits_nc.new_empty(grid[0] * grid[1], dtype=torch.float32)
        _scones[grid](
            logits_nc, chunk.bias_c, chunk.targets_n, chunk.weights_n, losses, sums_tc,
            rows, columns, logits_nc.stride(0), sums_tc.stride(0), chunk.first_token,
            self.alpha, self.label_smoothing,
            IGNORED=IGNORED, WEIGHTED=chunk.weights_n is not None,
            SMOOTHED=self.label_smoothing > 0, FAST=logits_nc.is_cuda,
            ROWS=TILE_ROWS, COLUMNS=1024, STAGES=4, num_warps=4,
        )  # fmt: skip
        return losses

    def tiles(self, rows: int) -> int:
        """Tiles of rows that fit into the kernel's product."""
        return triton.cdiv(rows, TILE_ROWS)


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

    def __call__(self, chunk: Chunk) -> Tensor:
        """Multiply, then turn whole rows in place; see `Turn`."""
        logits_nc = chunk.multiply()
        rows, columns = logits_nc.shape
        losses = logits_nc.new_empty(rows, dtype=torch.float32)
        _softmax[(rows,)](
            logits_nc, chunk.bias_c, chunk.targets_n, chunk.weights_n, losses,
            columns, logits_nc.stride(0), self.label_smoothing,
            IGNORED=IGNORED, WEIGHTED=chunk.weights_n is not None,
            SMOOTHED=self.label_smoothing > 0, COLUMNS=4096, num_warps=8,
        )  # fmt: skip
        torch.sum(logits_nc, dim=0, keepdim=True, dtype=torch.float32, out=chunk.sums_tc)
        return losses

    def tiles(self, rows: int) -> int:
        """One: PyTorch sums."""
        return 1
