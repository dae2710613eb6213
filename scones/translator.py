"""The front door: load a model folder, translate, score."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal, Protocol, get_args

import torch

from scones.errors import SconesError
from scones.hardware import choose_device, gpu_path
from scones.model.folder import FolderConfig, ModelFolder
from scones.outputs import OutputLayer, output_layer
from scones.processes import Processes
from scones.search.engine import (
    Searcher,
    SearchOptions,
    SharedSearcher,
    Sources,
    batches_by_length,
    length_limit,
    padded,
    score_batch,
    searcher,
)
from scones.search.exact import Expander, exact_search, expander_for
from scones.search.frontier import Certificate, ExactOptions
from scones.search.greedy import Hypothesis
from scones.search.lattice import Lattice
from scones.search.shortlist import Shortlist

logger = logging.getLogger("scones")

Engine = Literal["auto", "torch", "ctranslate2"]
TooLong = Literal["error", "cut", "skip"]
Search = Literal["greedy", "beam", "exact", "all"]


class TooLongError(SconesError):
    """A sentence beyond the model's limit; `index` says which of those given."""

    def __init__(self, sentence: str, index: int) -> None:
        super().__init__(sentence)
        self.index = index


@dataclass(frozen=True)
class Translation:
    """One translation of a sentence."""

    text: str
    tokens: tuple[str, ...]
    """Its pieces, without the end of sentence."""
    log_prob: float | None
    """log P(z = 1 | x), end of sentence included.

    None where it was not computed, and where the translation was cut: it is not known to be whole.
    """
    token_log_probs: tuple[float, ...] | None
    """The terms of that sum, one per token, the end of sentence last."""
    finished: bool = True
    """False where the length limit cut the translation."""
    segmentations: int = 1
    """In how many ways of cutting it into pieces it was found; the best of them stands here."""

    @property
    def probability(self) -> float | None:
        """The probability itself."""
        return None if self.log_prob is None else math.exp(self.log_prob)


class Known(Protocol):
    """A translation that was found before; one that is cut has no log-probability."""

    @property
    def tokens(self) -> Sequence[str] | None: ...
    @property
    def log_prob(self) -> float | None: ...


@dataclass(frozen=True)
class ExactTranslations:
    """What exact search found for a sentence, and what is known about it."""

    translations: list[Translation]
    """The best first."""
    certificate: Certificate | None
    """None for an empty sentence, for which nothing was searched."""

    @property
    def lattice(self) -> Lattice:
        """All of them as the smallest automaton over the pieces of their best segmentations."""
        merged = sum(found.segmentations - 1 for found in self.translations)
        return Lattice.of([found.tokens for found in self.translations], merged)


def load(
    folder: str | Path,
    device: str = "auto",
    precision: Literal["float32", "bf16"] = "float32",
    engine: Engine = "auto",
    shortlist: str | Path | None = None,
    verify: bool = False,
) -> Translator:
    """Open a model folder, or one that was exported for CTranslate2, for translation.

    A pocket model, which comes with the package, is opened by its name, such as "pocket-de-en",
    unless there is a folder of that name.

    The engine "auto" takes the fastest that is exact: CTranslate2, where it is installed, for
    greedy search without scores on a CPU in float32, and PyTorch for all the rest.

    With a `shortlist`, a file of `scones shortlist`, only the target pieces that it lists for a
    sentence are computed, by PyTorch. A SCONES model gives them the scores that they have without
    it; a softmax model shares the whole probability among them.

    Files are compared with their digests once, and again when they have changed; `verify` asks for
    it in any case.
    """
    if precision not in ("float32", "bf16"):
        raise SconesError(f"The precision '{precision}' is not known; use 'float32' or 'bf16'.")
    if engine not in get_args(Engine):
        raise SconesError(f"The engine '{engine}' is not known; use auto, torch or ctranslate2.")
    config = FolderConfig.read(folder)
    if config.facts.is_export:
        other = engine == "torch" or device not in ("auto", "cpu") or precision != "float32"
        if other or shortlist is not None:
            raise SconesError(
                f"{folder} is an export for CTranslate2, which runs it on a CPU as it was "
                "exported; leave out engine, device, precision and shortlist, or use the model "
                "folder."
            )
        from scones.bridges.ctranslate2 import open_export

        model_folder, exported = open_export(config, verify)
        output = output_layer(model_folder.facts.output, f"{folder}/config.json")
        return Translator(model_folder, output, exported)
    model_folder = ModelFolder.load(config, choose_device(device), verify)
    output = output_layer(model_folder.facts.output, f"{folder}/config.json")
    wanted = torch.bfloat16 if precision == "bf16" else torch.float32
    if not gpu_path(model_folder.model):  # a GPU's kernels have a copy in this format instead
        model_folder.model.to(wanted)
    listed = None if shortlist is None else Shortlist.load(Path(shortlist), model_folder.subwords)
    chosen = _choose_searcher(model_folder, output, engine, listed, wanted)
    return Translator(model_folder, output, chosen, wanted)


