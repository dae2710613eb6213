"""CTranslate2: models that run there, and the engine that runs them for us.

CTranslate2 takes the arg max of raw logits in greedy search, which is right for every output
layer, and applies a softmax in beam search, which is right for softmax models alone.

An exported folder is a CTranslate2 model that `scones.load` opens too:

    model.bin                the weights, quantised or not
    shared_vocabulary.json   the pieces, in the order of their ids
    config.json              what CTranslate2 reads, and under "scones" what a model folder says
                             there, with the engine, the quantisation, the check and digests
    subwords.model           the SentencePiece model
    README.md                how to use it with and without scones
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from string import Template
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from scones.cache import check_digests
from scones.errors import SconesError, optional_import
from scones.files import FolderKind, file_digest, new_folder, read_json, write_file, write_json
from scones.model.config import ModelConfig
from scones.model.folder import SUBWORDS, FolderConfig, ModelFolder
from scones.model.transformer import Attention, DecoderLayer, EncoderLayer, Transformer
from scones.options import from_section
from scones.outputs import OutputLayer, output_layer
from scones.search.engine import (
    SearchOptions,
    Sources,
    batches_by_length,
    length_limit,
    padded,
    search_corpus,
)
from scones.search.greedy import Hypothesis, hypothesis
from scones.text import END, PAD, UNKNOWN

ENGINE = "ctranslate2"
QUANTIZATIONS = ("float32", "int8", "float16", "bfloat16")
_FILES = ("model.bin", "shared_vocabulary.json", SUBWORDS)
KIND = FolderKind("an export for CTranslate2", "config.json", (*_FILES, "README.md"))


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
    library()
    if quantization not in QUANTIZATIONS:
        known = ", ".join(QUANTIZATIONS)
        raise SconesError(f"The quantisation '{quantization}' is not known; there are {known}.")
    config, target = FolderConfig.read(source), Path(target)
    source = config.folder
    KIND.check(target, overwrite)
    if config.facts.is_export:
        raise SconesError(f"{source} is an export itself; export the model folder it came from.")
    with new_folder(target, KIND, overwrite=overwrite) as hidden:
        folder = ModelFolder.load(config)
        convert(folder, hidden, quantization)
        sources = _sources(folder, sentences)
        result = check(folder, CTranslate2Searcher(hidden, folder), sources)
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
            "digests": {name: file_digest(hidden / name) for name in _FILES},
        }
        theirs = read_json(hidden / "config.json")
        ours["digests"]["config"] = _digest_of(theirs)
        write_json(hidden / "config.json", theirs | {"scones": ours})
        write_file(hidden / "README.md", _card(ours, is_softmax=_output(folder).is_softmax))
        size = sum(path.stat().st_size for path in hidden.iterdir())
    return Exported(target, quantization, size, result)


def open_export(
    config: FolderConfig, verify: bool = False
) -> tuple[ModelFolder, CTranslate2Searcher]:
    """Open an export: what a model folder tells, and a searcher in place of the weights.

    The model of that folder is a shape without weights (PyTorch's device "meta").
    """
    folder, facts = config.folder, config.facts
    engine = facts.others["engine"]
    if engine != ENGINE:
        raise SconesError(f"{config.path} names the engine '{engine}', which is not known.")
    try:
        sizes = from_section(ModelConfig, facts.others["model"], f"{config.path} is damaged")
        digests = {name: config.digests[name] for name in _FILES}
        theirs = {name: value for name, value in config.pegasus.items() if name != "scones"}
        if config.digests.get("config") not in (None, _digest_of(theirs)):
            raise ValueError  # earlier versions wrote no digest of it
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SconesError(f"{config.path} is damaged; export the model again.") from None
    check_digests(folder, digests, "export the model again", verify)
    with torch.device("meta"):
        shape = Transformer(sizes).eval()
    opened = ModelFolder(shape, (folder / SUBWORDS).read_bytes(), facts)
    return opened, CTranslate2Searcher(folder, opened)


def _digest_of(config: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def _card(ours: dict[str, Any], *, is_softmax: bool) -> str:
    template = Template(Path(__file__).with_suffix(".md").read_text(encoding="utf-8"))
    known = ours | ours["check"] | {"layer": ours["output"]["layer"]}
    return template.substitute(
        known,
        source=ours["source_language"],
        target=ours["target_language"],
        search=_SEARCH[is_softmax],
    )


_SEARCH = {
    True: "Its logits go through a softmax, as usual: other beam sizes are right too.",
    False: "Keep `beam_size=1`: CTranslate2's beam search applies a softmax, for which this model "
    "was not trained.",
}


# Our weights as CTranslate2 reads them: a folder that its `Translator` opens.


def library() -> Any:
    """Import CTranslate2, or say how to get it."""
    if torch.backends.cpu.get_cpu_capability() == "AVX512":
        # It uses them only if told to; int8 is an eighth faster with them.
        os.environ.setdefault("CT2_FORCE_CPU_ISA", "AVX512")
    return optional_import(
        "ctranslate2",
        "CTranslate2 is not installed; install it with pip install 'scones[ctranslate2]'.",
    )


def _output(folder: ModelFolder) -> OutputLayer:
    return output_layer(folder.facts.output)


def _pieces(folder: ModelFolder) -> list[str]:
    """The vocabulary in the order of its ids."""
    return folder.vocabulary.pieces(range(len(folder.vocabulary)))


def convert(folder: ModelFolder, target: Path, quantization: str = "float32") -> None:
    """Write model.bin, shared_vocabulary.json and config.json into a folder that exists."""
    specs = library().specs
    pieces = _pieces(folder)
    model, config = folder.model, folder.model.config
    layers = (config.encoder_layers, config.decoder_layers)
    spec = specs.TransformerSpec.from_config(layers, config.heads, pre_norm=True)
    for side, ours in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        side.position_encodings.encodings = _array(model.positions)
        for their_layer, layer in zip(side.layer, ours, strict=True):
            _set_layer(their_layer, cast(EncoderLayer | DecoderLayer, layer))
    _set_norm(spec.encoder.layer_norm, model.encoder_norm)
    _set_norm(spec.decoder.layer_norm, model.decoder_norm)
    target_embedding = model.embedding if config.tied_embeddings else model.target_embedding
    spec.encoder.embeddings[0].weight = _array(model.embedding.weight)
    spec.decoder.embeddings.weight = _array(target_embedding.weight)
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
    spec.save(str(target))


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


# Search by CTranslate2: the ids of sentences in, hypotheses out, as everywhere in the house.

# Larger batches are no faster on a CPU, and leave some of its cores without work at the end.
_BATCH_TOKENS = 1024


class CTranslate2Searcher:
    """Greedy search on a CPU; for softmax models also beam search. Made from a converted folder."""

    tells_scores: ClassVar[bool] = False

    def __init__(self, path: Path, folder: ModelFolder) -> None:
        """Open a converted model; `folder` tells what it is, and may be without weights."""
        self._pieces = _pieces(folder)
        self._ids = {piece: number for number, piece in enumerate(self._pieces)}
        self._is_softmax = _output(folder).is_softmax
        self._max_length = folder.model.config.max_length
        self._threads = torch.get_num_threads()
        try:
            self._translator = library().Translator(
                str(path),
                inter_threads=self._threads,  # a batch for each core beats all cores for one batch
                intra_threads=1,
                max_queued_batches=self._threads,  # Ctrl-C has to wait for them
            )
        except (RuntimeError, ValueError) as problem:
            raise SconesError(f"CTranslate2 cannot open {path}: {problem}.") from None
        torch.set_num_threads(self._threads)  # opening a model there leaves PyTorch one thread

    @classmethod
    def of(cls, folder: ModelFolder) -> CTranslate2Searcher:
        """Convert a model; what lies on the disk for that moment is gone afterwards."""
        library()
        with tempfile.TemporaryDirectory(prefix="scones-") as path:
            convert(folder, Path(path))
            return cls(Path(path), folder)

    def search(self, sources: Sources, options: SearchOptions) -> list[list[Hypothesis]]:
        """Translate sentences given as ids (no end of sentence); up to n_best for each."""
        self._refuse(options)
        lengths = [len(source) + 1 for source in sources]
        limits = [length_limit(length, self._max_length) for length in lengths]
        share = -(-sum(lengths) // self._threads)
        most = min(_BATCH_TOKENS, share)
        if options.max_tokens is not None:
            most = min(most, options.max_tokens // options.beams)
        running = []
        for batch in batches_by_length(lengths, most):
            limit = max(limits[index] for index in batch)
            running.append(
                (batch, self._start([sources[index] for index in batch], limit, options))
            )
        results: list[list[Hypothesis]] = [[] for _ in sources]
        for batch, answers in running:
            for index, answer in zip(batch, answers, strict=True):
                results[index] = self._hypotheses(answer.result(), limits[index], options)
        return results

    def logits(self, source: Sequence[int]) -> tuple[list[int], Any]:
        """The greedy translation, end of sentence included, and its logits (T, V)."""
        limit = length_limit(len(source) + 1, self._max_length)
        (answer,) = self._translator.translate_batch(
            self._as_pieces([source]),
            **_GREEDY,
            max_decoding_length=limit,
            return_logits_vocab=True,
        )
        tokens = [self._ids[piece] for piece in answer.hypotheses[0]]
        return tokens, np.stack([np.array(step) for step in answer.logits[0]])

    def _refuse(self, options: SearchOptions) -> None:
        if options.search == "beam" and not self._is_softmax:
            raise SconesError(
                "CTranslate2's beam search applies a softmax, for which this model was not "
                "trained; use greedy search, or the engine 'torch' with the model folder."
            )
        if options.scores:
            raise SconesError(
                "CTranslate2 tells no probabilities of tokens; ask for no scores (no --json), "
                "or use the engine 'torch' with the model folder."
            )

    def _start(self, sources: Sources, limit: int, options: SearchOptions) -> list[Any]:
        search = dict(_GREEDY)
        if options.search == "beam":
            search |= {
                "beam_size": options.beam_size,
                "num_hypotheses": options.n_best,
                "length_penalty": options.length_penalty,
                "return_scores": True,
            }
        return self._translator.translate_batch(
            self._as_pieces(sources), **search, max_decoding_length=limit, asynchronous=True
        )

    def _as_pieces(self, sources: Sources) -> list[list[str]]:
        return [[self._pieces[number] for number in source] for source in sources]

    def _hypotheses(self, answer: Any, limit: int, options: SearchOptions) -> list[Hypothesis]:
        # CTranslate2 has one length limit for a batch. Greedy search, cut at a sentence's own
        # limit, gives what the sentence would get alone.
        found = [
            hypothesis([self._ids[piece] for piece in pieces], None, limit)
            for pieces in answer.hypotheses
        ]
        if options.length_penalty or not answer.scores:
            return found
        return [
            replace(one, log_prob=score) if one.finished else one
            for one, score in zip(found, answer.scores, strict=True)
        ]


_GREEDY: dict[str, Any] = {
    "beam_size": 1,
    "min_decoding_length": 0,
    "max_input_length": 0,
    "return_end_token": True,
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
    ours = search_corpus(model, _output(folder), sources, _WITHOUT_SCORES)
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
    states_BTD: Tensor = model(padded([source], model.device), inputs_BT)
    return states_BTD[0]


def _ids(found: Hypothesis) -> list[int]:
    return [*found.tokens, *([END] if found.finished else [])]
