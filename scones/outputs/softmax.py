"""Softmax: one distribution over the vocabulary, trained by cross-entropy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from scones.options import option
from scones.outputs import OutputLayer, Rows, best_logits, register, without_padding
from scones.text import PAD

# A model that CTranslate2 runs needs no PyTorch.
if TYPE_CHECKING:
    from torch import Tensor

    from scones.outputs.fused import SoftmaxRule


@register
@dataclass(frozen=True)
class Softmax(OutputLayer):
    """The usual output layer: tokens are mutually exclusive and share one unit of probability."""

    name: ClassVar[str] = "softmax"

    label_smoothing: float = option(
        0.0, "probability spread evenly over the vocabulary", least=0, below=1
    )

    def initial_bias(self, vocabulary: int) -> float:
        """Softmax does not feel a constant; 0 is as good as any."""
        return 0.0

    def token_losses(self, logits_NV: Tensor, targets_N: Tensor) -> Tensor:
        """Cross-entropy, with the targets smoothed evenly over the vocabulary."""
        from torch.nn import functional

        logits_NV, safe_N, keep_N = without_padding(logits_NV, targets_N, PAD)
        losses_N = functional.cross_entropy(
            logits_NV, safe_N, reduction="none", label_smoothing=self.label_smoothing
        )
        return losses_N.masked_fill(~keep_N, 0.0)

    def rule(self) -> SoftmaxRule:
        from scones.outputs.fused import SoftmaxRule

        return SoftmaxRule(self.label_smoothing)

    def log_scores(self, logits_NV: Tensor) -> Tensor:
        return logits_NV.float().log_softmax(dim=-1)

    def best(self, logits_NV: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Normalise, but write only k scores per row: the order is that of the logits."""
        logits_Nk, tokens_Nk, norm_N = best_logits(logits_NV, k, normed=True)
        assert norm_N is not None
        return logits_Nk - norm_N.unsqueeze(-1), tokens_Nk

    def scores_of(self, logits_NV: Tensor, tokens_N: Tensor) -> Tensor:
        chosen_N = logits_NV.gather(-1, tokens_N.unsqueeze(-1)).squeeze(-1)
        return chosen_N.float() - logits_NV.float().logsumexp(dim=-1)

    def scores_of_rows(self, rows: Rows, tokens: Sequence[int]) -> list[float]:
        scores = []
        for row, token in zip(rows, tokens, strict=True):  # one by one: none of them is copied
            largest = row.max()
            norm = largest + np.log(np.exp(row - largest).sum(dtype=np.float64))
            scores.append(float(row[token] - norm))
        return scores

    def candidates_of_rows(self, rows: Rows, share: float) -> Rows:
        shares = (np.exp(row - row.max()) for row in rows)
        return [row[row >= share] / row.sum(dtype=np.float64) for row in shares]
