"""The SCONES loss fused with the output matrix: no logits are ever kept.

The gradient of a logit depends on that logit alone (ασ(z), or -σ(-z) for the gold token), so
the forward pass can make it at once. Tokens are taken in chunks; of each chunk the logits are
computed, turned into their gradient in place, multiplied out and forgotten. The backward pass
has nothing left to do but to scale.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from scones.ids import PAD

_CHUNK_NUMBERS = {"cpu": 2**21, "cuda": 2**26}
"""Logits of one chunk: on a CPU few enough for its cache, on a GPU enough to keep it busy."""


def fused_scones_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    alpha: float = 0.5,
    label_smoothing: float = 0.0,
    ignore_index: int = PAD,
) -> Tensor:
    """Compute the mean SCONES loss of hidden states (…, D) against token ids (…).

    Equal to `scones_loss(hidden @ weight.T + bias, targets, …)` in value and gradients, with the
    memory of one chunk of logits instead of all of them.
    """
    hidden_ND, targets_N = hidden.flatten(0, -2), targets.flatten()
    keep = (targets_N != ignore_index).nonzero().squeeze(1)
    total = scones_loss_sum(
        hidden_ND[keep], weight, bias, targets_N[keep], None, alpha, label_smoothing
    )
    return total / max(1, keep.numel())


def scones_loss_sum(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    weights_N: Tensor | None,
    alpha: float,
    label_smoothing: float,
) -> Tensor:
    """Sum the (weighted) losses of hidden states, none of them padding."""
    if torch.is_autocast_enabled(hidden_ND.device.type):
        precision = torch.get_autocast_dtype(hidden_ND.device.type)
    else:
        precision = hidden_ND.dtype
    inputs = (hidden_ND, weight_VD, bias_V, targets_N, weights_N)
    settings = (alpha, label_smoothing, precision)
    if not torch.is_grad_enabled():
        return _loss_and_gradients(*inputs, *settings, wanted=False)[0]
    loss: Tensor = _FusedScones.apply(*inputs, *settings)
    return loss


class _FusedScones(torch.autograd.Function):
    """Sum of losses; gradients are made in the forward pass."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        total, gradients = _loss_and_gradients(*inputs, wanted=True)
        ctx.save_for_backward(*gradients)
        return total

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        gradients = (gradient * outer[0] for gradient in ctx.saved_tensors)
        return (*gradients, None, None, None, None, None)


def _loss_and_gradients(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    weights_N: Tensor | None,
    alpha: float,
    label_smoothing: float,
    precision: torch.dtype,
    *,
    wanted: bool,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    exact = torch.promote_types(torch.float32, hidden_ND.dtype)
    table_VD = weight_VD.to(precision)
    numbers = _CHUNK_NUMBERS.get(hidden_ND.device.type, _CHUNK_NUMBERS["cpu"])
    rows = max(1, numbers // weight_VD.size(0))
    total = torch.zeros((), dtype=exact, device=hidden_ND.device)
    to_hidden, to_weight, to_bias = (
        torch.zeros_like(tensor, dtype=exact) for tensor in (hidden_ND, weight_VD, bias_V)
    )
    for begin in range(0, targets_N.numel(), rows):
        part = slice(begin, begin + rows)
        states_nD = hidden_ND[part].to(precision)
        logits_nV = functional.linear(states_nD, table_VD, bias_V.to(precision)).to(exact)
        weights_n1 = None if weights_N is None else weights_N[part].unsqueeze(1)
        gold_n1 = targets_N[part].unsqueeze(1)
        losses_n = _turn_into_gradient(logits_nV, gold_n1, alpha, label_smoothing)
        if weights_n1 is not None:
            losses_n = losses_n * weights_n1.squeeze(1)
            logits_nV *= weights_n1
        total += losses_n.sum()
        if wanted:
            to_bias += logits_nV.sum(dim=0)
            gradient_nV = logits_nV.to(precision)
            to_hidden[part] = gradient_nV @ table_VD
            to_weight += gradient_nV.T @ states_nD
    if not wanted:
        return total, ()
    gradients = (
        to_hidden.to(hidden_ND.dtype), to_weight.to(weight_VD.dtype), to_bias.to(bias_V.dtype)
    )  # fmt: skip
    return total, gradients


def _turn_into_gradient(
    logits_nV: Tensor, gold_n1: Tensor, alpha: float, label_smoothing: float
) -> Tensor:
    """Give each row's loss, and write the gradient of the loss over the logits."""
    gold_logits_n1 = logits_nV.gather(1, gold_n1)
    negatives_nV = functional.softplus(logits_nV)
    if label_smoothing:
        negatives_nV.sub_(logits_nV, alpha=label_smoothing)
    # The gold token is left out of the sum, not subtracted from it: the difference would cancel.
    negatives_nV.scatter_(1, gold_n1, 0.0)
    positive_n1 = functional.softplus(-gold_logits_n1) + label_smoothing * gold_logits_n1
    losses_n = positive_n1.squeeze(1) + alpha * negatives_nV.sum(dim=1)
    logits_nV.sigmoid_()
    if label_smoothing:
        logits_nV.sub_(label_smoothing)
    logits_nV *= alpha
    logits_nV.scatter_(1, gold_n1, label_smoothing - torch.sigmoid(-gold_logits_n1))
    return losses_n
