"""A Transformer for translating on a GPU: the same weights, as few launches a step as can be.

Matrices are kept in the number format of the products; what is added up, the stream through the
layers, stays in float32. Rows are independent: each has its own position in its own sentence.

Shape letters: R rows, N packed source tokens, S source tokens of a pool, T positions of a cache,
D model size, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from scones.kernels import PackedTokens, Spans
from scones.kernels import norm as norm_kernels
from scones.kernels.attention import attend, attend_across, attend_within
from scones.kernels.decoding import add_and_norm, attend_back, attend_source
from scones.kernels.embedding import embed
from scones.kernels.linear import linear
from scones.model.transformer import (
    Attention,
    Dropout,
    EncoderLayer,
    FeedForward,
    Linear,
    Stream,
    Transformer,
)

# Training without padding: what the blocks of `scones.model.transformer` are handed on a GPU.


def forward_packed(model: Transformer, source: PackedTokens, target: PackedTokens) -> Tensor:
    """Give the hidden states (N, D) of sentences without padding."""
    x_MD = _embedded(source, model.embedding.weight, model.positions, model.source_dropout)
    memory_MD = model.run_encoder(FusedStream(x_MD), PackedSource(source.spans))
    x_ND = _embedded(target, model.target_table.weight, model.positions, model.target_dropout)
    attend = PackedTarget(target.spans, memory_MD, source.spans)
    return model.run_decoder(FusedStream(x_ND), attend)


def _embedded(
    tokens: PackedTokens, table_VD: Tensor, positions_TD: Tensor, dropout: Dropout
) -> Tensor:
    """Give the embeddings (N, D) of tokens and places, in autocast's number format."""
    kind = table_VD.device.type
    autocast = torch.is_autocast_enabled(kind)
    precision = torch.get_autocast_dtype(kind) if autocast else table_VD.dtype
    numbers = (tokens.ids_N, tokens.places_N)
    return embed(table_VD, positions_TD, *numbers, precision, *dropout.chance())


class FusedStream(Stream):
    """Bias, dropout, addition and norm in one pass over rows (N, D)."""

    def normed(self, norm: nn.LayerNorm) -> Tensor:
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            self._x, normed = norm_kernels.norm(self._x, norm.weight, norm.bias, norm.eps)
            return normed
        made, output, dropout = waiting
        vectors = (output.bias, norm.weight, norm.bias)
        self._x, normed = norm_kernels.add_and_norm(
            self._x, linear(made, output.weight, None), *vectors, norm.eps, *dropout.chance()
        )
        return normed

    def activated(self, inner: Linear, x: Tensor) -> Tensor:
        return linear(x, inner.weight, inner.bias, relu=True)


