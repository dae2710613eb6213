"""The decoder's memory while it writes: keys and values of what it has seen.

Rows are grouped by sentence: row `sentence * beams + beam`. Keys and values of the source are
kept once a sentence, whatever the number of beams.

Shape letters: B sentences, N rows (sentences × beams), k beams, G histories of r rows each, L
entries, S source positions, T target positions, D model size, H heads, K size of a head.
"""

from __future__ import annotations

import torch
from torch import Tensor

_CHUNK = 32
_SPARE = 8
_MOST_SHARING = 16
"""Beams up to which the rows of a sentence share a history."""


class LayerCache:
    """One decoder layer's keys and values: those of the source, and histories of entries.

    An entry is what one row has seen at one position.
    """

    def __init__(self, cross_keys_BHSK: Tensor, cross_values_BHSK: Tensor) -> None:
        self.cross_keys = cross_keys_BHSK
        self.cross_values = cross_values_BHSK
        self._keys = self._values = cross_keys_BHSK[:0]

    def open(self, histories: int, room: int) -> None:
        """Make histories (G) with room for so many entries (L)."""
        _, heads, _, size = self.cross_keys.shape
        self._keys = self.cross_keys.new_empty(histories, heads, room, size)
        self._values = torch.empty_like(self._keys)

    def write(
        self, keys_GHrK: Tensor, values_GHrK: Tensor, begin: int, end: int
    ) -> tuple[Tensor, Tensor]:
        """Write entries of every history from `begin` to `end`, and give all up to there."""
        self._keys[:, :, begin:end] = keys_GHrK
        self._values[:, :, begin:end] = values_GHrK
        return self._keys[:, :, :end], self._values[:, :, :end]

    def grow(self) -> None:
        # Twice the room: what is copied for growing stays a fraction of what is written.
        self._keys = torch.cat([self._keys, torch.empty_like(self._keys)], dim=2)
        self._values = torch.cat([self._values, torch.empty_like(self._values)], dim=2)

    def take_histories(self, histories_G: Tensor, room: int) -> None:
        """Let history i go on from what history `histories[i]` was."""
        self._keys = self._keys[:, :, :room].index_select(0, histories_G)
        self._values = self._values[:, :, :room].index_select(0, histories_G)

    def take_entries(self, entries_GL: Tensor, room: int) -> None:
        """Keep these entries of each history alone, with this room for them and more."""
        histories, heads, before, size = self._keys.shape
        begins_GH = torch.arange(0, histories * heads * before, before, device=entries_GL.device)
        rows = (begins_GH.view(histories, heads, 1) + entries_GL.unsqueeze(1)).flatten()
        keys, values = (
            old.reshape(-1, size).index_select(0, rows).view(histories, heads, -1, size)
            for old in (self._keys, self._values)
        )
        self.open(histories, room)
        self.write(keys, values, 0, entries_GL.size(1))

    def take_sentences(self, sentences_B: Tensor) -> None:
        """Keep only these sentences' source memories."""
        self.cross_keys = self.cross_keys.index_select(0, sentences_B)
        self.cross_values = self.cross_values.index_select(0, sentences_B)


