"""The model folder: a Hugging Face folder that needs no custom code.

    config.json              the sizes, as transformers' Pegasus class reads them, and under
                             "scones" what we add: output layer, languages, digests, scores
    model.safetensors        the weights, under that class's names
    generation_config.json   greedy search
    subwords.model           the SentencePiece model
    tokenizer.json           the same for Hugging Face's tokenizers, where they can do it
    tokenizer_config.json    which of their classes reads it
    README.md                a model card

To be small, a folder can be stored as int8 instead ("storage" in config.json, under "scones"): a
byte a weight, in model.int8.safetensors (`scones.model.folder`), and nothing that only Hugging
Face would read. It is opened as any other.

Weights are only ever read from safetensors: a model from a stranger cannot run code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

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
from scones.options import from_section

# Pocket models: small models that come with the package and are opened by name.
#
# Each lies here in a folder of its own name, `pocket-de-en` for German to English, as
# `scones export --to pocket` writes it; its README.md is its model card.

FOLDER = Path(__file__).parents[1] / "pocket"


def pocket_models() -> list[str]:
    """Give the names of the models that come with the package."""
    return sorted(path.parent.name for path in FOLDER.glob("*/config.json"))


def find_model(name: str | Path) -> Path:
    """Give the folder of a model: the one that is called so, or else the pocket model."""
    folder = Path(name)
    if folder.is_dir():
        return folder
    names = pocket_models()
    if str(name) in names:
        return FOLDER / name
    missing = f"The model folder {name} does not exist"
    if len(folder.parts) != 1:  # a path, not a name
        raise SconesError(f"{missing}.")
    if not names:
        raise SconesError(f"{missing}, and this copy of scones brings no pocket models.")
    raise SconesError(f"{missing}; the models that come with scones are {' and '.join(names)}.")


# Weights in a quarter of the room: a byte a number, and a float32 scale a row of a matrix.
#
# The largest number of a row becomes ±127 and the others whole numbers beside it, so that no number
# moves by more than half of the row's scale. Biases and norms, which are few, stay as they are.

_LARGEST = 127
_SCALE = ".scale"


def to_int8(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Store matrices as int8, each with a float32 scale a row beside it, named NAME.scale."""
    stored: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if not _is_matrix(name, tensor):
            stored[name] = tensor
            continue
        scale_R = tensor.abs().amax(1) / _LARGEST
        # Whatever a row of zeros is divided by, it stays zero.
        divisor_R1 = torch.where(scale_R > 0, scale_R, 1).unsqueeze(1)
        steps_RC = (tensor / divisor_R1).round().clamp(-_LARGEST, _LARGEST)
        stored[name] = steps_RC.to(torch.int8)
        stored[name + _SCALE] = scale_R
    return stored


