"""Matrix products whose sums are kept in float32, whatever their factors are."""

from __future__ import annotations

import torch
from torch import Tensor


def product_into(left: Tensor, right: Tensor, out: Tensor, begins: bool = True) -> Tensor:
    """Put a product into a float32 tensor; where it does not begin there, add it."""
    if left.dtype == torch.float32:
        return out.copy_(left @ right) if begins else out.addmm_(left, right)
    if not left.is_cuda:  # where sums cannot be kept longer than their factors
        return out.copy_(left @ right) if begins else out.add_(left @ right)
    if begins:
        return torch.mm(left, right, out_dtype=torch.float32, out=out)
    return torch.addmm(out, left, right, out_dtype=torch.float32, out=out)