class PackedSource:
    """Source sentences one behind another, each of which attends to itself."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans

    def itself(self, attention: Attention, x_MD: Tensor) -> Tensor:
        return _attend_within(attention, x_MD, self._spans, causal=False)


class PackedTarget:
    """Target sentences one behind another, each of which attends to its past and its source."""

    def __init__(self, spans: Spans, memory_MD: Tensor, memory_spans: Spans) -> None:
        self._spans = spans
        self._memory = memory_MD
        self._memory_spans = memory_spans

    def itself(self, attention: Attention, x_ND: Tensor) -> Tensor:
        return _attend_within(attention, x_ND, self._spans, causal=True)

    def source(self, attention: Attention, x_ND: Tensor) -> Tensor:
        assert attention.query is not None
        queries_ND = _project(attention.query, x_ND)
        memory_MX = _project(attention.inputs, self._memory)
        spans, memory_spans = self._spans, self._memory_spans
        return attend_across(
            queries_ND.view(queries_ND.size(0), attention.heads, -1),
            memory_MX.view(memory_MX.size(0), 2, attention.heads, -1),
            (spans.starts, memory_spans.starts),
            (spans.longest, memory_spans.longest),
            *attention.chance(),
        )


def _attend_within(attention: Attention, x_ND: Tensor, spans: Spans, causal: bool) -> Tensor:
    projected_NX = _project(attention.inputs, x_ND)
    projected_N3HK = projected_NX.view(projected_NX.size(0), 3, attention.heads, -1)
    return attend_within(projected_N3HK, spans.starts, spans.longest, causal, *attention.chance())


def _project(layer: Linear, x_ND: Tensor) -> Tensor:
    return linear(x_ND, layer.weight, layer.bias)


# Translating.


@dataclass(frozen=True)
class Sources:
    """A pool of encoded sentences: keys and values of all, one sentence behind another."""

    layers_S2D: list[Tensor]
    """For each decoder layer."""
    starts_N: Tensor
    """Where each sentence begins."""
    lengths_N: Tensor


@dataclass(frozen=True)
class Rows:
    """What a step needs to know of its rows."""

    positions_R: Tensor
    sentences_A: Tensor
    """The sentence that each R / A rows in turn translate."""
    caches_RT2D: list[Tensor]
    """For each decoder layer, keys and values of what was written."""
    owners_RT: Tensor | None
    """In which row of the cache a row finds each of its positions, and puts the newest; None: in
    its own."""


class Inference:
    """The weights of a Transformer, laid out for translating."""

    def __init__(self, model: Transformer, precision: torch.dtype) -> None:
        self.config = model.config
        self.precision = precision
        self.heads = model.config.heads
        self.device = model.device
        self.encoder = [
            _EncoderLayer(
                _Norm(layer.attention_norm),
                _SelfAttention.of(layer.attention, precision),
                _Norm(layer.feed_forward_norm),
                _FeedForward.of(layer.feed_forward, precision),
            )
            for layer in cast("list[EncoderLayer]", list(model.encoder))
        ]
        self.encoder_norm = _Norm(model.encoder_norm)
        self.decoder = [
            _DecoderLayer(
                _Norm(layer.attention_norm),
                _SelfAttention.of(layer.attention, precision),
                _Norm(layer.cross_norm),
                _CrossAttention.of(layer.cross, precision),
                _Norm(layer.feed_forward_norm),
                _FeedForward.of(layer.feed_forward, precision),
            )
            for layer in model.decoder_layers()
        ]
        self.decoder_norm = _Norm(model.decoder_norm)
        self.source_table = model.embedding.weight.detach()
        tied = model.config.tied_embeddings
        self.target_table = self.source_table if tied else model.target_embedding.weight.detach()
        self.head = _Head(model.output_weight.detach(), model.output_bias.detach(), precision)
        self.positions = model.positions

    def encode(self, source: PackedTokens, layers_N2D: list[Tensor]) -> None:
        """Write the keys and values of sentences, for every decoder layer."""
        x_ND = self._embed(self.source_table, source.ids_N, source.places_N)
        spans, addend = source.spans, None
        for layer in self.encoder:
            projected = layer.attention.inputs(self._norm(x_ND, addend, layer.attention_norm))
            queries, keys, values = projected.view(len(projected), 3, self.heads, -1).unbind(1)
            mixed, _ = attend(
                queries, keys, values, spans.starts, spans.starts, spans.longest, spans.longest,
                causal=False, seed=spans.starts, rate=0.0,
            )  # fmt: skip
            layer.attention.output.add_to(x_ND, mixed)
            normed = self._norm(x_ND, layer.attention.output.bias, layer.feed_forward_norm)
            layer.feed_forward.add_to(x_ND, normed)
            addend = layer.feed_forward.outer.bias
        memory = self._norm(x_ND, addend, self.encoder_norm)
        for reader, place in zip(self.decoder, layers_N2D, strict=True):
            reader.cross.memory(memory, out=place)

    def step(self, tokens_R: Tensor, rows: Rows, sources: Sources) -> Tensor:
        """Feed one token a row and give the logits (R, V), in float32, of the next."""
        x_RD = self._embed(self.target_table, tokens_R, rows.positions_R)
        addend = None
        for layer, cache, memory in zip(
            self.decoder, rows.caches_RT2D, sources.layers_S2D, strict=True
        ):
            projected = layer.attention.inputs(self._norm(x_RD, addend, layer.attention_norm))
            mixed = attend_back(projected, cache, rows.positions_R, rows.owners_RT, self.heads)
            layer.attention.output.add_to(x_RD, mixed)
            normed = self._norm(x_RD, layer.attention.output.bias, layer.cross_norm)
            queries = layer.cross.query(normed)
            mixed = attend_source(
                queries, memory, sources.starts_N, sources.lengths_N, rows.sentences_A, self.heads
            )
            layer.cross.output.add_to(x_RD, mixed)
            normed = self._norm(x_RD, layer.cross.output.bias, layer.feed_forward_norm)
            layer.feed_forward.add_to(x_RD, normed)
            addend = layer.feed_forward.outer.bias
        hidden = self.head.space(len(tokens_R))
        self._norm(x_RD, addend, self.decoder_norm, hidden)
        return self.head(hidden)

    def _embed(self, table_VD: Tensor, ids_N: Tensor, places_N: Tensor) -> Tensor:
        embedded = table_VD.index_select(0, ids_N).float()
        scale = math.sqrt(self.config.size)
        return torch.add(self.positions.index_select(0, places_N), embedded, alpha=scale)

    def _norm(
        self, x_RD: Tensor, addend_D: Tensor | None, norm: _Norm, out: Tensor | None = None
    ) -> Tensor:
        if out is None:
            out = torch.empty_like(x_RD, dtype=self.precision)
        return add_and_norm(x_RD, addend_D, norm.scale, norm.shift, norm.epsilon, out)


class _Head:
    """The output matrix with its bias as further columns, which a 1 in the hidden state picks.

    Adding the bias to the logits themselves would take as long as half the product. One column in
    bf16 would be too coarse; three, each for what the one before leaves over, hold all digits.
    """

    _COLUMNS = 8  # of which the rest are zeros: products want such multiples

    def __init__(self, weight_VD: Tensor, bias_V: Tensor, precision: torch.dtype) -> None:
        vocabulary, self.size = weight_VD.shape
        self._weight = weight_VD.new_zeros(vocabulary, self.size + self._COLUMNS, dtype=precision)
        self._weight[:, : self.size] = weight_VD
        left_V = bias_V.float()
        for column in range(3):
            self._weight[:, self.size + column] = left_V
            left_V = left_V - self._weight[:, self.size + column].float()

    def space(self, rows: int) -> Tensor:
        """Give room for hidden states, with the ones behind it."""
        return self._weight.new_ones(rows, self.size + self._COLUMNS)

    def __call__(self, hidden: Tensor) -> Tensor:
        """Give logits in float32."""
        if hidden.dtype == torch.float32:
            return torch.mm(hidden, self._weight.T)
        return torch.mm(hidden, self._weight.T, out_dtype=torch.float32)


class _Norm:
    def __init__(self, norm: nn.LayerNorm) -> None:
        self.scale = norm.weight.detach().float()
        self.shift = norm.bias.detach().float()
        self.epsilon = norm.eps


class _Linear:
    """A matrix in the format of the products, and its bias in float32 and in that format."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor, precision: torch.dtype) -> None:
        self.weight_IO = weight_OI.detach().to(precision).T
        self.bias = bias_O.detach().float()
        self._bias = bias_O.detach().to(precision)

    @classmethod
    def of(cls, linear: nn.Linear, precision: torch.dtype) -> _Linear:
        return cls(linear.weight, linear.bias, precision)

    def __call__(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        return torch.addmm(self._bias, x, self.weight_IO, out=out)

    def relu(self, x: Tensor) -> Tensor:
        """Multiply, add, and set what is negative to 0."""
        return torch._addmm_activation(self._bias, x, self.weight_IO)

    def add_to(self, total: Tensor, x: Tensor) -> None:
        """Add the product, without the bias, to a float32 tensor."""
        if x.dtype == torch.float32:
            total.addmm_(x, self.weight_IO)
        else:
            torch.addmm(total, x, self.weight_IO, out_dtype=torch.float32, out=total)


@dataclass(frozen=True)
class _SelfAttention:
    inputs: _Linear
    output: _Linear

    @classmethod
    def of(cls, attention: Attention, precision: torch.dtype) -> _SelfAttention:
        linears = (attention.inputs, attention.output)
        return cls(*(_Linear.of(linear, precision) for linear in linears))


@dataclass(frozen=True)
class _CrossAttention:
    query: _Linear
    memory: _Linear
    output: _Linear

    @classmethod
    def of(cls, attention: Attention, precision: torch.dtype) -> _CrossAttention:
        assert attention.query is not None
        linears = (attention.query, attention.inputs, attention.output)
        return cls(*(_Linear.of(linear, precision) for linear in linears))


@dataclass(frozen=True)
class _FeedForward:
    inner: _Linear
    outer: _Linear

    @classmethod
    def of(cls, feed_forward: FeedForward, precision: torch.dtype) -> _FeedForward:
        linears = (feed_forward.inner, feed_forward.outer)
        return cls(*(_Linear.of(linear, precision) for linear in linears))

    def add_to(self, x: Tensor, normed: Tensor) -> None:
        """Add what it makes of `normed`, without the last bias, to the stream."""
        self.outer.add_to(x, self.inner.relu(normed))


@dataclass(frozen=True)
class _EncoderLayer:
    attention_norm: _Norm
    attention: _SelfAttention
    feed_forward_norm: _Norm
    feed_forward: _FeedForward


@dataclass(frozen=True)
class _DecoderLayer:
    attention_norm: _Norm
    attention: _SelfAttention
    cross_norm: _Norm
    cross: _CrossAttention
    feed_forward_norm: _Norm
    feed_forward: _FeedForward
