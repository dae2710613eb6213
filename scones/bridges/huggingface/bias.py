"""The output bias of Hugging Face models: where each class keeps it, and how it is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from scones.errors import SconesError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FINAL_LOGITS_BIAS = "final_logits_bias"
LM_HEAD_BIAS = "lm_head.bias"

BIAS_PLACES = {
    "MarianMTModel": FINAL_LOGITS_BIAS,
    "BartForConditionalGeneration": FINAL_LOGITS_BIAS,
    "MBartForConditionalGeneration": FINAL_LOGITS_BIAS,
    "PegasusForConditionalGeneration": FINAL_LOGITS_BIAS,
    "M2M100ForConditionalGeneration": LM_HEAD_BIAS,
    "T5ForConditionalGeneration": LM_HEAD_BIAS,
    "MT5ForConditionalGeneration": LM_HEAD_BIAS,
}
"""The classes that can be converted (NLLB models are of the class M2M100), and where each has its
bias. transformers knows the first name itself; the second is ours, in classes that have none."""


def bias_place(class_name: str) -> str:
    """Say under which name a class keeps its output bias; other classes are refused."""
    if class_name not in BIAS_PLACES:
        known = ", ".join(BIAS_PLACES)
        raise SconesError(f"Models of the class {class_name} cannot be converted; {known} can.")
    return BIAS_PLACES[class_name]


def trainable_bias(model: PreTrainedModel) -> nn.Parameter:
    """Give the output bias as a parameter, making it one where it is not: then Trainer trains it.

    The bias of Marian, BART, mBART and Pegasus is a buffer in transformers, which no optimiser
    sees; it keeps its name, so that a saved model opens anywhere. T5 and M2M100 have no bias and
    get one of zeros. The logits stay as they are.
    """
    if bias_place(type(model).__name__) == FINAL_LOGITS_BIAS:
        bias = model.final_logits_bias
        if not isinstance(bias, nn.Parameter):
            del model.final_logits_bias
            model.final_logits_bias = nn.Parameter(bias.detach().clone())
        return model.final_logits_bias
    if model.lm_head.bias is None:
        weight = model.lm_head.weight
        zeros = torch.zeros(weight.size(0), dtype=weight.dtype, device=weight.device)
        model.lm_head.bias = nn.Parameter(zeros)
    if not hasattr(model, "prepare_decoder_input_ids_from_labels"):
        _teach_decoder_inputs(model)
    return model.lm_head.bias


def _teach_decoder_inputs(model: PreTrainedModel) -> None:
    """Give M2M100 what the other classes have, and what `DataCollatorForSeq2Seq` asks them for."""
    from transformers.models.m2m_100.modeling_m2m_100 import shift_tokens_right

    config = model.config

    def shifted(labels: Tensor) -> Tensor:
        moved: Tensor = shift_tokens_right(
            labels, config.pad_token_id, config.decoder_start_token_id
        )
        return moved

    model.prepare_decoder_input_ids_from_labels = shifted
