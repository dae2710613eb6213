"""The Transformer: pre-norm, sinusoidal positions, fused attention, a key/value cache.

It knows nothing of probabilities: it ends in hidden states and logits, and an output layer
(`scones.outputs`) does the rest. Its arithmetic is that of the Pegasus class in Hugging Face
transformers, so that a saved model opens there (`scones.model.folder`).

Shape letters: B sentences, S source positions, T target positions, N rows (sentences × beams),
D model size, H heads, K size of a head, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from scones.ids import PAD
from scones.kernels import attention_fits, usable
from scones.model.config import ModelConfig
from scones.model.decoder import DecoderState, LayerCache
from scones.model.spans import PackedTokens, Spans

# Dropout, and a cheap source of chance for kernels.
#
# PyTorch's random numbers cost more than all else that a kernel does to a number. Dropout needs far
# less than they give: whether a number goes may be read off a hash of its place and of a seed that
# is drawn anew for every step.


class Noise:
    """The seeds of one step, one for every place in a model where numbers are dropped."""

    def __init__(self) -> None:
        self.sites = 0
        self.seeds_S = torch.zeros(0, dtype=torch.int32)

    def draw(self, device: torch.device) -> None:
        """Draw new seeds from PyTorch's generator of a device."""
        if self.seeds_S.device != device or self.seeds_S.numel() != self.sites:
            self.seeds_S = torch.zeros(self.sites, dtype=torch.int32, device=device)
        self.seeds_S.random_()

    def site(self) -> int:
        """Give a new place its number."""
        self.sites += 1
        return self.sites - 1


