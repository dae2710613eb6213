"""Dropout, and a cheap source of chance for kernels.

PyTorch's random numbers cost more than all else that a kernel does to a number. Dropout needs far
less than they give: whether a number goes may be read off a hash of its place and of a seed that is
drawn anew for every step.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Noise:
    """The seeds of one step, one for every place in a model where numbers are dropped."""

    def __init__(self) -> None:
        self.sites = 0
        self.seeds_S = torch.zeros(0, dtype=torch.int32)

    def draw(self, device: torch.device) -> None:
        """Draw new seeds from PyTorch's generator of a device."""
        if self.seeds_S.device != device or self.seeds_S.numel() != self.sites:
            self.seeds_S = torch.zeros(self.sites, dtype=torch.int32, device=device)
        self.seeds_S.random_()

    def site(self) -> int:
        """Give a new place its number."""
        self.sites += 1
        return self.sites - 1


class Dropout(nn.Module):
    """Set numbers to 0 at random while training, and scale the others up."""

    def __init__(self, rate: float, noise: Noise) -> None:
        super().__init__()
        self.rate = rate
        self.noise = noise
        self.site = noise.site()

    def chance(self) -> tuple[Tensor, float]:
        """Give this step's seed and the rate at which numbers go, for kernels."""
        return self.noise.seeds_S[self.site], self.rate if self.training else 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Drop numbers."""
        if not self.training or self.rate == 0:
            return x
        return functional.dropout(x, self.rate)


def hashed_dropout(x: Tensor, rate: float, seed: Tensor) -> Tensor:
    """Drop the numbers whose place and `seed` (a scalar, int32) hash to the lowest values.

    The kernels do so themselves (`scones.kernels.dropping`); this is their twin.
    """
    place = torch.arange(x.numel(), dtype=torch.int32, device=x.device).view(x.shape)
    lowest_kept = round(rate * 2**32) - 2**31
    return torch.where(_hash(place, seed) >= lowest_kept, x * (1 / (1 - rate)), 0.0)


def _hash(number: Tensor, seed: Tensor) -> Tensor:
    """Scatter numbers evenly over all 32 bits: multiply and fold, again and again."""
    number = (number ^ seed) * -0x61C88647
    number = (number ^ ((number >> 16) & 0xFFFF)) * -0x7A143595
    return (number ^ ((number >> 13) & 0x7FFFF)) * -0x3D4D51CB
