"""Training batches in either layout, as `GpuSteps` makes them."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from scones.text.store import ParallelTokens
from scones.training import data
from scones.training.data import WHOLE, Batch, Position, Shard
from scones.training.gpu import make_packed_batch


def training_batches(
    tokens: ParallelTokens,
    max_tokens: int,
    seed: int,
    by_sentence: bool,
    start: Position,
    packed: bool,
    grain: int | None = None,
) -> Generator[tuple[Batch, Position], None, None]:
    """Packed ones are settled to multiples of `grain` tokens, where it is given."""

    def make(tokens: ParallelTokens, pairs: np.ndarray, by_sentence: bool, shard: Shard) -> Batch:
        batch = make_packed_batch(tokens, pairs, by_sentence, shard)
        return batch if grain is None else batch.settled(grain)

    layout = make if packed else data.make_batch
    return data.training_batches(tokens, max_tokens, seed, by_sentence, start, WHOLE, layout)
