"""A Transformer for translating on a CPU: oneDNN keeps its matrices in the order it reads them.

Plain products unpack the same weights again for every token; for the few rows of a decoding step
that takes as long as the product itself. A packed model cannot be trained or saved.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from scones.model.transformer import Transformer


class PackedLinear(nn.Module):
    """A linear layer that only computes."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor) -> None:
        super().__init__()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight_OI.detach().contiguous())
        self._bias = bias_O.detach()

    def forward(self, x: Tensor) -> Tensor:
        """Multiply and add."""
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
        return y


def packed(model: Transformer) -> Transformer:
    """Give a copy of a model that translates sooner; on a GPU or in bf16, the model itself."""
    weight = model.output_bias
    fits = weight.device.type == "cpu" and weight.dtype == torch.float32
    if not fits or not torch.backends.mkldnn.is_available():
        return model
    # Weights that stay as they are, embeddings and norms, are shared with the model.
    shared = {id(parameter): parameter for parameter in model.parameters()}
    ours = copy.deepcopy(model, shared)
    for module in list(ours.modules()):
        for name, part in module.named_children():
            if isinstance(part, nn.Linear):
                setattr(module, name, PackedLinear(part.weight, part.bias))
    ours.head = PackedLinear(model.output_weight, model.output_bias)
    return ours
