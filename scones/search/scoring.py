"""The log-probability of given translations: one pass, no search."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from scones.ids import PAD
from scones.model.transformer import Transformer
from scones.outputs import OutputLayer


@torch.inference_mode()
def score_batch(
    model: Transformer, output: OutputLayer, source_BS: Tensor, target_BT: Tensor
) -> list[list[float]]:
    """Give the log-probability of every target token (end of sentence included, no padding)."""
    inputs_BT = functional.pad(target_BT, (1, -1), value=PAD)
    hidden_ND = model(source_BS, inputs_BT).flatten(0, 1)
    real_N = target_BT.flatten() != PAD
    logits_NV = model.logits(hidden_ND[real_N])
    terms_N = output.scores_of(logits_NV, target_BT.flatten()[real_N]).double()
    lengths = (target_BT != PAD).sum(dim=1).tolist()
    return [terms.tolist() for terms in terms_N.split(lengths)]
