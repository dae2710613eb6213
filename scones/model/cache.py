"""The decoder's memory while it writes: keys and values of what it has seen.

Rows are grouped by sentence: row `sentence * beams + beam`. Keys and values of the source are
kept once a sentence, whatever the number of beams.
"""

from __future__ import annotations

import torch
from torch import Tensor

_CHUNK = 32


class LayerCache:
    """One decoder layer's keys and values."""

    def __init__(self, cross_keys_BHSK: Tensor, cross_values_BHSK: Tensor, beams: int) -> None:
        self.cross_keys = cross_keys_BHSK
        self.cross_values = cross_values_BHSK
        sentences, heads, _, size = cross_keys_BHSK.shape
        self._keys = cross_keys_BHSK.new_empty(sentences * beams, heads, _CHUNK, size)
        self._values = torch.empty_like(self._keys)
        self._length = 0

    def append(self, keys_NH1K: Tensor, values_NH1K: Tensor) -> tuple[Tensor, Tensor]:
        """Add one position a row and give all positions so far."""
        if self._length == self._keys.size(2):
            self._keys = torch.cat([self._keys, torch.empty_like(self._keys)], dim=2)
            self._values = torch.cat([self._values, torch.empty_like(self._values)], dim=2)
        self._keys[:, :, self._length] = keys_NH1K[:, :, 0]
        self._values[:, :, self._length] = values_NH1K[:, :, 0]
        self._length += 1
        return self._keys[:, :, : self._length], self._values[:, :, : self._length]

    def take_rows(self, rows_N: Tensor) -> None:
        """Let row i continue what row rows[i] has seen."""
        self._keys = self._taken(self._keys, rows_N)
        self._values = self._taken(self._values, rows_N)

    def take_sentences(self, sentences_B: Tensor) -> None:
        """Keep only these sentences' source memories."""
        self.cross_keys = self.cross_keys.index_select(0, sentences_B)
        self.cross_values = self.cross_values.index_select(0, sentences_B)

    def _taken(self, buffer_NHTK: Tensor, rows_N: Tensor) -> Tensor:
        _, heads, capacity, size = buffer_NHTK.shape
        taken = buffer_NHTK.new_empty(rows_N.size(0), heads, capacity, size)
        filled = slice(0, self._length)
        taken[:, :, filled] = buffer_NHTK[:, :, filled].index_select(0, rows_N)
        return taken


class DecoderState:
    """All layers' caches of a batch that is being decoded."""

    def __init__(self, layers: list[LayerCache], mask: Tensor | None, beams: int) -> None:
        self.layers = layers
        self.mask = mask
        self.beams = beams
        self.length = 0

    def reorder(self, rows_N: Tensor) -> None:
        """Let row i continue row rows[i] of the same sentence."""
        for layer in self.layers:
            layer.take_rows(rows_N)

    def keep(self, sentences_B: Tensor) -> None:
        """Drop all sentences but these, in this order."""
        offsets_k = torch.arange(self.beams, device=sentences_B.device)
        rows_N = (sentences_B[:, None] * self.beams + offsets_k).flatten()
        for layer in self.layers:
            layer.take_rows(rows_N)
            layer.take_sentences(sentences_B)
        if self.mask is not None:
            self.mask = self.mask.index_select(0, sentences_B)