class Dropout(nn.Module):
    """Set numbers to 0 at random while training, and scale the others up."""

    def __init__(self, rate: float, noise: Noise) -> None:
        super().__init__()
        self.rate = rate
        self.noise = noise
        self.site = noise.site()

    def chance(self) -> tuple[Tensor, float]:
        """Give this step's seed and the rate at which numbers go, for kernels."""
        return self.noise.seeds_S[self.site], self.rate if self.training else 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Drop numbers."""
        if not self.training or self.rate == 0:
            return x
        return functional.dropout(x, self.rate)


def hashed_dropout(x: Tensor, rate: float, seed: Tensor) -> Tensor:
    """Drop the numbers whose place and `seed` (a scalar, int32) hash to the lowest values.

    The kernels do so themselves (`scones.kernels.norm`); this is their twin.
    """
    place = torch.arange(x.numel(), dtype=torch.int32, device=x.device).view(x.shape)
    lowest_kept = round(rate * 2**32) - 2**31
    return torch.where(_hash(place, seed) >= lowest_kept, x * (1 / (1 - rate)), 0.0)


def _hash(number: Tensor, seed: Tensor) -> Tensor:
    """Scatter numbers evenly over all 32 bits: multiply and fold, again and again."""
    number = (number ^ seed) * -0x61C88647
    number = (number ^ ((number >> 16) & 0xFFFF)) * -0x7A143595
    return (number ^ ((number >> 13) & 0x7FFFF)) * -0x3D4D51CB


# A linear layer that takes its kernels where it finds rows on a device that has them.


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


# The stream through a stack of layers: what every block reads, normed, and adds to.

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


Extent = Tensor | Spans | None
"""Where sentences end: a mask over padded ones, spans of packed ones, or nowhere special."""


class Attention(nn.Module):
    """Multi-head attention: over the sequence itself, or from it over a memory."""

    def __init__(self, config: ModelConfig, noise: Noise, *, crossing: bool) -> None:
        super().__init__()
        size = config.size
        self.heads = config.heads
        self.dropout = config.attention_dropout
        self.noise = noise
        self.site = noise.site()
        self.query = Linear(size, size) if crossing else None
        self.inputs = Linear(size, 2 * size if crossing else 3 * size)  # key, value | q, k, v
        self.output = Linear(size, size)

    def keys_and_values(self, memory_BSD: Tensor) -> tuple[Tensor, Tensor]:
        """Project a memory once; every target position attends to the result."""
        keys, values = self._split_heads(self.inputs(memory_BSD), parts=2)
        return keys, values

    def forward(self, x: Tensor, extent: Extent = None, causal: bool = False) -> Tensor:
        """Attend over the sequence itself; what is mixed has yet to go through `output`."""
        if isinstance(extent, Spans):
            return extent.within(self.inputs(x), self.heads, causal, *self._chance())
        queries, keys, values = self._split_heads(self.inputs(x), parts=3)
        return self.attend(queries, keys, values, extent, causal)

    def over(self, x: Tensor, memory: Tensor, extent: Extent, memory_extent: Extent) -> Tensor:
        """Attend from x over a memory, likewise."""
        if isinstance(extent, Spans) and isinstance(memory_extent, Spans):
            assert self.query is not None
            return extent.across(
                self.query(x), self.inputs(memory), memory_extent, self.heads, *self._chance()
            )
        assert not isinstance(memory_extent, Spans)
        return self.cross(x, *self.keys_and_values(memory), memory_extent)

    def cross(self, x_BTD: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Attend from x over a memory that was projected before."""
        assert self.query is not None
        (queries,) = self._split_heads(self.query(x_BTD), parts=1)
        return self.attend(queries, keys, values, mask)

    def step(self, x_ND: Tensor, cache: LayerCache) -> Tensor:
        """Attend from one new position over it and all positions before it."""
        queries, keys, values = self._split_heads(self.inputs(x_ND.unsqueeze(1)), parts=3)
        keys, values = cache.append(keys, values)
        mixed_ND: Tensor = self.attend(queries, keys, values).squeeze(1)
        return mixed_ND

    def attend(
        self,
        queries_BHTK: Tensor,
        keys_BHSK: Tensor,
        values_BHSK: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """Run fused attention and put the heads together again."""
        dropout = self.dropout if self.training else 0.0
        queries = queries_BHTK
        fused = functional.scaled_dot_product_attention
        # For short sentences PyTorch's fused bf16 kernel takes 2-6 times as long on a CPU
        # (benchmarks/cpu_attention.py).
        short = keys_BHSK.size(2) <= 128
        attention = plain_attention if _is_cpu_bf16(queries) and short else fused
        mixed_BHTK = attention(
            queries, keys_BHSK, values_BHSK, attn_mask=mask, dropout_p=dropout, is_causal=causal
        )
        return mixed_BHTK.transpose(1, 2).flatten(2)

    def _chance(self) -> tuple[Tensor, float]:
        """Give the seed and the rate at which weights are dropped."""
        return self.noise.seeds_S[self.site], self.dropout if self.training else 0.0

    def _split_heads(self, x_BTX: Tensor, parts: int) -> tuple[Tensor, ...]:
        batch, length, _ = x_BTX.shape
        x_pBHTK = x_BTX.view(batch, length, parts, self.heads, -1).permute(2, 0, 3, 1, 4)
        return x_pBHTK.unbind(0)


class FeedForward(nn.Module):
    """Two linear layers with ReLU between them."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.inner = Linear(config.size, config.feed_forward)
        self.outer = Linear(config.feed_forward, config.size)

    def forward(self, x: Tensor) -> Tensor:
        """Apply it to every position."""
        output: Tensor = self.outer(self.inner.relu(x))
        return output


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each behind a layer norm and a residual."""

    def __init__(self, config: ModelConfig, noise: Noise) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.size)
        self.attention = Attention(config, noise, crossing=False)
        self.feed_forward_norm = nn.LayerNorm(config.size)
        self.feed_forward = FeedForward(config)
        self.attention_dropout = Dropout(config.dropout, noise)
        self.feed_forward_dropout = Dropout(config.dropout, noise)

    def forward(self, stream: Stream, extent: Extent) -> None:
        """Transform the source positions."""
        mixed = self.attention(stream.normed(self.attention_norm), extent)
        stream.add(mixed, self.attention.output, self.attention_dropout)
        inside = self.feed_forward.inner.relu(stream.normed(self.feed_forward_norm))
        stream.add(inside, self.feed_forward.outer, self.feed_forward_dropout)


