"""Kernels: what PyTorch has no fast operation for, in Triton, each with a plain twin to test it by.

They run on GPUs, and on a CPU under Triton's interpreter (TRITON_INTERPRET=1), which is how the
tests reach them. Everything else in the package asks `usable` first and has another way, which
SCONES_KERNELS=no makes it take.
"""

from __future__ import annotations

import importlib.util
import os
from functools import cache

import torch

IGNORED = -(2**40)
"""The target of a row that does not count."""


def usable(device: torch.device) -> bool:
    """Say whether Triton kernels run on a device."""
    if not _installed() or os.environ.get("SCONES_KERNELS") == "no":
        return False
    return device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"


def attention_fits(head_size: int) -> bool:
    """Say whether there are attention kernels for heads of this size."""
    return head_size >= 16 and head_size.bit_count() == 1


@cache
def _installed() -> bool:
    return importlib.util.find_spec("triton") is not None
