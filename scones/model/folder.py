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
byte a weight, in model.int8.safetensors (`scones.model.compact`), and nothing that only Hugging
Face would read. It is opened as any other.

Weights are only ever read from safetensors: a model from a stranger cannot run code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from scones.errors import SconesError
from scones.files import new_folder, read_json, write_file, write_json, write_tensors
from scones.model.card import model_card
from scones.model.compact import from_int8, to_int8
from scones.model.config import ModelConfig
from scones.model.pegasus import (
    SIZES,
    from_hugging_face,
    generation_config,
    named_weights,
    pegasus_config,
    to_hugging_face,
)
from scones.model.tokenizer import NoTokenizerError, tokenizer_files
from scones.model.transformer import Transformer, sinusoids
from scones.pocket import find_model
from scones.recipes import from_section

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
