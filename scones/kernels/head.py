"""The output layer on a GPU: chunk by chunk, logits become their own gradient.

What makes a chunk's gradient is a turn (`scones.kernels.turns`, `scones.kernels.streamed`); the two
matrix products that follow are cuBLAS'. So the output layer costs its three products and at most
one pass over the logits, of which only a chunk exists at a time.

Shape letters: N tokens, V vocabulary, D size of a state; n rows and c columns of a chunk, t tiles
of rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
from torch import Tensor

from scones.kernels.products import product_into
from scones.kernels.turns import Chunk, SconesTurn, Turn

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
    from scones.kernels.gold import Gold
    from scones.kernels.streamed import StreamedTurn

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
