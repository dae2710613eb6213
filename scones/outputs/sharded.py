"""The SCONES loss with the vocabulary shared out: every process holds some rows of the matrix.

A process needs to know only whether the gold token is among its own rows; then the gradients of
those rows are final, before anything was sent. What has to be added up afterwards are the loss
and the gradient of the hidden states. Softmax would need the other processes' normalisers first.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed

from scones.errors import SconesError
from scones.ids import PAD
from scones.outputs.fused import SconesRule, loss_sum


def sharded_scones_loss(
    hidden: Tensor,
    weight_shard: Tensor,
    bias_shard: Tensor,
    targets: Tensor,
    first_token: int,
    alpha: float = 0.5,
    label_smoothing: float = 0.0,
    ignore_index: int = PAD,
    group: distributed.ProcessGroup | None = None,
) -> Tensor:
    """Compute what `fused_scones_loss` does with all shards' rows put together.

    `weight_shard` and `bias_shard` are this process's rows; the first is that of `first_token`.
    Hidden states and targets are the same in all processes of the group; so are, then, the loss
    and the gradient of the hidden states. A target that is in no shard, or in two, makes the
    loss NaN.
    """
    if not distributed.is_available() or not distributed.is_initialized():
        raise SconesError(
            "sharded_scones_loss adds up over processes, and there are none; call "
            "torch.distributed.init_process_group first, or use fused_scones_loss."
        )
    hidden_ND, targets_N = hidden.flatten(0, -2), targets.flatten()
    keep = (targets_N != ignore_index).nonzero().squeeze(1)
    hidden_ND = _SharedStates.apply(hidden_ND[keep], group)
    places_N = targets_N[keep] - first_token
    rule = SconesRule(alpha, label_smoothing, sharded=True)
    loss = loss_sum(hidden_ND, weight_shard, bias_shard, places_N, None, rule)
    here = ((places_N >= 0) & (places_N < len(bias_shard))).sum()
    loss, found = _AddedUp.apply(torch.stack([loss, here.to(loss.dtype)]), group)
    return loss.where(found == keep.numel(), torch.nan) / max(1, keep.numel())


class _SharedStates(torch.autograd.Function):
    """States that every process uses for its shard: their gradient is the sum of all of theirs."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        states, ctx.group = inputs
        return states.view_as(states)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        total = gradients[0].contiguous().clone()
        distributed.all_reduce(total, group=ctx.group)
        return total, None


class _AddedUp(torch.autograd.Function):
    """The sum over all processes, each of which goes on to use it in the same way."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        part, group = inputs
        total: Tensor = part.clone()
        distributed.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None
