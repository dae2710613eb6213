"""The decoder's memory while it writes: keys and values of what it has seen.

Rows are grouped by sentence: row `sentence * beams + beam`. Keys and values of the source are
kept once a sentence, whatever the number of beams.

Shape letters: B sentences, N rows (sentences × beams), S source positions, T target positions,
D model size, H heads, K size of a head.
"""

from __future__ import annotations

import torch
from torch import Tensor

_CHUNK = 32
_SPARE = 8


class LayerCache:
    """One decoder layer's keys and values."""

    def __init__(self, cross_keys_BHSK: Tensor, cross_values_BHSK: Tensor, beams: int) -> None:
        self.cross_keys = cross_keys_BHSK
        self.cross_values = cross_values_BHSK
        sentences, heads, _, size = cross_keys_BHSK.shape
        self._keys = cross_keys_BHSK.new_empty(sentences * beams, heads, _CHUNK, size)
        self._values = torch.empty_like(self._keys)
        self.length = 0

    def append(self, keys_NH1K: Tensor, values_NH1K: Tensor) -> tuple[Tensor, Tensor]:
        """Add one position per row and give all positions so far."""
        if self.length == self._keys.size(2):
            # Twice the room: what is copied for growing stays a fraction of what is written.
            self._keys = torch.cat([self._keys, torch.empty_like(self._keys)], dim=2)
            self._values = torch.cat([self._values, torch.empty_like(self._values)], dim=2)
        self._keys[:, :, self.length] = keys_NH1K[:, :, 0]
        self._values[:, :, self.length] = values_NH1K[:, :, 0]
        self.length += 1
        return self._keys[:, :, : self.length], self._values[:, :, : self.length]

    def take_rows(self, rows_N: Tensor) -> None:
        """Let row i continue what row rows[i] has seen."""
        self._keys = self._taken(self._keys, rows_N)
        self._values = self._taken(self._values, rows_N)

    def take_sentences(self, sentences_B: Tensor) -> None:
        """Keep only these sentences' source memories."""
        self.cross_keys = self.cross_keys.index_select(0, sentences_B)
        self.cross_values = self.cross_values.index_select(0, sentences_B)

    def _taken(self, buffer_NHTK: Tensor, rows_N: Tensor) -> Tensor:
        # With room for a few positions more; it is cheaper to copy than to make afterwards.
        return buffer_NHTK[:, :, : self.length + _SPARE].index_select(0, rows_N)


class DecoderState:
    """All layers' caches of a batch whose sentences are decoded in step."""

    def __init__(self, layers: list[LayerCache], mask: Tensor | None, beams: int) -> None:
        self.layers = layers
        self.mask = mask
        """What is added to the scores of source positions, -inf at padding; None: no padding."""
        self.beams = beams

    @property
    def length(self) -> int:
        """How many positions are written."""
        return self.layers[0].length

    @property
    def sentences(self) -> int:
        """How many sentences are left."""
        return self.layers[0].cross_keys.size(0)

    @property
    def rows(self) -> int:
        return self.sentences * self.beams

    def reorder(self, rows_N: Tensor) -> None:
        """Let row i continue row rows[i] of the same sentence."""
        # The source's keys and values stay: rows of a sentence share them.
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


class JoinedState:
    """Batches that are decoded together, each as far as it has come; at first there is one.

    Batches join so that a step always has many rows: when only the last sentences of one are still
    being written, those of the next fill up the products (`scones.search.greedy.greedy_stream`).
    They cannot become one batch, since their sources differ in length and their past in positions.
    """

    def __init__(self, parts: list[DecoderState]) -> None:
        self.parts = parts

    def join(self, other: JoinedState) -> None:
        """Take in another state's sentences, behind those that are here."""
        self.parts += other.parts

    @property
    def sizes(self) -> list[int]:
        """The rows of each batch."""
        return [part.rows for part in self.parts]

    @property
    def layers(self) -> list[LayerCache]:
        """The caches of a state that is a single batch."""
        (part,) = self.parts
        return part.layers

    def embed_positions(self, table_TD: Tensor) -> Tensor:
        """Look up (N, D) the position that each row is to write next."""
        return torch.cat([table_TD[part.length].expand(part.rows, -1) for part in self.parts])

    def reorder(self, rows_N: Tensor) -> None:
        """Let row i continue row rows[i] of the same sentence."""
        begin = 0
        for part, rows in zip(self.parts, rows_N.split(self.sizes), strict=True):
            part.reorder(rows - begin)
            begin += part.rows

    def keep(self, sentences_B: Tensor) -> None:
        """Drop all sentences but these, which come in ascending order."""
        begin, staying = 0, []
        for part in self.parts:
            end = begin + part.sentences
            inside = sentences_B[(begin <= sentences_B) & (sentences_B < end)] - begin
            # Where all stay there is nothing to copy.
            if 0 < inside.numel() < part.sentences:
                part.keep(inside)
            if inside.numel() > 0:
                staying.append(part)
            begin = end
        self.parts = staying
