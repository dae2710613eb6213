"""The front door: load a model folder, translate, score."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from scones.errors import SconesError
from scones.hardware import is_cpu
from scones.model.folder import FolderConfig, ModelFolder, OpenedFolder
from scones.processes import Processes
from scones.search.lattice import Lattice
from scones.search.options import LENGTH_PENALTY
from scones.search.searcher import (
    Hypothesis,
    Searcher,
    SearchOptions,
    Sources,
    batches_by_length,
    length_limit,
)

# PyTorch, and whatever imports it, is imported where it is used: a model that CTranslate2 runs
# starts, and translates, without it.
if TYPE_CHECKING:
    import torch

    from scones.model.transformer import Transformer
    from scones.search.exact import Expander
    from scones.search.frontier import Certificate, ExactOptions
    from scones.search.shortlist import Shortlist

logger = logging.getLogger("scones")

Engine = Literal["auto", "torch", "ctranslate2"]
Precision = Literal["auto", "float32", "bf16"]
TooLong = Literal["error", "cut", "skip"]
Search = Literal["greedy", "beam", "exact", "all"]


class TooLongError(SconesError):
    """Sentences beyond the model's limit; `indices` says which of those given."""

    def __init__(self, sentence: str, indices: list[int]) -> None:
        super().__init__(sentence)
        self.indices = indices


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
    precision: Precision = "auto",
    engine: Engine = "auto",
    shortlist: str | Path | None = None,
    verify: bool = False,
) -> Translator:
    """Open a model folder, or one that was exported for CTranslate2, for translation.

    A pocket model, which comes with the package, is opened by its name, such as "pocket-de-en",
    unless there is a folder of that name.

    The precision "auto" is that of the model: on a CPU one that is stored as int8 is searched
    greedily in int8, by CTranslate2, scores included. Beam, exact search and `score` take
    CTranslate2's encoder in int8, and PyTorch's decoder, in bf16 where the CPU has AVX-512 bf16 and
    else in float32. All the rest is float32. With "float32" nothing is rounded to int8 but the
    weights, with "bf16" PyTorch's products are less exact. The engine "auto" takes CTranslate2 for
    that, and for greedy search without scores in float32 on a CPU, where its output is PyTorch's;
    the engine "torch" knows no int8.

    With a `shortlist`, a file of `scones shortlist`, only the target pieces that it lists for a
    sentence are computed, by PyTorch. A SCONES model gives them the scores that they have without
    it; a softmax model shares the whole probability among them.

    Files are compared with their digests once, and again when they have changed; `verify` asks for
    it in any case.
    """
    _check_choice("precision", precision, Precision)
    _check_choice("engine", engine, Engine)
    config = FolderConfig.read(folder)
    if config.facts.is_export:
        other = engine == "torch" or device not in ("auto", "cpu") or precision != "auto"
        if other or shortlist is not None:
            raise SconesError(
                f"{folder} is an export for CTranslate2, which runs it on a CPU as it was "
                "exported; leave out engine, device, precision and shortlist, or use the model "
                "folder."
            )
        from scones.bridges.ctranslate2 import CTranslate2Searcher, open_export

        opened = open_export(config, verify)
        return Translator(opened, CTranslate2Searcher(config.folder, opened))
    opened = OpenedFolder.of(config, verify)
    in_int8 = config.storage == "int8" and precision == "auto"
    in_int8 = in_int8 and engine != "torch" and shortlist is None
    weights = Weights(opened, device, "bf16" if precision == "bf16" else "float32", in_int8)
    chosen = _choose_searcher(weights, precision, engine, shortlist)
    return Translator(opened, chosen, weights)


def _check_choice(name: str, value: str, choices: Any) -> None:
    if value not in (known := get_args(choices)):
        raise SconesError(f"The {name} '{value}' is not known; use one of {', '.join(known)}.")


