"""Our weights as CTranslate2 reads them: a folder that its `Translator` opens."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor, nn

from scones.errors import SconesError
from scones.ids import END, PAD, UNKNOWN
from scones.model.folder import SUBWORDS, ModelFolder
from scones.model.transformer import Attention, DecoderLayer, EncoderLayer
from scones.text.subwords import Subwords

QUANTIZATIONS = ("float32", "int8", "float16", "bfloat16")


def library() -> ModuleType:
    """Import CTranslate2, or say how to get it."""
    if torch.backends.cpu.get_cpu_capability() == "AVX512":
        # It uses them only if told to; int8 is an eighth faster with them.
        os.environ.setdefault("CT2_FORCE_CPU_ISA", "AVX512")
    try:
        return import_module("ctranslate2")
    except ImportError:
        raise SconesError(
            "CTranslate2 is not installed; install it with pip install 'scones[ctranslate2]'."
        ) from None


def pieces_of(folder: ModelFolder) -> list[str]:
    """Give the vocabulary in the order of its ids."""
    subwords = Subwords(folder.subwords)
    expected = folder.model.config.vocabulary
    if len(subwords) != expected:
        raise SconesError(
            f"The model is damaged: {SUBWORDS} has {len(subwords):,} pieces and config.json says "
            f"{expected:,}."
        )
    return subwords.pieces(range(expected))


def convert(folder: ModelFolder, place: Path, quantization: str = "float32") -> None:
    """Write model.bin, shared_vocabulary.json and config.json into a place that exists."""
    specs = library().specs
    pieces = pieces_of(folder)
    model, config = folder.model, folder.model.config
    layers = (config.encoder_layers, config.decoder_layers)
    spec = specs.TransformerSpec.from_config(layers, config.heads, pre_norm=True)
    for side, ours in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        side.position_encodings.encodings = _array(model.positions)
        for their_layer, layer in zip(side.layer, ours, strict=True):
            _set_layer(their_layer, cast(EncoderLayer | DecoderLayer, layer))
    _set_norm(spec.encoder.layer_norm, model.encoder_norm)
    _set_norm(spec.decoder.layer_norm, model.decoder_norm)
    target = model.embedding if config.tied_embeddings else model.target_embedding
    spec.encoder.embeddings[0].weight = _array(model.embedding.weight)
    spec.decoder.embeddings.weight = _array(target.weight)
    spec.decoder.projection.weight = _array(model.output_weight)
    spec.decoder.projection.bias = _array(model.output_bias)
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.bos_token = spec.config.decoder_start_token = pieces[PAD]
    spec.config.eos_token = pieces[END]
    spec.config.unk_token = pieces[UNKNOWN]
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize(quantization)
    spec.save(str(place))


def _set_layer(their: Any, layer: EncoderLayer | DecoderLayer) -> None:
    _set_norm(their.self_attention.layer_norm, layer.attention_norm)
    _set_attention(their.self_attention, layer.attention)
    if isinstance(layer, DecoderLayer):
        _set_norm(their.attention.layer_norm, layer.cross_norm)
        _set_attention(their.attention, layer.cross)
    _set_norm(their.ffn.layer_norm, layer.feed_forward_norm)
    _set_linear(their.ffn.linear_0, layer.feed_forward.inner)
    _set_linear(their.ffn.linear_1, layer.feed_forward.outer)


def _set_attention(their: Any, attention: Attention) -> None:
    ours = [attention.query, attention.inputs, attention.output]
    for their_linear, linear in zip(their.linear, filter(None, ours), strict=True):
        _set_linear(their_linear, linear)


def _set_linear(their: Any, linear: nn.Linear) -> None:
    their.weight = _array(linear.weight)
    their.bias = _array(linear.bias)


def _set_norm(their: Any, norm: nn.LayerNorm) -> None:
    their.gamma = _array(norm.weight)
    their.beta = _array(norm.bias)


def _array(tensor: Tensor) -> Any:
    # A copy, since CTranslate2 quantises in place; an array rather than a tensor, since it looks
    # for equal weights and sees at the first number of two arrays that they differ.
    return tensor.detach().cpu().numpy().copy()
