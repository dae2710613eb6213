"""SCONES: one sigmoid per token, trained from single references (the paper's section 2).

With s = softplus, the loss of one position with logits z and gold token y is

    s(-z_y) + λ·z_y  +  α · Σ_{w ≠ y} ( s(z_w) - λ·z_w )

which is the paper's cross-entropy written with log σ(z) = -s(-z) and log(1 - σ(z)) = -s(z):
exact in float32 where the logarithm of a difference is not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, fx
from torch.nn import functional

from scones.outputs import (
    ALPHA,
    SMOOTHING,
    OutputLayer,
    Reduction,
    best_logits,
    check_numbers,
    reduced,
    register,
    without_padding,
)
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
) -> Tensor:
    """Compute the SCONES loss of `logits` (…, V) against token ids `targets` (…).

    `alpha` weighs the tokens that are not the gold token, `label_smoothing` is the paper's λ.
    Positions whose target is `ignore_index` contribute nothing, whatever they hold.

    `reduction`: "mean" over all tokens; "sentence_mean", the paper's equation: over the tokens of
    each sentence (the last dimension of `targets`), then over sentences; "sum"; "none", one loss
    per position.

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
    losses = (positive + alpha * negative).masked_fill(~keep, 0.0)
    return reduced(losses, keep, reduction)


@register
@dataclass(frozen=True)
class Scones(OutputLayer):
    """One Bernoulli variable per token: two good continuations can both be near 1."""

    name: ClassVar[str] = "scones"
    tuned: ClassVar[str | None] = "alpha"

    alpha: float = ALPHA
    label_smoothing: float = SMOOTHING

    def initial_bias(self, vocabulary: int) -> float:
        """The constant logit at which the loss is least while nothing is known.

        Of V tokens one is gold (target 1-λ, weight 1) and V-1 are not (target λ, weight α); the
        best constant is the logit of the weighted mean target, -ln(α(V-1)) when λ = 0. Starting
        at 0 instead, the loss would begin near α·V·ln 2: thousands.
        """
        others = self.alpha * (vocabulary - 1)
        smoothing = self.label_smoothing
        yes = (1 - smoothing) + others * smoothing
        no = smoothing + others * (1 - smoothing)
        return math.log(yes / no)

    def token_losses(self, logits_NV: Tensor, targets_N: Tensor) -> Tensor:
        return scones_loss(
            logits_NV, targets_N, self.alpha, self.label_smoothing, PAD, reduction="none"
        )

    def rule(self) -> SconesRule:
        return SconesRule(self.alpha, self.label_smoothing)

    def log_scores(self, logits_NV: Tensor) -> Tensor:
        """Log-sigmoid: every token for itself."""
        return functional.logsigmoid(logits_NV.float())

    def best(self, logits_NV: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Take the top k of the raw logits; the sigmoid keeps their order, so k of it suffice."""
        logits_Nk, tokens_Nk, _ = best_logits(logits_NV, k)
        return functional.logsigmoid(logits_Nk), tokens_Nk

    def scores_of(self, logits_NV: Tensor, tokens_N: Tensor) -> Tensor:
        return functional.logsigmoid(
            logits_NV.gather(-1, tokens_N.unsqueeze(-1)).squeeze(-1).float()
        )

    @property
    def logits_note(self) -> str:
        return (
            "The logits are log-odds, one sigmoid a token: greedy search is right there as it is,\n"
            "while a beam search that normalises by softmax is not what the model was trained for."
        )
