"""CTranslate2: the engine that runs models on a CPU, in int8 or float32, without PyTorch.

CTranslate2 takes the arg max of raw logits in greedy search, which is right for every output
layer, and applies a softmax in beam search, which is right for softmax models alone. The scores
of greedy search are the output layer's, of the logits that CTranslate2 gives back.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from scones.cache import check_digests, made_once
from scones.errors import SconesError, optional_import
from scones.hardware import keep_memory, processor, threads
from scones.model.config import ModelConfig, sinusoids
from scones.model.folder import SUBWORDS, FolderConfig, OpenedFolder, Weights
from scones.options import from_section
from scones.search.positions import CANDIDATE, of_candidates
from scones.search.searcher import (
    Hypothesis,
    SearchOptions,
    Sources,
    batches_by_length,
    hypothesis,
    length_limit,
    put_back,
)
from scones.text import END, PAD, UNKNOWN

ENGINE = "ctranslate2"
FILES = ("model.bin", "shared_vocabulary.json", SUBWORDS)
_CONVERSION = 1
"""To be counted up when `convert` makes something else of the same model."""


def open_export(config: FolderConfig, verify: bool = False) -> OpenedFolder:
    """Open what an export tells of itself; `CTranslate2Searcher` opens the rest."""
    folder, facts = config.folder, config.facts
    engine = facts.others["engine"]
    if engine != ENGINE:
        raise SconesError(f"{config.path} names the engine '{engine}', which is not known.")
    try:
        sizes = from_section(ModelConfig, facts.others["model"], f"{config.path} is damaged")
        digests = {name: config.digests[name] for name in FILES}
        theirs = {name: value for name, value in config.pegasus.items() if name != "scones"}
        if config.digests.get("config") not in (None, digest_of(theirs)):
            raise ValueError  # earlier versions wrote no digest of it
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SconesError(f"{config.path} is damaged; export the model again.") from None
    check_digests(folder, digests, "export the model again", verify)
    return OpenedFolder(config, sizes, (folder / SUBWORDS).read_bytes())


def digest_of(config: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


# Our weights as CTranslate2 reads them: a folder that its `Translator` or `Encoder` opens.


def library() -> Any:
    """Import CTranslate2, which reads the environment as it is imported."""
    if processor()[1]:
        # It uses them only if told to; int8 is a tenth faster with them.
        os.environ.setdefault("CT2_FORCE_CPU_ISA", "AVX512")
    keep_memory()
    return optional_import("ctranslate2", "This needs CTranslate2: pip install ctranslate2.")


def _specs() -> Any:
    """CTranslate2's descriptions of models; they take NumPy arrays, but import PyTorch."""
    if torch := sys.modules.get("torch"):
        specs = library().specs  # it may have been imported without PyTorch before
        vars(specs.model_spec).update(torch=torch, torch_is_available=True)
        return specs
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        return library().specs
    finally:
        del sys.modules["torch"]


def convert(folder: OpenedFolder, target: Path, quantization: str = "float32") -> None:
    """Write model.bin, shared_vocabulary.json and config.json into a folder that exists."""
    weights, sizes, pieces = folder.weights(), folder.sizes, folder.vocabulary.pieces()
    layers = (sizes.encoder_layers, sizes.decoder_layers)
    specs = _specs()
    activation = specs.common_spec.Activation[sizes.activation.upper()]
    spec = specs.TransformerSpec.from_config(
        layers, sizes.heads, pre_norm=not sizes.post_norm, activation=activation
    )
    _set_side(spec.encoder, "model.encoder", weights, sizes)
    _set_side(spec.decoder, "model.decoder", weights, sizes)
    names = ["model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head"]
    source, target_side, output = ["model.shared"] * 3 if sizes.tied_embeddings else names
    spec.encoder.embeddings[0].weight = weights[f"{source}.weight"]
    spec.decoder.embeddings.weight = weights[f"{target_side}.weight"]
    spec.decoder.projection.weight = weights[f"{output}.weight"]
    spec.decoder.projection.bias = weights["final_logits_bias"]
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.bos_token = spec.config.decoder_start_token = pieces[PAD]
    spec.config.eos_token = pieces[END]
    spec.config.add_source_eos = True
    _save(spec, pieces, target, quantization)


