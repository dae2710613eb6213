"""Losses fused with the output matrix: no logits are ever kept.

Tokens are taken in chunks. Of each chunk the logits are computed, turned into their gradient in
place, multiplied out and forgotten, all in the forward pass; the backward pass has nothing left
to do but to scale. SCONES and softmax differ in one rule, which turns logits into losses and
gradients. SCONES' rule looks at each logit alone, so that the columns of the vocabulary may even
be in different processes (`sharded_scones_loss`); softmax's needs the whole row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, distributed, fx
from torch.nn import functional

from scones.errors import SconesError
from scones.hardware import usable
from scones.outputs import Labels, check_numbers, check_tensors
from scones.text import PAD

if TYPE_CHECKING:
    from scones.kernels.head import Turn

_CHUNK_BYTES = {"cpu": 2**26, "cuda": 2**27}
"""Logits that exist at a time: enough for efficient matrix products."""

_BLOCK_NUMBERS = {"cpu": 2**21, "cuda": 2**26}
"""Those that are turned into gradients at a time, in float32: on a CPU few enough for its cache."""

fx.wrap("_mean_loss")  # it asks for shapes and types, which symbolic tracing does not know


class Rule(Protocol):
    """What turns logits into losses and their gradient."""

    def __call__(self, logits_nV: Tensor, gold_n1: Tensor) -> tuple[Tensor, Tensor]:
        """Losses (n) and the gradient (n, V), which may be written over the logits."""

    def turn(self) -> Turn:
        """The kernel that does the same."""


def fused_scones_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    alpha: float = 0.5,
    label_smoothing: float = 0.0,
    ignore_index: int = PAD,
    labels: Labels | None = None,
) -> Tensor:
    """Compute the mean SCONES loss of hidden states (…, D) against token ids (…).

    Equal to `scones_loss(hidden @ weight.T + bias, targets, …)` in value and gradients, with the
    memory of one chunk of logits instead of all of them; a label costs a dot product. A target
    outside the vocabulary is PyTorch's error on a CPU; the kernels of a GPU take it for no token,
    without a word.
    """
    check_numbers(label_smoothing, alpha)
    rule = SconesRule(alpha, label_smoothing)
    loss = _mean_loss(hidden, weight, bias, targets, rule, ignore_index)
    if labels is None:
        return loss
    added_K = rule.told(labels.logits(hidden.flatten(0, -2), weight, bias), labels)
    keep_N = targets.flatten() != ignore_index
    added_K = added_K.masked_fill(~keep_N[labels.rows_K], 0.0)
    return loss + added_K.sum() / keep_N.sum().clamp(min=1)


def fused_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    label_smoothing: float = 0.0,
    ignore_index: int = PAD,
) -> Tensor:
    """Compute the mean cross-entropy of hidden states (…, D) against token ids (…).

    Equal to PyTorch's `cross_entropy(hidden @ weight.T + bias, targets, …)` in value and
    gradients, with the memory of one chunk of logits instead of all of them. A target outside the
    vocabulary is PyTorch's error on a CPU; on a GPU the loss means nothing then.
    """
    check_numbers(label_smoothing)
    return _mean_loss(hidden, weight, bias, targets, SoftmaxRule(label_smoothing), ignore_index)


def loss_sum(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    weights_N: Tensor | None,
    rule: Rule,
    ignore_index: int | None = None,
) -> Tensor:
    """Sum the (weighted) losses of hidden states, none of them padding.

    Where there are kernels, `ignore_index` may name a target that does not count.
    """
    inputs = (hidden_ND, weight_VD, bias_V, targets_N, weights_N, rule, ignore_index)
    # A `Function` would not be told, and would make gradients that nobody asked for.
    if not torch.is_grad_enabled():
        return loss_and_gradients(*inputs, wanted=False)[0]
    return _FusedLoss.apply(*inputs)


@dataclass(frozen=True)
class SconesRule:
    """The gradient of a logit is α(σ(z) - λ), or λ - σ(-z) where its token is gold."""

    alpha: float
    label_smoothing: float
    sharded: bool = False
    """Whether these are only some columns of the vocabulary, so that gold may be none of them."""

    def __call__(self, logits_nV: Tensor, gold_n1: Tensor) -> tuple[Tensor, Tensor]:
        here_n1 = None
        if self.sharded:
            # Any column will do for a gold token that is elsewhere; `_at_gold` sees to it.
            last = logits_nV.size(1) - 1
            here_n1 = (gold_n1 >= 0) & (gold_n1 <= last)
            gold_n1 = gold_n1.clamp(0, last)
        gold_loss_n1, gold_gradient_n1 = self._at_gold(logits_nV.gather(1, gold_n1), here_n1)
        negatives_nV = functional.softplus(logits_nV)
        if self.label_smoothing:
            negatives_nV.sub_(logits_nV, alpha=self.label_smoothing)
        # The gold token is left out of the sum, not subtracted from it: that would cancel.
        negatives_nV.scatter_(1, gold_n1, 0.0)
        losses_n = gold_loss_n1.squeeze(1) + self.alpha * negatives_nV.sum(dim=1)
        gradient_nV = logits_nV.sigmoid_()
        if self.label_smoothing:
            gradient_nV.sub_(self.label_smoothing)
        gradient_nV.mul_(self.alpha).scatter_(1, gold_n1, gold_gradient_n1)
        return losses_n, gradient_nV

    def told(self, logits_K: Tensor, labels: Labels) -> Tensor:
        """What labels add to the losses: what their tokens count for, less what they counted."""
        counted_K = 1.0 if labels.counted_K is None else labels.counted_K
        right_K, wrong_K = labels.right_K, labels.wrong_K - self.alpha * counted_K
        added_K = right_K * functional.softplus(-logits_K) + wrong_K * functional.softplus(logits_K)
        if self.label_smoothing:
            added_K = added_K + self.label_smoothing * (right_K - wrong_K) * logits_K
        return added_K

    def turn(self) -> Turn:
        # The kernel needs no hint that gold may be in another shard.
        from scones.kernels.head import SconesTurn

        return SconesTurn(self.alpha, self.label_smoothing)

    def _at_gold(self, logits_n1: Tensor, here_n1: Tensor | None) -> tuple[Tensor, Tensor]:
        smoothing = self.label_smoothing
        loss_n1 = functional.softplus(-logits_n1) + smoothing * logits_n1
        gradient_n1 = smoothing - torch.sigmoid(-logits_n1)
        if here_n1 is None:
            return loss_n1, gradient_n1
        # Where gold is in another shard, this column is a token like the others.
        other_loss_n1 = self.alpha * (functional.softplus(logits_n1) - smoothing * logits_n1)
        other_gradient_n1 = self.alpha * (torch.sigmoid(logits_n1) - smoothing)
        return (
            torch.where(here_n1, loss_n1, other_loss_n1),
            torch.where(here_n1, gradient_n1, other_gradient_n1),
        )


@dataclass(frozen=True)
class SoftmaxRule:
    """The gradient of a logit is its token's probability minus its smoothed label.

    The loss is the softplus of the log-odds against the gold token, which keeps its digits where
    that is nearly certain.
    """

    label_smoothing: float

    def __call__(self, logits_nV: Tensor, gold_n1: Tensor) -> tuple[Tensor, Tensor]:
        smoothing, even = self.label_smoothing, self.label_smoothing / logits_nV.size(1)
        logits_nV.sub_(logits_nV.amax(dim=1, keepdim=True))
        gradient_nV = torch.softmax(logits_nV, dim=1)
        # The largest probability never underflows, and its logit is 0 now: it gives the normaliser.
        largest_n1 = gradient_nV.amax(dim=1, keepdim=True)
        right_n1 = gradient_nV.gather(1, gold_n1)
        # The gold token is left out of the sum, not subtracted from it: that would cancel.
        wrong_n1 = gradient_nV.scatter_(1, gold_n1, 0.0).sum(dim=1, keepdim=True)
        total_n1 = right_n1 + wrong_n1  # 1, but for what softmax has rounded
        log_odds_n1 = (wrong_n1 / largest_n1).log() - logits_nV.gather(1, gold_n1)
        losses_n1 = functional.softplus(log_odds_n1)
        if smoothing:
            even_losses_n1 = (total_n1 / largest_n1).log() - logits_nV.mean(dim=1, keepdim=True)
            losses_n1 = (1 - smoothing) * losses_n1 + smoothing * even_losses_n1
            gradient_nV.sub_(even)
        gradient_nV.scatter_(1, gold_n1, smoothing - even - wrong_n1 / total_n1)
        return losses_n1.squeeze(1), gradient_nV

    def turn(self) -> Turn:
        from scones.kernels.head import SoftmaxTurn

        return SoftmaxTurn(self.label_smoothing)


class _FusedLoss(torch.autograd.Function):
    """Sum of losses; gradients are made in the forward pass."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        total, gradients = loss_and_gradients(*inputs, wanted=True)
        ctx.save_for_backward(*gradients)
        ctx.types = [tensor.dtype for tensor in inputs[:3]]
        return total

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        gradients = (
            _scaled(gradient, outer[0], kind)
            for gradient, kind in zip(ctx.saved_tensors, ctx.types, strict=True)
        )
        return (*gradients, None, None, None, None)


