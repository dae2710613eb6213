"""Exports for CTranslate2: a model folder written as one, and compared with the model it came from.

An exported folder is a CTranslate2 model that `scones.load` opens too:

    model.bin                the weights, quantised or not
    shared_vocabulary.json   the pieces, in the order of their ids
    config.json              what CTranslate2 reads, and under "scones" what a model folder says
                             there, with the engine, the quantisation, the check and digests
    subwords.model           the SentencePiece model
    README.md                how to use it with and without scones
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from string import Template
from typing import Any

import torch
from torch import Tensor

from scones.bridges.ctranslate2 import (
    ENGINE,
    FILES,
    CTranslate2Searcher,
    convert,
    digest_of,
    library,
)
from scones.errors import SconesError
from scones.files import FolderKind, file_digest, new_folder, read_json, write_file, write_json
from scones.model.config import ModelConfig
from scones.model.folder import SUBWORDS, FolderConfig, ModelFolder, OpenedFolder
from scones.model.transformer import Transformer
from scones.outputs import output_layer
from scones.search.engine import padded, search_corpus
from scones.search.searcher import Hypothesis, SearchOptions, Sources
from scones.text import END, PAD, UNKNOWN

KIND = FolderKind("an export for CTranslate2", "config.json", (*FILES, "README.md"))


@dataclass(frozen=True)
class Exported:
    """What was written, and how it compares with the model it came from."""

    folder: Path
    quantization: str
    bytes: int
    check: Check


def export(
    source: Path,
    target: Path,
    quantization: str = "float32",
    sentences: Sequence[str] = (),
    *,
    overwrite: bool = False,
) -> Exported:
    """Write a model folder as a CTranslate2 model, whole or not at all.

    Its greedy translations of `sentences` (without any: of random pieces) are compared with our
    own; in float32 a difference that rounding does not explain is an error.
    """
    config, target = FolderConfig.read(source), Path(target)
    source = config.folder
    KIND.check(target, overwrite)
    if config.facts.is_export:
        raise SconesError(f"{source} is an export itself; export the model folder it came from.")
    with new_folder(target, KIND, overwrite=overwrite) as hidden:
        opened = OpenedFolder.of(config)
        convert(opened, hidden, quantization)
        folder = ModelFolder.load(opened)
        sources = _sources(folder, sentences)
        result = check(folder, CTranslate2Searcher(hidden, opened), sources)
        if quantization == "float32" and not result.passed:
            raise SconesError(
                f"CTranslate2 does not give the output of {source}: "
                f"{result.sentences - result.equal} of {result.sentences} sentences differ, by up "
                f"to {result.largest_gap:.2g} in a logit; nothing was written, use PyTorch."
            )
        write_file(hidden / SUBWORDS, folder.subwords)
        ours = folder.facts.to_json() | {
            "engine": ENGINE,
            "engine_version": library().__version__,
            "quantization": quantization,
            "model": asdict(folder.model.config),
            "weights_digest": file_digest(config.weights),
            "check": {"text": "given" if sentences else "random pieces", **asdict(result)},
            "digests": {name: file_digest(hidden / name) for name in FILES},
        }
        theirs = read_json(hidden / "config.json")
        ours["digests"]["config"] = digest_of(theirs)
        write_json(hidden / "config.json", theirs | {"scones": ours})
        write_file(hidden / "README.md", _card(ours, is_softmax=opened.output.is_softmax))
        size = sum(path.stat().st_size for path in hidden.iterdir())
    return Exported(target, quantization, size, result)


def _card(ours: dict[str, Any], *, is_softmax: bool) -> str:
    template = Template(Path(__file__).with_suffix(".md").read_text(encoding="utf-8"))
    known = {"layer": ours["output"]["layer"], "search": _SEARCH[is_softmax]}
    return template.substitute(ours | ours["check"] | known)


_SEARCH = {
    True: "Its logits go through a softmax, as usual: other beam sizes are right too.",
    False: "Keep `beam_size=1`: CTranslate2's beam search applies a softmax, for which this model "
    "was not trained.",
}


# Does a converted model say what the model itself says?

TIE = 1e-3
"""Two tokens whose logits differ by less may change places by rounding alone."""

_WITHOUT_SCORES = SearchOptions(scores=False)
_LOGIT_SENTENCES = 50
_RANDOM_SENTENCES, _RANDOM_PIECES = 64, 20


@dataclass(frozen=True)
class Check:
    """How the greedy translations of two engines compare."""

    sentences: int
    equal: int
    near_ties: int
    """Sentences that part where two tokens have the same logit but for rounding."""
    largest_gap: float
    """The largest difference of the logits of the two tokens where a sentence parts."""
    largest_logit_difference: float
    """Of all logits of the first sentences, between the engines."""

    @property
    def passed(self) -> bool:
        """Whether rounding explains every difference."""
        return self.equal + self.near_ties == self.sentences


def check(folder: ModelFolder, searcher: CTranslate2Searcher, sources: Sources) -> Check:
    """Translate sources, given as ids, by PyTorch and by CTranslate2, and compare."""
    model = folder.model
    ours = search_corpus(model, output_layer(folder.facts.output), sources, _WITHOUT_SCORES)
    theirs = searcher.search(sources, _WITHOUT_SCORES)
    gaps = [
        gap(model, source, _ids(mine), _ids(other))
        for source, (mine,), (other,) in zip(sources, ours, theirs, strict=True)
        if mine != other
    ]
    return Check(
        len(sources),
        len(sources) - len(gaps),
        sum(gap < TIE for gap in gaps),
        max(gaps, default=0.0),
        max(logit_difference(model, searcher, source) for source in sources[:_LOGIT_SENTENCES]),
    )


def _sources(folder: ModelFolder, sentences: Sequence[str]) -> list[list[int]]:
    """The ids of the sentences to check with; without any, of random ones."""
    config = folder.model.config
    if not sentences:
        return random_sources(config)
    encoded = folder.vocabulary.encode(sentences)
    sources = [ids for ids in encoded if 0 < len(ids) < config.max_length]
    if not sources:
        raise SconesError("There is no sentence to check with: all are empty or too long.")
    return sources


def random_sources(config: ModelConfig) -> list[list[int]]:
    """Sentences of random pieces, always the same: every model can read them."""
    chance = random.Random(1)
    pieces = range(UNKNOWN + 1, config.vocabulary)
    longest = min(_RANDOM_PIECES, config.max_length - 1)
    return [chance.choices(pieces, k=chance.randint(1, longest)) for _ in range(_RANDOM_SENTENCES)]


@torch.inference_mode()
def gap(model: Transformer, source: Sequence[int], ours: list[int], theirs: list[int]) -> float:
    """Our logit's lead over theirs where two translations of a sentence part."""
    pairs = enumerate(zip(ours, theirs, strict=False))
    position = next(index for index, (mine, other) in pairs if mine != other)
    logits_V = model.logits(_states(model, source, ours[:position])[-1])
    return float(logits_V[ours[position]] - logits_V[theirs[position]])


@torch.inference_mode()
def logit_difference(
    model: Transformer, searcher: CTranslate2Searcher, source: Sequence[int]
) -> float:
    """The largest difference of any logit along CTranslate2's translation of a sentence."""
    tokens, theirs_TV = searcher.logits(source)
    ours_TV = model.logits(_states(model, source, tokens[:-1]))
    return float((ours_TV.cpu() - torch.from_numpy(theirs_TV)).abs().max())


def _states(model: Transformer, source: Sequence[int], prefix: list[int]) -> Tensor:
    """Our hidden states (T, D) for every token of a prefix, and for the one behind it."""
    inputs_BT = torch.tensor([[PAD, *prefix]], device=model.device)
    return model(padded([source], model.device), inputs_BT)[0]


def _ids(found: Hypothesis) -> list[int]:
    return [*found.tokens, *([END] if found.finished else [])]