def _convert_encoder(folder: OpenedFolder, target: Path) -> None:
    """The encoder alone, in int8."""
    weights, sizes, pieces = folder.weights(), folder.sizes, folder.vocabulary.pieces()
    specs = _specs()
    spec = specs.TransformerEncoderSpec(sizes.encoder_layers, sizes.heads, pre_norm=True)
    spec.scale_embeddings = True
    _set_side(spec, "model.encoder", weights, sizes)
    table = "model.shared" if sizes.tied_embeddings else "model.encoder.embed_tokens"
    spec.embeddings[0].weight = weights[f"{table}.weight"]
    whole = specs.TransformerEncoderModelSpec(spec)
    whole.register_vocabulary(pieces)
    _save(whole, pieces, target, "int8")


def _save(spec: Any, pieces: list[str], target: Path, quantization: str) -> None:
    spec.config.unk_token = pieces[UNKNOWN]
    spec.validate()
    spec.optimize(quantization)
    spec.save(str(target))


def _set_side(their: Any, side: str, weights: Weights, sizes: ModelConfig) -> None:
    """Fill in the encoder or the decoder, but for its tables."""
    their.position_encodings.encodings = sinusoids(sizes.max_length, sizes.size)
    if not sizes.post_norm:
        _set_norm(their.layer_norm, f"{side}.layer_norm", weights)
    for number, layer in enumerate(their.layer):
        name = f"{side}.layers.{number}"
        _set_attention(layer.self_attention, f"{name}.self_attn", weights)
        if side == "model.decoder":
            _set_attention(layer.attention, f"{name}.encoder_attn", weights)
        _set_norm(layer.ffn.layer_norm, f"{name}.final_layer_norm", weights)
        _set_linear(layer.ffn.linear_0, weights, f"{name}.fc1")
        _set_linear(layer.ffn.linear_1, weights, f"{name}.fc2")


def _set_attention(their: Any, name: str, weights: Weights) -> None:
    _set_norm(their.layer_norm, f"{name}_layer_norm", weights)
    query, key, value, output = (f"{name}.{part}_proj" for part in ("q", "k", "v", "out"))
    # Projections of one input are one matrix there.
    joined = [(query, key, value)] if name.endswith("self_attn") else [(query,), (key, value)]
    for linear, names in zip(their.linear, [*joined, (output,)], strict=True):
        _set_linear(linear, weights, *names)


def _set_linear(their: Any, weights: Weights, *names: str) -> None:
    # Copies, since CTranslate2 quantises in place.
    their.weight = np.concatenate([weights[f"{name}.weight"] for name in names])
    their.bias = np.concatenate([weights[f"{name}.bias"] for name in names])


def _set_norm(their: Any, name: str, weights: Weights) -> None:
    their.gamma, their.beta = weights[f"{name}.weight"], weights[f"{name}.bias"]


@contextmanager
def _converted(folder: OpenedFolder, form: str, make: Callable[[Path], None]) -> Iterator[Path]:
    """What `make` makes of a model, in a `form`; in int8 it is kept in the user's cache folder."""
    if "int8" not in form:  # large, and of models that change while they are trained
        with tempfile.TemporaryDirectory(prefix="scones-") as temporary:
            make(Path(temporary))
            yield Path(temporary)
        return
    config = folder.config
    digests = [config.digest_of(name) for name in (config.weights.name, SUBWORDS)]
    said = [form, _CONVERSION, library().__version__, digests, asdict(folder.sizes)]
    with made_once(ENGINE, json.dumps(said), make) as path:
        yield path


# The encoder alone, under searches of our own.

Encode = Callable[[Any], Any]
"""Token ids (B, S) in, each row ended and padded; states (B, S, D) in float32 out. NumPy arrays."""


