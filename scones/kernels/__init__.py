"""Kernels: what PyTorch has no fast operation for, in Triton, each with a plain twin to test it by.

They run on GPUs, and on a CPU under Triton's interpreter (TRITON_INTERPRET=1), which is how the
tests reach them. Everything else in the package asks `scones.hardware.gpu_path` first and has
another way, which SCONES_KERNELS=no makes it take.

Here is only the layout of what they are given, which can be imported where Triton is missing:
sentences one behind another, no padding, one row a token, whatever their lengths.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scones.text import END

IGNORED = -(2**40)
"""The target of a row that does not count."""


@dataclass(frozen=True)
class Spans:
    """Where the sentences lie in a tensor of rows."""

    starts: Tensor
    """(B + 1) int32: the first row of each sentence, and the end of the last."""
    longest: int
    """The length of the longest."""


@dataclass(frozen=True)
class PackedTokens:
    """The tokens of sentences one behind another."""

    ids_N: Tensor
    places_N: Tensor
    """The place of each token in its sentence."""
    spans: Spans

    def to(self, device: torch.device) -> PackedTokens:
        spans = Spans(self.spans.starts.to(device), self.spans.longest)
        return PackedTokens(self.ids_N.to(device), self.places_N.to(device), spans)


def packed_tokens(ids: NDArray[np.integer], lengths: NDArray[np.int64]) -> PackedTokens:
    """Lay out sentences, given one behind another without their ends, each ended."""
    starts = np.concatenate([[0], np.cumsum(lengths + 1)])
    places = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths + 1)
    ended = np.full(starts[-1], END, dtype=np.int64)
    ended[places < np.repeat(lengths, lengths + 1)] = ids
    spans = Spans(torch.from_numpy(starts.astype(np.int32)), int(lengths.max()) + 1)
    return PackedTokens(torch.from_numpy(ended), torch.from_numpy(places), spans)
