"""What training differentiates: the model with its loss behind it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scones.model.transformer import Transformer
from scones.outputs import OutputLayer
from scones.training.data import Batch


class Objective(nn.Module):
    """The model with its loss behind it: what is differentiated."""

    def __init__(self, model: Transformer, output: OutputLayer, precision: torch.dtype) -> None:
        super().__init__()
        self.model = model
        self.output = output
        self.precision = precision
        self.packed = model.has_kernels
        """Whether batches should be without padding."""

    def forward(self, batch: Batch) -> Tensor:
        """Give the summed loss of the batch."""
        device = self.model.device
        if self.packed:
            self.model.noise.draw(device)
        with torch.autocast(device.type, self.precision, enabled=self.precision != torch.float32):
            return self.output.loss(
                batch.hidden(self.model),
                self.model.output_weight,
                self.model.output_bias,
                batch.targets_N,
                batch.weights_N,
            )
