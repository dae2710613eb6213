"""Attention over sentences that lie one behind another, without padding.

Sentences of translation are short, a few dozen pieces: one program takes one head of one sentence
(or a block of its queries), and everything it needs fits on the chip. `starts` (B + 1 numbers) says
where each sentence begins; `longest` is the length of the longest, which chooses the blocks.
Weights are dropped, where `rate` is above 0, by a hash of their place and of `seed`.

Shape letters: N query rows, M memory rows (of all sentences together), H heads, K size of a head.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from scones.kernels.norm import dropping


@triton.jit
def _rows(first, place, row, part):
    """Where the numbers of a block's rows lie."""
    return (first + place).to(tl.int64)[:, None] * row + part[None, :]


@triton.jit
def _seen(place_q, place_k, real_k, CAUSAL: tl.constexpr):
    """Which keys a query may look at."""
    seen = real_k[None, :]
    if CAUSAL:
        seen = seen & (place_k[None, :] <= place_q[:, None])
    return seen


@triton.jit
def _scores(query, key, scale, PRECISION: tl.constexpr):
    """Scores whose powers of two are the weights."""
    return tl.dot(query, tl.trans(key), input_precision=PRECISION) * (scale * 1.4426950408889634)


@triton.jit
def _kept(seed, lowest_kept, first_q, place_q, place_k, rows, head):
    """Say which weights are not dropped."""
    row = (first_q + place_q + head * rows) * -0x61C88647
    number = (row ^ tl.load(seed))[:, None] + place_k[None, :] * -0x7A143595
    number = (number ^ ((number >> 16) & 0xFFFF)) * -0x7A143595
    number = (number ^ ((number >> 13) & 0x7FFFF)) * -0x3D4D51CB
    return number >= lowest_kept


