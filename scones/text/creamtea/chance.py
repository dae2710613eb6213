"""Random numbers that are the same on every machine and in every version of Python.

Python promises a fixed sequence only for `Random.random()`, not for `choice` or `shuffle`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator


def below(rng: random.Random, limit: int) -> int:
    """A whole number from 0 to `limit` - 1."""
    return int(rng.random() * limit)


def shuffled(size: int, rng: random.Random) -> Iterator[int]:
    """The numbers below `size`, each once, in random order, without a list of that length."""
    moved: dict[int, int] = {}
    for position in range(size):
        other = position + below(rng, size - position)
        yield moved.get(other, other)
        moved[other] = moved.pop(position, position)
