"""SCONES: one sigmoid per token, trained from single references (the paper's section 2).

With s = softplus, the loss of one position with logits z and gold token y is

    s(-z_y) + λ·z_y  +  α · Σ_{w ≠ y} ( s(z_w) - λ·z_w )

which is the paper's cross-entropy written with log σ(z) = -s(-z) and log(1 - σ(z)) = -s(z):
exact in float32 where the logarithm of a difference is not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from scones.outputs import ALPHA, SMOOTHING, Labels, OutputLayer, Rows, best_logits, register
from scones.text import PAD

# A model that CTranslate2 runs needs no PyTorch.
if TYPE_CHECKING:
    from torch import Tensor

    from scones.outputs.fused import SconesRule


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
        from scones.outputs.loss import scones_loss

        return scones_loss(
            logits_NV, targets_N, self.alpha, self.label_smoothing, PAD, reduction="none"
        )

    def told(self, logits_K: Tensor, labels: Labels) -> Tensor:
        return self.rule().told(logits_K, labels)

    def rule(self) -> SconesRule:
        from scones.outputs.fused import SconesRule

        return SconesRule(self.alpha, self.label_smoothing)

    def log_scores(self, logits_NV: Tensor) -> Tensor:
        """Log-sigmoid: every token for itself."""
        from torch.nn import functional

        return functional.logsigmoid(logits_NV.float())

    def best(self, logits_NV: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Take the top k of the raw logits; the sigmoid keeps their order, so k of it suffice."""
        logits_Nk, tokens_Nk, _ = best_logits(logits_NV, k)
        return self.log_scores(logits_Nk), tokens_Nk

    def scores_of(self, logits_NV: Tensor, tokens_N: Tensor) -> Tensor:
        return self.log_scores(logits_NV.gather(-1, tokens_N.unsqueeze(-1)).squeeze(-1))

    def above(self, logits_NV: Tensor, least_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compare raw logits: log σ(z) > l where z > l − log(1 − exp(l))."""
        import torch

        floor_N = torch.where(least_N < 0, least_N - torch.log(-torch.expm1(least_N)), math.inf)
        rows, tokens = (logits_NV > floor_N.unsqueeze(1)).nonzero(as_tuple=True)
        return rows, tokens, self.log_scores(logits_NV[rows, tokens])

    def scores_of_rows(self, rows: Rows, tokens: Sequence[int]) -> list[float]:
        chosen = [row[token] for row, token in zip(rows, tokens, strict=True)]
        return (-np.logaddexp(0, -np.array(chosen, np.float64))).tolist()

    def candidates_of_rows(self, rows: Rows, share: float) -> Rows:
        """Compare raw logits: σ(z) ≥ s·σ(m) where exp(-z) ≤ (1 + exp(-m)) / s − 1."""
        floors = (-np.log((1 + np.exp(-float(row.max()))) / share - 1) for row in rows)
        likely = (row[row >= floor] for row, floor in zip(rows, floors, strict=True))
        return [1 / (1 + np.exp(-logits)) for logits in likely]

    @property
    def logits_note(self) -> str:
        return (
            "The logits are log-odds, one sigmoid a token: greedy search is right there as it is,\n"
            "while a beam search that normalises by softmax is not what the model was trained for."
        )
