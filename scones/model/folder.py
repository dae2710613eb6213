"""The model folder: a Hugging Face folder that needs no custom code.

    config.json              the sizes, as transformers' Pegasus class reads them, and under
                             "scones" what we add (`ModelFacts`)
    model.safetensors        the weights, under that class's names
    generation_config.json   greedy search
    subwords.model           the SentencePiece model
    tokenizer.json           the same for Hugging Face's tokenizers, where they can do it
    tokenizer_config.json    which of their classes reads it
    README.md                a model card

To be small, a folder can be stored as int8 instead ("storage" in config.json, under "scones"): a
byte per weight, in model.int8.safetensors, and nothing that only Hugging Face would read. It is
opened as any other. Pocket models, which come with the package, are such folders.

Weights are only ever read from safetensors: a model from a stranger cannot run code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from scones.cache import check_digests
from scones.errors import SconesError
from scones.files import (
    FolderKind,
    damaged,
    file_digest,
    new_folder,
    read_json,
    regular,
    write_file,
    write_json,
    write_tensors,
)
from scones.model.card import model_card
from scones.model.config import ModelConfig, sinusoids
from scones.options import from_section
from scones.outputs import OutputLayer, output_layer
from scones.text import END, PAD
from scones.text.subwords import Subwords

# Not every engine is PyTorch: a folder is opened, and its weights are read, without it.
if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from scones.model.transformer import Transformer

Weights = dict[str, Any]
"""NumPy arrays under the names of transformers' Pegasus class."""

Storage = Literal["float32", "int8"]

FORMAT = 1
SUBWORDS = "subwords.model"
POCKET = Path(__file__).parents[1] / "pocket"
# Another name for int8, so that nobody who knows only floats takes the bytes for weights.
_WEIGHTS = {"float32": "model.safetensors", "int8": "model.int8.safetensors"}
KIND = FolderKind(
    "a model folder",
    "config.json",
    (
        *_WEIGHTS.values(),
        SUBWORDS,
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "README.md",
    ),
)
_OUTPUT_BIAS = "final_logits_bias"
_REMEDY = (
    "get the model again or, if you changed it yourself, remove the digests from its config.json"
)


@dataclass(frozen=True)
class ModelFacts:
    """What a model folder says of itself: the section "scones" of its config.json.

    None stands for what nobody said, and is not written. The order of the fields is that of the
    file.
    """

    output: dict[str, Any]
    """The output layer's settings, for `scones.outputs.output_layer`."""
    source_language: str
    target_language: str

    # What training knows.
    steps: int | None = None
    seed: int | None = None
    data_digest: str | None = None
    vocabulary_digest: str | None = None
    commit: str | None = None
    scones_version: str | None = None
    scores: dict[str, Any] | None = None
    """On the development set."""
    confidence: dict[str, Any] | None = None
    """What `scones calibrate` fitted (`scones.evaluation.calibration`)."""

    # What people add (`scones export --card`), for the model card.
    name: str | None = None
    """What `scones.load` calls the model."""
    licence: str | None = None
    data: dict[str, dict[str, Any]] | None = None
    tests: dict[str, dict[str, Any]] | None = None
    signature: str | None = None
    limits: list[str] | None = None

    others: dict[str, Any] = field(default_factory=dict)
    """Keys that only other versions know, and what an export says of its engine."""

    @classmethod
    def from_json(cls, section: Mapping[str, Any], origin: str = "scones") -> ModelFacts:
        """Take the section, each entry of the type that it should have."""
        known = {one.name for one in fields(cls)} - {"others"}
        said: dict[str, Any] = {name: section[name] for name in known & section.keys()}
        apart = {*known, "format", "storage", "digests"}
        others = {name: value for name, value in section.items() if name not in apart}
        return from_section(cls, {**said, "others": others}, origin)

    def to_json(self, storage: str = "float32") -> dict[str, Any]:
        section: dict[str, Any] = {"format": FORMAT}
        if storage != "float32":
            section["storage"] = storage
        for name, value in vars(self).items():
            # Of an installed package no commit is known, and training says so: null.
            unknown_commit = name == "commit" and self.scones_version is not None
            if name != "others" and (value is not None or unknown_commit):
                section[name] = value
        return section | self.others

    @property
    def is_export(self) -> bool:
        """Whether the folder was exported for another engine, which alone can run it."""
        return "engine" in self.others


def pocket_models() -> list[str]:
    """The names of the models that come with the package."""
    return sorted(path.parent.name for path in POCKET.glob("*/config.json"))


