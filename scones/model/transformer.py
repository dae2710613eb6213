"""The Transformer: pre-norm, sinusoidal positions, fused attention, a key/value cache.

It knows nothing of probabilities: it ends in hidden states and logits, and an output layer
(`scones.outputs`) does the rest. Its arithmetic is that of the Pegasus class in Hugging Face
transformers, so that a saved model opens there (`scones.model.folder`).

Each block is written once. What differs between training, a decoding step and exact search is how
positions attend to each other, so the attention is handed to the block as an object. What a GPU
does otherwise (`scones.model.gpu`) comes in the same way; nothing here asks for the device.

Shape letters: B sentences, S source positions, T target positions, N rows (sentences × beams),
D model size, H heads, K size of a head, V vocabulary.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from scones.model.config import Activation, ModelConfig, sinusoids
from scones.model.decoder import DecoderState, JoinedState, LayerCache, joined
from scones.text import PAD

# Dropout.
#
# PyTorch's random numbers cost more than all else that a kernel does to a number. Dropout needs far
# less than they give: kernels read whether a number goes off a hash of its index and of a seed that
# is drawn anew for every step.


class DropoutSeeds:
    """The seeds of one step, one for every dropout in a model; only kernels need them."""

    def __init__(self) -> None:
        self.count = 0
        self.seeds_S = torch.zeros(0, dtype=torch.int32)

    def draw(self, device: torch.device) -> None:
        """Draw new seeds from PyTorch's generator of a device."""
        # In place where it can be: CUDA graphs read the seeds where they were.
        if self.seeds_S.device != device or self.seeds_S.numel() != self.count:
            self.seeds_S = torch.zeros(self.count, dtype=torch.int32, device=device)
        self.seeds_S.random_()

    def new_index(self) -> int:
        self.count += 1
        return self.count - 1


class Dropout(nn.Module):
    """Set numbers to 0 at random while training, and scale the others up."""

    def __init__(self, rate: float, seeds: DropoutSeeds) -> None:
        super().__init__()
        self.rate = rate
        self.seeds = seeds
        self.index = seeds.new_index()

    def chance(self) -> tuple[Tensor, float]:
        """This step's seed and the rate at which numbers go, for kernels."""
        return self.seeds.seeds_S[self.index], self.rate if self.training else 0.0

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        return functional.dropout(x, self.rate)


# Linear layers, plain and prepacked.


class Linear(nn.Linear):
    """PyTorch's layer, with a name for the ReLU that follows it: some ways of computing fuse it."""

    def relu(self, x: Tensor) -> Tensor:
        return functional.relu(self(x))


class PrepackedLinear(nn.Module):
    """A linear layer for a CPU whose matrix oneDNN has put into the order in which it reads it.

    It can only compute: its weights can be neither trained nor saved. Products are made in
    `precision` (bf16 is added up in float32 too); what comes in and goes out is float32.
    """

    def __init__(
        self, weight_OI: Tensor, bias_O: Tensor, precision: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        weight_OI = weight_OI.detach().to(precision).contiguous()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight_OI)
        self._bias = bias_O.detach().to(precision)
        self.precision = precision

    def forward(self, x: Tensor) -> Tensor:
        return self._product(x, "none")

    def relu(self, x: Tensor) -> Tensor:
        return self._product(x, "relu")

    def _product(self, x: Tensor, activation: str) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(
            x.to(self.precision), self._weight, self._bias, activation, [], ""
        )
        return y.float()


# The residual stream: what every block reads, normed, and adds to.


class Stream:
    """The sum to which blocks add.

    The last addition waits for the next norm: a GPU does bias, dropout, addition and norm in one
    pass over the numbers (`scones.model.gpu.FusedStream`), so they have to meet in one place.
    """

    def __init__(self, x: Tensor, activation: Activation = "relu") -> None:
        self._x = x
        self._activation = activation
        self._waiting: tuple[Tensor, Linear, Dropout] | None = None

    def add(self, made: Tensor, output: Linear, dropout: Dropout) -> None:
        """Add what a block made, sent through its output layer and dropout."""
        self._waiting = made, output, dropout

    def normed(self, norm: nn.LayerNorm) -> Tensor:
        if self._waiting is not None:
            made, output, dropout = self._waiting
            self._x = self._x + dropout(output(made))
            self._waiting = None
        return norm(self._x)

    def activated(self, linear: Linear, x: Tensor) -> Tensor:
        """The inner half of a feed-forward block."""
        if self._activation == "relu":
            return linear.relu(x)
        return _ACTIVATIONS[self._activation](linear(x))


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "swish": functional.silu,
}


