"""The output layer on a GPU: chunk by chunk, logits become their own gradient.

What makes a chunk's gradient is a turn (`scones.kernels.head`, `scones.kernels.streamed`); the two
matrix products that follow are cuBLAS'. So the output layer costs its three products and at most
one pass over the logits, of which only a chunk exists at a time.

Shape letters: N tokens, V vocabulary, D size of a state; n rows and c columns of a chunk, t tiles
of rows.
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

# Matrix products whose sums are kept in float32, whatever their factors are.


def product_into(left: Tensor, right: Tensor, out: Tensor, begins: bool = True) -> Tensor:
    """Put a product into a float32 tensor; where it does not begin there, add it."""
    if left.dtype == torch.float32:
        return out.copy_(left @ right) if begins else out.addmm_(left, right)
    if not left.is_cuda:  # where sums cannot be kept longer than their factors
        return out.copy_(left @ right) if begins else out.add_(left @ right)
    if begins:
        return torch.mm(left, right, out_dtype=torch.float32, out=out)
    return torch.addmm(out, left, right, out_dtype=torch.float32, out=out)


# Single passes over whole tensors, before and after the output layer.

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


# Kernels that turn logits into their own gradient.
#
# Each reads and writes every number once. SCONES' takes any tile of the logits, for no logit asks
# for another. Softmax's needs whole rows, which makes its chunks few rows and all of the
# vocabulary: worse shapes for the products.
#
# Shape letters: n rows and c columns of a chunk, D size of a state, t tiles of rows.


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


_CHUNK = 2**26
"""Logits that exist at a time: 128 MB in bf16."""
_KEPT = 2**23
"""Numbers of which the states' gradient stays in float32 till it is scaled: 32 MB, a pass saved."""

_LARGEST_STREAMED = 512
"""Numbers of the longest states of which a tile fits into shared memory, beside all else."""
_STREAMED_WITH = ("3.6.",)
"""Versions of Triton with which streaming was tried: its language, Gluon, changes with each."""


def loss_and_gradients(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    weights_N: Tensor | None,
    turn: Turn,
    wanted: bool,
    spare: bool = False,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Sum the losses; give the gradients of states, matrix and bias where wanted.

    They are in float32, but that of many states is in their own format; where the states are
    `spare`, it may be written over them.
    """
    bias_V, targets_N = bias_V.contiguous(), targets_N.contiguous()
    weights_N = None if weights_N is None else weights_N.contiguous()
    turn = _fastest(turn, hidden_ND, weight_VD, bias_V, targets_N, weights_N)
    tokens, vocabulary = len(targets_N), len(weight_VD)
    rows, columns = _chunk_shape(tokens, vocabulary, turn)
    losses = []
    to_hidden, sums_nD = _places(hidden_ND, rows, spare)
    make = torch.empty_like if tokens else torch.zeros_like
    to_weight, to_bias = (make(tensor, dtype=torch.float32) for tensor in (weight_VD, bias_V))
    space = hidden_ND.new_empty(rows, columns)
    sums_tV = to_bias.new_empty(turn.tiles(rows), vocabulary)
    for n in _slices(tokens, rows):
        count = n.stop - n.start
        weights_n = None if weights_N is None else weights_N[n]
        to_states = to_hidden[n] if sums_nD is None else sums_nD[:count]
        sums_tV = sums_tV[: turn.tiles(count)]
        for c in _slices(vocabulary, columns):
            gradient_nc = space[:count, : c.stop - c.start]
            losses.append(
                turn(
                    Chunk(
                        hidden_ND[n], weight_VD[c], bias_V[c], targets_N[n], weights_n,
                        n.start, c.start, gradient_nc, sums_tV[:, c],
                    )
                )
            )  # fmt: skip
            if wanted:
                product_into(gradient_nc, weight_VD[c], to_states, begins=c.start == 0)
                product_into(gradient_nc.T, hidden_ND[n], to_weight[c], begins=n.start == 0)
        if wanted and sums_nD is not None:
            to_hidden[n] = to_states
        sums_V = sums_tV.sum(dim=0)
        to_bias = to_bias.add_(sums_V) if n.start else sums_V
    total = torch.cat(losses).sum() if losses else to_bias.new_zeros(())
    return total, (to_hidden, to_weight, to_bias) if wanted else ()


def _places(hidden_ND: Tensor, rows: int, spare: bool) -> tuple[Tensor, Tensor | None]:
    """Give one for the gradient of all states; where it is not float32, one to add up a chunk's."""
    if hidden_ND.dtype == torch.float32 or hidden_ND.numel() <= _KEPT:
        return torch.empty_like(hidden_ND, dtype=torch.float32), None
    sums_nD = hidden_ND.new_empty(rows, hidden_ND.size(1), dtype=torch.float32)
    return hidden_ND if spare else torch.empty_like(hidden_ND), sums_nD


def _fastest(
    turn: Turn,
    hidden_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    weights_N: Tensor | None,
) -> Turn:
    """Give the fastest turn that does the same with these inputs."""
    if not isinstance(turn, SconesTurn) or not _can_stream(hidden_ND, weight_VD):
        return turn
    from scones.kernels.streamed import Gold, StreamedTurn

    rule = (turn.alpha, turn.label_smoothing)
    gold = Gold.find(hidden_ND, weight_VD, bias_V, targets_N, weights_N, *rule)
    return StreamedTurn(*rule, turn.most_rows, gold=gold)


def _can_stream(hidden_ND: Tensor, weight_VD: Tensor) -> bool:
    """Say whether there is a kernel that turns these logits as they leave their product.

    It is for states of 64, 128, 192, … or 512 numbers in bf16, in rows that begin at multiples of
    16 bytes, where the hardware can copy them from.
    """
    tensors = (hidden_ND, weight_VD)
    return (
        hidden_ND.size(1) in range(64, _LARGEST_STREAMED + 1, 64)
        and all(tensor.dtype == torch.bfloat16 for tensor in tensors)
        and all(tensor.stride(1) == 1 and tensor.stride(0) % 8 == 0 for tensor in tensors)
        and all(tensor.data_ptr() % 16 == 0 for tensor in tensors)
        and _streams(hidden_ND.device)
    )


def _streams(device: torch.device) -> bool:
    """Say whether a device is of the Hopper generation, and its kernel was run with this Triton."""
    if device.type != "cuda" or torch.version.hip is not None:  # AMD counts in its own way
        return False
    generation, _ = torch.cuda.get_device_capability(device)
    return generation == 9 and triton.__version__.startswith(_STREAMED_WITH)


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
