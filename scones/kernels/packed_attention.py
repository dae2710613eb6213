"""Attention over packed sentences as operations that PyTorch can differentiate.

The kernels are those of `scones.kernels.attention`; here they learn their derivatives.

Shape letters: N query rows, M memory rows (of all sentences together), H heads, K size of a head.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scones.kernels.attention import Sides, attend, attend_backward


class _Within(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        projected_N3HK: Tensor,
        bias_X: Tensor,
        starts: Tensor,
        longest: int,
        causal: bool,
        seed: Tensor,
        rate: float,
    ) -> Tensor:
        ctx.how = (longest, causal, rate)
        mixed, norms = attend(_within(projected_N3HK, bias_X, starts, seed, *ctx.how))
        ctx.save_for_backward(projected_N3HK, bias_X, starts, seed, mixed, norms)
        return mixed

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        projected_N3HK, bias_X, starts, seed, mixed, norms = ctx.saved_tensors
        sides = _within(projected_N3HK, bias_X, starts, seed, *ctx.how)
        to_projected = torch.empty_like(projected_N3HK)
        to_queries, to_keys, to_values = to_projected.unbind(1)
        outputs = (to_queries, to_keys, to_values)
        to_bias = attend_backward(sides, mixed, norms, slopes[0].contiguous(), outputs)
        return to_projected, to_bias.flatten(), *[None] * 5


def _within(
    projected_N3HK: Tensor,
    bias_X: Tensor,
    starts: Tensor,
    seed: Tensor,
    longest: int,
    causal: bool,
    rate: float,
) -> Sides:
    queries, keys, values = projected_N3HK.unbind(1)
    to_queries, to_keys, to_values = bias_X.chunk(3)
    biases = (to_queries, to_keys, to_values)
    return Sides(
        queries, keys, values, biases, starts, starts, longest, longest, causal, seed, rate
    )


class _Across(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        queries_NHK: Tensor,
        memory_M2HK: Tensor,
        bias_D: Tensor,
        bias_X: Tensor,
        starts_q: Tensor,
        starts_k: Tensor,
        longest: tuple[int, int],
        seed: Tensor,
        rate: float,
    ) -> Tensor:
        tensors = (queries_NHK, memory_M2HK, bias_D, bias_X, starts_q, starts_k, seed)
        ctx.how = (*longest, rate)
        mixed, norms = attend(_across(*tensors, *ctx.how))
        ctx.save_for_backward(*tensors, mixed, norms)
        return mixed

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, mixed, norms = ctx.saved_tensors
        sides = _across(*tensors, *ctx.how)
        to_queries = sides.queries_NHK.new_empty(sides.queries_NHK.shape)
        to_memory = torch.empty_like(tensors[1])
        to_keys, to_values = to_memory.unbind(1)
        outputs = (to_queries, to_keys, to_values)
        to_bias = attend_backward(sides, mixed, norms, slopes[0].contiguous(), outputs)
        return to_queries, to_memory, to_bias[0], to_bias[1:].flatten(), *[None] * 5


def _across(
    queries_NHK: Tensor,
    memory_M2HK: Tensor,
    bias_D: Tensor,
    bias_X: Tensor,
    starts_q: Tensor,
    starts_k: Tensor,
    seed: Tensor,
    longest_q: int,
    longest_k: int,
    rate: float,
) -> Sides:
    keys, values = memory_M2HK.unbind(1)
    to_keys, to_values = bias_X.chunk(2)
    biases = (bias_D, to_keys, to_values)
    return Sides(
        queries_NHK, keys, values, biases, starts_q, starts_k, longest_q, longest_k, False, seed,
        rate,
    )  # fmt: skip


def attend_within(
    projected_N3HK: Tensor,
    bias_X: Tensor,
    starts: Tensor,
    longest: int,
    causal: bool,
    seed: Tensor,
    rate: float,
) -> Tensor:
    """Let every sentence attend to itself; queries, keys and values come as one tensor.

    So do their biases (3·H·K), which are yet to be added.
    """
    mixed: Tensor = _Within.apply(projected_N3HK, bias_X, starts, longest, causal, seed, rate)
    return mixed


def attend_across(
    queries_NHK: Tensor,
    memory_M2HK: Tensor,
    biases: tuple[Tensor, Tensor],
    starts: tuple[Tensor, Tensor],
    longest: tuple[int, int],
    seed: Tensor,
    rate: float,
) -> Tensor:
    """Let every sentence attend to its own part of a memory of keys and values.

    `biases` are those of queries (H·K) and memory (2·H·K), which are yet to be added.
    """
    mixed: Tensor = _Across.apply(queries_NHK, memory_M2HK, *biases, *starts, longest, seed, rate)
    return mixed