def _scaled(gradient: Tensor, factor: Tensor, kind: torch.dtype) -> Tensor:
    if not _has_kernels(gradient):
        return torch.mul(gradient, factor, out=torch.empty_like(gradient, dtype=kind))
    from scones.kernels.head import scaled

    return scaled(gradient, factor, kind)


def loss_and_gradients(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    weights_N: Tensor | None,
    rule: Rule,
    ignore_index: int | None = None,
    *,
    wanted: bool,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Sum the losses; with them, where wanted, the gradients of states, matrix and bias."""
    if not _has_kernels(hidden_ND):
        return _by_chunks(hidden_ND, weight_VD, bias_V, targets_N, weights_N, rule, wanted)
    from scones.kernels import head

    if ignore_index is not None:
        hidden_ND, targets_N = head.without_ignored(hidden_ND, targets_N, ignore_index)
    precision = _precision(hidden_ND)
    factors = (hidden_ND.to(precision), weight_VD.to(precision))
    spare = ignore_index is not None  # then the states are a copy, to be written over
    inputs = (*factors, bias_V, targets_N, weights_N)
    return head.loss_and_gradients(*inputs, rule.turn(), wanted, spare)


def _precision(hidden: Tensor) -> torch.dtype:
    """The number format of the matrix products: autocast's, where it is on."""
    device = hidden.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype


def _has_kernels(hidden: Tensor) -> bool:
    return usable(hidden.device) and _precision(hidden).itemsize <= 4


def _by_chunks(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    weights_N: Tensor | None,
    rule: Rule,
    wanted: bool,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    # Products may be in half precision; sums over the vocabulary and over chunks may not.
    precision = _precision(hidden_ND)
    exact = torch.promote_types(torch.float32, hidden_ND.dtype)
    table_VD, addend_V = weight_VD.to(precision), bias_V.to(exact)
    total = torch.zeros((), dtype=exact, device=hidden_ND.device)
    to_hidden, to_weight, to_bias = (
        torch.zeros_like(tensor, dtype=exact) for tensor in (hidden_ND, weight_VD, bias_V)
    )
    vocabulary, tokens = weight_VD.size(0), targets_N.numel()
    size = _rows(_CHUNK_BYTES, hidden_ND.device, vocabulary * precision.itemsize)
    # One place for all chunks: fresh memory would cost more than what is computed in it.
    space_nV = table_VD.new_empty(min(size, tokens), vocabulary)
    for part in _slices(tokens, size):
        states_nD = hidden_ND[part].to(precision)
        logits_nV = torch.mm(states_nD, table_VD.T, out=space_nV[: len(states_nD)])
        weights_n = None if weights_N is None else weights_N[part]
        total += _turn_into_gradient(logits_nV, addend_V, targets_N[part], weights_n, rule, to_bias)
        if wanted:
            to_hidden[part] = logits_nV @ table_VD
            if precision == exact:
                to_weight.addmm_(logits_nV.T, states_nD)
            else:
                to_weight += logits_nV.T @ states_nD
    if not wanted:
        return total, ()
    return total, (to_hidden, to_weight, to_bias)


def _turn_into_gradient(
    logits_nV: Tensor,
    bias_V: Tensor,
    targets_n: Tensor,
    weights_n: Tensor | None,
    rule: Rule,
    to_bias: Tensor,
) -> Tensor:
    """Write the gradient over logits that lack their bias, add it to the bias', sum the losses."""
    total = torch.zeros_like(bias_V[0])
    for few in _slices(len(targets_n), _rows(_BLOCK_NUMBERS, bias_V.device, len(bias_V))):
        logits_bV = logits_nV[few].to(bias_V.dtype).add_(bias_V)
        losses_b, gradient_bV = rule(logits_bV, targets_n[few].unsqueeze(1))
        if weights_n is not None:
            losses_b = losses_b * weights_n[few]
            gradient_bV *= weights_n[few].unsqueeze(1)
        total += losses_b.sum()
        to_bias += gradient_bV.sum(dim=0)
        logits_nV[few] = gradient_bV
    return total


def _rows(limits: dict[str, int], device: torch.device, row: int) -> int:
    """How many rows stay within a device's limit; one at least."""
    return max(1, limits.get(device.type, limits["cpu"]) // row)


def _slices(length: int, size: int) -> Iterator[slice]:
    return (slice(begin, begin + size) for begin in range(0, length, size))


def _mean_loss(
    hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, rule: Rule, ignore_index: int
) -> Tensor:
    hidden_ND, targets_N = _by_rows(hidden, weight, bias, targets)
    if _has_kernels(hidden):  # then nobody should wait to be told how many there are
        total = loss_sum(hidden_ND, weight, bias, targets_N, None, rule, ignore_index)
        return total / (targets_N != ignore_index).sum().clamp(min=1)
    keep = (targets_N != ignore_index).nonzero().squeeze(1)
    total = loss_sum(hidden_ND[keep], weight, bias, targets_N[keep], None, rule)
    return total / max(1, keep.numel())


def _by_rows(
    hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor]:
    """Give the states (N, D) and targets (N), if all fits together."""
    fit = hidden.shape == (*targets.shape, *weight.shape[1:]) and weight.dim() == 2
    fit = fit and bias.shape == weight.shape[:1]
    wanted = "(…, D), (V, D), (V,) and (…)"
    check_tensors(fit, wanted, targets, hidden=hidden, weight=weight, bias=bias)
    return hidden.reshape(targets.numel(), weight.size(1)), targets.flatten().long()


# The SCONES loss with the vocabulary sharded: every process holds some rows of the matrix.
#
# A process needs to know only whether the gold token is among its own rows; then the gradients of
# those rows are final, before anything was sent. What has to be added up afterwards are the loss
# and the gradient of the hidden states. Softmax would need the other processes' normalisers first.


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
    check_numbers(label_smoothing, alpha)
    hidden_ND, targets_N = _by_rows(hidden, weight_shard, bias_shard, targets)
    if not distributed.is_available() or not distributed.is_initialized():
        raise SconesError(
            "sharded_scones_loss adds up over processes, and there are none; call "
            "torch.distributed.init_process_group first, or use fused_scones_loss."
        )
    keep = (targets_N != ignore_index).nonzero().squeeze(1)
    hidden_ND = _SharedStates.apply(hidden_ND[keep], group)
    columns_N = targets_N[keep] - first_token
    rule = SconesRule(alpha, label_smoothing, sharded=True)
    loss = loss_sum(hidden_ND, weight_shard, bias_shard, columns_N, None, rule)
    here = ((columns_N >= 0) & (columns_N < len(bias_shard))).sum()
    loss, found = _AddedUp.apply(torch.stack([loss, here.to(loss.dtype)]), group)
    return loss.where(found == keep.numel(), torch.nan) / max(1, keep.numel())


class _SharedStates(torch.autograd.Function):
    """States that every process uses for its shard: their gradient is the sum of all of theirs."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        states, ctx.group = inputs
        return states.view_as(states)  # the input itself would get no backward of its own

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        total = gradients[0].contiguous().clone()  # autograd may still use what it gave
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