class PostNormStream(Stream):
    """The sum is normed itself, behind each block: the norm of a block waits until it has added."""

    _behind: nn.LayerNorm

    def normed(self, norm: nn.LayerNorm) -> Tensor:
        if self._waiting is not None:
            self._x = super().normed(self._behind)
        self._behind = norm
        return self._x


# Attention: the module holds weights, the objects behind it say who may look at whom.


class Attention(nn.Module):
    """The weights of multi-head attention: over the sequence itself, or (`cross`) a memory."""

    def __init__(self, config: ModelConfig, seeds: DropoutSeeds, *, cross: bool) -> None:
        super().__init__()
        size = config.size
        self.heads = config.heads
        self.dropout = config.attention_dropout
        self.seeds = seeds
        self.index = seeds.new_index()
        self.query = Linear(size, size) if cross else None
        self.inputs = Linear(size, 2 * size if cross else 3 * size)  # key, value | q, k, v
        self.output = Linear(size, size)

    def queries(self, x: Tensor) -> Tensor:
        """The queries of attention over a memory."""
        assert self.query is not None
        return self.query(x)

    def keys_and_values(self, memory_BSD: Tensor) -> tuple[Tensor, Tensor]:
        """Project a memory once; every target position attends to the result."""
        keys, values = self.split_heads(self.inputs(memory_BSD), parts=2)
        return keys, values

    def split_heads(self, x_BTX: Tensor, parts: int) -> tuple[Tensor, ...]:
        batch, length, _ = x_BTX.shape
        x_pBHTK = x_BTX.view(batch, length, parts, self.heads, -1).permute(2, 0, 3, 1, 4)
        return x_pBHTK.unbind(0)

    def attend(
        self,
        queries_BHTK: Tensor,
        keys_BHSK: Tensor,
        values_BHSK: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """Run fused attention and put the heads together again: (B, T, D)."""
        dropout = self.dropout if self.training else 0.0
        fused = functional.scaled_dot_product_attention
        # For short sentences PyTorch's fused bf16 kernel takes 2-6 times as long on a CPU
        # (benchmarks/cpu_attention.py).
        is_cpu_bf16 = queries_BHTK.device.type == "cpu" and queries_BHTK.dtype == torch.bfloat16
        short = keys_BHSK.size(2) <= 128
        attention = plain_attention if is_cpu_bf16 and short else fused
        mixed_BHTK = attention(
            queries_BHTK, keys_BHSK, values_BHSK, attn_mask=mask, dropout_p=dropout,
            is_causal=causal,
        )  # fmt: skip
        return mixed_BHTK.transpose(1, 2).flatten(2)

    def chance(self) -> tuple[Tensor, float]:
        """This step's seed and the rate at which attention weights are dropped, for kernels."""
        return self.seeds.seeds_S[self.index], self.dropout if self.training else 0.0


class AttendItself(Protocol):
    """How a block's positions attend; what is mixed has yet to go through `attention.output`."""

    def itself(self, attention: Attention, x: Tensor, /) -> Tensor:
        """Attend from normed positions over their own sequence."""


class Attend(AttendItself, Protocol):
    """The same for a decoder, which also looks at the source."""

    def source(self, attention: Attention, x: Tensor, /) -> Tensor:
        """Attend from normed target positions over the source."""


class WholeSource:
    """All positions of padded source sentences, in both directions."""

    def __init__(self, mask: Tensor | None) -> None:
        self._mask = mask

    def itself(self, attention: Attention, x_BSD: Tensor) -> Tensor:
        queries, keys, values = attention.split_heads(attention.inputs(x_BSD), parts=3)
        return attention.attend(queries, keys, values, self._mask)


class WholeTarget:
    """All positions of target sentences at once: training and scoring."""

    def __init__(self, memory_BSD: Tensor, mask: Tensor | None) -> None:
        self._memory = memory_BSD
        self._mask = mask

    def itself(self, attention: Attention, x_BTD: Tensor) -> Tensor:
        # No mask: padding comes last, so that no real position can see it.
        queries, keys, values = attention.split_heads(attention.inputs(x_BTD), parts=3)
        return attention.attend(queries, keys, values, causal=True)

    def source(self, attention: Attention, x_BTD: Tensor) -> Tensor:
        keys, values = attention.keys_and_values(self._memory)
        (queries,) = attention.split_heads(attention.queries(x_BTD), parts=1)
        return attention.attend(queries, keys, values, self._mask)


class CachedTarget:
    """One new position per row, over what the cache holds of the positions before it.

    A product of a few rows takes nearly as long as one of many. So the rows of all batches that
    are decoded together share every product, while each batch attends to its own past and sources.
    """

    def __init__(self, parts: list[DecoderState], sizes: list[int], layer: int) -> None:
        self._parts = parts
        self._sizes = sizes
        self._layer = layer

    def itself(self, attention: Attention, x_ND: Tensor) -> Tensor:
        mixed = []
        for part, projected_NX in self._split(attention.inputs(x_ND)):
            # Rows that share a history attend to it together, each to what it has seen of it.
            shape = (-1, part.sharing, projected_NX.size(1))
            queries, new_keys, new_values = attention.split_heads(projected_NX.view(shape), 3)
            keys, values = part.write(self._layer, new_keys, new_values)
            mixed.append(attention.attend(queries, keys, values, part.seen).flatten(0, 1))
        return joined(mixed)

    def source(self, attention: Attention, x_ND: Tensor) -> Tensor:
        mixed = []
        for part, queries_ND in self._split(attention.queries(x_ND)):
            # All beams of a sentence attend over the same source: B × beams queries, B memories.
            shape = (-1, part.beams, attention.heads, x_ND.size(1) // attention.heads)
            queries = queries_ND.view(shape).transpose(1, 2)
            cache = part.layers[self._layer]
            found = attention.attend(queries, cache.cross_keys, cache.cross_values, part.mask)
            mixed.append(found.flatten(0, 1))
        return joined(mixed)

    def _split(self, x_NX: Tensor) -> Iterator[tuple[DecoderState, Tensor]]:
        return zip(self._parts, x_NX.split(self._sizes), strict=True)


# The layers hold weights; the blocks say what is done with them.


class FeedForward(nn.Module):
    """Two linear layers with an activation between them."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.inner = Linear(config.size, config.feed_forward)
        self.outer = Linear(config.feed_forward, config.size)


# The order of the attributes is the order in which dropout sites are numbered and weights drawn:
# another order would train another model from the same seed.


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each behind a layer norm and a residual."""

    def __init__(self, config: ModelConfig, seeds: DropoutSeeds) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.size)
        self.attention = Attention(config, seeds, cross=False)
        self.feed_forward_norm = nn.LayerNorm(config.size)
        self.feed_forward = FeedForward(config)
        self.attention_dropout = Dropout(config.dropout, seeds)
        self.feed_forward_dropout = Dropout(config.dropout, seeds)


class DecoderLayer(nn.Module):
    """Causal self-attention, attention over the source, feed-forward."""

    def __init__(self, config: ModelConfig, seeds: DropoutSeeds) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.size)
        self.attention = Attention(config, seeds, cross=False)
        self.cross_norm = nn.LayerNorm(config.size)
        self.cross = Attention(config, seeds, cross=True)
        self.feed_forward_norm = nn.LayerNorm(config.size)
        self.feed_forward = FeedForward(config)
        self.attention_dropout = Dropout(config.dropout, seeds)
        self.cross_dropout = Dropout(config.dropout, seeds)
        self.feed_forward_dropout = Dropout(config.dropout, seeds)


