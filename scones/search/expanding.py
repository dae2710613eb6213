"""Models as exact search needs them: keys and values of every prefix once, in rows of a pool.

A prefix reads those of the prefixes before it where they lie. On a GPU the attention kernels follow
its path through the pool; on a CPU the rows are gathered for the moment of attending.

Shape letters: P rows of the pool, R prefixes expanded together, T positions, B sources, S their
positions, D model size, H heads, K size of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from scones.model.packing import packed
from scones.model.transformer import Attention, DecoderLayer, Transformer, source_mask
from scones.search.engine import batches_by_length, padded
from scones.search.exact import Expander

if TYPE_CHECKING:
    from scones.model.gpu import Sources

_ENCODED_TOGETHER = 4096


def expander_for(model: Transformer, precision: torch.dtype) -> Expander:
    """Give a model as exact search needs it; kernels compute in a number format of their own."""
    return PooledInference(model, precision) if model.has_kernels else PooledTransformer(model)


class PooledTransformer:
    """A Transformer, on a CPU or wherever there are no kernels."""

    def __init__(self, model: Transformer) -> None:
        self._model = packed(model)
        self.device = model.device
        self.precision = model.output_bias.dtype
        config = model.config
        self.vocabulary = config.vocabulary
        self._heads = config.heads
        self._layers = list(self._model.decoder_layers())
        self._number = 2 * config.size * len(self._layers) * self.precision.itemsize
        self._pools_P2D: list[Tensor] = []
        self._memories_S2D: list[Tensor] = []
        self._spans: list[slice] = []
        """Where each source lies in them."""

    @property
    def bytes_a_row(self) -> int:
        """The memory that keys and values of a prefix take."""
        return self._number

    def bytes_a_source(self, length: int) -> int:
        """Give the memory that a source takes."""
        return self._number * length

    @torch.inference_mode()
    def open(self, sources: Sequence[Sequence[int]], rows: int) -> None:
        """Encode sentences and make room for so many prefixes."""
        width = 2 * self._model.config.size
        new = self._model.output_bias.new_empty
        self._pools_P2D, self._memories_S2D = [], []  # before anything new takes their place
        self._pools_P2D = [new(rows, width) for _ in self._layers]
        lengths = [len(source) + 1 for source in sources]
        starts = [0, *accumulate(lengths)]
        self._spans = [slice(*span) for span in pairwise(starts)]
        self._memories_S2D = [new(starts[-1], width) for _ in self._layers]
        for batch in batches_by_length(lengths, _ENCODED_TOGETHER):
            source_BS = padded([sources[index] for index in batch], self.device)
            memory_BSD = self._model.encode(source_BS, source_mask(source_BS))
            for layer, place in zip(self._layers, self._memories_S2D, strict=True):
                for index, projected_S2D in zip(batch, layer.cross.inputs(memory_BSD), strict=True):
                    place[self._spans[index]] = projected_S2D[: lengths[index]]

    def expand(
        self, tokens_R: Tensor, paths_RT: Tensor, depths_R: Tensor, sentences_R: Tensor
    ) -> Tensor:
        """Feed a token to each prefix and give the logits (R, V) of the next."""
        model = self._model
        x_RD = model.embed_target(tokens_R) + model.positions[depths_R]
        rows_R = paths_RT.gather(1, depths_R.long().unsqueeze(1)).squeeze(1)
        places_T = torch.arange(paths_RT.size(1), device=self.device)
        real_RT = places_T <= depths_R.unsqueeze(1)
        paths_RT = paths_RT.masked_fill(~real_RT, 0)
        # Those that share a source attend together; which, is the same in every layer.
        order_R = sentences_R.argsort(stable=True)
        groups = sentences_R[order_R].unique_consecutive(return_counts=True)
        sources, counts = (numbers.tolist() for numbers in groups)
        for layer, pool, memory in zip(
            self._layers, self._pools_P2D, self._memories_S2D, strict=True
        ):
            projected_R3D = layer.attention.inputs(layer.attention_norm(x_RD))
            queries_RD, new_R2D = projected_R3D.split((x_RD.size(1), 2 * x_RD.size(1)), dim=1)
            pool[rows_R] = new_R2D
            past = pool[paths_RT].unflatten(2, (2, self._heads, -1)).permute(2, 0, 3, 1, 4)
            mixed_RD = self._attend(queries_RD, past[0], past[1], real_RT[:, None, None, :])
            x_RD = x_RD + layer.attention.output(mixed_RD)
            x_RD = x_RD + self._cross(layer, x_RD, memory, order_R, sources, counts)
            x_RD = x_RD + layer.feed_forward(layer.feed_forward_norm(x_RD))
        return model.logits(model.decoder_norm(x_RD))

    def _cross(
        self,
        layer: DecoderLayer,
        x_RD: Tensor,
        memory_S2D: Tensor,
        order_R: Tensor,
        sources: list[int],
        counts: list[int],
    ) -> Tensor:
        cross: Attention = layer.cross
        assert cross.query is not None
        queries_RD = cross.query(layer.cross_norm(x_RD))[order_R]
        mixed = torch.empty_like(queries_RD)
        mixed[order_R] = torch.cat(
            [
                self._attend_together(queries, memory_S2D[self._spans[source]])
                for source, queries in zip(sources, queries_RD.split(counts), strict=True)
            ]
        )
        output: Tensor = cross.output(mixed)
        return output

    def _attend_together(self, queries_rD: Tensor, memory_s2D: Tensor) -> Tensor:
        """Let prefixes of one sentence attend to its source."""
        queries_HrK = queries_rD.unflatten(1, (self._heads, -1)).transpose(0, 1)
        keys_HsK, values_HsK = memory_s2D.unflatten(1, (2, self._heads, -1)).permute(1, 2, 0, 3)
        mixed_HrK = functional.scaled_dot_product_attention(
            queries_HrK[None], keys_HsK[None], values_HsK[None]
        )[0]
        return mixed_HrK.transpose(0, 1).flatten(1)

    def _attend(
        self, queries_RD: Tensor, keys_RHTK: Tensor, values_RHTK: Tensor, seen: Tensor
    ) -> Tensor:
        """Let every prefix attend to its own past."""
        queries_RH1K = queries_RD.unflatten(1, (self._heads, 1, -1))
        mixed_RH1K = functional.scaled_dot_product_attention(
            queries_RH1K, keys_RHTK, values_RHTK, attn_mask=seen
        )
        return mixed_RH1K.flatten(1)


class PooledInference:
    """A Transformer on a GPU: attention follows each prefix' path through the pool."""

    def __init__(self, model: Transformer, precision: torch.dtype) -> None:
        from scones.model.gpu import Inference

        self._model = Inference(model, precision)
        self.device = model.device
        self.precision = precision
        config = model.config
        self.vocabulary = config.vocabulary
        self._layers, self._width = config.decoder_layers, 2 * config.size
        self._pools_P12D: list[Tensor] = []
        self._sources: Sources | None = None

    @property
    def bytes_a_row(self) -> int:
        """The memory that keys and values of a prefix take."""
        return self._width * self._layers * self.precision.itemsize

    def bytes_a_source(self, length: int) -> int:
        """Give the memory that a source takes."""
        return self.bytes_a_row * length

    @torch.inference_mode()
    def open(self, sources: Sequence[Sequence[int]], rows: int) -> None:
        """Encode sentences and make room for so many prefixes."""
        from scones.model.gpu import Sources
        from scones.search.gpu import ENCODED_TOGETHER, packed_sources, runs_of

        lengths = [len(source) + 1 for source in sources]
        starts = [0, *accumulate(lengths)]
        self._pools_P12D, self._sources = [], None  # before anything new takes its place
        self._pools_P12D = [self._empty(rows, 1) for _ in range(self._layers)]
        memories = [self._empty(starts[-1]) for _ in range(self._layers)]
        # To encode a token takes about as much memory as a prefix.
        for first, last in runs_of(lengths, min(ENCODED_TOGETHER, rows)):
            part = slice(starts[first], starts[last])
            tokens = packed_sources(sources[first:last], lengths[first:last], self.device)
            self._model.encode(tokens, [memory[part] for memory in memories])
        starts_N, lengths_N = (
            torch.tensor(numbers, dtype=torch.int32, device=self.device)
            for numbers in (starts[:-1], lengths)
        )
        self._sources = Sources(memories, starts_N, lengths_N)

    def expand(
        self, tokens_R: Tensor, paths_RT: Tensor, depths_R: Tensor, sentences_R: Tensor
    ) -> Tensor:
        """Feed a token to each prefix and give the logits (R, V) of the next."""
        from scones.model.gpu import Rows

        assert self._sources is not None
        # The kernels look for position t of owner o in row o + t, as pools have one position a row.
        owners_RT = paths_RT - torch.arange(paths_RT.size(1), dtype=torch.int32, device=self.device)
        rows = Rows(depths_R.long(), sentences_R, self._pools_P12D, owners_RT)
        return self._model.step(tokens_R, rows, self._sources)

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(*shape, self._width, dtype=self.precision, device=self.device)
