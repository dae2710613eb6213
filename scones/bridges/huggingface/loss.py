"""The SCONES loss for Hugging Face's Trainer."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from scones.errors import SconesError
from scones.outputs.scones import Scones, scones_loss

IGNORED = -100
"""The label that Hugging Face gives to positions that do not count."""


class TrainerLoss(Protocol):
    """What `Trainer` calls after each forward pass."""

    def __call__(
        self, outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """Give the loss of a batch."""


def trainer_loss(alpha: float = 0.5, label_smoothing: float = 0.0) -> TrainerLoss:
    """Make the SCONES loss that `Trainer(compute_loss_func=…)` wants.

    Labels of -100 do not count. Trainer says how many labels all the batches of a step have, so
    that accumulated gradients are those of one large batch.

    Trainer takes the labels away before it calls the model: the collator has to make the
    decoder's inputs, as `DataCollatorForSeq2Seq(tokenizer, model=model)` does.
    """
    settings = Scones(alpha, label_smoothing)

    def loss(
        outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        logits = outputs["logits"]
        if labels is None or logits.shape[:-1] != labels.shape:
            shape = None if labels is None else tuple(labels.shape)
            raise SconesError(
                f"The logits have the shape {tuple(logits.shape)} and the labels {shape}: the "
                "decoder did not read the labels; use DataCollatorForSeq2Seq(tokenizer, "
                "model=model), which makes decoder_input_ids from them."
            )
        losses = scones_loss(
            logits,
            labels.to(logits.device),
            settings.alpha,
            settings.label_smoothing,
            IGNORED,
            reduction="mean" if num_items_in_batch is None else "sum",
        )
        return losses if num_items_in_batch is None else losses / num_items_in_batch

    return loss