def from_int8(stored: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Give the weights back in float32; `path` is the file that an error message names."""
    weights: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        if name.endswith(_SCALE):
            continue
        if tensor.dtype != torch.int8:
            weights[name] = tensor
            continue
        scale_R = stored.get(name + _SCALE)
        if scale_R is None or scale_R.shape != tensor.shape[:1]:
            raise SconesError(f"{path} is damaged: {name} has no scale for each of its rows.")
        weights[name] = tensor.float() * scale_R.unsqueeze(1)
    return weights


def _is_matrix(name: str, tensor: Tensor) -> bool:
    return tensor.ndim == 2 and name.endswith(".weight")  # the output bias has two dimensions too


# A model as transformers' Pegasus class knows it: its names for the weights and for the sizes.


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


Storage = Literal["float32", "int8"]

FORMAT = 1
SUBWORDS = "subwords.model"
# Another name for int8, so that nobody who knows only floats takes the bytes for weights.
_WEIGHTS: dict[Storage, str] = {
    "float32": "model.safetensors",
    "int8": "model.int8.safetensors",
}


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

    def save(self, folder: Path, *, overwrite: bool = False, storage: Storage = "float32") -> None:
        """Write the folder in one step: it is there whole or not at all."""
        with new_folder(Path(folder), overwrite=overwrite) as place:
            self.write_into(place, storage)

    def write_into(self, folder: Path, storage: Storage = "float32") -> None:
        """Write the folder's files, each in one step, into a folder that exists."""
        no_tokenizer = None
        if storage == "int8":
            write_tensors(folder / _WEIGHTS[storage], to_int8(named_weights(self.model)))
        else:
            state = to_hugging_face(self.model)
            write_tensors(folder / _WEIGHTS[storage], state, metadata={"format": "pt"})
            no_tokenizer = self._write_tokenizer(folder)
            write_json(folder / "generation_config.json", generation_config(self.model.config))
        write_file(folder / SUBWORDS, self.subwords)
        config = self.config_json(storage)
        write_file(folder / "README.md", model_card(config, no_tokenizer))
        write_json(folder / "config.json", config)  # last: with it the folder is whole

    def _write_tokenizer(self, folder: Path) -> str | None:
        """Write what `AutoTokenizer` reads, or say in a sentence why there is no such thing."""
        try:
            files = tokenizer_files(self.subwords, self.model.config.max_length)
        except NoTokenizerError as reason:
            return str(reason)
        for name, content in files.items():
            write_json(folder / name, content)
        return None

    def config_json(self, storage: Storage = "float32") -> dict[str, Any]:
        """Give what stands in config.json."""
        return {
            **pegasus_config(self.model.config),
            "scones": {
                "format": FORMAT,
                **({} if storage == "float32" else {"storage": storage}),
                "output": self.output,
                "source_language": self.source_language,
                "target_language": self.target_language,
                **self.facts,
            },
        }

    @classmethod
    def load(cls, folder: Path, device: torch.device | str = "cpu") -> ModelFolder:
        """Read a model folder, or a pocket model by its name; a damaged one is refused."""
        folder = find_model(folder)
        config = read_model_config(folder)
        ours = dict(config["scones"])
        del ours["format"]
        ours.pop("storage", None)
        place = folder / "config.json"
        try:
            sizes = {name: config[their] for name, their in SIZES.items()}
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
        model = _load_weights(model_config, weights_file(folder))
        return cls(model.to(device).eval(), subwords, output, *languages, facts=ours)


def read_model_config(folder: Path) -> dict[str, Any]:
    """Read config.json of a model folder of ours, or say in one sentence why it is none."""
    folder = find_model(folder)
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


def weights_file(folder: Path) -> Path:
    """Give the file of a model folder that holds its weights."""
    folder = find_model(folder)
    storage = read_model_config(folder)["scones"].get("storage", "float32")
    if storage not in get_args(Storage):
        raise SconesError(
            f"{folder} is stored as {storage!r}, which this version of scones does not read; use "
            "the version of scones that wrote it."
        )
    return folder / _WEIGHTS[storage]


def _load_weights(config: ModelConfig, path: Path) -> Transformer:
    try:
        tensors = load_file(path)
    except FileNotFoundError:
        raise SconesError(f"{path} does not exist; the model is incomplete.") from None
    except (SafetensorError, OSError) as problem:
        raise SconesError(f"{path} is damaged: {problem}.") from None
    if path.name == _WEIGHTS["int8"]:
        tensors = from_int8(tensors, path)
    with torch.device("meta"):
        model = Transformer(config)
    state = from_hugging_face(tensors, model, path)
    model.load_state_dict(state, assign=True)
    model.positions = sinusoids(config.max_length, config.size)
    return model


# A model folder written again in another form: as int8, or back in full for Hugging Face.


@dataclass(frozen=True)
class Stored:
    """What was written, and how it compares with the model it came from."""

    folder: Path
    storage: Storage
    parameters: int
    bytes: int
    largest_error: float
    """The largest difference between a weight and what is read back for it."""


def store_again(
    source: Path,
    target: Path,
    storage: Storage,
    told: Mapping[str, Any] | None = None,
    *,
    overwrite: bool = False,
) -> Stored:
    """Write the model folder `source` as `target`, whole or not at all, and read it back.

    `told` is for the model card (`scones.model.card.check_told`).
    """
    source, target = find_model(source), Path(target)
    if target.exists() and overwrite:
        _check_replaceable(source, target)
    if "engine" in read_model_config(source)["scones"]:
        raise SconesError(f"{source} is an export itself; export the model folder it came from.")
    folder = ModelFolder.load(source)
    folder.facts.pop("name", None)  # whoever writes it elsewhere says how it is called there
    folder.facts |= told or {}
    folder.save(target, overwrite=overwrite, storage=storage)
    written = ModelFolder.load(target).model.state_dict()
    weights = folder.model.state_dict()
    errors = [(tensor - written[name]).abs().max().item() for name, tensor in weights.items()]
    return Stored(
        target,
        storage,
        sum(tensor.numel() for tensor in weights.values()),
        sum(path.stat().st_size for path in target.iterdir()),
        max(errors),
    )


def _check_replaceable(source: Path, target: Path) -> None:
    """Refuse to replace what somebody may still need: the model itself, a run, any other folder."""
    try:
        read_model_config(target)
    except SconesError:
        raise SconesError(
            f"{target} is not a model, so it is not overwritten; choose another name."
        ) from None
    if target.samefile(source) or (target / "training").exists():
        raise SconesError(f"{target} is the model itself or a training run; choose another name.")