def find_model(name: str | Path) -> Path:
    """The folder that is called so, or else the pocket model of that name."""
    folder = Path(name)
    if folder.is_dir():
        return folder
    names = pocket_models()
    if str(name) in names:
        return POCKET / name
    if folder.exists():
        raise SconesError(f"{name} is a file; give the folder of a model.")
    missing = f"The model folder {name} does not exist"
    if len(folder.parts) != 1:  # a path, not a name
        raise SconesError(f"{missing}.")
    if not names:
        raise SconesError(f"{missing}, and this copy of scones brings no pocket models.")
    raise SconesError(f"{missing}; the models that come with scones are {', '.join(names)}.")


@dataclass(frozen=True)
class FolderConfig:
    """The config.json of a model folder: read once, and handed on to whoever opens the rest."""

    folder: Path
    pegasus: dict[str, Any]
    storage: str
    facts: ModelFacts
    digests: dict[str, str]
    """SHA-256 of files by their names, and of "sizes"; earlier versions wrote none."""

    @classmethod
    def read(cls, name: str | Path) -> FolderConfig:
        """Read it, of a model folder or a pocket model, or say in one sentence why it is none."""
        folder = find_model(name)
        if not (folder / "config.json").is_file():
            raise SconesError(f"{folder} is not a model folder: it has no config.json.")
        config = read_json(folder / "config.json")
        config = config if isinstance(config, dict) else {}
        if config.get("model_type") == "marian":
            raise SconesError(
                f"{folder} is a Marian model; scones translate, score, info and convert take such, "
                "and nothing else here does."
            )
        ours = config.get("scones")
        if not isinstance(ours, dict):
            raise SconesError(
                f"{folder} is not a SCONES model: its config.json has no 'scones' section; of "
                "other models Marian's are opened, and scones.bridges.huggingface converts more."
            )
        if "bias" in ours:
            raise SconesError(
                f"{folder} is a Hugging Face model that was converted to SCONES; open it with "
                "scones.bridges.huggingface.load_converted."
            )
        if ours.get("format") != FORMAT:
            raise SconesError(
                f"{folder} has format {ours.get('format')!r}, and this version of scones "
                f"reads format {FORMAT}; use the version of scones that wrote it."
            )
        digests = ours.get("digests", {})
        if not isinstance(digests, dict):
            raise damaged(folder / "config.json", "its digests are none")
        facts = ModelFacts.from_json(ours, f"{folder / 'config.json'} is damaged")
        if "layer" not in facts.output:
            raise damaged(folder / "config.json", "the output layer is not named")
        return cls(folder, config, ours.get("storage", "float32"), facts, digests)

    @property
    def path(self) -> Path:
        return self.folder / "config.json"

    @property
    def weights(self) -> Path:
        if self.storage not in tuple(_WEIGHTS):  # it may be anything
            raise SconesError(
                f"{self.folder} is stored as {self.storage!r}, which this version of scones does "
                "not read; use the version of scones that wrote it."
            )
        return self.folder / _WEIGHTS[self.storage]

    def sizes(self) -> ModelConfig:
        """The sizes, after a look at all that would change what the model computes."""
        try:
            sizes = {name: self.pegasus[their] for name, their in SIZES.items()}
        except KeyError as missing:
            raise damaged(self.path, f"{missing} is missing") from None
        config = from_section(ModelConfig, sizes, f"{self.path} is damaged")
        for name, value in pegasus_config(config).items():
            if name not in _FREE and self.pegasus.get(name, value) != value:
                raise damaged(
                    self.path, f"it says {name} {self.pegasus[name]!r} where {value!r} is due"
                )
        if self.digests.get("sizes") not in (None, _digest_of(config)):
            raise damaged(self.path, "its sizes are not those that were written there", _REMEDY)
        return config

    def digest_of(self, name: str) -> str:
        """The SHA-256 of a file, as it is written here or else as the file is."""
        return self.digests.get(name) or file_digest(self.folder / name)

    def verify(self, subwords: bytes, force: bool = False) -> None:
        """Compare the vocabulary and, unless it was done before, the weights with their digests."""
        vocabulary = self.digests.get(SUBWORDS, self.facts.vocabulary_digest)
        if vocabulary not in (None, hashlib.sha256(subwords).hexdigest()):
            raise damaged(self.folder / SUBWORDS, "it is not the model's vocabulary", _REMEDY)
        if digest := self.digests.get(self.weights.name):
            check_digests(self.folder, {self.weights.name: digest}, _REMEDY, force)


