"""The seam: the one object in which softmax and SCONES models differ.

Training and every search take an `OutputLayer` and never ask which one it is. A new output layer
is one new file in this folder with one subclass; it is found by its `name`.

Shape letters here and in the whole package: N rows (tokens or hypotheses), D model size,
V vocabulary, k best.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from scones.errors import SconesError
from scones.hardware import usable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class OutputLayer(ABC):
    """What turns a hidden state into scores and into a loss. Subclasses are frozen dataclasses."""

    name: ClassVar[str]
    known: ClassVar[dict[str, type[OutputLayer]]] = {}

    def __init_subclass__(cls) -> None:
        OutputLayer.known[cls.name] = cls

    # What a new output layer must say.

    @abstractmethod
    def initial_bias(self, vocabulary: int) -> float:
        """Give the constant output bias to start training from."""

    @abstractmethod
    def token_losses(self, logits_NV: Tensor, targets_N: Tensor) -> Tensor:
        """Give the loss of each row in float32; rows whose target is padding give exactly 0."""

    @abstractmethod
    def log_scores(self, logits_NV: Tensor) -> Tensor:
        """Give the log-probability of every token, in float32."""

    # What it may do faster than this.

    def loss(
        self,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor,
        targets_N: Tensor,
        weights_N: Tensor | None = None,
    ) -> Tensor:
        """Sum the (weighted) losses of hidden states against targets, none of them padding."""
        logits_NV = functional.linear(hidden_ND, weight_VD, bias_V)
        losses_N = self.token_losses(logits_NV, targets_N)
        return (losses_N if weights_N is None else losses_N * weights_N).sum()

    def best_token(self, logits_NV: Tensor) -> Tensor:
        """Give the most probable next token; no activation is needed for that."""
        return logits_NV.argmax(dim=-1)

    def best(self, logits_NV: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Give the log-scores and ids of the k most probable tokens, best first."""
        scores_Nk, tokens_Nk = self.log_scores(logits_NV).topk(k, dim=-1)
        return scores_Nk, tokens_Nk

    def scores_of(self, logits_NV: Tensor, tokens_N: Tensor) -> Tensor:
        """Give the log-score of one chosen token a row."""
        return self.log_scores(logits_NV).gather(-1, tokens_N.unsqueeze(-1)).squeeze(-1)

    def to_config(self: OutputLayer) -> dict[str, Any]:
        """Describe this layer as it stands in a model's config.json and in a recipe."""
        instance: DataclassInstance = self  # type: ignore[assignment]
        return {"layer": self.name, **asdict(instance)}


def best_logits(
    logits_NV: Tensor, k: int, normed: bool = False
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Give the k largest logits a row, their tokens, and the row's log-sum-exp where asked for."""
    if k <= 16 and usable(logits_NV.device) and not logits_NV.requires_grad:
        from scones.kernels import decoding

        return decoding.best_logits(logits_NV, k, normed)
    values_Nk, tokens_Nk = logits_NV.topk(k, dim=-1)
    norm_N = torch.logsumexp(logits_NV.float(), dim=-1) if normed else None
    return values_Nk.float(), tokens_Nk, norm_N


def check_smoothing(label_smoothing: float) -> None:
    """Refuse a label smoothing outside [0, 1)."""
    if not 0 <= label_smoothing < 1:
        raise SconesError(f"label_smoothing must be in [0, 1), not {label_smoothing}.")


def without_padding(logits_NV: Tensor, targets_N: Tensor, ignore_index: int) -> tuple[Tensor, ...]:
    """Replace ignored rows by zeros before any arithmetic, so that not even a NaN passes.

    Returns the logits in (at least) float32, targets that are safe to index with, and the mask
    of the rows that count.
    """
    keep_N = targets_N != ignore_index
    if logits_NV.dtype in (torch.bfloat16, torch.float16):
        logits_NV = logits_NV.float()
    logits_NV = logits_NV.masked_fill(~keep_N.unsqueeze(-1), 0.0)
    return logits_NV, targets_N.masked_fill(~keep_N, 0), keep_N