def encoder_block(layer: EncoderLayer, stream: Stream, attend: AttendItself) -> None:
    mixed = attend.itself(layer.attention, stream.normed(layer.attention_norm))
    stream.add(mixed, layer.attention.output, layer.attention_dropout)
    _feed_forward_block(layer, stream)


def decoder_block(layer: DecoderLayer, stream: Stream, attend: Attend) -> None:
    """The decoder, once for all: training and scoring, decoding steps and exact search."""
    mixed = attend.itself(layer.attention, stream.normed(layer.attention_norm))
    stream.add(mixed, layer.attention.output, layer.attention_dropout)
    mixed = attend.source(layer.cross, stream.normed(layer.cross_norm))
    stream.add(mixed, layer.cross.output, layer.cross_dropout)
    _feed_forward_block(layer, stream)


def _feed_forward_block(layer: EncoderLayer | DecoderLayer, stream: Stream) -> None:
    inside = stream.activated(layer.feed_forward.inner, stream.normed(layer.feed_forward_norm))
    stream.add(inside, layer.feed_forward.outer, layer.feed_forward_dropout)


class Transformer(nn.Module):
    """Encoder and decoder with an output matrix and bias; see the module's docstring."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = _table(config)
        if not config.tied_embeddings:
            self.target_embedding = _table(config)
            self.output_embedding = _table(config)
        self.noise = seeds = DropoutSeeds()
        self.encoder = nn.ModuleList(
            EncoderLayer(config, seeds) for _ in range(config.encoder_layers)
        )
        self.encoder_norm = nn.LayerNorm(config.size)
        self.decoder = nn.ModuleList(
            DecoderLayer(config, seeds) for _ in range(config.decoder_layers)
        )
        self.decoder_norm = nn.LayerNorm(config.size)
        self.output_bias = nn.Parameter(torch.zeros(config.vocabulary))
        self.source_dropout = Dropout(config.dropout, seeds)
        self.target_dropout = Dropout(config.dropout, seeds)
        # Where weights are prepacked: what computes logits and, if it is not PyTorch, the memory.
        self.head: PrepackedLinear | None = None
        self.encoder_in_int8: Encode | None = None
        self.arithmetic = "float32"
        self.encoded: dict[tuple[int, ...], Tensor] | None = None  # see `encoding_once`
        self.positions: Tensor
        positions = torch.from_numpy(sinusoids(config.max_length, config.size))
        self.register_buffer("positions", positions.to(self.device), False)
        if self.device.type != "meta":  # where weights are still to be loaded
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

    def forward(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """The hidden states (B, T, D) that predict each next token of `target_BT`."""
        mask = source_mask(source_BS)
        memory_BSD = self.encode(source_BS, mask)
        x_BTD = self.embed_target(target_BT) + self.positions[: target_BT.size(1)]
        stream = self.stream(self.target_dropout(x_BTD))
        return self.run_decoder(stream, WholeTarget(memory_BSD, mask))

    def encode(self, source_BS: Tensor, mask: Tensor | None) -> Tensor:
        """The memory (B, S, D) that the decoder attends over."""
        if self.encoder_in_int8 is not None:
            return torch.from_numpy(self.encoder_in_int8(source_BS.numpy()))
        embedded_BSD = self.embedding(source_BS) * math.sqrt(self.config.size)
        x_BSD = embedded_BSD + self.positions[: source_BS.size(1)]
        return self.run_encoder(self.stream(self.source_dropout(x_BSD)), WholeSource(mask))

    def stream(self, x: Tensor) -> Stream:
        kind = PostNormStream if self.config.post_norm else Stream
        return kind(x, self.config.activation)

    def run_encoder(self, stream: Stream, attend: AttendItself) -> Tensor:
        for layer in self.encoder:
            encoder_block(cast(EncoderLayer, layer), stream, attend)
        return stream.normed(self.encoder_norm)

    def run_decoder(self, stream: Stream, attend: Attend) -> Tensor:
        for layer in self.decoder_layers():
            decoder_block(layer, stream, attend)
        return stream.normed(self.decoder_norm)

    def logits(self, hidden: Tensor) -> Tensor:
        """The logits (…, V) of hidden states (…, D)."""
        if self.head is not None:
            return self.head(hidden)
        return functional.linear(hidden, self.output_weight, self.output_bias)

    def start(self, source_BS: Tensor, beams: int = 1) -> JoinedState:
        """Encode sentences and open a cache with `beams` rows for each of them."""
        mask = source_mask(source_BS)
        memory_BSD = self.encode(source_BS, mask)
        if self.encoded is not None and sum(map(len, self.encoded)) < _MOST_ENCODED:
            for ids, memory_SD in zip(source_BS.tolist(), memory_BSD, strict=True):
                length = len(ids) - ids.count(PAD)
                self.encoded[tuple(ids[:length])] = memory_SD[:length]
        layers = []
        for layer in self.decoder_layers():
            keys, values = layer.cross.keys_and_values(memory_BSD)
            # Every step reads them, so it pays to put them in order once. The same goes for the
            # mask, which PyTorch's attention would turn into numbers at every call.
            layers.append(LayerCache(keys.contiguous(), values.contiguous()))
        if mask is not None:
            mask = torch.where(mask, 0.0, float("-inf")).to(memory_BSD.dtype)
        return JoinedState([DecoderState(layers, mask, beams)])

    def step(self, state: JoinedState, tokens_N: Tensor) -> Tensor:
        """Feed one token per row and give the logits (N, V) of the next; the state grows by one."""
        return self.logits(self.hidden_step(state, tokens_N))

    def hidden_step(self, state: JoinedState, tokens_N: Tensor) -> Tensor:
        """Step, but stop at the hidden states (N, D) that the logits are made of."""
        sizes, positions_ND = state.sizes, state.advance(self.positions)
        stream = self.stream(self.embed_target(tokens_N) + positions_ND)
        for index, layer in enumerate(self.decoder_layers()):
            decoder_block(layer, stream, CachedTarget(state.parts, sizes, index))
        return stream.normed(self.decoder_norm)

    def decoder_layers(self) -> Iterator[DecoderLayer]:
        """The decoder's layers, with their type."""
        return cast(Iterator[DecoderLayer], iter(self.decoder))

    def embed_target(self, tokens: Tensor) -> Tensor:
        """The embeddings of target tokens, without their positions."""
        return self.target_table(tokens) * math.sqrt(self.config.size)

    @property
    def target_table(self) -> nn.Embedding:
        return self.embedding if self.config.tied_embeddings else self.target_embedding