@dataclass(frozen=True)
class OpenedFolder:
    """What a model folder holds but its weights, and how to read those."""

    config: FolderConfig
    sizes: ModelConfig
    subwords: bytes
    """The SentencePiece model."""

    @classmethod
    def of(cls, config: FolderConfig, verify: bool = False) -> OpenedFolder:
        """Open a folder; a damaged one is refused.

        Weights are compared with their digest once, and again only when their file has changed,
        or where `verify` asks for it.
        """
        sizes = config.sizes()
        subwords = regular(config.folder / SUBWORDS).read_bytes()
        config.verify(subwords, verify)
        return cls(config, sizes, subwords)

    @property
    def facts(self) -> ModelFacts:
        return self.config.facts

    @cached_property
    def vocabulary(self) -> Subwords:
        """The subwords, opened."""
        return _vocabulary(self.subwords, self.sizes)

    @cached_property
    def output(self) -> OutputLayer:
        return output_layer(self.facts.output, str(self.config.path))

    def weights(self) -> Weights:
        """The weights in float32, all there and of the right shapes."""
        return read_weights(self.sizes, self.config.weights)


def _vocabulary(subwords: bytes, sizes: ModelConfig) -> Subwords:
    opened = Subwords(subwords, SUBWORDS)
    if len(opened) != sizes.vocabulary:
        raise SconesError(
            f"The model is damaged: its {SUBWORDS} has {len(opened):,} pieces and its "
            f"config.json says {sizes.vocabulary:,}."
        )
    return opened


def read_facts(name: str | Path) -> ModelFacts:
    """What a model folder, or a pocket model, says of itself."""
    return FolderConfig.read(name).facts


@dataclass
class ModelFolder:
    """What a model folder holds, in memory."""

    model: Transformer
    subwords: bytes
    """The SentencePiece model."""
    facts: ModelFacts

    @cached_property
    def vocabulary(self) -> Subwords:
        """The subwords, opened."""
        return _vocabulary(self.subwords, self.model.config)

    @classmethod
    def load(
        cls,
        folder: str | Path | FolderConfig | OpenedFolder,
        device: torch.device | str = "cpu",
        verify: bool = False,
    ) -> ModelFolder:
        """Read a model folder, or a pocket model by its name; see `OpenedFolder.of`."""
        if not isinstance(folder, OpenedFolder):
            config = folder if isinstance(folder, FolderConfig) else FolderConfig.read(folder)
            folder = OpenedFolder.of(config, verify)
        model = _model_of(folder.weights(), folder.sizes)
        return cls(model.to(device).eval(), folder.subwords, folder.facts)

    def save(self, folder: Path, *, overwrite: bool = False, storage: Storage = "float32") -> None:
        """Write the folder in one step: it is there whole or not at all."""
        with new_folder(Path(folder), KIND, overwrite=overwrite) as hidden:
            self.write_into(hidden, storage)

    def write_into(self, folder: Path, storage: Storage = "float32") -> None:
        """Write the folder's files, each in one step, into a folder that exists."""
        sizes, no_tokenizer = self.model.config, None
        _withdraw_digests(folder)
        if storage == "int8":
            write_tensors(folder / _WEIGHTS[storage], to_int8(named_weights(self.model)))
        else:
            state = to_hugging_face(self.model)
            write_tensors(folder / _WEIGHTS[storage], state, metadata={"format": "pt"})
            no_tokenizer = self._write_tokenizer(folder)
            write_json(folder / "generation_config.json", generation_config(sizes))
        write_file(folder / SUBWORDS, self.subwords)
        card = model_card(self.facts, sizes, small=storage == "int8", no_tokenizer=no_tokenizer)
        write_file(folder / "README.md", card)
        digests = {name: file_digest(folder / name) for name in (_WEIGHTS[storage], SUBWORDS)}
        digests["sizes"] = _digest_of(sizes)
        ours = self.facts.to_json(storage) | {"digests": digests}
        config = pegasus_config(sizes) | {"scones": ours}
        write_json(folder / "config.json", config)  # last: with it the folder is whole

    def _write_tokenizer(self, folder: Path) -> str | None:
        """Write what `AutoTokenizer` reads, or say in a sentence why there is no such thing."""
        from scones.model.tokenizer import NoTokenizerError, tokenizer_files

        try:
            files = tokenizer_files(self.subwords, self.model.config.max_length)
        except NoTokenizerError as reason:
            return str(reason)
        for name, content in files.items():
            write_json(folder / name, content)
        return None


def keep_confidence(config: FolderConfig, confidence: dict[str, Any]) -> None:
    """Write what was fitted for a model into its config.json, in one step."""
    section = config.pegasus["scones"] | {"confidence": confidence}
    write_json(config.path, config.pegasus | {"scones": section})


