"""Sentences one behind another: no padding, one row a token, whatever their lengths."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from scones.model.dropout import Dropout
from scones.model.linear import Linear


@dataclass(frozen=True)
class Spans:
    """Where the sentences lie in a tensor of rows."""

    starts: Tensor
    """(B + 1) int32: the first row of each sentence, and the end of the last."""
    longest: int
    """The length of the longest."""

    def within(
        self, x_ND: Tensor, inputs: Linear, heads: int, causal: bool, seed: Tensor, rate: float
    ) -> Tensor:
        """Let every sentence attend to itself; `inputs` makes queries, keys and values.

        Attention weights are dropped at `rate`, by `seed`.
        """
        from scones.kernels.packed_attention import attend_within

        projected_N3HK = inputs.without_bias(x_ND).view(x_ND.size(0), 3, heads, -1)
        return attend_within(
            projected_N3HK, inputs.bias, self.starts, self.longest, causal, seed, rate
        )

    def across(
        self,
        x_ND: Tensor,
        query: Linear,
        memory_MD: Tensor,
        inputs: Linear,
        memory: Spans,
        heads: int,
        seed: Tensor,
        rate: float,
    ) -> Tensor:
        """Let every sentence attend to its own part of a memory; `inputs` makes keys and values."""
        from scones.kernels.packed_attention import attend_across

        return attend_across(
            query.without_bias(x_ND).view(x_ND.size(0), heads, -1),
            inputs.without_bias(memory_MD).view(memory_MD.size(0), 2, heads, -1),
            (query.bias, inputs.bias),
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
