"""A linear layer that takes its kernels where it finds rows on a device that has them."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from scones.kernels import usable


class Linear(nn.Linear):
    """PyTorch's layer, with a faster way for rows (N, D) on a GPU."""

    def forward(self, x: Tensor) -> Tensor:
        """Multiply and add the bias."""
        return self._fast(x) if _has_kernels(x) else super().forward(x)

    def relu(self, x: Tensor) -> Tensor:
        """Do the same, and cut what is negative."""
        return self._fast(x, relu=True) if _has_kernels(x) else functional.relu(super().forward(x))

    def without_bias(self, x: Tensor) -> Tensor:
        """Multiply only."""
        if not _has_kernels(x):
            return functional.linear(x, self.weight)
        from scones.kernels.linear import linear

        return linear(x, self.weight, None)

    def _fast(self, x: Tensor, relu: bool = False) -> Tensor:
        from scones.kernels.linear import linear

        return linear(x, self.weight, self.bias, relu)


def _has_kernels(x: Tensor) -> bool:
    return x.ndim == 2 and usable(x.device)