def _withdraw_digests(folder: Path) -> None:
    """Let a run's model promise nothing of its files while they are replaced one by one.

    A process that is killed meanwhile leaves new weights beside an old config.json, which is no
    damage.
    """
    if (folder / "config.json").exists():
        config = FolderConfig.read(folder).pegasus
        config["scones"].pop("digests", None)
        write_json(folder / "config.json", config)


def _digest_of(sizes: ModelConfig) -> str:
    # Dropout is for training, and may be changed.
    decisive = {name: getattr(sizes, name) for name in SIZES if "dropout" not in name}
    return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()


def read_weights(config: ModelConfig, path: Path) -> Weights:
    """Read a file of weights, of either storage, as float32 arrays; a damaged one is refused."""
    from safetensors import SafetensorError

    try:
        if path.name == _WEIGHTS["int8"]:
            from safetensors.numpy import load_file as load_arrays

            found = from_int8(load_arrays(regular(path)), path)
        else:  # NumPy does not know bfloat16
            from safetensors.torch import load_file

            found = {name: one.float().numpy() for name, one in load_file(regular(path)).items()}
    except (SafetensorError, OSError) as problem:
        raise damaged(path, problem) from None
    weights = {}
    for name, shape in _shapes(config).items():
        if name not in found:
            raise damaged(path, f"the weight {name} is missing")
        weights[name] = found[name].ravel() if name == _OUTPUT_BIAS else found[name]
        if weights[name].shape != shape:
            raise SconesError(
                f"{path} does not fit its config.json: {name} has the shape {found[name].shape}."
            )
        if not np.isfinite(weights[name]).all():
            raise damaged(path, f"{name} holds a number that is not finite")
    return weights


def _model_of(weights: Weights, config: ModelConfig) -> Transformer:
    import torch

    from scones.model.transformer import Transformer

    with torch.device("meta"):  # no memory and no random numbers for weights that are replaced
        model = Transformer(config)
    model.load_state_dict(from_hugging_face(weights, model), assign=True)
    model.positions = torch.from_numpy(sinusoids(config.max_length, config.size))
    return model


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
    metadata: Mapping[str, Any] | None = None,
    *,
    overwrite: bool = False,
) -> Stored:
    """Write the model folder `source` as `target`, whole or not at all, and read it back.

    `metadata` is for the model card (`scones.model.card.check_metadata`).
    """
    config, target = FolderConfig.read(source), Path(target)
    KIND.check(target, overwrite)
    if target.exists() and target.samefile(config.folder):
        raise SconesError(f"{target} is the model itself; choose another name.")
    if config.facts.is_export:
        raise SconesError(
            f"{config.folder} is an export itself; export the model folder it came from."
        )
    folder = ModelFolder.load(config)
    # Whoever writes it elsewhere says how it is called there; its confidence is of its arithmetic.
    folder.facts = replace(folder.facts, confidence=None, **{"name": None, **(metadata or {})})
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


# A model as transformers' Pegasus class knows it: its names for the weights and for the sizes.


def named_weights(model: Transformer) -> dict[str, Tensor]:
    """Name the weights as transformers' Pegasus class does."""
    theirs: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        if name == "output_bias":
            tensor = tensor.unsqueeze(0)
        # Our projections of one input are one matrix; there each is a matrix of its own.
        names = _their_names(name, model)
        for their_name, part in zip(names, tensor.detach().cpu().chunk(len(names)), strict=True):
            theirs[their_name] = part.contiguous()
    return theirs


def to_hugging_face(model: Transformer) -> dict[str, Tensor]:
    """All that the Pegasus class looks for in a file: weights, and what it could compute."""
    theirs = named_weights(model)
    if not model.config.tied_embeddings:
        # Pegasus keeps this matrix even where nothing uses it.
        theirs["model.shared.weight"] = theirs["model.encoder.embed_tokens.weight"].clone()
    for side in ("encoder", "decoder"):  # computed, but Pegasus asks for them in the file
        theirs[f"model.{side}.embed_positions.weight"] = model.positions.detach().cpu().clone()
    return theirs


def from_hugging_face(theirs: Weights, model: Transformer) -> dict[str, Tensor]:
    """Turn Pegasus names back into ours."""
    import torch

    return {
        name: torch.from_numpy(np.concatenate([theirs[one] for one in _their_names(name, model)]))
        for name in model.state_dict()
    }