class DecoderLayer(nn.Module):
    """Causal self-attention, attention over the source, feed-forward."""

    def __init__(self, config: ModelConfig, noise: Noise) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.size)
        self.attention = Attention(config, noise, crossing=False)
        self.cross_norm = nn.LayerNorm(config.size)
        self.cross = Attention(config, noise, crossing=True)
        self.feed_forward_norm = nn.LayerNorm(config.size)
        self.feed_forward = FeedForward(config)
        self.attention_dropout = Dropout(config.dropout, noise)
        self.cross_dropout = Dropout(config.dropout, noise)
        self.feed_forward_dropout = Dropout(config.dropout, noise)

    def forward(
        self, stream: Stream, memory: Tensor, extent: Extent, memory_extent: Extent
    ) -> None:
        """Transform all target positions at once (training, scoring)."""
        mixed = self.attention(stream.normed(self.attention_norm), extent, causal=True)
        stream.add(mixed, self.attention.output, self.attention_dropout)
        mixed = self.cross.over(stream.normed(self.cross_norm), memory, extent, memory_extent)
        stream.add(mixed, self.cross.output, self.cross_dropout)
        inside = self.feed_forward.inner.relu(stream.normed(self.feed_forward_norm))
        stream.add(inside, self.feed_forward.outer, self.feed_forward_dropout)

    def step(self, x_ND: Tensor, cache: LayerCache, mask: Tensor | None) -> Tensor:
        """Transform one new target position a row."""
        mixed_ND = self.attention.step(self.attention_norm(x_ND), cache)
        x_ND = x_ND + self.attention.output(mixed_ND)
        # All beams of a sentence attend over the same source: B × beams queries, B memories.
        sentences = cache.cross_keys.size(0)
        x_BkD = self.cross_norm(x_ND).view(sentences, -1, x_ND.size(-1))
        mixed_BkD = self.cross.cross(x_BkD, cache.cross_keys, cache.cross_values, mask)
        x_ND = x_ND + self.cross.output(mixed_BkD.view_as(x_ND))
        return x_ND + self.feed_forward(self.feed_forward_norm(x_ND))


