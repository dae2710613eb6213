"""A Transformer for translating on a CPU: packed matrices, and batches that step together.

Plain products unpack the same weights again for every token; for the few rows of a decoding step
that takes as long as the product itself. So oneDNN keeps the matrices in the order in which it
reads them. And a product of a few rows takes nearly as long as one of many: batches of which only
the last sentences are still being written share every product with those that began after them,
while each attends to its own past and its own sources.

A packed model cannot be trained or saved.

Shape letters: as in `scones.model.transformer`.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional

from scones.model.decoder import JoinedState
from scones.model.transformer import DecoderLayer, Transformer


class PackedLinear(nn.Module):
    """A linear layer that only computes."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor) -> None:
        super().__init__()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight_OI.detach().contiguous())
        self._bias = bias_O.detach()

    def forward(self, x: Tensor) -> Tensor:
        """Multiply and add."""
        return self._product(x, "none")

    def relu(self, x: Tensor) -> Tensor:
        """Do the same, and cut what is negative."""
        return self._product(x, "relu")

    def _product(self, x: Tensor, activation: str) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self._weight, self._bias, activation, [], ""
        )
        return y


class PackedTransformer(Transformer):
    """A Transformer that steps in another way; made by `packed`."""

    def start(self, source_BS: Tensor, beams: int = 1) -> JoinedState:  # type: ignore[override]
        """Encode sentences and open a cache with `beams` rows for each of them."""
        state = super().start(source_BS, beams)
        for cache in state.layers:  # every step reads them: worth putting in order once
            cache.cross_keys = cache.cross_keys.contiguous()
            cache.cross_values = cache.cross_values.contiguous()
        if state.mask is not None:
            state.mask = torch.where(state.mask, 0.0, float("-inf"))
        return JoinedState([state])

    def hidden_step(  # type: ignore[override]
        self, state: JoinedState, tokens_N: Tensor
    ) -> Tensor:
        """Step, but stop at the hidden states (N, D) that the logits are made of."""
        x_ND = self.embed_target(tokens_N) + self.positions[state.positions()]
        for index, layer in enumerate(self.decoder_layers()):
            x_ND = _step(layer, x_ND, state, index)
        state.advance()
        hidden_ND: Tensor = self.decoder_norm(x_ND)
        return hidden_ND


def packed(model: Transformer) -> Transformer:
    """Give a copy of a model that translates sooner; on a GPU or in bf16, the model itself."""
    weight = model.output_bias
    fits = weight.device.type == "cpu" and weight.dtype == torch.float32
    if not fits or not torch.backends.mkldnn.is_available():
        return model
    # Weights that stay as they are, embeddings and norms, are shared with the model.
    shared = {id(parameter): parameter for parameter in model.parameters()}
    ours = copy.deepcopy(model, shared)
    ours.__class__ = PackedTransformer  # which has the same data and other methods
    _pack(ours)
    ours.head = PackedLinear(model.output_weight, model.output_bias)
    return ours


def _pack(module: nn.Module) -> None:
    for name, part in module.named_children():
        if isinstance(part, nn.Linear):
            setattr(module, name, PackedLinear(part.weight, part.bias))
        else:
            _pack(part)


def _step(layer: DecoderLayer, x_ND: Tensor, state: JoinedState, index: int) -> Tensor:
    """Transform one new position a row: products over all rows, attention batch by batch."""
    heads = layer.attention.heads
    mixed = []
    for part, projected_NX in state.split(layer.attention.inputs(layer.attention_norm(x_ND))):
        queries, keys, values = projected_NX.view(part.rows, 3, heads, 1, -1).unbind(1)
        mixed.append(_attend(queries, *part.layers[index].append(keys, values)))
    x_ND = x_ND + layer.attention.output(torch.cat(mixed))

    assert layer.cross.query is not None
    mixed = []
    for part, queries_ND in state.split(layer.cross.query(layer.cross_norm(x_ND))):
        # All beams of a sentence attend over the same source: B × beams queries, B memories.
        queries = queries_ND.view(part.sentences, part.beams, heads, -1).transpose(1, 2)
        cache = part.layers[index]
        mixed.append(_attend(queries, cache.cross_keys, cache.cross_values, part.mask))
    x_ND = x_ND + layer.cross.output(torch.cat(mixed))
    return x_ND + layer.feed_forward(layer.feed_forward_norm(x_ND))


def _attend(
    queries_BHkK: Tensor, keys_BHSK: Tensor, values_BHSK: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Attend, and put the heads together again: one row (N, D) a query."""
    mixed_BHkK = functional.scaled_dot_product_attention(
        queries_BHkK, keys_BHSK, values_BHSK, attn_mask=mask
    )
    return mixed_BHkK.transpose(1, 2).flatten(2).flatten(0, 1)
