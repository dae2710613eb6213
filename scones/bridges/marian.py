"""Marian models, such as those of OPUS-MT, opened as they are and turned into SCONES models.

    config.json             of transformers' class MarianMTModel; what `convert` wrote has a
                            section "scones" more
    model.safetensors       the weights, read from this format alone
    source.spm, target.spm  a SentencePiece model for either language
    vocab.json              the ids of the pieces of both
    tokenizer_config.json   the languages; it may be missing, as may generation_config.json

A Marian model is our Transformer with the norms behind the blocks, another activation and other
ids. It becomes ours while it is read, ids included, so that every search takes it as it is.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scones.errors import SconesError, optional_import
from scones.files import FolderKind, damaged, new_folder, read_json, write_json, write_tensors
from scones.model.config import ModelConfig
from scones.model.folder import (
    SIZES,
    FolderConfig,
    ModelFacts,
    ModelFolder,
    OpenedFolder,
    Weights,
    read_weights,
)
from scones.options import from_section
from scones.outputs import output_layer
from scones.outputs.softmax import Softmax
from scones.search.searcher import SearchOptions
from scones.text import PAD, UNKNOWN
from scones.text.subwords import Subwords, processor, unencodable

if TYPE_CHECKING:
    from torch import Tensor

_WEIGHTS, _SOURCE, _TARGET, _VOCABULARY = FILES = (
    "model.safetensors",
    "source.spm",
    "target.spm",
    "vocab.json",
)
_BIAS = "final_logits_bias"
_OPTIONAL = ("tokenizer_config.json", "generation_config.json")
KIND = FolderKind("a converted Marian model", "config.json", (*FILES, *_OPTIONAL))


# Finding a model: in a folder, or on the Hugging Face hub.


def is_marian(folder: Path) -> bool:
    path = folder / "config.json"
    config = read_json(path) if path.is_file() else None
    return isinstance(config, dict) and config.get("model_type") == "marian"


def fetched(name: str | Path) -> Path:
    """The folder that is called so, or that of a model on huggingface.co, such as "Helsinki-NLP/…".

    What stands in a folder that is there is a path, and nobody is asked for it.
    """
    folder = Path(name)
    if folder.parent.exists() or not re.fullmatch(r"[\w.-]+/[\w.-]+", str(name)):
        return folder
    by_hand = f"`hf download {name} --local-dir FOLDER` on a machine with a network gets it"
    hub = optional_import(
        "huggingface_hub",
        f"There is no folder {name}: look at the path. If it is the name of a model on "
        f"huggingface.co, pip install 'scones[huggingface]', or {by_hand}.",
    )
    try:
        folder = Path(hub.snapshot_download(str(name), allow_patterns="config.json"))
        if is_marian(folder):
            hub.snapshot_download(str(name), allow_patterns=[*FILES, *_OPTIONAL])
    except (OSError, ValueError) as problem:  # all that the hub and the network may answer
        reason = str(problem).strip().partition("\n")[0].rstrip(".")
        raise SconesError(
            f"There is no folder {name}: look at the path. If it is the name of a model on "
            f"huggingface.co, it could not be fetched ({reason}); {by_hand}."
        ) from None
    return folder


# Opening it.

_NEVER = -1e4
"""The logit of padding, which no search takes: its probability is 0 in any format."""


@dataclass(frozen=True)
class MarianFolder(OpenedFolder):
    """What a Marian folder holds, with our ids; `subwords` are those of the source."""

    target_subwords: bytes
    pieces: tuple[str, ...]
    """In the order of our ids."""
    order: tuple[int, ...]
    """Their ids there."""

    @classmethod
    def open(cls, folder: Path) -> MarianFolder:
        """Open a folder that `is_marian`, or say in one sentence why it cannot be."""
        path = folder / "config.json"
        config = read_json(path)
        for name in FILES:
            if not (folder / name).is_file():
                raise SconesError(_missing(folder, name))
        sizes = {ours: config[theirs] for ours, theirs in SIZES.items() if theirs in config}
        activation = config.get("activation_function")
        sizes |= {"tied_embeddings": True, "post_norm": True}
        sizes["activation"] = "swish" if activation == "silu" else activation
        shape = from_section(ModelConfig, sizes, f"{path} is damaged")
        ids = _ids(folder / _VOCABULARY, shape.vocabulary)
        for name, due in _due(shape, ids).items():
            if config.get(name, due) != due:
                raise SconesError(
                    f"{path} says {name} {config[name]!r}, and scones opens Marian models with "
                    f"{due!r} there; use scones.bridges.huggingface for others."
                )
        first = [ids[piece] for piece in ("<pad>", "</s>", "<unk>")]  # our ids 0, 1 and 2
        order = (*first, *sorted({*ids.values()} - {*first}))
        spelled = {number: piece for piece, number in ids.items()}
        about = FolderConfig(folder, config, "float32", _facts(folder, config), {})
        source, target = ((folder / name).read_bytes() for name in (_SOURCE, _TARGET))
        return cls(about, shape, source, target, tuple(spelled[one] for one in order), order)

    @cached_property
    def vocabulary(self) -> Subwords:
        """The subwords of both languages."""
        target = MarianSubwords(self.target_subwords, _TARGET, self.pieces)
        return MarianSubwords(self.subwords, _SOURCE, self.pieces, target)

    def weights(self) -> Weights:
        """The weights as our Transformer takes them, in the order of our ids."""
        weights, order = read_weights(self.sizes, self.config.weights), list(self.order)
        for name in ("model.shared.weight", _BIAS):
            weights[name] = weights[name][order]
        weights[_BIAS][PAD] = _NEVER
        for side in ("encoder", "decoder"):  # ours end in a norm, and theirs behind their last
            name, size = f"model.{side}.layer_norm", self.sizes.size
            weights[f"{name}.weight"] = np.ones(size, np.float32)
            weights[f"{name}.bias"] = np.zeros(size, np.float32)
        return weights


def _missing(folder: Path, name: str) -> str:
    if name == _WEIGHTS:
        return (
            f"{folder} has no {name}, and weights in other formats, which can run code, are not "
            "read; transformers writes it: AutoModelForSeq2SeqLM.from_pretrained(…)"
            ".save_pretrained(…)."
        )
    return f"{folder} has no {name}, which a Marian model needs; get the whole folder again."


def _ids(path: Path, size: int) -> dict[str, int]:
    """The ids of the pieces as they are in the file."""
    ids = read_json(path)
    whole = isinstance(ids, dict) and all(type(number) is int for number in ids.values())
    if not whole or sorted(ids.values()) != list(range(size)):
        raise damaged(path, f"it does not name the {size:,} pieces that config.json tells of")
    if absent := [piece for piece in ("<pad>", "</s>", "<unk>") if piece not in ids]:
        raise damaged(path, f"it has no piece {absent[0]}")
    return ids


def _due(sizes: ModelConfig, ids: Mapping[str, int]) -> dict[str, Any]:
    """What a config.json has to say for the model to be one that our Transformer computes."""
    return {
        "decoder_attention_heads": sizes.heads,
        "decoder_ffn_dim": sizes.feed_forward,
        "decoder_vocab_size": sizes.vocabulary,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "scale_embedding": True,
        "decoder_start_token_id": ids["<pad>"],
        "pad_token_id": ids["<pad>"],
        "eos_token_id": ids["</s>"],
    }


def _facts(folder: Path, config: Mapping[str, Any]) -> ModelFacts:
    path, told = folder / "config.json", folder / "tokenizer_config.json"
    said = read_json(told) if told.is_file() else {}
    ours = config.get("scones", {"output": {"layer": "softmax"}})
    for file, content in ((path, ours), (told, said)):
        if not isinstance(content, dict):
            raise damaged(file, f"it says {content!r} where names and values are due")
    languages = {f"{side}_language": said.get(f"{side}_lang", "?") for side in ("source", "target")}
    facts = ModelFacts.from_json(ours | languages, f"{path} is damaged")
    if "layer" not in facts.output:
        raise damaged(path, "the output layer is not named")
    return facts


class MarianSubwords(Subwords):
    """A SentencePiece model of one language, with the ids of a vocabulary for two."""

    def __init__(
        self, model: bytes, origin: str, pieces: Sequence[str], target: Subwords | None = None
    ) -> None:
        self._processor, self.model, self._target = processor(model, origin), model, target
        self._pieces = pieces
        self._ids = {piece: number for number, piece in enumerate(pieces)}

    def __len__(self) -> int:
        return len(self._pieces)

    @property
    def target(self) -> Subwords:
        return self._target or self

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        try:
            # ">>fra<<" in front tells a model of several languages which of them is wanted.
            parts = [re.split("^(>>.*?<<)", text) for text in texts]
            spelled = [self._processor.encode(part[-1], out_type=str) for part in parts]
        except (TypeError, RuntimeError):
            raise unencodable(texts) from None
        return [self.ids(part[1:2] + said) for part, said in zip(parts, spelled, strict=True)]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        return [self.text(row) for row in ids]

    def text(self, ids: Sequence[int]) -> str:
        spelled = self._processor.decode_pieces(self.pieces(one for one in ids if one > UNKNOWN))
        return str(spelled).replace("▁", " ").strip()  # what is no piece of this language keeps it

    def ids(self, pieces: Sequence[str]) -> list[int]:
        return [self._ids.get(piece, UNKNOWN) for piece in pieces]

    def pieces(self, ids: Iterable[int] | None = None) -> list[str]:
        return [self._pieces[number] for number in (range(len(self)) if ids is None else ids)]


# Turning it into a SCONES model: see `scones.bridges.huggingface` for what the shift is.

_MOST = 300
"""Sentences that the shift is measured on: their thousands of tokens tell a mean well enough."""


@dataclass(frozen=True)
class Shift:
    """What was added to the output bias, and what it was measured on."""

    shift: float
    """Minus the mean log-sum-exp of the logits."""
    deviation: float
    """The standard deviation of that log-sum-exp."""
    tokens: int
    """Of the model's own greedy translations."""