class Transformer(nn.Module):
    """Encoder and decoder with an output matrix and bias; see the module's docstring."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.size)
        if not config.tied_embeddings:
            self.target_embedding = nn.Embedding(config.vocabulary, config.size)
            self.output_embedding = nn.Embedding(config.vocabulary, config.size)
        self.noise = noise = Noise()
        self.encoder = nn.ModuleList(
            EncoderLayer(config, noise) for _ in range(config.encoder_layers)
        )
        self.encoder_norm = nn.LayerNorm(config.size)
        self.decoder = nn.ModuleList(
            DecoderLayer(config, noise) for _ in range(config.decoder_layers)
        )
        self.decoder_norm = nn.LayerNorm(config.size)
        self.output_bias = nn.Parameter(torch.zeros(config.vocabulary))
        self.source_dropout = Dropout(config.dropout, noise)
        self.target_dropout = Dropout(config.dropout, noise)
        self.head: nn.Module | None = None  # what computes logits instead, where it is packed
        self.positions: Tensor
        self.register_buffer("positions", sinusoids(config.max_length, config.size), False)
        self._initialise()

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=self.config.size**-0.5)

    @property
    def output_weight(self) -> Tensor:
        """The matrix (V, D) that turns hidden states into logits."""
        embedding = self.embedding if self.config.tied_embeddings else self.output_embedding
        return embedding.weight

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.output_bias.device

    @property
    def has_kernels(self) -> bool:
        """Whether the kernels that need no padding take this model where it is."""
        return usable(self.device) and attention_fits(self.config.size // self.config.heads)

    def forward(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """Give the hidden states (B, T, D) that predict each next token of `target_BT`."""
        mask = source_mask(source_BS)
        memory_BSD = self.encode(source_BS, mask)
        x_BTD = self.embed_target(target_BT) + self.positions[: target_BT.size(1)]
        return self._decode(self.target_dropout(x_BTD), memory_BSD, None, mask)

    def forward_packed(self, source: PackedTokens, target: PackedTokens) -> Tensor:
        """Give the hidden states (N, D) of sentences without padding."""
        x_MD = source.embedded(self.embedding.weight, self.positions, self.source_dropout)
        memory_MD = self._encode(x_MD, source.spans)
        x_ND = target.embedded(self._target_table.weight, self.positions, self.target_dropout)
        return self._decode(x_ND, memory_MD, target.spans, source.spans)

    def encode(self, source_BS: Tensor, mask: Tensor | None) -> Tensor:
        """Give the memory (B, S, D) that the decoder attends over."""
        x_BSD = self._embed_source(source_BS) + self.positions[: source_BS.size(1)]
        return self._encode(self.source_dropout(x_BSD), mask)

    def _encode(self, x: Tensor, extent: Extent) -> Tensor:
        stream = Stream(x, fused=isinstance(extent, Spans))
        for layer in self.encoder:
            layer(stream, extent)
        return stream.normed(self.encoder_norm)

    def _decode(self, x: Tensor, memory: Tensor, extent: Extent, memory_extent: Extent) -> Tensor:
        stream = Stream(x, fused=isinstance(extent, Spans))
        for layer in self.decoder:
            layer(stream, memory, extent, memory_extent)
        return stream.normed(self.decoder_norm)

    def logits(self, hidden: Tensor) -> Tensor:
        """Give the logits (…, V) of hidden states (…, D)."""
        if self.head is not None:
            packed: Tensor = self.head(hidden)
            return packed
        return functional.linear(hidden, self.output_weight, self.output_bias)

    def start(self, source_BS: Tensor, beams: int = 1) -> DecoderState:
        """Encode sentences and open a cache with `beams` rows for each of them."""
        mask = source_mask(source_BS)
        memory_BSD = self.encode(source_BS, mask)
        projected = [layer.cross.keys_and_values(memory_BSD) for layer in self.decoder_layers()]
        layers = [LayerCache(keys, values, beams) for keys, values in projected]
        return DecoderState(layers, mask, beams)

    def step(self, state: DecoderState, tokens_N: Tensor) -> Tensor:
        """Feed one token a row and give the logits (N, V) of the next; the state grows by one."""
        return self.logits(self.hidden_step(state, tokens_N))

    def hidden_step(self, state: DecoderState, tokens_N: Tensor) -> Tensor:
        """Step, but stop at the hidden states (N, D) that the logits are made of."""
        x_ND = self.embed_target(tokens_N) + self.positions[state.length]
        for layer, cache in zip(self.decoder_layers(), state.layers, strict=True):
            x_ND = layer.step(x_ND, cache, state.mask)
        state.length += 1
        hidden_ND: Tensor = self.decoder_norm(x_ND)
        return hidden_ND

    def decoder_layers(self) -> Iterator[DecoderLayer]:
        """Give the decoder's layers, with their type."""
        return cast(Iterator[DecoderLayer], iter(self.decoder))

    def _embed_source(self, tokens: Tensor) -> Tensor:
        embedded: Tensor = self.embedding(tokens) * math.sqrt(self.config.size)
        return embedded

    def embed_target(self, tokens: Tensor) -> Tensor:
        """Give the embeddings of target tokens, without their positions."""
        embedded: Tensor = self._target_table(tokens) * math.sqrt(self.config.size)
        return embedded

    @property
    def _target_table(self) -> nn.Embedding:
        return self.embedding if self.config.tied_embeddings else self.target_embedding


def plain_attention(
    queries_BHTK: Tensor,
    keys_BHSK: Tensor,
    values_BHSK: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
) -> Tensor:
    """Compute what scaled_dot_product_attention computes, step by step."""
    queries_BHTK = queries_BHTK * queries_BHTK.size(-1) ** -0.5
    scores_BHTS = queries_BHTK @ keys_BHSK.transpose(-1, -2)
    if is_causal:
        length = queries_BHTK.size(2)
        attn_mask = queries_BHTK.new_ones(length, length, dtype=torch.bool).tril()
    if attn_mask is not None:
        scores_BHTS = scores_BHTS.masked_fill(~attn_mask, float("-inf"))
    weights_BHTS = functional.dropout(scores_BHTS.softmax(dim=-1), dropout_p)
    return weights_BHTS.to(values_BHSK.dtype) @ values_BHSK


def _is_cpu_bf16(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.dtype == torch.bfloat16


def source_mask(source_BS: Tensor) -> Tensor | None:
    """Say which source positions may be attended to; None where there is no padding at all."""
    real_BS = source_BS != PAD
    # Asking a GPU for the answer would stall it; there the mask is always used.
    if source_BS.device.type == "cpu" and bool(real_BS.all()):
        return None
    return real_BS[:, None, None, :]


def sinusoids(length: int, size: int) -> Tensor:
    """Sinusoidal positions: all sines first, then all cosines."""
    frequencies = 10_000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1).float()
