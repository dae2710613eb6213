"""The stream through a stack of layers: what every block reads, normed, and adds to."""

from __future__ import annotations

from torch import Tensor, nn

from scones.model.dropout import Dropout


class Stream:
    """A sum to which blocks add; the last addition waits for the next norm.

    On a GPU both are done in one pass (`fused`), for which the sum has to be rows (N, D).
    """

    def __init__(self, x: Tensor, fused: bool) -> None:
        self._x = x
        self._fused = fused
        self._waiting: tuple[Tensor, Dropout] | None = None

    def add(self, what: Tensor, dropout: Dropout) -> None:
        """Add what a block made, with dropout."""
        self._waiting = what, dropout

    def normed(self, norm: nn.LayerNorm) -> Tensor:
        """Give the norm of the sum."""
        if self._waiting is None:
            normed: Tensor = norm(self._x)
            return normed
        (added, dropout), self._waiting = self._waiting, None
        if not self._fused:
            self._x = self._x + dropout(added)
            return norm(self._x)
        from scones.kernels.norm import add_and_norm

        seed, rate = dropout.chance()
        self._x, normed = add_and_norm(self._x, added, norm.weight, norm.bias, norm.eps, seed, rate)
        return normed