def _table(config: ModelConfig) -> nn.Embedding:
    empty_VD = torch.empty(config.vocabulary, config.size)
    if empty_VD.is_meta:  # PyTorch would import its compiler to draw random numbers there
        return nn.Embedding.from_pretrained(empty_VD, freeze=False)
    return nn.Embedding(config.vocabulary, config.size)


# Prepacking.

Encode = Callable[[Any], Any]
"""Source ids (B, S) to a memory (B, S, D), both NumPy arrays."""


def can_prepack(model: Transformer) -> bool:
    weight = model.output_bias
    fits = weight.device.type == "cpu" and weight.dtype == torch.float32
    return fits and torch.backends.mkldnn.is_available()


def prepacked(model: Transformer, encoder_in_int8: Encode | None = None) -> Transformer:
    """Copy a model into one that translates sooner, or return it where there is nothing to do.

    Plain products unpack the same weights again for every token; for the few rows of a decoding
    step that takes as long as the product itself. The copy does not follow when the model trains.

    With an encoder in int8 the decoder need not be more exact either: its products are in bf16
    where the CPU has them.
    """
    if not can_prepack(model) or model.head is not None:
        return model
    bf16 = encoder_in_int8 is not None and torch.cpu._is_avx512_bf16_supported()
    precision = torch.bfloat16 if bf16 else torch.float32
    # Weights that stay as they are, embeddings and norms, are shared with the model.
    shared = {id(parameter): parameter for parameter in model.parameters()}
    copied = copy.deepcopy(model, shared)
    if encoder_in_int8 is not None:
        copied.encoder_in_int8, copied.encoder = encoder_in_int8, nn.ModuleList()
        copied.arithmetic = f"int8 encoder, {'bf16' if bf16 else 'float32'} decoder"
    for module in list(copied.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, Linear):
                setattr(module, name, PrepackedLinear(child.weight, child.bias, precision))
    copied.head = PrepackedLinear(model.output_weight, model.output_bias, precision)
    return copied


_MOST_ENCODED = 2**17


@contextmanager
def encoding_once(model: Transformer) -> Iterator[None]:
    """Let a prepacked model remember what it encodes, up to so many tokens, until this is over.

    Exact search begins with a beam search of the same sentences.
    """
    model.encoded = None if model.head is None else {}
    try:
        yield
    finally:
        model.encoded = None


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
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores_BHTS = scores_BHTS.masked_fill(~attn_mask, float("-inf"))
    elif attn_mask is not None:
        scores_BHTS = scores_BHTS + attn_mask
    weights_BHTS = functional.dropout(scores_BHTS.softmax(dim=-1), dropout_p)
    return weights_BHTS.to(values_BHSK.dtype) @ values_BHSK


def source_mask(source_BS: Tensor) -> Tensor | None:
    """Which source positions may be attended to; None where there is no padding at all."""
    real_BS = source_BS != PAD
    # Asking a GPU for the answer would stall it; there the mask is always used.
    if source_BS.device.type == "cpu" and bool(real_BS.all()):
        return None
    return real_BS[:, None, None, :]
