"""Attention over packed sentences as operations that PyTorch can differentiate and compile.

The kernels are those of `scones.kernels.attention`; here they learn their derivatives, and what
their results look like before they are computed.

Shape letters: N query rows, M memory rows (of all sentences together), H heads, K size of a head.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scones.kernels.attention import attend, attend_backward


@torch.library.custom_op("scones::attend_within", mutates_args=())
def _within(
    projected_N3HK: Tensor, starts: Tensor, seed: Tensor, longest: int, causal: bool, rate: float
) -> tuple[Tensor, Tensor]:
    queries, keys, values = projected_N3HK.unbind(1)
    return attend(queries, keys, values, starts, starts, longest, longest, causal, seed, rate)


@_within.register_fake
def _(
    projected_N3HK: Tensor, starts: Tensor, seed: Tensor, longest: int, causal: bool, rate: float
) -> tuple[Tensor, Tensor]:
    rows, _, heads, size = projected_N3HK.shape
    norms = projected_N3HK.new_empty(heads, rows, dtype=torch.float32)
    return projected_N3HK.new_empty(rows, heads * size), norms


@torch.library.custom_op("scones::attend_within_backward", mutates_args=())
def _within_backward(
    slopes: Tensor,
    projected_N3HK: Tensor,
    mixed: Tensor,
    norms: Tensor,
    starts: Tensor,
    seed: Tensor,
    longest: int,
    causal: bool,
    rate: float,
) -> Tensor:
    to_projected = torch.empty_like(projected_N3HK)
    queries, keys, values = projected_N3HK.unbind(1)
    to_queries, to_keys, to_values = to_projected.unbind(1)
    attend_backward(
        slopes.contiguous(), (queries, keys, values), mixed, norms,
        (to_queries, to_keys, to_values), starts, starts, longest, longest, causal, seed, rate,
    )  # fmt: skip
    return to_projected


@_within_backward.register_fake
def _(
    slopes: Tensor,
    projected_N3HK: Tensor,
    mixed: Tensor,
    norms: Tensor,
    starts: Tensor,
    seed: Tensor,
    longest: int,
    causal: bool,
    rate: float,
) -> Tensor:
    return torch.empty_like(projected_N3HK)


def _keep_within(ctx: Any, inputs: Any, output: Any) -> None:
    projected, starts, seed, *ctx.numbers = inputs
    ctx.save_for_backward(projected, *output, starts, seed)


def _differentiate_within(ctx: Any, slopes: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return _within_backward(slopes, *ctx.saved_tensors, *ctx.numbers), *[None] * 5


_within.register_autograd(_differentiate_within, setup_context=_keep_within)


@torch.library.custom_op("scones::attend_across", mutates_args=())
def _across(
    queries_NHK: Tensor,
    memory_M2HK: Tensor,
    starts_q: Tensor,
    starts_k: Tensor,
    seed: Tensor,
    longest_q: int,
    longest_k: int,
    rate: float,
) -> tuple[Tensor, Tensor]:
    keys, values = memory_M2HK.unbind(1)
    return attend(
        queries_NHK, keys, values, starts_q, starts_k, longest_q, longest_k, False, seed, rate
    )


@_across.register_fake
def _(
    queries_NHK: Tensor,
    memory_M2HK: Tensor,
    starts_q: Tensor,
    starts_k: Tensor,
    seed: Tensor,
    longest_q: int,
    longest_k: int,
    rate: float,
) -> tuple[Tensor, Tensor]:
    rows, heads, size = queries_NHK.shape
    norms = queries_NHK.new_empty(heads, rows, dtype=torch.float32)
    return queries_NHK.new_empty(rows, heads * size), norms


@torch.library.custom_op("scones::attend_across_backward", mutates_args=())
def _across_backward(
    slopes: Tensor,
    queries_NHK: Tensor,
    memory_M2HK: Tensor,
    mixed: Tensor,
    norms: Tensor,
    starts_q: Tensor,
    starts_k: Tensor,
    seed: Tensor,
    longest_q: int,
    longest_k: int,
    rate: float,
) -> tuple[Tensor, Tensor]:
    to_queries = queries_NHK.new_empty(queries_NHK.shape)
    to_memory = torch.empty_like(memory_M2HK)
    keys, values = memory_M2HK.unbind(1)
    to_keys, to_values = to_memory.unbind(1)
    attend_backward(
        slopes.contiguous(), (queries_NHK, keys, values), mixed, norms,
        (to_queries, to_keys, to_values), starts_q, starts_k, longest_q, longest_k, False,
        seed, rate,
    )  # fmt: skip
    return to_queries, to_memory


@_across_backward.register_fake
def _(
    slopes: Tensor,
    queries_NHK: Tensor,
    memory_M2HK: Tensor,
    mixed: Tensor,
    norms: Tensor,
    starts_q: Tensor,
    starts_k: Tensor,
    seed: Tensor,
    longest_q: int,
    longest_k: int,
    rate: float,
) -> tuple[Tensor, Tensor]:
    return queries_NHK.new_empty(queries_NHK.shape), torch.empty_like(memory_M2HK)


def _keep_across(ctx: Any, inputs: Any, output: Any) -> None:
    queries, memory, starts_q, starts_k, seed, *ctx.numbers = inputs
    ctx.save_for_backward(queries, memory, *output, starts_q, starts_k, seed)


def _differentiate_across(ctx: Any, slopes: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return *_across_backward(slopes, *ctx.saved_tensors, *ctx.numbers), *[None] * 6


_across.register_autograd(_differentiate_across, setup_context=_keep_across)


def attend_within(
    projected_N3HK: Tensor, starts: Tensor, longest: int, causal: bool, seed: Tensor, rate: float
) -> Tensor:
    """Let every sentence attend to itself; queries, keys and values come as one tensor."""
    mixed, _ = _within(projected_N3HK, starts, seed, longest, causal, rate)
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
    mixed, _ = _across(queries_NHK, memory_M2HK, *starts, seed, *longest, rate)
    return mixed