def convert(
    name: str | Path,
    target: Path,
    sentences: Sequence[str],
    *,
    overwrite: bool = False,
) -> Shift:
    """Write a Marian model as the SCONES model that it becomes by a shift of its output bias.

    The shift is measured on the model's greedy translations of sentences. What is written opens
    here and in transformers.
    """
    from safetensors.torch import load_file

    KIND.check(target, overwrite)
    folder = fetched(name)
    if not is_marian(folder):
        raise SconesError(
            f"{name} does not exist or is not the folder of a Marian model, which alone is "
            "converted; `hf download Helsinki-NLP/opus-mt-de-en --local-dir FOLDER` gets one."
        )
    opened = MarianFolder.open(folder)
    if not opened.output.is_softmax:
        raise SconesError(f"{name} has a SCONES output layer already; there is nothing to convert.")
    done = _measure(opened, sentences[:_MOST])
    weights = load_file(folder / _WEIGHTS)
    weights[_BIAS] = weights[_BIAS].float() + done.shift
    output = output_layer({"layer": "scones"}).to_config()
    ours = {"output": output, "bias": _BIAS, "conversion": asdict(done)}
    with new_folder(target, KIND, overwrite=overwrite) as hidden:
        write_tensors(hidden / _WEIGHTS, weights, metadata={"format": "pt"})
        for file in (folder / one for one in (*FILES[1:], *_OPTIONAL)):
            if file.is_file():
                shutil.copyfile(file, hidden / file.name)
        write_json(hidden / "config.json", opened.config.pegasus | {"scones": ours})
    return done


class _Normaliser(Softmax):
    """Its scores are the log-sum-exps of the logits."""

    def scores_of(self, logits_NV: Tensor, tokens_N: Tensor) -> Tensor:
        return logits_NV.float().logsumexp(dim=-1)


def _measure(opened: MarianFolder, sentences: Sequence[str]) -> Shift:
    from scones.search.engine import searcher

    sources = opened.vocabulary.encode(sentences)
    sources = [one for one in sources if 0 < len(one) < opened.sizes.max_length]
    engine = searcher(ModelFolder.load(opened).model, _Normaliser())
    found = [best for (best,) in engine.search(sources, SearchOptions()) if best.finished]
    terms = [term for best in found for term in best.token_log_probs or ()]
    if not terms:
        raise SconesError(
            "There is no sentence to measure the shift on: all are empty, too long or translated "
            "without end; give some that the model can translate."
        )
    return Shift(-float(np.mean(terms)), float(np.std(terms)), len(terms))
