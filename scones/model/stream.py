"""The stream through a stack of layers: what every block reads, normed, and adds to."""

from __future__ import annotations

from torch import Tensor, nn

from scones.model.dropout import Dropout
from scones.model.linear import Linear

Waiting = tuple[Tensor, Linear, Dropout]


class Stream:
    """A sum to which blocks add; the last addition waits for the next norm.

    On a GPU both are done in one pass (`fused`), for which the sum has to be rows (N, D).
    """

    def __init__(self, x: Tensor, fused: bool) -> None:
        self._x = x
        self._fused = fused
        self._waiting: Waiting | None = None

    def add(self, made: Tensor, output: Linear, dropout: Dropout) -> None:
        """Add what a block made, sent through its output layer and dropout."""
        self._waiting = made, output, dropout

    def normed(self, norm: nn.LayerNorm) -> Tensor:
        """Give the norm of the sum."""
        waiting, self._waiting = self._waiting, None
        if self._fused:
            return self._normed_by_kernels(norm, waiting)
        if waiting is not None:
            made, output, dropout = waiting
            self._x = self._x + dropout(output(made))
        normed: Tensor = norm(self._x)
        return normed

    def _normed_by_kernels(self, norm: nn.LayerNorm, waiting: Waiting | None) -> Tensor:
        from scones.kernels import norm as kernels

        if waiting is None:
            self._x, normed = kernels.norm(self._x, norm.weight, norm.bias, norm.eps)
            return normed
        made, output, dropout = waiting
        vectors = (output.bias, norm.weight, norm.bias)
        self._x, normed = kernels.add_and_norm(
            self._x, output.without_bias(made), *vectors, norm.eps, *dropout.chance()
        )
        return normed
