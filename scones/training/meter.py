"""What happened since the last log line."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from scones.model.transformer import Transformer
from scones.text.store import ParallelTokens
from scones.training.state import RunState


class Meter:
    """Adds up losses and tokens; `peak` is what the hardware could compute, in FLOP/s."""

    def __init__(
        self, tokens: ParallelTokens, model: Transformer, peak: float, tokens_before: int
    ) -> None:
        sources, targets = (
            int(lengths.sum()) + len(lengths)
            for lengths in (tokens.source_lengths, tokens.target_lengths)
        )
        self._epoch = targets
        self._share_of_token = training_flops(model, sources / targets) / peak
        self._losses: list[float] = []
        self._tokens = tokens_before
        self._begin = time.perf_counter()

    def count(self, loss: float) -> None:
        """Take in the loss of a step that was made."""
        self._losses.append(loss)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out the time of what is no training."""
        begin = time.perf_counter()
        yield
        self._begin += time.perf_counter() - begin

    def read(self, state: RunState) -> dict[str, Any]:
        """Give the means since the last reading, and begin anew."""
        now = time.perf_counter()
        rate = (state.tokens - self._tokens) / (now - self._begin)
        values = {
            "loss": sum(self._losses) / len(self._losses) if self._losses else math.nan,
            "epoch": state.tokens / self._epoch,
            "tokens_per_second": rate,
            "hardware_share": rate * self._share_of_token,
            "seconds": state.seconds,
        }
        self._losses, self._tokens, self._begin = [], state.tokens, now
        return values


def training_flops(model: Transformer, source_tokens: float) -> float:
    """Give the operations of training on one target token with so many source tokens to it.

    Products with weights only, forward and twice backward: attention itself and the look-up of
    embeddings are left out, and padding teaches nothing.
    """
    # The keys and values of a source token are made once a decoder layer.
    crossing = sum(_matrices(layer.cross.inputs) for layer in model.decoder_layers())
    of_source = _matrices(model.encoder) + crossing
    of_target = _matrices(model.decoder) - crossing + model.output_weight.numel()
    return 6 * (of_source * source_tokens + of_target)


def _matrices(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters() if parameter.ndim >= 2)