class DecoderState:
    """All layers' caches of a batch whose sentences are decoded in step.

    The rows of a sentence share one history. When row i continues row j, nothing is copied: it
    sees, from then on, the entries that row j saw. Entries that no row sees any more are swept out
    now and then: beams differ in their last words, so that few are left. Where there are many
    beams, every row has a history of its own, which is copied.
    """

    def __init__(self, layers: list[LayerCache], mask: Tensor | None, beams: int) -> None:
        self.layers = layers
        self.mask = mask
        """What is added to the scores of source positions, -inf at padding; None: no padding."""
        self.beams = beams
        self.sharing = beams if beams <= _MOST_SHARING else 1
        """How many rows share a history."""
        self.length = 0
        """How many positions are written."""
        self.used = 0
        """How many entries each history holds."""
        self._room = _CHUNK if self.sharing == 1 else _SPARE * beams
        for layer in layers:
            layer.open(self.rows // self.sharing, self._room)
        # What is added to the scores of entries, -inf where a row does not see one.
        self._seen_NL = None if self.sharing == 1 else self._own(_SPARE)

    def _own(self, positions: int) -> Tensor:
        """What rows see of the entries that they themselves will write."""
        blind_kk = self.layers[0].cross_keys.new_full((self.beams, self.beams), float("-inf"))
        return blind_kk.fill_diagonal_(0).repeat(self.sentences, positions)

    @property
    def sentences(self) -> int:
        """How many sentences are left."""
        return self.layers[0].cross_keys.size(0)

    @property
    def rows(self) -> int:
        return self.sentences * self.beams

    def advance(self) -> None:
        """Begin a position: every layer will write an entry for each row."""
        if self.used + self.sharing > self._room:
            self._make_room()
        self.used += self.sharing
        self.length += 1

    def _make_room(self) -> None:
        if self._seen_NL is None:
            self._room *= 2
            for layer in self.layers:
                layer.grow()
            return
        seen_BkL = self._seen_NL[:, : self.used].unflatten(0, (-1, self.beams))
        live_BL = (seen_BkL == 0).any(dim=1)
        self.used = int(live_BL.sum(dim=1).max())
        entries_BL = live_BL.int().argsort(dim=1, descending=True, stable=True)[:, : self.used]
        seen_BkL = seen_BkL.gather(2, entries_BL.unsqueeze(1).expand(-1, self.beams, -1))
        self._seen_NL = torch.cat([seen_BkL.flatten(0, 1), self._own(_SPARE)], dim=1)
        self._room = self._seen_NL.size(1)
        for layer in self.layers:
            layer.take_entries(entries_BL, self._room)

    def write(self, layer: int, keys_GHrK: Tensor, values_GHrK: Tensor) -> tuple[Tensor, Tensor]:
        """Write the entries of this position, and give those of all."""
        begin = self.used - self.sharing
        return self.layers[layer].write(keys_GHrK, values_GHrK, begin, self.used)

    @property
    def seen(self) -> Tensor | None:
        """What is added to the scores of entries (B, 1, beams, L); None: all are seen."""
        if self._seen_NL is None:
            return None
        return self._seen_NL[:, : self.used].view(self.sentences, 1, self.beams, -1)

    def reorder(self, rows_N: Tensor) -> None:
        """Let row i continue row rows[i] of the same sentence."""
        # The source's keys and values stay: rows of a sentence share them.
        if self._seen_NL is None:
            self._take(rows_N)
        else:
            self._seen_NL[:, : self.used] = self._seen_NL[:, : self.used].index_select(0, rows_N)

    def keep(self, sentences_B: Tensor) -> None:
        """Drop all sentences but these, in this order."""
        offsets_k = torch.arange(self.beams, device=sentences_B.device)
        rows_N = (sentences_B[:, None] * self.beams + offsets_k).flatten()
        if self._seen_NL is None:
            self._take(rows_N)
        else:
            self._take(sentences_B)
            self._seen_NL = self._seen_NL.index_select(0, rows_N)
        for layer in self.layers:
            layer.take_sentences(sentences_B)
        if self.mask is not None:
            self.mask = self.mask.index_select(0, sentences_B)

    def _take(self, histories_G: Tensor) -> None:
        if self.sharing == 1:
            # With room for a few positions more; it is cheaper to copy than to make afterwards.
            self._room = min(self._room, self.used + _SPARE)
        for layer in self.layers:
            layer.take_histories(histories_G, self._room)


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

    def advance(self, table_TD: Tensor) -> Tensor:
        """Begin a position, and look up (N, D) which it is for each row."""
        positions = [table_TD[part.length].expand(part.rows, -1) for part in self.parts]
        for part in self.parts:
            part.advance()
        return joined(positions)

    def reorder(self, rows_N: Tensor) -> None:
        """Let row i continue row rows[i] of the same sentence."""
        if len(self.parts) == 1:
            self.parts[0].reorder(rows_N)
            return
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


def joined(parts: list[Tensor]) -> Tensor:
    """Tensors in one; a single one as it is, without a copy."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)