def encoder_of(folder: OpenedFolder) -> Encode:
    """The encoder of a model folder, computed in int8.

    What it gives for a sentence does not depend on the others of a batch. Behind the end of a
    sentence its states mean nothing.
    """
    with _converted(folder, "encoder, int8", lambda to: _convert_encoder(folder, to)) as path:
        engine = _opened("Encoder", path, compute_type="int8", intra_threads=threads())

    view = library().StorageView.from_array

    def encode(source_BS: Any) -> Any:
        lengths_B = (source_BS != PAD).sum(axis=1, dtype=np.int32)
        states_BSD = np.zeros((*source_BS.shape, folder.sizes.size), np.float32)
        for rows in _alike(lengths_B.tolist()):
            lengths = lengths_B[rows]
            longest = lengths.max()
            ids = np.ascontiguousarray(source_BS[rows, :longest], dtype=np.int32)
            found = engine.forward_batch(view(ids), view(lengths))
            states_BSD[rows, :longest] = np.asarray(found.last_hidden_state)
        return states_BSD

    return encode


def _alike(lengths: Sequence[int]) -> list[list[int]]:
    """Divide sentences so that each gets in a batch, bit for bit, what it gets alone.

    Attention adds up along a sentence, padding included: nothing is added, but a product of another
    size may add in another order, which is nothing in float32, but may round to another int8.
    """
    groups: dict[int, list[int]] = {}
    for index, length in enumerate(lengths):
        groups.setdefault(_shortest_beside(length), []).append(index)
    return [groups[key] for key in sorted(groups)]


