"""Which numbers are dropped: those whose place and seed hash to the lowest values.

The hash is that of `scones.model.dropout`.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def kept(place, seed, lowest_kept):
    """Say which numbers are not dropped."""
    number = (place ^ tl.load(seed)) * -0x61C88647
    number = (number ^ ((number >> 16) & 0xFFFF)) * -0x7A143595
    return (number ^ ((number >> 13) & 0x7FFFF)) * -0x3D4D51CB >= lowest_kept


def dropping(rate: float) -> dict[str, Any]:
    """Give the settings of a kernel that drops at this rate."""
    return {
        "lowest_kept": round(rate * 2**32) - 2**31,
        "lift": 1 / (1 - rate),
        "DROPS": rate > 0,
    }
