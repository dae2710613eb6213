"""Weights in a quarter of the room: a byte a number, and a float32 scale a row of a matrix.

The largest number of a row becomes ±127 and the others whole numbers beside it, so that no number
moves by more than half of the row's scale. Biases and norms, which are few, stay as they are.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from scones.errors import SconesError

_LARGEST = 127
_SCALE = ".scale"


def to_int8(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Store matrices as int8, each with a float32 scale a row beside it, named NAME.scale."""
    stored: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if not _is_matrix(name, tensor):
            stored[name] = tensor
            continue
        scale_R = tensor.abs().amax(1) / _LARGEST
        # Whatever a row of zeros is divided by, it stays zero.
        divisor_R1 = torch.where(scale_R > 0, scale_R, 1).unsqueeze(1)
        steps_RC = (tensor / divisor_R1).round().clamp(-_LARGEST, _LARGEST)
        stored[name] = steps_RC.to(torch.int8)
        stored[name + _SCALE] = scale_R
    return stored


def from_int8(stored: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Give the weights back in float32; `path` is the file that an error message names."""
    weights: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        if name.endswith(_SCALE):
            continue
        if tensor.dtype != torch.int8:
            weights[name] = tensor
            continue
        scale_R = stored.get(name + _SCALE)
        if scale_R is None or scale_R.shape != tensor.shape[:1]:
            raise SconesError(f"{path} is damaged: {name} has no scale for each of its rows.")
        weights[name] = tensor.float() * scale_R.unsqueeze(1)
    return weights


def _is_matrix(name: str, tensor: Tensor) -> bool:
    return tensor.ndim == 2 and name.endswith(".weight")  # the output bias has two dimensions too