@triton.jit(do_not_specialize=["rows"])
def _forward(
    queries, keys, values, mixed, norms, starts_q, starts_k, row_q, row_k, row_out, rows, scale,
    seed, lowest_kept, lift, DROPS: tl.constexpr, CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    sentence, head, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first_q = tl.load(starts_q + sentence)
    length_q = tl.load(starts_q + sentence + 1) - first_q
    if block * BLOCK_Q >= length_q:
        return
    first_k = tl.load(starts_k + sentence)
    length_k = tl.load(starts_k + sentence + 1) - first_k
    part = head * SIZE + tl.arange(0, SIZE)
    place_q = block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    real_q = place_q < length_q
    there = _rows(first_q, place_q, row_q, part)
    query = tl.load(queries + there, mask=real_q[:, None], other=0.0)
    best = tl.full((BLOCK_Q,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_Q,), dtype=tl.float32)
    mix = tl.zeros((BLOCK_Q, SIZE), dtype=tl.float32)
    end = length_k
    if CAUSAL:
        end = tl.minimum(length_k, (block + 1) * BLOCK_Q)
    for begin in range(0, end, BLOCK_K):
        place_k = begin + tl.arange(0, BLOCK_K)
        real_k = place_k < length_k
        here = _rows(first_k, place_k, row_k, part)
        key = tl.load(keys + here, mask=real_k[:, None], other=0.0)
        value = tl.load(values + here, mask=real_k[:, None], other=0.0)
        seen = _seen(place_q, place_k, real_k, CAUSAL)
        score = tl.where(seen, _scores(query, key, scale, PRECISION), float("-inf"))
        better = tl.maximum(best, tl.max(score, axis=1))
        weight = tl.exp2(score - better[:, None])
        shrink = tl.exp2(best - better)
        total = total * shrink + tl.sum(weight, axis=1)
        mix = mix * shrink[:, None]
        if DROPS:
            kept = _kept(seed, lowest_kept, first_q, place_q, place_k, rows, head)
            weight = tl.where(kept, weight * lift, 0.0)
        mix = tl.dot(weight.to(value.dtype), value, mix, input_precision=PRECISION)
        best = better
    out = _rows(first_q, place_q, row_out, part)
    mix = (mix / total[:, None]).to(mixed.dtype.element_ty)
    tl.store(mixed + out, mix, mask=real_q[:, None])
    at = head.to(tl.int64) * rows + first_q + place_q
    tl.store(norms + at, best + tl.log2(total), mask=real_q)


@triton.jit
def _queries(
    queries, mixed, norms, slopes, first_q, place_q, real_q, row_q, row_out, rows, head, part
):  # fmt: skip
    """Read a block of queries, the slopes of what they got, and their normalisers."""
    there = _rows(first_q, place_q, row_q, part)
    out = _rows(first_q, place_q, row_out, part)
    real = real_q[:, None]
    query = tl.load(queries + there, mask=real, other=0.0)
    slope = tl.load(slopes + out, mask=real, other=0.0)
    mix = tl.load(mixed + out, mask=real, other=0.0)
    mean = tl.sum(slope.to(tl.float32) * mix.to(tl.float32), axis=1)
    at = head.to(tl.int64) * rows + first_q + place_q
    norm = tl.load(norms + at, mask=real_q, other=float("inf"))
    return query, slope, mean, norm, there


@triton.jit
def _score_slopes(
    query, key, value, slope, mean, norm, seen, kept, scale, lift,
    DROPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The weights once more, as they were used, and the slopes of the scores."""
    score = _scores(query, key, scale, PRECISION)
    weight = tl.where(seen, tl.exp2(score - norm[:, None]), 0.0)
    to_weight = tl.dot(slope, tl.trans(value), input_precision=PRECISION)
    used = weight
    if DROPS:
        to_weight = tl.where(kept, to_weight * lift, 0.0)
        used = tl.where(kept, weight * lift, 0.0)
    return used, (weight * (to_weight - mean[:, None]) * scale).to(query.dtype)


@triton.jit(do_not_specialize=["rows"])
def _backward(
    queries, keys, values, mixed, norms, slopes, to_queries, to_keys, to_values,
    starts_q, starts_k, row_q, row_k, row_out, rows, scale,
    seed, lowest_kept, lift, DROPS: tl.constexpr, CAUSAL: tl.constexpr, ALONE: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Slopes of a block of keys and values; where it is the only one, of the queries too."""
    sentence, head, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first_k = tl.load(starts_k + sentence)
    length_k = tl.load(starts_k + sentence + 1) - first_k
    if block * BLOCK_K >= length_k:
        return
    first_q = tl.load(starts_q + sentence)
    length_q = tl.load(starts_q + sentence + 1) - first_q
    part = head * SIZE + tl.arange(0, SIZE)
    place_k = block * BLOCK_K + tl.arange(0, BLOCK_K)
    real_k = place_k < length_k
    here = _rows(first_k, place_k, row_k, part)
    key = tl.load(keys + here, mask=real_k[:, None], other=0.0)
    value = tl.load(values + here, mask=real_k[:, None], other=0.0)
    to_key = tl.zeros((BLOCK_K, SIZE), dtype=tl.float32)
    to_value = tl.zeros((BLOCK_K, SIZE), dtype=tl.float32)
    begin = 0
    if CAUSAL:
        begin = block * BLOCK_K // BLOCK_Q * BLOCK_Q
    for first in range(begin, length_q, BLOCK_Q):
        place_q = first + tl.arange(0, BLOCK_Q)
        real_q = place_q < length_q
        query, slope, mean, norm, there = _queries(
            queries, mixed, norms, slopes, first_q, place_q, real_q, row_q, row_out, rows, head,
            part,
        )  # fmt: skip
        seen = _seen(place_q, place_k, real_k, CAUSAL)
        kept = seen
        if DROPS:
            kept = _kept(seed, lowest_kept, first_q, place_q, place_k, rows, head)
        weight, to_score = _score_slopes(
            query, key, value, slope, mean, norm, seen, kept, scale, lift, DROPS, PRECISION
        )
        weight = tl.trans(weight).to(slope.dtype)
        to_value = tl.dot(weight, slope, to_value, input_precision=PRECISION)
        to_key = tl.dot(tl.trans(to_score), query, to_key, input_precision=PRECISION)
        if ALONE:
            to_query = tl.dot(to_score, key, input_precision=PRECISION)
            to_query = to_query.to(to_queries.dtype.element_ty)
            tl.store(to_queries + there, to_query, mask=real_q[:, None])
    tl.store(to_keys + here, to_key.to(to_keys.dtype.element_ty), mask=real_k[:, None])
    tl.store(to_values + here, to_value.to(to_values.dtype.element_ty), mask=real_k[:, None])


@triton.jit(do_not_specialize=["rows"])
def _backward_queries(
    queries, keys, values, mixed, norms, slopes, to_queries,
    starts_q, starts_k, row_q, row_k, row_out, rows, scale,
    seed, lowest_kept, lift, DROPS: tl.constexpr, CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Slopes of a block of queries, where the keys take several blocks."""
    sentence, head, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first_q = tl.load(starts_q + sentence)
    length_q = tl.load(starts_q + sentence + 1) - first_q
    if block * BLOCK_Q >= length_q:
        return
    first_k = tl.load(starts_k + sentence)
    length_k = tl.load(starts_k + sentence + 1) - first_k
    part = head * SIZE + tl.arange(0, SIZE)
    place_q = block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    real_q = place_q < length_q
    query, slope, mean, norm, there = _queries(
        queries, mixed, norms, slopes, first_q, place_q, real_q, row_q, row_out, rows, head, part
    )  # fmt: skip
    to_query = tl.zeros((BLOCK_Q, SIZE), dtype=tl.float32)
    end = length_k
    if CAUSAL:
        end = tl.minimum(length_k, (block + 1) * BLOCK_Q)
    for begin in range(0, end, BLOCK_K):
        place_k = begin + tl.arange(0, BLOCK_K)
        real_k = place_k < length_k
        here = _rows(first_k, place_k, row_k, part)
        key = tl.load(keys + here, mask=real_k[:, None], other=0.0)
        value = tl.load(values + here, mask=real_k[:, None], other=0.0)
        seen = _seen(place_q, place_k, real_k, CAUSAL)
        kept = seen
        if DROPS:
            kept = _kept(seed, lowest_kept, first_q, place_q, place_k, rows, head)
        _, to_score = _score_slopes(
            query, key, value, slope, mean, norm, seen, kept, scale, lift, DROPS, PRECISION
        )
        to_query = tl.dot(to_score, key, to_query, input_precision=PRECISION)
    to_query = to_query.to(to_queries.dtype.element_ty)
    tl.store(to_queries + there, to_query, mask=real_q[:, None])


def _block(longest: int, largest: int = 64) -> int:
    """Rows of a block. Of a few sizes only, for each has to be compiled."""
    return next(size for size in (16, 32, 64, 128) if longest <= size or size == largest)


def _settings(
    queries_NHK: Tensor, block_q: int, block_k: int, causal: bool, seed: Tensor, rate: float
) -> dict[str, Any]:
    return {
        "scale": queries_NHK.size(2) ** -0.5,
        "seed": seed,
        **dropping(rate),
        "CAUSAL": causal,
        "PRECISION": "ieee" if queries_NHK.dtype == torch.float32 else "tf32",
        "SIZE": queries_NHK.size(2),
        "BLOCK_Q": block_q,
        "BLOCK_K": block_k,
        "num_warps": max(block_q, block_k) // 16,
    }


def attend(
    queries_NHK: Tensor,
    keys_MHK: Tensor,
    values_MHK: Tensor,
    starts_q: Tensor,
    starts_k: Tensor,
    longest_q: int,
    longest_k: int,
    causal: bool,
    seed: Tensor,
    rate: float,
) -> tuple[Tensor, Tensor]:
    """Attend; gives the mixed values (N, H·K) and the normalisers (H, N)."""
    rows, heads, size = queries_NHK.shape
    mixed = queries_NHK.new_empty(rows, heads * size)
    norms = queries_NHK.new_empty(heads, rows, dtype=torch.float32)
    blocks = _block(longest_q), _block(longest_k)
    grid = (starts_q.numel() - 1, heads, triton.cdiv(longest_q, blocks[0]))
    _forward[grid](
        queries_NHK, keys_MHK, values_MHK, mixed, norms, starts_q, starts_k,
        queries_NHK.stride(0), keys_MHK.stride(0), heads * size, rows,
        **_settings(queries_NHK, *blocks, causal, seed, rate),
    )  # fmt: skip
    return mixed, norms


def attend_backward(
    slopes: Tensor,
    inputs: tuple[Tensor, Tensor, Tensor],
    mixed: Tensor,
    norms: Tensor,
    outputs: tuple[Tensor, Tensor, Tensor],
    starts_q: Tensor,
    starts_k: Tensor,
    longest_q: int,
    longest_k: int,
    causal: bool,
    seed: Tensor,
    rate: float,
) -> None:
    """Write the slopes of queries, keys and values into `outputs`."""
    queries_NHK, keys_MHK, _ = inputs
    rows, heads, size = queries_NHK.shape
    # Long sentences go in larger blocks, where those fit the chip.
    largest = 128 if queries_NHK.element_size() == 2 and size <= 64 else 64
    blocks = _block(longest_q, largest), _block(longest_k, largest)
    alone = longest_k <= blocks[1]
    sentences = starts_q.numel() - 1
    common = (
        starts_q, starts_k, queries_NHK.stride(0), keys_MHK.stride(0), heads * size, rows,
    )  # fmt: skip
    how = _settings(queries_NHK, *blocks, causal, seed, rate)
    how["num_stages"] = 2 if max(blocks) > 64 else 1  # reading ahead takes room from other blocks
    _backward[(sentences, heads, triton.cdiv(longest_k, blocks[1]))](
        *inputs, mixed, norms, slopes, *outputs, *common, ALONE=alone, **how
    )
    if not alone:
        _backward_queries[(sentences, heads, triton.cdiv(longest_q, blocks[0]))](
            *inputs, mixed, norms, slopes, outputs[0], *common, **how
        )


# Attention over packed sentences as operations that PyTorch can differentiate.
#
# The kernels are those of `scones.kernels.attention`; here they learn their derivatives.
#
# Shape letters: N query rows, M memory rows (of all sentences together), H heads, K size of a head.


class _Within(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        projected_N3HK: Tensor,
        starts: Tensor,
        longest: int,
        causal: bool,
        seed: Tensor,
        rate: float,
    ) -> Tensor:
        ctx.how = how = (longest, longest, causal)
        queries, keys, values = projected_N3HK.unbind(1)
        mixed, norms = attend(queries, keys, values, starts, starts, *how, seed, rate)
        ctx.save_for_backward(projected_N3HK, mixed, norms, starts, seed)
        ctx.rate = rate
        return mixed

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        projected_N3HK, mixed, norms, starts, seed = ctx.saved_tensors
        longest_q, longest_k, causal = ctx.how
        to_projected = torch.empty_like(projected_N3HK)
        queries, keys, values = projected_N3HK.unbind(1)
        to_queries, to_keys, to_values = to_projected.unbind(1)
        attend_backward(
            slopes[0].contiguous(), (queries, keys, values), mixed, norms,
            (to_queries, to_keys, to_values), starts, starts, longest_q, longest_k, causal,
            seed, ctx.rate,
        )  # fmt: skip
        return to_projected, *[None] * 5


class _Across(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        queries_NHK: Tensor,
        memory_M2HK: Tensor,
        starts_q: Tensor,
        starts_k: Tensor,
        longest: tuple[int, int],
        seed: Tensor,
        rate: float,
    ) -> Tensor:
        ctx.how = how = (*longest, False)
        keys, values = memory_M2HK.unbind(1)
        mixed, norms = attend(queries_NHK, keys, values, starts_q, starts_k, *how, seed, rate)
        ctx.save_for_backward(queries_NHK, memory_M2HK, mixed, norms, starts_q, starts_k, seed)
        ctx.rate = rate
        return mixed

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        queries_NHK, memory_M2HK, mixed, norms, starts_q, starts_k, seed = ctx.saved_tensors
        longest_q, longest_k, causal = ctx.how
        to_queries = queries_NHK.new_empty(queries_NHK.shape)
        to_memory = torch.empty_like(memory_M2HK)
        keys, values = memory_M2HK.unbind(1)
        to_keys, to_values = to_memory.unbind(1)
        attend_backward(
            slopes[0].contiguous(), (queries_NHK, keys, values), mixed, norms,
            (to_queries, to_keys, to_values), starts_q, starts_k, longest_q, longest_k,
            causal, seed, ctx.rate,
        )  # fmt: skip
        return to_queries, to_memory, *[None] * 5


def attend_within(
    projected_N3HK: Tensor, starts: Tensor, longest: int, causal: bool, seed: Tensor, rate: float
) -> Tensor:
    """Let every sentence attend to itself; queries, keys and values come as one tensor."""
    mixed: Tensor = _Within.apply(projected_N3HK, starts, longest, causal, seed, rate)
    return mixed


def attend_across(
    queries_NHK: Tensor,
    memory_M2HK: Tensor,
    starts: tuple[Tensor, Tensor],
    longest: tuple[int, int],
    seed: Tensor,
    rate: float,
) -> Tensor:
    """Let every sentence attend to its own part of a memory of keys and values."""
    mixed: Tensor = _Across.apply(queries_NHK, memory_M2HK, *starts, longest, seed, rate)
    return mixed
