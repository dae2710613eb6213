"""The model folder: a Hugging Face folder that needs no custom code.

    config.json              the sizes, as transformers' Pegasus class reads them, and under
                             "scones" what we add: output layer, languages, digests, scores
    model.safetensors        the weights, under that class's names
    generation_config.json   greedy search
    subwords.model           the SentencePiece model
    tokenizer.json           the same for Hugging Face's tokenizers, where they can do it
    tokenizer_config.json    which of their classes reads it
    README.md                a model card

Weights are only ever read from safetensors: a model from a stranger cannot run code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from scones.errors import SconesError
from scones.files import new_folder, read_json, write_file, write_json, write_tensors
from scones.ids import END, PAD
from scones.model.card import model_card
from scones.model.config import ModelConfig
from scones.model.tokenizer import NoTokenizerError, tokenizer_files
from scones.model.transformer import Transformer, sinusoids
from scones.recipes import from_section

FORMAT = 1
SUBWORDS = "subwords.model"


@dataclass
class ModelFolder:
    """What a model folder holds, in memory."""

    model: Transformer
    subwords: bytes
    output: dict[str, Any]
    """The output layer's settings, for `scones.outputs.output_layer`."""
    source_language: str
    target_language: str
    facts: dict[str, Any] = field(default_factory=dict)
    """Where it comes from and how good it is: digests, commit, steps, scores."""

    def save(self, folder: Path, *, overwrite: bool = False) -> None:
        """Write the folder in one step: it is there whole or not at all."""
        with new_folder(Path(folder), overwrite=overwrite) as place:
            self.write_into(place)

    def write_into(self, folder: Path) -> None:
        """Write the folder's files, each in one step, into a folder that exists."""
        state = to_hugging_face(self.model)
        write_tensors(folder / "model.safetensors", state, metadata={"format": "pt"})
        write_file(folder / SUBWORDS, self.subwords)
        no_tokenizer = self._write_tokenizer(folder)
        write_json(folder / "generation_config.json", _generation_config(self.model.config))
        write_file(folder / "README.md", model_card(self.config_json(), no_tokenizer))
        write_json(folder / "config.json", self.config_json())  # last: with it the folder is whole

    def _write_tokenizer(self, folder: Path) -> str | None:
        """Write what `AutoTokenizer` reads, or say in a sentence why there is no such thing."""
        try:
            files = tokenizer_files(self.subwords, self.model.config.max_length)
        except NoTokenizerError as reason:
            return str(reason)
        for name, content in files.items():
            write_json(folder / name, content)
        return None

    def config_json(self) -> dict[str, Any]:
        """Give what stands in config.json."""
        return {
            **_pegasus_config(self.model.config),
            "scones": {
                "format": FORMAT,
                "output": self.output,
                "source_language": self.source_language,
                "target_language": self.target_language,
                **self.facts,
            },
        }

    @classmethod
    def load(cls, folder: Path, device: torch.device | str = "cpu") -> ModelFolder:
        """Read a model folder; a missing or damaged one is refused in one sentence."""
        folder = Path(folder)
        config = read_model_config(folder)
        ours = dict(config["scones"])
        del ours["format"]
        place = folder / "config.json"
        try:
            sizes = {name: config[their] for name, their in _SIZES.items()}
        except KeyError as missing:
            raise SconesError(f"{place} is damaged: {missing} is missing.") from None
        model_config = from_section(ModelConfig, sizes, f"{place} is damaged")
        output = ours.pop("output", None)
        languages = ours.pop("source_language", None), ours.pop("target_language", None)
        if not isinstance(output, dict) or not all(isinstance(code, str) for code in languages):
            raise SconesError(f"{place} is damaged: the output layer or a language is missing.")
        try:
            subwords = (folder / SUBWORDS).read_bytes()
        except OSError as problem:
            raise SconesError(
                f"{folder / SUBWORDS} cannot be read ({problem.strerror}); the model is incomplete."
            ) from None
        model = _load_weights(model_config, folder / "model.safetensors")
        return cls(model.to(device).eval(), subwords, output, *languages, facts=ours)


def read_model_config(folder: Path) -> dict[str, Any]:
    """Read config.json of a model folder of ours, or say in one sentence why it is none."""
    folder = Path(folder)
    if not folder.is_dir():
        raise SconesError(f"The model folder {folder} does not exist.")
    if not (folder / "config.json").is_file():
        raise SconesError(f"{folder} is not a model folder: it has no config.json.")
    config = read_json(folder / "config.json")
    if not isinstance(config, dict) or not isinstance(config.get("scones"), dict):
        raise SconesError(
            f"{folder} is not a SCONES model: its config.json has no 'scones' section."
        )
    if "bias" in config["scones"]:
        raise SconesError(
            f"{folder} is a Hugging Face model that was converted to SCONES; open it with "
            "scones.bridges.huggingface.load_converted."
        )
    if config["scones"].get("format") != FORMAT:
        raise SconesError(
            f"{folder} has format {config['scones'].get('format')!r}, and this version of scones "
            f"reads format {FORMAT}; use the version of scones that wrote it."
        )
    return config


def _load_weights(config: ModelConfig, path: Path) -> Transformer:
    try:
        tensors = load_file(path)
    except FileNotFoundError:
        raise SconesError(f"{path} does not exist; the model is incomplete.") from None
    except (SafetensorError, OSError) as problem:
        raise SconesError(f"{path} is damaged: {problem}.") from None
    with torch.device("meta"):
        model = Transformer(config)
    state = from_hugging_face(tensors, model, path)
    model.load_state_dict(state, assign=True)
    model.positions = sinusoids(config.max_length, config.size)
    return model


def to_hugging_face(model: Transformer) -> dict[str, Tensor]:
    """Name the weights as transformers' Pegasus class does."""
    state = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    theirs: dict[str, Tensor] = {}
    for name, tensor in state.items():
        for their_name, part in zip(_their_names(name, model), _parts(name, tensor), strict=True):
            theirs[their_name] = part.contiguous()
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
_SIZES = {
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


def _pegasus_config(config: ModelConfig) -> dict[str, Any]:
    return {
        "architectures": ["PegasusForConditionalGeneration"],
        "model_type": "pegasus",
        **{theirs: getattr(config, ours) for ours, theirs in _SIZES.items()},
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


def _generation_config(config: ModelConfig) -> dict[str, Any]:
    return {
        "do_sample": False,
        "num_beams": 1,
        "max_length": config.max_length + 1,  # it counts the token that the decoder starts from
        "pad_token_id": PAD,
        "eos_token_id": END,
        "decoder_start_token_id": PAD,
        "forced_eos_token_id": None,
    }
