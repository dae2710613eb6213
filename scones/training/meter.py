"""What happened since the last log line."""

from __future__ import annotations

import time
from typing import Any

from scones.model.transformer import Transformer
from scones.text.store import TokenStore
from scones.training.state import RunState


class Meter:
    """Adds up losses and tokens; `peak` is what the hardware could compute, in FLOP/s."""

    def __init__(self, store: TokenStore, model: Transformer, peak: float, tokens: int) -> None:
        lengths = store.split("train").target_lengths
        self._epoch = int(lengths.sum()) + len(lengths)
        matrices = sum(p.numel() for p in model.parameters() if p.ndim >= 2)
        self._share_of_token = 6 * matrices / peak
        self._losses: list[float] = []
        self._tokens = tokens
        self._begin = time.perf_counter()

    def count(self, loss: float) -> None:
        """Take a step's loss in."""
        self._losses.append(loss)

    def read(self, state: RunState) -> dict[str, Any]:
        """Give the means since the last reading, and begin anew."""
        now = time.perf_counter()
        rate = (state.tokens - self._tokens) / (now - self._begin)
        values = {
            "loss": sum(self._losses) / len(self._losses),
            "epoch": state.tokens / self._epoch,
            "tokens_per_second": rate,
            "hardware_share": rate * self._share_of_token,
            "seconds": state.seconds,
        }
        self._losses, self._tokens, self._begin = [], state.tokens, now
        return values
