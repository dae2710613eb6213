"""A model as transformers' Pegasus class knows it: its names for the weights and for the sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scones.errors import SconesError
from scones.ids import END, PAD
from scones.model.config import ModelConfig
from scones.model.transformer import Transformer


def named_weights(model: Transformer) -> dict[str, Tensor]:
    """Name the weights as transformers' Pegasus class does."""
    return {
        their_name: part.contiguous()
        for name, tensor in model.state_dict().items()
        for their_name, part in zip(
            _their_names(name, model), _parts(name, tensor.detach().cpu()), strict=True
        )
    }


def to_hugging_face(model: Transformer) -> dict[str, Tensor]:
    """Give all that the Pegasus class looks for in a file: weights, and what it could compute."""
    theirs = named_weights(model)
    if not model.config.tied_embeddings:
        # Pegasus keeps this matrix even where nothing uses it.
        theirs["model.shared.weight"] = theirs["model.encoder.embed_tokens.weight"].clone()
    for side in ("encoder", "decoder"):  # computed, but Pegasus asks for them in the file
        theirs[f"model.{side}.embed_positions.weight"] = model.positions.detach().cpu().clone()
    return theirs


def from_hugging_face(theirs: dict[str, Tensor], model: Transformer, path: Path) -> dict[str, Any]:
    """Turn Pegasus names back into ours, checking that every weight is there and fits."""
    state: dict[str, Tensor] = {}
    for name, expected in model.state_dict().items():
        names = _their_names(name, model)
        absent = [their_name for their_name in names if their_name not in theirs]
        if absent:
            raise SconesError(f"{path} is damaged: the weight {absent[0]} is missing.")
        tensor = torch.cat([theirs[their_name] for their_name in names]).float()
        if name == "output_bias":
            tensor = tensor.flatten()
        if tensor.shape != expected.shape:
            raise SconesError(
                f"{path} does not fit its config.json: {names[0]} has the shape "
                f"{tuple(theirs[names[0]].shape)}."
            )
        if not tensor.isfinite().all():
            raise SconesError(f"{path} is damaged: {names[0]} holds a number that is not finite.")
        state[name] = tensor
    return state


def _parts(name: str, tensor: Tensor) -> list[Tensor]:
    if name == "output_bias":
        return [tensor.unsqueeze(0)]
    if ".attention.inputs." in name:
        return list(tensor.chunk(3))
    if ".cross.inputs." in name:
        return list(tensor.chunk(2))
    return [tensor]


def _their_names(name: str, model: Transformer) -> list[str]:
    tied = model.config.tied_embeddings
    fixed = {
        "embedding.weight": "model.shared.weight" if tied else "model.encoder.embed_tokens.weight",
        "target_embedding.weight": "model.decoder.embed_tokens.weight",
        "output_embedding.weight": "lm_head.weight",
        "output_bias": "final_logits_bias",
    }
    if name in fixed:
        return [fixed[name]]
    name, kind = name.rsplit(".", 1)
    if name in ("encoder_norm", "decoder_norm"):
        return [f"model.{name.removesuffix('_norm')}.layer_norm.{kind}"]
    side, number, block, *rest = name.split(".")
    prefix = f"model.{side}.layers.{number}"
    norms = {
        "attention_norm": "self_attn_layer_norm",
        "cross_norm": "encoder_attn_layer_norm",
        "feed_forward_norm": "final_layer_norm",
    }
    if block in norms:
        return [f"{prefix}.{norms[block]}.{kind}"]
    if block == "feed_forward":
        return [f"{prefix}.{'fc1' if rest == ['inner'] else 'fc2'}.{kind}"]
    projections = {
        "query": ["q_proj"],
        "output": ["out_proj"],
        "inputs": ["q_proj", "k_proj", "v_proj"] if block == "attention" else ["k_proj", "v_proj"],
    }
    attention = "self_attn" if block == "attention" else "encoder_attn"
    return [f"{prefix}.{attention}.{part}.{kind}" for part in projections[rest[0]]]


# Our names for the numbers of a model, and Pegasus's.
SIZES = {
    "vocabulary": "vocab_size",
    "encoder_layers": "encoder_layers",
    "decoder_layers": "decoder_layers",
    "size": "d_model",
    "heads": "encoder_attention_heads",
    "feed_forward": "encoder_ffn_dim",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "tied_embeddings": "tie_word_embeddings",
    "max_length": "max_position_embeddings",
}


def pegasus_config(config: ModelConfig) -> dict[str, Any]:
    """Give the sizes of a model as the Pegasus class reads them."""
    return {
        "architectures": ["PegasusForConditionalGeneration"],
        "model_type": "pegasus",
        **{theirs: getattr(config, ours) for ours, theirs in SIZES.items()},
        "decoder_attention_heads": config.heads,
        "decoder_ffn_dim": config.feed_forward,
        "activation_function": "relu",
        "activation_dropout": 0.0,
        "scale_embedding": True,
        # CTranslate2's converter asks for these two.
        "normalize_before": True,
        "normalize_embedding": False,
        "is_encoder_decoder": True,
        "use_cache": True,
        "num_hidden_layers": config.encoder_layers,
        "pad_token_id": PAD,
        "eos_token_id": END,
        "bos_token_id": None,
        "decoder_start_token_id": PAD,
        "forced_eos_token_id": None,
        "dtype": "float32",
    }


def generation_config(config: ModelConfig) -> dict[str, Any]:
    """Give what transformers' `generate` does unless told otherwise: greedy search."""
    return {
        "do_sample": False,
        "num_beams": 1,
        "max_length": config.max_length + 1,  # it counts the token that the decoder starts from
        "pad_token_id": PAD,
        "eos_token_id": END,
        "decoder_start_token_id": PAD,
        "forced_eos_token_id": None,
    }