def _shortest_beside(length: int) -> int:
    """The shortest sentence that may stand beside one of this length."""
    maker, avx512 = processor()
    if length > 384 or _OTHER_PRODUCTS & os.environ.keys():
        return length
    if maker == "GenuineIntel":  # MKL adds four at a time
        return max(length // 4 * 4, min(length, 4))
    if avx512:  # oneDNN adds one after the other, by one way below 16 and another above
        return 16 if length >= 16 else 1
    return length


_OTHER_PRODUCTS = {"CT2_USE_MKL", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}
"""Variables that choose how products are computed."""


def _opened(kind: str, path: Path, **options: Any) -> Any:
    """Open a converted model."""
    torch: Any = sys.modules.get("torch")
    before = torch.get_num_threads() if torch else None
    try:
        return getattr(library(), kind)(str(path), **options)
    except (RuntimeError, ValueError) as problem:
        raise SconesError(f"CTranslate2 cannot open {path}: {problem}.") from None
    finally:
        if torch:  # it leaves PyTorch one thread
            torch.set_num_threads(before)


# Search by CTranslate2: the ids of sentences in, hypotheses out, as everywhere in the house.

# Larger batches are no faster on a CPU, leave some of its cores without work at the end, and have
# more logits than its caches hold.
_BATCH_TOKENS = 768


class CTranslate2Searcher:
    """Greedy search on a CPU; for softmax models also beam search."""

    def __init__(self, path: Path, folder: OpenedFolder) -> None:
        """Open a converted model; `folder` tells what it is."""
        self._pieces = folder.vocabulary.pieces()
        self._ids = {piece: number for number, piece in enumerate(self._pieces)}
        self._output = folder.output
        self._max_length = folder.sizes.max_length
        self._threads = threads()
        self._translator = _opened(
            "Translator",
            path,
            inter_threads=self._threads,  # a batch for each core beats all cores for one batch
            intra_threads=1,
        )

    @classmethod
    def of(cls, folder: OpenedFolder, quantization: str = "float32") -> CTranslate2Searcher:
        """Convert a model folder, or take what was converted before."""
        with _converted(folder, quantization, lambda to: convert(folder, to, quantization)) as path:
            return cls(path, folder)

    def search(self, sources: Sources, options: SearchOptions) -> list[list[Hypothesis]]:
        """Translate sentences given as ids (no end of sentence); up to n_best for each."""
        if options.search == "beam" and not self._output.is_softmax:
            raise SconesError(
                "CTranslate2's beam search applies a softmax, for which this model was not "
                "trained; use greedy search, or the engine 'torch' with the model folder."
            )
        lengths = [len(source) + 1 for source in sources]
        limits = [length_limit(length, self._max_length) for length in lengths]
        most = min(_BATCH_TOKENS, -(-sum(lengths) // self._threads))
        if options.max_tokens is not None:
            most = min(most, options.max_tokens // options.beams)
        batches = list(_batches(lengths, most))
        translate = partial(self._translated, sources, limits, options)
        with ThreadPoolExecutor(self._threads + 1) as pool:  # so many compute, and one reads
            # A thread takes time to start: one batch does without.
            run: Callable[..., Iterator[Any]] = pool.map if len(batches) > 1 else map
            return put_back(batches, run(translate, batches))

    def _translated(
        self, sources: Sources, limits: Sequence[int], options: SearchOptions, batch: Sequence[int]
    ) -> list[list[Hypothesis]]:
        # Logits are large: they are read before another batch begins.
        texts = [sources[index] for index in batch]
        answers = self._answers(texts, max(limits[index] for index in batch), options)
        return [
            self._hypotheses(answer, limits[index], options)
            for index, answer in zip(batch, answers, strict=True)
        ]

    def logits(self, source: Sequence[int]) -> tuple[list[int], Any]:
        """The greedy translation, end of sentence included, and its logits (T, V)."""
        limit = length_limit(len(source) + 1, self._max_length)
        (found,) = self._answers([source], limit, SearchOptions())
        return [self._ids[piece] for piece in found.hypotheses[0]], np.stack(_rows(found))

    def _answers(self, sources: Sources, limit: int, options: SearchOptions) -> list[Any]:
        search: dict[str, Any] = {"beam_size": 1, "return_logits_vocab": options.scores}
        if options.search == "beam":
            search = {
                "beam_size": options.beam_size,
                "num_hypotheses": options.n_best,
                "length_penalty": options.length_penalty,
                "return_scores": True,
            }
        # Not asynchronously: it would copy all that it gives.
        return self._translator.translate_batch(
            [[self._pieces[number] for number in source] for source in sources],
            **search,
            min_decoding_length=0,
            max_decoding_length=limit,
            max_input_length=0,
            return_end_token=True,
        )

    def _hypotheses(self, answer: Any, limit: int, options: SearchOptions) -> list[Hypothesis]:
        # CTranslate2 has one length limit for a batch. Greedy search, cut at a sentence's own
        # limit, gives what the sentence would get alone.
        ids = [[self._ids[piece] for piece in pieces] for pieces in answer.hypotheses]
        if answer.logits:
            (tokens,) = ids
            rows = _rows(answer)
            found = hypothesis(tokens, self._output.scores_of_rows(rows, tokens), limit)
            if not found.finished:
                ends = self._output.scores_of_rows(rows, [END] * len(rows))
                found = replace(found, end_log_probs=tuple(ends))
            if options.ambiguities and found.finished:
                rows = rows[: len(found.tokens) + 1]
                chances = self._output.candidates_of_rows(rows, CANDIDATE)
                ambiguities, doubts = zip(*map(of_candidates, chances), strict=True)
                found = replace(found, ambiguities=ambiguities, doubts=doubts)
            return [found]
        several = [hypothesis(tokens, None, limit) for tokens in ids]
        if options.length_penalty or not answer.scores:
            return several
        return [
            replace(one, log_prob=score) if one.finished else one
            for one, score in zip(several, answer.scores, strict=True)
        ]


def _batches(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    for group in _alike(lengths):
        for batch in batches_by_length([lengths[index] for index in group], most):
            yield [group[index] for index in batch]


def _rows(answer: Any) -> list[Any]:
    """The logits of each token of a greedy translation, as they lie in CTranslate2's memory."""
    return [np.asarray(row) for row in answer.logits[0]]
