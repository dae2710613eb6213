"""Attention over packed sentences as operations that PyTorch can differentiate.

The kernels are those of `scones.kernels.attention`; here they learn their derivatives.

Shape letters: N query rows, M memory rows (of all sentences together), H heads, K size of a head.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scones.kernels.attention import attend, attend_backward


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