def _choose_searcher(
    folder: ModelFolder,
    output: OutputLayer,
    engine: Engine,
    shortlist: Shortlist | None,
    precision: torch.dtype,
) -> Searcher:
    """Choose between PyTorch and CTranslate2, here and nowhere else."""
    weights = folder.model.output_bias
    fits = weights.device.type == "cpu" and weights.dtype == torch.float32
    if engine == "ctranslate2" and not fits:
        raise SconesError(
            "CTranslate2 runs on a CPU in float32 here; use the device 'cpu' and the precision "
            "'float32', or the engine 'torch'."
        )
    if engine == "ctranslate2" and shortlist is not None:
        raise SconesError("CTranslate2 takes no shortlist; use the engine 'auto' or 'torch'.")
    if engine == "ctranslate2":
        return _by_ctranslate2(folder)
    faster = engine == "auto" and fits and shortlist is None
    return AutoSearcher(folder, output, precision, shortlist, faster)


def _by_ctranslate2(folder: ModelFolder) -> Searcher:
    # Imported here, so that PyTorch alone does not have to know of the bridge.
    from scones.bridges.ctranslate2 import CTranslate2Searcher

    return CTranslate2Searcher.of(folder)


@dataclass(frozen=True)
class AutoSearcher:
    """PyTorch; and, where `faster` allows it, CTranslate2 for greedy search without scores.

    Each is made ready when it is first needed: either takes time, and a copy of the weights.
    """

    folder: ModelFolder
    output: OutputLayer
    precision: torch.dtype = torch.float32
    shortlist: Shortlist | None = None
    faster: bool = True
    tells_scores: ClassVar[bool] = True

    def search(self, sources: Sources, options: SearchOptions) -> list[list[Hypothesis]]:
        plain = options.search == "greedy" and not options.scores
        return (self._fastest if plain and self.faster else self._torch).search(sources, options)

    @cached_property
    def _torch(self) -> Searcher:
        return searcher(self.folder.model, self.output, self.precision, self.shortlist)

    @cached_property
    def _fastest(self) -> Searcher:
        try:
            return _by_ctranslate2(self.folder)
        except (SconesError, OSError):  # not installed, or no room to convert
            return self._torch