@dataclass(frozen=True)
class Weights:
    """The weights of a model folder as PyTorch has them, read when they are first needed."""

    opened: OpenedFolder
    device: str
    precision: Literal["float32", "bf16"]
    int8_on_cpu: bool = False
    """Whether a CPU may compute less exactly: weights and nobody ask for more."""

    @cached_property
    def folder(self) -> ModelFolder:
        from scones.hardware import choose_device, gpu_path

        folder = ModelFolder.load(self.opened, choose_device(self.device))
        if not gpu_path(folder.model):  # a GPU's kernels have a copy in this format instead
            folder.model.to(self.dtype)
        return folder

    @cached_property
    def fastest(self) -> Transformer:
        """The model as it searches and scores: on a CPU prepacked, maybe less exact."""
        from scones.model.transformer import prepacked

        model, encode = self.folder.model, None
        if self.int8_on_cpu and self.on_cpu:
            from scones.bridges.ctranslate2 import encoder_of

            with suppress(OSError):  # no room to convert
                encode = encoder_of(self.opened)
        return prepacked(model, encode)

    @property
    def dtype(self) -> torch.dtype:
        import torch

        return torch.bfloat16 if self.precision == "bf16" else torch.float32

    @property
    def on_cpu(self) -> bool:
        return is_cpu(self.device)


def _choose_searcher(
    weights: Weights, precision: Precision, engine: Engine, shortlist: str | Path | None
) -> Searcher:
    """Choose between PyTorch and CTranslate2, here and nowhere else."""
    fits = precision != "bf16" and shortlist is None and engine != "torch" and weights.on_cpu
    in_int8 = fits and weights.int8_on_cpu
    if engine == "ctranslate2":
        if shortlist is not None:
            raise SconesError("CTranslate2 takes no shortlist; use the engine 'auto' or 'torch'.")
        if not fits:
            raise SconesError(
                "CTranslate2 runs on a CPU in float32 or int8 here; use the device 'cpu' and no "
                "precision 'bf16', or the engine 'torch'."
            )
        return _by_ctranslate2(weights.opened, in_int8)
    if not in_int8 or not weights.opened.config.digests:
        _ = weights.folder  # whatever is damaged is said now
    listed = None
    if shortlist is not None:
        from scones.search.shortlist import Shortlist

        listed = Shortlist.load(Path(shortlist), weights.opened.subwords)
    return AutoSearcher(weights, listed, fits, in_int8)


def _by_ctranslate2(opened: OpenedFolder, in_int8: bool) -> Searcher:
    # Imported here, so that PyTorch alone does not have to know of the bridge.
    from scones.bridges.ctranslate2 import CTranslate2Searcher

    return CTranslate2Searcher.of(opened, "int8" if in_int8 else "float32")


@dataclass(frozen=True)
class AutoSearcher:
    """CTranslate2 for greedy search, if `in_int8`, or it `fits` and no scores are asked for.

    PyTorch for all the rest. Each is made ready when it is first needed: either takes time, and a
    copy of the weights.
    """

    weights: Weights
    shortlist: Shortlist | None = None
    fits: bool = True
    in_int8: bool = False

    def search(self, sources: Sources, options: SearchOptions) -> list[list[Hypothesis]]:
        fast = self.in_int8 or (self.fits and not options.scores)
        chosen = self._fastest if fast and options.search == "greedy" else self._torch
        return chosen.search(sources, options)

    @cached_property
    def _torch(self) -> Searcher:
        from scones.search.engine import searcher

        model, output = self.weights.fastest, self.weights.opened.output
        return searcher(model, output, self.weights.dtype, self.shortlist)

    @cached_property
    def _fastest(self) -> Searcher:
        try:
            return _by_ctranslate2(self.weights.opened, self.in_int8)
        except OSError:  # no room to convert
            return self._torch


