"""Dropout by a hash, in plain PyTorch: what the kernels are compared with."""

import torch


def hashed_dropout(x, rate, seed):
    """Drop the numbers whose place and `seed` (a scalar, int32) hash to the lowest values.

    The kernels do so themselves (`scones.kernels.norm`).
    """
    place = torch.arange(x.numel(), dtype=torch.int32, device=x.device).view(x.shape)
    lowest_kept = round(rate * 2**32) - 2**31
    return torch.where(_hash(place, seed) >= lowest_kept, x * (1 / (1 - rate)), 0.0)


def _hash(number, seed):
    """Scatter numbers evenly over all 32 bits: multiply and fold, again and again."""
    number = (number ^ seed) * -0x61C88647
    number = (number ^ ((number >> 16) & 0xFFFF)) * -0x7A143595
    return (number ^ ((number >> 13) & 0x7FFFF)) * -0x3D4D51CB