class Translator:
    """A model that is ready to translate; made by `scones.load`."""

    def __init__(
        self,
        folder: ModelFolder,
        output: OutputLayer,
        searcher: Searcher,
        precision: torch.dtype = torch.float32,
    ) -> None:
        self.model = folder.model
        self.output = output
        self.subwords = folder.vocabulary
        self.source_language = folder.facts.source_language
        self.target_language = folder.facts.target_language
        self._searcher = searcher
        self._precision = precision

    @contextmanager
    def shared(self, processes: Processes) -> Iterator[bool]:
        """Let several processes do what `translate` does in the first; true in that one alone.

        The others are busy until the first leaves the context; then they leave it too.
        """
        alone = self._searcher
        if processes.count == 1:
            yield True
            return
        together = SharedSearcher(alone, processes)
        if not processes.is_first:
            together.help()
            yield False
            return
        self._searcher = together
        try:
            yield True
        except Exception:  # the others are still waiting: they have to be sent home first
            together.finish()
            raise
        together.finish()
        self._searcher = alone

    def translate(
        self,
        sentences: Sequence[str],
        search: Search = "greedy",
        beam_size: int = 4,
        n_best: int = 1,
        length_penalty: float = 0.0,
        scores: bool | None = None,
        max_tokens: int | None = None,
        too_long: TooLong = "error",
        first_number: int = 1,
        threshold: float = 0.1,
        max_states: int = 1_000_000,
        max_seconds: float | None = None,
    ) -> list[list[Translation]]:
        """Translate sentences: a list for each, of up to `n_best` translations, the best first.

        "exact" gives the most probable translations of all, "all" every one whose probability is
        at least `threshold`; both within limits, and `exact` tells whether those were reached.
        Every text is listed once, with the score of its best segmentation. "exact" counts `n_best`
        texts; "beam" merges what it has found, so that fewer than `n_best` may be left.

        With `scores=False` greedy search skips the activation altogether and `log_prob` is None;
        by default there are scores, except from CTranslate2, which does not tell them.
        `max_tokens` bounds the padded tokens of a batch; by default it suits the device. A
        sentence longer than the model's limit
        is an error, is cut (`too_long="cut"`) or gets an empty translation ("skip"), the latter
        two with a warning, which a translation gets too that was cut at its own limit;
        `first_number` is what such messages call the first sentence. An empty sentence gets an
        empty translation.
        """
        if search not in get_args(Search):
            known = ", ".join(get_args(Search))
            raise SconesError(f"The search '{search}' is not known; use one of {known}.")
        if search == "exact" or search == "all":
            if length_penalty:
                raise SconesError("Exact search ranks by probability; leave out length_penalty.")
            options = ExactOptions(
                n_best,
                threshold if search == "all" else None,
                max_states=max_states,
                max_seconds=max_seconds,
            )
            exactly = dict(self.exact(sentences, options, beam_size, too_long, first_number))
            return [exactly[index].translations for index in range(len(sentences))]
        # Whoever says nothing about scores gets them where they can be had.
        if scores is None:
            scores = self._searcher.tells_scores
        plainly = SearchOptions(
            search, beam_size, n_best, length_penalty, max_tokens=max_tokens, scores=scores
        )
        ids = self._encode(sentences, too_long, first_number)
        real = [index for index, tokens in enumerate(ids) if tokens]
        found = self._searcher.search([ids[index] for index in real], plainly)
        # Empty sentences never reach a model: what it would make of them is not defined.
        results = [[Translation("", (), None, None)] for _ in sentences]
        texts = iter(self.subwords.decode([one.tokens for several in found for one in several]))
        for index, hypotheses in zip(real, found, strict=True):
            spelled = [next(texts) for _ in hypotheses]
            results[index] = self._translations(hypotheses, spelled, first_number + index)
        return results

    def exact(
        self,
        sentences: Sequence[str],
        options: ExactOptions | None = None,
        beam_size: int = 4,
        too_long: TooLong = "error",
        first_number: int = 1,
        known: Sequence[Sequence[Known]] = (),
    ) -> Iterator[tuple[int, ExactTranslations]]:
        """Search exactly: the number of each sentence, from 0, and its result, as they are done.

        A beam search of `beam_size` gives the bounds to begin with, and so do translations of each
        sentence that are `known` otherwise. Whoever stops listening keeps what was given so far.
        """
        if self.model.device.type == "meta":
            raise SconesError("An export for CTranslate2 knows no exact search; use the model.")
        options, began = options or ExactOptions(), time.monotonic()
        ids = self._encode(sentences, too_long, first_number)
        for index, tokens in enumerate(ids):
            if not tokens:
                yield index, ExactTranslations([Translation("", (), None, None)], None)
        real = [index for index, tokens in enumerate(ids) if tokens]
        sources = [ids[index] for index in real]
        # Exact search needs n_best bounds to begin with, so that the beam has to be as wide.
        width = max(beam_size, options.n_best)
        beams = SearchOptions("beam", width, options.n_best, max_memory=options.max_memory)
        longest = self.model.config.max_length
        limits = [length_limit(len(source) + 1, longest) for source in sources]
        first = self._searcher.search(sources, beams)
        for hypotheses, index in zip(first, real if known else (), strict=False):
            for one in known[index]:
                if one.log_prob is not None and one.tokens is not None:
                    ids_of = tuple(self.subwords.ids(one.tokens))
                    hypotheses.append(Hypothesis(ids_of, one.log_prob, None, True))
        for index, found in exact_search(
            self._expander,
            self.output,
            sources,
            limits,
            first,
            options,
            began=began,
            spelling=self.subwords.text,
        ):
            texts = self.subwords.decode([one.tokens for one in found.hypotheses])
            number = first_number + real[index]
            translations = self._translations(found.hypotheses, texts, number)
            yield real[index], ExactTranslations(translations, found.certificate)

    @cached_property
    def _expander(self) -> Expander:
        return expander_for(self.model, self._precision)

    def score(self, pairs: Sequence[tuple[str, str]], max_tokens: int = 8192) -> list[float]:
        """Log P(z = 1 | x) of each (source, target) pair."""
        return [math.fsum(terms) for terms in self.score_tokens(pairs, max_tokens)]

    def score_tokens(
        self, pairs: Sequence[tuple[str, str]], max_tokens: int = 8192
    ) -> list[list[float]]:
        """The log-probability of each target token, the end of sentence last."""
        if self.model.device.type == "meta":
            raise SconesError("An export for CTranslate2 gives no scores; use the model folder.")
        sources = self._encode([source for source, _ in pairs], name="Source")
        targets = self._encode([target for _, target in pairs], name="Target")
        lengths = [
            max(len(source), len(target)) + 1
            for source, target in zip(sources, targets, strict=True)
        ]
        results: list[list[float]] = [[] for _ in pairs]
        for batch in batches_by_length(lengths, max_tokens):
            device = self.model.device
            source_BS = padded([sources[index] for index in batch], device)
            target_BT = padded([targets[index] for index in batch], device)
            terms = score_batch(self.model, self.output, source_BS, target_BT)
            for index, row in zip(batch, terms, strict=True):
                results[index] = row
        return results

    def _encode(
        self,
        sentences: Sequence[str],
        too_long: TooLong = "error",
        first_number: int = 1,
        name: str = "Sentence",
    ) -> list[list[int]]:
        if isinstance(sentences, str):
            raise SconesError("Give a list of sentences, not one string.")
        if too_long not in ("error", "cut", "skip"):
            raise SconesError(f"too_long='{too_long}' is not known; use error, cut or skip.")
        limit = self.model.config.max_length - 1  # the end of sentence takes a position too
        ids = self.subwords.encode(sentences)
        for index, tokens in enumerate(ids):
            if len(tokens) <= limit:
                continue
            number = first_number + index
            fact = f"{name} {number} has {len(tokens):,} pieces and the model takes {limit:,}"
            if too_long == "error":
                remedy = "split it, or let such sentences be cut or skipped (--too-long)"
                raise TooLongError(f"{fact}; {remedy}.", index)
            ids[index] = tokens[:limit] if too_long == "cut" else []
            logger.warning("%s: it is %s.", fact, "cut" if too_long == "cut" else "skipped")
        return ids

    def _translations(
        self, found: Sequence[Hypothesis], texts: Sequence[str], number: int
    ) -> list[Translation]:
        """What a search found for a sentence, the best first: every text once."""
        segmentations: dict[str, list[Hypothesis]] = {}
        for one, text in zip(found, texts, strict=True):
            segmentations.setdefault(text, []).append(one)
        cut = next((one for one in found if not one.finished), None)
        if cut is not None:
            fact = f"its translation was cut at the limit of {len(cut.tokens):,} pieces"
            logger.warning("Sentence %s: %s.", number, fact)
        return [
            Translation(
                text,
                tuple(self.subwords.pieces(best.tokens)),
                best.log_prob if best.finished else None,
                best.token_log_probs,
                best.finished,
                1 + len(others),
            )
            for text, (best, *others) in segmentations.items()
        ]
