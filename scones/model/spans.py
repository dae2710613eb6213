"""Sentences one behind another: no padding, one row a token, whatever their lengths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scones.text import END

if TYPE_CHECKING:
    from scones.model.transformer import Dropout


@dataclass(frozen=True)
class Spans:
    """Where the sentences lie in a tensor of rows."""

    starts: Tensor
    """(B + 1) int32: the first row of each sentence, and the end of the last."""
    longest: int
    """The length of the longest."""

    def within(
        self, projected_NX: Tensor, heads: int, causal: bool, seed: Tensor, rate: float
    ) -> Tensor:
        """Let every sentence attend to itself; the rows hold queries, keys and values.

        Attention weights are dropped at `rate`, by `seed`.
        """
        from scones.kernels.attention import attend_within

        projected_N3HK = projected_NX.view(projected_NX.size(0), 3, heads, -1)
        return attend_within(projected_N3HK, self.starts, self.longest, causal, seed, rate)

    def across(
        self,
        queries_ND: Tensor,
        memory_MX: Tensor,
        memory: Spans,
        heads: int,
        seed: Tensor,
        rate: float,
    ) -> Tensor:
        """Let every sentence attend to its own part of a memory of keys and values."""
        from scones.kernels.attention import attend_across

        return attend_across(
            queries_ND.view(queries_ND.size(0), heads, -1),
            memory_MX.view(memory_MX.size(0), 2, heads, -1),
            (self.starts, memory.starts),
            (self.longest, memory.longest),
            seed,
            rate,
        )


@dataclass(frozen=True)
class PackedTokens:
    """The tokens of sentences one behind another."""

    ids_N: Tensor
    places_N: Tensor
    """The place of each token in its sentence."""
    spans: Spans

    def embedded(self, table_VD: Tensor, positions_TD: Tensor, dropout: Dropout) -> Tensor:
        """Give the embeddings (N, D) of tokens and places, in autocast's number format."""
        from scones.kernels.embedding import embed

        kind = table_VD.device.type
        autocast = torch.is_autocast_enabled(kind)
        precision = torch.get_autocast_dtype(kind) if autocast else table_VD.dtype
        numbers = (self.ids_N, self.places_N)
        return embed(table_VD, positions_TD, *numbers, precision, *dropout.chance())

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
