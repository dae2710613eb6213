"""SCONES' gradient as the logits leave their product: they are never written anywhere.

For GPUs of the Hopper generation, in Gluon, Triton's language for those who place everything
themselves. A program keeps 128 hidden states in shared memory and lets the output matrix stream
past them, 128 columns of the logits at a time: a tile. One warp fetches the matrix in pieces of 64
numbers a column into a ring. Two groups of four warps take every second tile: while one turns its
logits into gradients, the other multiplies, so that the tensor cores hardly wait.

A tile is turned 32 columns at a time, or else it would not fit into registers. All tokens are
treated as if they were not gold; `scones.kernels.streamed` puts this right.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from scones.kernels import IGNORED
from scones.kernels.head import TILE_ROWS, Chunk, SconesTurn, exp2, log1p, reciprocal

# Gold tokens, put right in a gradient that was made as if there were none.
#
# Whether a token is gold concerns one logit in a row. So a kernel that looks at all of them need
# not ask. Before it, another computes for every row what its gold token changes: its own logit is
# enough for that. After it, a third puts this where it belongs, a chunk at a time.


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


# After 3.6 Triton renamed these.
_read = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
_write = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global

PIECE_LAYOUT = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
"""Of 128 rows of 64 numbers, states or columns of the matrix."""
PART_LAYOUT = gl.NVMMASharedLayout(swizzle_byte_width=64, element_bitwidth=16, rank=2)
"""Of 128 rows of 32 numbers, gradients that are on their way out."""
OPTIONS = {"num_warps": 4, "maxnreg": 168}
"""What the compiler has to know: the warps of the first group, and registers of all on average."""

# Logits are turned in units of log 2, which is what the hardware's exponential takes.
_LOG2_E = gl.constexpr(1.4426950408889634)
_LOG_2 = gl.constexpr(0.6931471805599453)


@gluon.jit
def _fetch(
    hidden, weight, states, ring, states_in, filled, freed, top, left, count,
    PIECES: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Bring the matrix into the ring, piece by piece; with the first tile, the states too."""
    for tile in range(count):
        for k in gl.static_range(PIECES):
            number = tile * PIECES + k
            slot = number % STAGES
            mbarrier.wait(freed.index(slot), ((number // STAGES) & 1) ^ 1)
            mbarrier.expect(states_in.index(k), hidden.block_type.nbytes, pred=tile == 0)
            _read(hidden, [top, k * 64], states_in.index(k), states.index(k), pred=tile == 0)
            # Barriers only tell odd turns from even ones. So each group has its own, to miss none.
            ready = filled.index((tile & 1) * PIECES + k)
            mbarrier.expect(ready, weight.block_type.nbytes)
            _read(weight, [left + tile * 128, k * 64], ready, ring.index(slot))


@gluon.jit
def _grow(a, b):
    """(1 + a)(1 + b) - 1: small numbers keep their digits."""
    return a * b + (a + b)


@gluon.jit
def _halves(x, WIDTH: gl.constexpr):
    """Split columns; no number leaves its register."""
    HALF: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH // 2, 16])
    one, two = x.reshape([128, 2, WIDTH // 2]).permute(0, 2, 1).split()
    one = gl.convert_layout(one, HALF, assert_trivial=True)
    return one, gl.convert_layout(two, HALF, assert_trivial=True)


@gluon.jit
def _of_threads(x, MULTIPLIES: gl.constexpr, OWN: gl.constexpr):
    """Reduce (128, 32) to (128, 4): over the numbers of a row that one thread holds."""
    x = x.reshape([128, 4, 4, 2])
    x = gl.reduce(gl.reduce(x, 3, _grow), 1, _grow) if MULTIPLIES else gl.sum(gl.sum(x, 3), 1)
    return gl.convert_layout(x, OWN, assert_trivial=True)


@gluon.jit
def _bias(bias, left, columns, PART: gl.constexpr):
    """That of 32 columns; where there is none, its logits' gradient and loss are 0."""
    column = left + gl.arange(0, 32, layout=gl.SliceLayout(0, PART))
    return gl.load(bias + column, mask=column < columns, other=-1e4).to(gl.float32)


@gluon.jit
def _turn(
    logits, bias, space, gradient, factor, loss, growth, top, left, columns, alpha, smoothing,
    SMOOTHED: gl.constexpr, PART: gl.constexpr, OWN: gl.constexpr,
):  # fmt: skip
    """Turn 32 columns and send their gradient out.

    Gives what the loss has grown to, and sums of the gradient over the rows of each warp (4, 32).
    """
    z = logits * _LOG2_E + (bias * _LOG2_E)[None, :]
    e = exp2(-gl.abs(z), True)
    slope = gl.where(z > 0, 1.0, e) * reciprocal(1.0 + e, True)
    above = gl.maximum(z, 0.0)
    if SMOOTHED:
        slope -= smoothing
        real = left + gl.arange(0, 32, layout=gl.SliceLayout(0, PART)) < columns
        above -= gl.where(real, smoothing, 0.0)[None, :] * z
    slope *= (alpha * factor)[:, None]
    growth = _grow(growth, _of_threads(e, True, OWN))
    loss += _of_threads(above, False, OWN)
    sums = gl.sum(gl.sum(slope.reshape([2, 4, 16, 32]), 0), 1)
    tma.store_wait(1)  # the space was used before, with another in between
    space.store(slope.to(gl.bfloat16))
    fence_async_shared()
    _write(gradient, [top, left], space)
    return loss, growth, sums


@gluon.jit
def _turn_two(
    one, two, one_bias, two_bias, one_space, two_space, gradient, sums, factor, loss, growth,
    top, left, columns, alpha, smoothing,
    SMOOTHED: gl.constexpr, PART: gl.constexpr, OWN: gl.constexpr,
):  # fmt: skip
    """Turn 32 columns, and the next 32; store the sums of both."""
    loss, growth, one_sums = _turn(
        one, one_bias, one_space, gradient, factor, loss, growth, top, left, columns,
        alpha, smoothing, SMOOTHED, PART, OWN,
    )  # fmt: skip
    loss, growth, two_sums = _turn(
        two, two_bias, two_space, gradient, factor, loss, growth, top, left + 32, columns,
        alpha, smoothing, SMOOTHED, PART, OWN,
    )  # fmt: skip
    FLAT: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    total = gl.join(one_sums, two_sums).permute(0, 2, 1).reshape([4, 64])
    total = gl.convert_layout(gl.sum(total, 0), FLAT)
    column = left + gl.arange(0, 64, layout=FLAT)
    gl.store(sums + column, total, mask=column < columns)
    return loss, growth


@gluon.jit
def _factor(targets, weights, row, rows, IGNORED: gl.constexpr, WEIGHTED: gl.constexpr):
    """How much rows count."""
    target = gl.load(targets + row, mask=row < rows, other=0)
    factor = gl.where((row < rows) & (target != IGNORED), 1.0, 0.0)
    if WEIGHTED:
        factor *= gl.load(weights + row, mask=row < rows, other=0.0).to(gl.float32)
    return factor


@gluon.jit
def _multiply_and_turn(
    gradient, bias, targets, weights, losses, sums, states, ring, spaces, states_in, filled, freed,
    rows, columns, top, left, count, alpha, smoothing,
    WHICH: gl.constexpr, PIECES: gl.constexpr, STAGES: gl.constexpr,
    IGNORED: gl.constexpr, WEIGHTED: gl.constexpr, SMOOTHED: gl.constexpr,
):  # fmt: skip
    """Take every second tile: multiply what is fetched, and turn it."""
    WHOLE: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16])
    PART: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 32, 16])
    OWN: gl.constexpr = gl.DistributedLinearLayout(
        reg_bases=[[8, 0], [64, 0]], lane_bases=[[0, 1], [0, 2], [1, 0], [2, 0], [4, 0]],
        warp_bases=[[16, 0], [32, 0]], block_bases=[], shape=[128, 4],
    )  # fmt: skip
    row = top + gl.arange(0, 128, layout=gl.SliceLayout(1, PART))
    factor = _factor(targets, weights, row, rows, IGNORED, WEIGHTED)
    one_space, two_space = spaces.index(2 * WHICH), spaces.index(2 * WHICH + 1)
    loss = gl.zeros([128, 4], gl.float32, OWN)
    logits = gl.zeros([128, 128], gl.float32, WHOLE)
    for tile in range(WHICH, count, 2):
        for k in range(PIECES):  # not unrolled, or else addresses fill the registers
            number = tile * PIECES + k
            mbarrier.wait(states_in.index(k), 0)
            mbarrier.wait(filled.index(WHICH * PIECES + k), (tile // 2) & 1)
            piece = ring.index(number % STAGES).permute((1, 0))
            logits = warpgroup_mma(states.index(k), piece, logits, use_acc=k > 0, is_async=True)
            logits = warpgroup_mma_wait(1, deps=(logits,))  # for the piece before
            mbarrier.arrive(freed.index((number + STAGES - 1) % STAGES), count=1, pred=k > 0)
        logits = warpgroup_mma_wait(0, deps=(logits,))
        mbarrier.arrive(freed.index((tile * PIECES + PIECES - 1) % STAGES), count=1)
        begin = left + tile * 128
        ab, cd = _halves(logits, 128)
        a, b = _halves(ab, 64)
        c, d = _halves(cd, 64)
        a_bias = _bias(bias, begin, columns, PART)
        b_bias = _bias(bias, begin + 32, columns, PART)
        c_bias = _bias(bias, begin + 64, columns, PART)
        d_bias = _bias(bias, begin + 96, columns, PART)
        # The logarithms of 1 + e are added by multiplying all 1 + e: at most 2**32, a float32.
        growth = gl.zeros([128, 4], gl.float32, OWN)
        loss, growth = _turn_two(
            a, b, a_bias, b_bias, one_space, two_space, gradient, sums, factor, loss, growth,
            top, begin, columns, alpha, smoothing, SMOOTHED, PART, OWN,
        )  # fmt: skip
        loss, growth = _turn_two(
            c, d, c_bias, d_bias, one_space, two_space, gradient, sums, factor, loss, growth,
            top, begin + 64, columns, alpha, smoothing, SMOOTHED, PART, OWN,
        )  # fmt: skip
        loss += _LOG2_E * log1p(growth)
    tma.store_wait(0)
    weight = gl.convert_layout(factor, gl.SliceLayout(1, OWN))
    total = gl.sum(gl.sum(loss * weight[:, None], 1), 0)
    part = (gl.program_id(0) + gl.program_id(1) * gl.num_programs(0)) * 2 + WHICH
    gl.store(losses + part, alpha * _LOG_2 * total)


@gluon.jit(do_not_specialize=["rows"])
def _stream(
    hidden, weight, gradient, bias, targets, weights, losses, sums,
    rows, columns, sums_stride, alpha, smoothing,
    PIECES: gl.constexpr, STAGES: gl.constexpr,
    IGNORED: gl.constexpr, WEIGHTED: gl.constexpr, SMOOTHED: gl.constexpr,
):  # fmt: skip
    states = gl.allocate_shared_memory(gl.bfloat16, [PIECES, 128, 64], hidden.layout)
    ring = gl.allocate_shared_memory(gl.bfloat16, [STAGES, 128, 64], weight.layout)
    spaces = gl.allocate_shared_memory(gl.bfloat16, [4, 128, 32], gradient.layout)
    states_in = gl.allocate_shared_memory(gl.int64, [PIECES, 1], mbarrier.MBarrierLayout())
    filled = gl.allocate_shared_memory(gl.int64, [2 * PIECES, 1], mbarrier.MBarrierLayout())
    freed = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(PIECES):
        mbarrier.init(states_in.index(i), count=1)
        mbarrier.init(filled.index(i), count=1)
        mbarrier.init(filled.index(PIECES + i), count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(freed.index(i), count=1)
    fence_async_shared()
    tiles, part, parts = gl.cdiv(columns, 128), gl.program_id(1), gl.num_programs(1)
    begin, end = tiles * part // parts, tiles * (part + 1) // parts
    top, left, count = gl.program_id(0) * 128, begin * 128, end - begin
    sums += gl.program_id(0).to(gl.int64) * sums_stride
    gl.warp_specialize(
        [
            (_multiply_and_turn, (
                gradient, bias, targets, weights, losses, sums,
                states, ring, spaces, states_in, filled, freed,
                rows, columns, top, left, count, alpha, smoothing,
                0, PIECES, STAGES, IGNORED, WEIGHTED, SMOOTHED,
            )),
            (_multiply_and_turn, (
                gradient, bias, targets, weights, losses, sums,
                states, ring, spaces, states_in, filled, freed,
                rows, columns, top, left, count, alpha, smoothing,
                1, PIECES, STAGES, IGNORED, WEIGHTED, SMOOTHED,
            )),
            (_fetch, (
                hidden, weight, states, ring, states_in, filled, freed, top, left, count,
                PIECES, STAGES,
            )),
        ],
        [4, 1],  # warps of all but the first
        [240, 24],  # and their registers
    )  # fmt: skip


def streamed_gradient(chunk: Chunk, alpha: float, smoothing: float) -> Tensor:
    """Write the gradient of a chunk and its sums as if no token were gold; gives the losses."""
    (rows, columns), tiles = chunk.gradient_nc.shape, len(chunk.sums_tc)
    pieces = chunk.hidden_nD.size(1) // 64
    device = torch.cuda.get_device_properties(chunk.gradient_nc.device)
    parts = _column_parts(tiles, columns, device.multi_processor_count)
    losses = chunk.sums_tc.new_empty(tiles * parts * 2)
    _stream[(tiles, parts)](
        TensorDescriptor.from_tensor(chunk.hidden_nD, [128, 64], PIECE_LAYOUT),
        TensorDescriptor.from_tensor(chunk.weight_cD, [128, 64], PIECE_LAYOUT),
        TensorDescriptor.from_tensor(chunk.gradient_nc, [128, 32], PART_LAYOUT),
        chunk.bias_c, chunk.targets_n, chunk.weights_n, losses, chunk.sums_tc,
        rows, columns, chunk.sums_tc.stride(0), alpha, smoothing,
        PIECES=pieces, STAGES=ring_stages(pieces), IGNORED=IGNORED,
        WEIGHTED=chunk.weights_n is not None, SMOOTHED=smoothing > 0, **OPTIONS,
    )  # fmt: skip
    return losses


def ring_stages(pieces: int) -> int:
    """Say how many pieces the ring holds; never more than one tile for each group."""
    return min(4, 2 * pieces)


def _column_parts(row_tiles: int, columns: int, multiprocessors: int) -> int:
    """Say among how many programs the columns of a tile of rows are divided.

    A multiprocessor runs one program at a time, which takes about three tiles' time to begin and to
    end.
    """
    tiles = triton.cdiv(columns, 128)

    def duration(parts: int) -> int:
        return triton.cdiv(row_tiles * parts, multiprocessors) * (triton.cdiv(tiles, parts) + 3)

    return min(range(1, min(tiles, 32) + 1), key=duration)


@dataclass(frozen=True)
class StreamedTurn(SconesTurn):
    """`SconesTurn`, without a pass over the logits."""

    gold: Gold = field(kw_only=True)
    """Of all rows."""

    def __call__(self, chunk: Chunk) -> Tensor:
        """Multiply and turn in one; see `Turn`."""
        losses = streamed_gradient(chunk, self.alpha, self.label_smoothing)
        self.gold.put(chunk, losses)
        return losses