class Translator:
    """A model that is ready to translate; made by `scones.load`."""

    def __init__(
        self, opened: OpenedFolder, searcher: Searcher, weights: Weights | None = None
    ) -> None:
        """Whoever has no `weights` for PyTorch has an export."""
        self.output = opened.output
        self.subwords = opened.vocabulary
        self.source_language = opened.facts.source_language
        self.target_language = opened.facts.target_language
        self._sizes = opened.sizes
        self._searcher = searcher
        self._weights = weights

    @cached_property
    def model(self) -> Transformer:
        """The model in PyTorch; of an export its shape alone (on the device "meta")."""
        if self._weights is not None:
            return self._weights.folder.model
        import torch

        from scones.model.transformer import Transformer

        with torch.device("meta"):
            return Transformer(self._sizes).eval()

    @contextmanager
    def shared(self, processes: Processes) -> Iterator[bool]:
        """Let several processes do what `translate` does in the first; true in that one alone.

        The others are busy until the first leaves the context; then they leave it too.
        """
        alone = self._searcher
        if processes.count == 1:
            yield True
            return
        from scones.search.engine import SharedSearcher

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
        length_penalty: float | None = None,
        scores: bool = True,
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
        texts; "beam" merges what it has found, so that fewer than `n_best` may be left. It ranks by
        log-probability / length**`length_penalty`, which is 1 unless it is given.

        With `scores=False` greedy search skips the activation altogether and `log_prob` is None.
        `max_tokens` bounds the padded tokens of a batch; by default it suits the device. A
        sentence longer than the model's limit
        is an error, is cut (`too_long="cut"`) or gets an empty translation ("skip"), the latter
        two with a warning, which a translation gets too that was cut at its own limit;
        `first_number` is what such messages call the first sentence. An empty sentence gets an
        empty translation.
        """
        _check_choice("search", search, Search)
        if search == "exact" or search == "all":
            if length_penalty:
                raise SconesError("Exact search ranks by probability; leave out length_penalty.")
            from scones.search.frontier import ExactOptions

            options = ExactOptions(
                n_best,
                threshold if search == "all" else None,
                max_states=max_states,
                max_seconds=max_seconds,
            )
            exactly = dict(self.exact(sentences, options, beam_size, too_long, first_number))
            return [exactly[index].translations for index in range(len(sentences))]
        if length_penalty is None:
            length_penalty = LENGTH_PENALTY
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
        known: Sequence[Sequence[Any]] = (),
    ) -> Iterator[tuple[int, ExactTranslations]]:
        """Search exactly: the number of each sentence, from 0, and its result, as they are done.

        A beam search of `beam_size` gives the bounds to begin with, and so do translations of each
        sentence that are `known` otherwise: what has `tokens`, and a `log_prob` unless cut. Whoever
        stops listening keeps what was given so far.
        """
        if self._weights is None:
            raise SconesError("An export for CTranslate2 knows no exact search; use the model.")
        from scones.model.transformer import encoding_once
        from scones.search.exact import exact_search
        from scones.search.frontier import ExactOptions

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
        longest = self._sizes.max_length
        limits = [length_limit(len(source) + 1, longest) for source in sources]
        with encoding_once(self._weights.fastest):
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
        from scones.search.exact import expander_for

        assert self._weights is not None
        return expander_for(self._weights.fastest, self._weights.dtype)

    def score(self, pairs: Sequence[tuple[str, str]], max_tokens: int | None = None) -> list[float]:
        """Log P(z = 1 | x) of each (source, target) pair."""
        return [math.fsum(terms) for terms in self.score_tokens(pairs, max_tokens)]

    def score_tokens(
        self, pairs: Sequence[tuple[str, str]], max_tokens: int | None = None
    ) -> list[list[float]]:
        """The log-probability of each target token, the end of sentence last."""
        if self._weights is None:
            raise SconesError("An export for CTranslate2 gives no scores; use the model folder.")
        from scones.search.engine import padded, score_batch

        sources = self._encode([source for source, _ in pairs], name="Source")
        targets = self._encode([target for _, target in pairs], name="Target")
        lengths = [
            max(len(source), len(target)) + 1
            for source, target in zip(sources, targets, strict=True)
        ]
        results: list[list[float]] = [[] for _ in pairs]
        model = self._weights.fastest
        # Prepacked products need no large batches, whose logits would not fit a CPU's caches.
        most = max_tokens or (8192 if model.head is None else 512)
        for batch in batches_by_length(lengths, most):
            source_BS = padded([sources[index] for index in batch], model.device)
            target_BT = padded([targets[index] for index in batch], model.device)
            terms = score_batch(model, self.output, source_BS, target_BT)
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
        _check_choice("too_long", too_long, TooLong)
        limit = self._sizes.max_length - 1  # the end of sentence takes a position too
        ids = self.subwords.encode(sentences)
        long = [index for index, tokens in enumerate(ids) if len(tokens) > limit]
        for index in long:
            number, tokens = first_number + index, ids[index]
            fact = f"{name} {number} has {len(tokens):,} pieces and the model takes {limit:,}"
            if too_long == "error":
                remedy = "split it, or let such sentences be cut or skipped (--too-long)"
                raise TooLongError(f"{fact}; {remedy}.", long)
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