# The parts of a layer by our names. Projections of one input are one matrix here.
_PARTS = {
    "attention_norm": ["self_attn_layer_norm"],
    "attention.inputs": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    "attention.output": ["self_attn.out_proj"],
    "cross_norm": ["encoder_attn_layer_norm"],
    "cross.query": ["encoder_attn.q_proj"],
    "cross.inputs": ["encoder_attn.k_proj", "encoder_attn.v_proj"],
    "cross.output": ["encoder_attn.out_proj"],
    "feed_forward_norm": ["final_layer_norm"],
    "feed_forward.inner": ["fc1"],
    "feed_forward.outer": ["fc2"],
}


def _shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """The shapes of the weights that a file must hold; the output bias without its first one."""
    untied = ("model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
    tables = ("model.shared",) if config.tied_embeddings else untied
    shapes: dict[str, tuple[int, ...]] = {_OUTPUT_BIAS: (config.vocabulary,)}
    shapes |= {f"{table}.weight": (config.vocabulary, config.size) for table in tables}
    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        parts = [name for name in _PARTS if side == "decoder" or "cross" not in name]
        names = [] if config.post_norm else [f"model.{side}.layer_norm"]
        for prefix in (f"model.{side}.layers.{number}" for number in range(layers)):
            names += [f"{prefix}.{name}" for part in parts for name in _PARTS[part]]
        for name in names:
            rows, columns = (
                config.feed_forward if name.endswith(wide) else config.size
                for wide in ("fc1", "fc2")
            )
            shapes[f"{name}.weight"] = (rows,) if name.endswith("norm") else (rows, columns)
            shapes[f"{name}.bias"] = (rows,)
    return shapes


def _their_names(name: str, model: Transformer) -> list[str]:
    tied = model.config.tied_embeddings
    fixed = {
        "embedding.weight": "model.shared.weight" if tied else "model.encoder.embed_tokens.weight",
        "target_embedding.weight": "model.decoder.embed_tokens.weight",
        "output_embedding.weight": "lm_head.weight",
        "output_bias": _OUTPUT_BIAS,
    }
    if name in fixed:
        return [fixed[name]]
    name, kind = name.rsplit(".", 1)
    if name in ("encoder_norm", "decoder_norm"):
        return [f"model.{name.removesuffix('_norm')}.layer_norm.{kind}"]
    side, number, part = name.split(".", 2)
    return [f"model.{side}.layers.{number}.{one}.{kind}" for one in _PARTS[part]]


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
# What may differ from `pegasus_config`: it changes nothing here.
_FREE = ("architectures", "activation_dropout", "use_cache", "dtype")


def pegasus_config(config: ModelConfig) -> dict[str, Any]:
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
    """What transformers' `generate` does unless told otherwise: greedy search."""
    return {
        "do_sample": False,
        "num_beams": 1,
        "max_length": config.max_length + 1,  # it counts the token that the decoder starts from
        "pad_token_id": PAD,
        "eos_token_id": END,
        "decoder_start_token_id": PAD,
        "forced_eos_token_id": None,
    }


# Weights in a quarter of the space: a byte per number, and a float32 scale per row of a matrix.
#
# The largest number of a row becomes ±127 and the others whole numbers beside it, so that no number
# moves by more than half of the row's scale. Biases and norms, which are few, stay as they are.

_INT8_MAX = 127
_SCALE = ".scale"


def to_int8(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Store matrices as int8, each with a float32 scale per row beside it, named NAME.scale."""
    import torch

    stored: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if tensor.ndim != 2 or not name.endswith(".weight"):  # the output bias is (1, V) there
            stored[name] = tensor
            continue
        scale_R = tensor.abs().amax(1) / _INT8_MAX
        # Whatever a row of zeros is divided by, it stays zero.
        divisor_R1 = torch.where(scale_R > 0, scale_R, 1).unsqueeze(1)
        steps_RC = (tensor / divisor_R1).round().clamp(-_INT8_MAX, _INT8_MAX)
        stored[name] = steps_RC.to(torch.int8)
        stored[name + _SCALE] = scale_R
    return stored


def from_int8(stored: Weights, path: Path) -> Weights:
    """The weights back in float32; `path` is the file that an error message names."""
    weights = {}
    for name, array in stored.items():
        if name.endswith(_SCALE):
            continue
        if array.dtype == np.int8:
            scale_R = stored.get(name + _SCALE)
            if scale_R is None or scale_R.shape != array.shape[:1]:
                raise damaged(path, f"{name} has no scale for each of its rows")
            array = array * scale_R[:, None].astype(np.float32)
        weights[name] = array.astype(np.float32, copy=False)
    return weights
