"""Embeddings, their positions and dropout in one pass.

Shape letters: N tokens, V vocabulary, D size, T positions.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from scones.kernels.norm import dropping, kept

_ROWS = 4
"""Tokens of a program, one for each warp."""


@triton.jit(do_not_specialize=["rows"])
def _embed(
    table, positions, ids, places, seed, out, rows, size, factor, lowest_kept, lift,
    DROPS: tl.constexpr, ROWS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    part = tl.arange(0, SIZE)
    real = (row < rows)[:, None] & (part < size)[None, :]
    token = tl.load(ids + row, mask=row < rows, other=0)
    place = tl.load(places + row, mask=row < rows, other=0)
    value = tl.load(table + token[:, None] * size + part[None, :], mask=real, other=0.0) * factor
    value += tl.load(positions + place[:, None] * size + part[None, :], mask=real, other=0.0)
    here = row[:, None] * size + part[None, :]
    if DROPS:
        value = tl.where(kept(here, seed, lowest_kept), value * lift, 0.0)
    tl.store(out + here, value.to(out.dtype.element_ty), mask=real)


@triton.jit(do_not_specialize=["rows"])
def _embed_backward(
    slopes, seed, out, rows, size, factor, lowest_kept, lift,
    DROPS: tl.constexpr, ROWS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    part = tl.arange(0, SIZE)
    real = (row < rows)[:, None] & (part < size)[None, :]
    here = row[:, None] * size + part[None, :]
    slope = tl.load(slopes + here, mask=real, other=0.0).to(tl.float32) * factor
    if DROPS:
        slope = tl.where(kept(here, seed, lowest_kept), slope * lift, 0.0)
    tl.store(out + here, slope, mask=real)


class _Embed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        table_VD: Tensor,
        positions_TD: Tensor,
        ids_N: Tensor,
        places_N: Tensor,
        precision: torch.dtype,
        seed: Tensor,
        rate: float,
    ) -> Tensor:
        rows, (vocabulary, size) = len(ids_N), table_VD.shape
        out_ND = table_VD.new_empty(rows, size, dtype=precision)
        ctx.how = {
            "factor": math.sqrt(size), **dropping(rate),
            "ROWS": _ROWS, "SIZE": triton.next_power_of_2(size), "num_warps": _ROWS,
        }  # fmt: skip
        _embed[(triton.cdiv(rows, _ROWS),)](
            table_VD, positions_TD, ids_N, places_N, seed, out_ND, rows, size, **ctx.how
        )
        ctx.save_for_backward(ids_N, seed)
        ctx.vocabulary = vocabulary
        return out_ND

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        ids_N, seed = ctx.saved_tensors
        slopes_ND = slopes[0].contiguous()
        rows, size = slopes_ND.shape
        out_ND = torch.empty_like(slopes_ND, dtype=torch.float32)
        _embed_backward[(triton.cdiv(rows, _ROWS),)](slopes_ND, seed, out_ND, rows, size, **ctx.how)
        # PyTorch sorts the tokens first, so that sums come out the same every time.
        to_table = torch.ops.aten.embedding_dense_backward(
            out_ND, ids_N, ctx.vocabulary, padding_idx=-1, scale_grad_by_freq=False
        )
        return to_table, *[None] * 6


def embed(
    table_VD: Tensor,
    positions_TD: Tensor,
    ids_N: Tensor,
    places_N: Tensor,
    precision: torch.dtype,
    seed: Tensor,
    rate: float,
) -> Tensor:
    """Give √D times the embedding of each token plus that of its place, dropped at `rate`."""
    embedded: Tensor = _Embed.apply(table_VD, positions_TD, ids_N, places_N, precision, seed, rate)
    return embedded
