"""The SCONES loss as a function of logits: the formula, readable (`fused` has the fast one)."""

from __future__ import annotations

import torch
from torch import Tensor, fx
from torch.nn import functional

from scones.outputs import Labels, Reduction, check_numbers, reduced, without_padding
from scones.outputs.fused import SconesRule
from scones.text import PAD

fx.wrap("without_padding")  # it asks for shapes and types, which symbolic tracing does not know


def scones_loss(
    logits: Tensor,
    targets: Tensor,
    alpha: float = 0.5,
    label_smoothing: float = 0.0,
    ignore_index: int = PAD,
    reduction: Reduction = "mean",
    labels: Labels | None = None,
) -> Tensor:
    """Compute the SCONES loss of `logits` (…, V) against token ids `targets` (…).

    `alpha` weighs the tokens that are not the gold token, `label_smoothing` is the paper's λ.
    Positions whose target is `ignore_index` contribute nothing, whatever they hold.

    `reduction`: "mean" over all tokens; "sentence_mean", the paper's equation: over the tokens of
    each sentence (the last dimension of `targets`), then over sentences; "sum"; "none", one loss
    per position.

    `labels` name further tokens that are right at a position, or known to be wrong.

    A target outside the vocabulary is left to PyTorch's indexing: an error on a CPU, a failed
    assertion on a GPU.
    """
    check_numbers(label_smoothing, alpha)
    logits, safe_targets, keep = without_padding(logits, targets, ignore_index)
    gold_index = safe_targets.unsqueeze(-1)
    gold = logits.gather(-1, gold_index).squeeze(-1)
    positive = functional.softplus(-gold)
    negatives = functional.softplus(logits)
    if label_smoothing:
        positive = positive + label_smoothing * gold
        negatives = negatives - label_smoothing * logits
    # The gold token is left out of the sum, not subtracted from it: the difference would cancel.
    negative = negatives.scatter(-1, gold_index, 0.0).sum(dim=-1)
    losses = positive + alpha * negative
    if labels is not None:
        told_K = logits.flatten(0, -2)[labels.rows_K, labels.tokens_K]
        added_K = SconesRule(alpha, label_smoothing).told(told_K, labels)
        losses = losses + torch.zeros_like(losses).flatten().index_add(
            0, labels.rows_K, added_K.to(losses.dtype)
        ).view_as(losses)
    losses = losses.masked_fill(~keep, 0.0)
    return reduced(losses, keep, reduction)
