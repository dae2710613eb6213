"""What training differentiates: the model with its loss behind it."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

from scones.model.transformer import Transformer
from scones.outputs import OutputLayer
from scones.training.data import Batch


class Objective(nn.Module):
    """The model with its loss behind it: what is differentiated."""

    def __init__(
        self,
        model: Transformer,
        output: OutputLayer,
        precision: torch.dtype,
        compiled: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.output = output
        self.precision = precision
        self.compiled = compiled
        self.packed = model.has_kernels
        """Whether batches should be without padding."""
        # Batches are of many shapes, and one compilation serves them all.
        self._hidden = torch.compile(_hidden, dynamic=True) if compiled else _hidden

    def forward(self, batch: Batch) -> Tensor:
        """Give the summed loss of the batch."""
        device = self.model.device
        if self.packed or self.compiled:
            self.model.noise.draw(device)
        with torch.autocast(device.type, self.precision, enabled=self.precision != torch.float32):
            return self.output.loss(
                self._hidden(self.model, batch),
                self.model.output_weight,
                self.model.output_bias,
                batch.targets_N,
                batch.weights_N,
            )

    def warm_up(self, batch: Batch) -> float:
        """Compile by way of a batch, leaving no trace of it; gives the seconds it took."""
        begin = time.perf_counter()
        devices = [self.model.device] if self.model.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            self(batch).backward()
        if devices:
            torch.cuda.synchronize(devices[0])
        for parameter in self.model.parameters():
            parameter.grad = None
        return time.perf_counter() - begin


def _hidden(model: Transformer, batch: Batch) -> Tensor:
    return batch.hidden(model)
