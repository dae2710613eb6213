"""The front door: load a model folder, translate, score."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from scones.bridges import marian
from scones.bridges.engines import AutoSearcher, Engine, Precision, Weights, choose_searcher
from scones.errors import SconesError
from scones.evaluation.calibration import Calibration, features
from scones.model.folder import FolderConfig, OpenedFolder
from scones.processes import Processes
from scones.search.options import LENGTH_PENALTY
from scones.search.positions import Position, measures, positions
from scones.search.prefix import Given, Prefix, Prefixes, shown
from scones.search.searcher import (
    Hypothesis,
    Searcher,
    SearchOptions,
    Sources,
    batches_by_length,
    circles_begin,
    length_limit,
    put_back,
)
from scones.search.translations import NOTHING, ExactTranslations, Translation, joined
from scones.text.sentences import split_sentences

# PyTorch, and whatever imports it, is imported where it is used: a model that CTranslate2 runs
# starts, and translates, without it.
if TYPE_CHECKING:
    import torch

    from scones.model.transformer import Transformer
    from scones.search.engine import BatchSearcher
    from scones.search.exact import Expander
    from scones.search.frontier import ExactOptions

logger = logging.getLogger("scones")

TooLong = Literal["error", "cut", "skip"]
Search = Literal["greedy", "beam", "exact", "all"]
Fact = TypeVar("Fact")

_LIKELY = 0.1
_POSITIONS = 512
"""Tokens read at once: every score of every one of them is looked at."""


class TooLongError(SconesError):
    """Sentences beyond the model's limit; `numbers` says which of those given, from 1."""

    def __init__(self, sentence: str, numbers: list[int]) -> None:
        super().__init__(sentence)
        self.numbers = numbers


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
    unless there is a folder of that name. So is a Marian model, from its folder or by its name on
    huggingface.co, such as "Helsinki-NLP/opus-mt-de-en" (docs/bridges.md).

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
    place = marian.fetched(folder)
    config = None if marian.is_marian(place) else FolderConfig.read(place)
    if config is not None and config.facts.is_export:
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
    opened = OpenedFolder.of(config, verify) if config else marian.MarianFolder.open(place)
    in_int8 = opened.config.storage == "int8" and precision == "auto"
    in_int8 = in_int8 and engine != "torch" and shortlist is None
    weights = Weights(opened, device, "bf16" if precision == "bf16" else "float32", in_int8)
    return Translator(opened, choose_searcher(weights, precision, engine, shortlist), weights)


def _check_list(sentences: Sequence[str]) -> None:
    if isinstance(sentences, str):
        raise SconesError("Give a list of sentences, not one string.")


def _check_choice(name: str, value: str, choices: Any) -> None:
    if value not in (known := get_args(choices)):
        raise SconesError(f"The {name} '{value}' is not known; use one of {', '.join(known)}.")


class Translator:
    """A model that is ready to translate; made by `scones.load`."""

    def __init__(
        self, opened: OpenedFolder, searcher: Searcher, weights: Weights | None = None
    ) -> None:
        """Whoever has no `weights` for PyTorch has an export."""
        self.name = opened.facts.name or opened.config.folder.name
        self.output = opened.output
        self.subwords = opened.vocabulary
        self.source_language = opened.facts.source_language
        self.target_language = opened.facts.target_language
        self._sizes = opened.sizes
        self.calibration: Calibration | None = None
        if opened.facts.confidence is not None:
            origin = f"{opened.config.path} is damaged: confidence"
            self.calibration = Calibration.from_json(opened.facts.confidence, origin)
        self._searcher = searcher
        self._weights = weights

    def __repr__(self) -> str:
        sizes, direction = self._sizes, f"{self.source_language} → {self.target_language}"
        return (
            f"<scones.Translator {self.name}: {direction}, {self.output}, {len(self.subwords):,} "
            f"pieces, {sizes.encoder_layers}+{sizes.decoder_layers} layers of {sizes.size}>"
        )

    @property
    def likely(self) -> float:
        """The least probability of what `search="all"` lists unless told otherwise.

        Of what is at least so probable, calibration found three quarters acceptable; else 0.1.
        """
        return (self.calibration and self.calibration.threshold) or _LIKELY

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
        threshold: float | None = None,
        max_states: int = 1_000_000,
        max_seconds: float | None = None,
        confidence: bool = False,
        split: bool = False,
        prefix: Given | Sequence[Given] | None = None,
        end_circles: bool = True,
    ) -> list[list[Translation]]:
        """Translate sentences: a list for each, of up to `n_best` translations, the best first.

        "exact" gives the most probable translations of all, "all" every one whose probability is
        at least `threshold`, by default the translator's own (`likely`); both within limits, and
        `exact` tells whether those were reached.
        Every text is listed once, with the score of its best segmentation. "exact" counts `n_best`
        texts; "beam" merges what it has found, so that fewer than `n_best` may be left. It ranks by
        log-probability / length**`length_penalty`, which is 1 unless it is given.

        With `scores=False` greedy search skips the activation altogether and `log_prob` is None.
        With `confidence`, ambiguity, doubt and, of calibrated models, confidence are read too, for
        which most searches need a second pass.
        `max_tokens` bounds the padded tokens of a batch; by default it suits the device. A
        sentence longer than the model's limit
        is an error, is cut (`too_long="cut"`) or gets an empty translation ("skip"), the latter
        two with a warning, which a translation gets too that was cut at its own limit, or that ran
        in circles up to there: by greedy or beam search it ends where they begin, unless
        `end_circles` is false;
        `first_number` is what such messages call the first sentence. An empty sentence gets an
        empty translation.

        With `split` a text of several sentences is translated in sentences, greedily or by a beam,
        and the best of each are put together with the white space that was between them. The text
        has the product of their probabilities: all have to be right.

        Translations begin with the `prefix`: a text for all sentences, or for each a text or a
        tuple of pieces. The last word of a text may go on, unless a space stands behind it
        (`scones.search.prefix`). PyTorch searches then, in this process alone.
        """
        _check_choice("search", search, Search)
        if split and (search not in ("greedy", "beam") or n_best != 1):
            raise SconesError(
                "One translation alone can be put together from sentences, by greedy or beam "
                "search; leave out split=True, or ask for one."
            )
        if split and prefix:
            raise SconesError("A prefix is that of one sentence; leave out split=True.")
        if search == "exact" or search == "all":
            if length_penalty:
                raise SconesError("Exact search ranks by probability; leave out length_penalty.")
            from scones.search.frontier import ExactOptions

            options = ExactOptions(
                n_best,
                (self.likely if threshold is None else threshold) if search == "all" else None,
                max_states=max_states,
                max_seconds=max_seconds,
            )
            found = self.exact(
                sentences,
                options,
                beam_size,
                too_long,
                first_number,
                prefix=prefix,
                confidence=confidence,
            )
            exactly = dict(found)
            return [exactly[index].translations for index in range(len(sentences))]
        plainly = SearchOptions(
            search,
            beam_size,
            n_best,
            LENGTH_PENALTY if length_penalty is None else length_penalty,
            max_tokens=max_tokens,
            scores=scores,
            ambiguities=scores and confidence,
            end_circles=end_circles,
        )
        numbers = range(first_number, first_number + len(sentences))
        if split:
            return self._put_together(sentences, plainly, too_long, numbers)
        return self._searched(sentences, plainly, too_long, numbers, prefix)

    def _put_together(
        self,
        texts: Sequence[str],
        options: SearchOptions,
        too_long: TooLong,
        numbers: Sequence[int],
    ) -> list[list[Translation]]:
        """The translation of each text, made of those of its sentences."""
        _check_list(texts)
        parts = [split_sentences(text, self.source_language) for text in texts]
        sentences = [part.strip() for several in parts for part in several]
        theirs = [number for number, several in zip(numbers, parts, strict=True) for _ in several]
        found = iter(self._searched(sentences, options, too_long, theirs))
        return [[joined([(part, next(found)[0]) for part in several])] for several in parts]

    def _searched(
        self,
        sentences: Sequence[str],
        options: SearchOptions,
        too_long: TooLong,
        numbers: Sequence[int],
        prefix: Given | Sequence[Given] | None = None,
    ) -> list[list[Translation]]:
        """The translations of sentences that messages call by these numbers."""
        ids = self._encode(sentences, too_long, numbers)
        real = [index for index, tokens in enumerate(ids) if tokens]
        sources = [ids[index] for index in real]
        prefixes = self._prefixes(prefix, sentences, ids, real)
        found = self._found(sources, options, prefixes)
        if options.end_circles:
            called = [numbers[index] for index in real]
            self._end_circles(sources, found, prefixes, called, options)
        # Empty sentences never reach a model: what it would make of them is not defined.
        results = [[NOTHING] for _ in sentences]
        texts = iter(self.subwords.decode([one.tokens for several in found for one in several]))
        measured = self._measured(sources, found) if options.ambiguities else [None] * len(found)
        for index, hypotheses, known in zip(real, found, measured, strict=True):
            spelled = [next(texts) for _ in hypotheses]
            results[index] = self._translations(hypotheses, spelled, numbers[index], known)
        return results

    def exact(
        self,
        sentences: Sequence[str],
        options: ExactOptions | None = None,
        beam_size: int = 4,
        too_long: TooLong = "error",
        first_number: int = 1,
        known: Sequence[Sequence[Any]] = (),
        prefix: Given | Sequence[Given] | None = None,
        confidence: bool = False,
    ) -> Iterator[tuple[int, ExactTranslations]]:
        """Search exactly: the number of each sentence, from 0, and its result, as they are done.

        A beam search of `beam_size` gives the bounds to begin with, and so do translations of each
        sentence that are `known` otherwise: what has `tokens`, and a `log_prob` unless cut. Whoever
        stops listening keeps what was given so far. `prefix` and `confidence` are those of
        `translate`; what is found and proved is so of the translations that begin with the prefix.
        """
        if self._weights is None:
            raise SconesError(
                "An export for CTranslate2 knows neither exact search nor all; use the model."
            )
        from scones.model.transformer import encoding_once
        from scones.search.exact import exact_search
        from scones.search.frontier import ExactOptions

        options, began = options or ExactOptions(), time.monotonic()
        numbers = range(first_number, first_number + len(sentences))
        ids = self._encode(sentences, too_long, numbers)
        for index, tokens in enumerate(ids):
            if not tokens:
                yield index, ExactTranslations([NOTHING], None)
        real = [index for index, tokens in enumerate(ids) if tokens]
        sources = [ids[index] for index in real]
        # Exact search needs n_best bounds to begin with, so that the beam has to be as wide.
        width = max(beam_size, options.n_best)
        beams = SearchOptions("beam", width, options.n_best, max_memory=options.max_memory)
        limits = [length_limit(len(source) + 1, self._sizes.max_length) for source in sources]
        prefixes = self._prefixes(prefix, sentences, ids, real)
        with encoding_once(self._weights.fastest):
            first = self._found(sources, beams, prefixes)
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
                prefixes=prefixes,
            ):
                texts = self.subwords.decode([one.tokens for one in found.hypotheses])
                measured = None
                if confidence:
                    (measured,) = self._measured([sources[index]], [found.hypotheses])
                translations = self._translations(
                    found.hypotheses, texts, numbers[real[index]], measured
                )
                yield real[index], ExactTranslations(translations, found.certificate)

    def _found(
        self, sources: Sources, options: SearchOptions, prefixes: Prefixes
    ) -> list[list[Hypothesis]]:
        if not prefixes:
            return self._searcher.search(sources, options)
        return self._step_by_step.search(sources, options, prefixes)

    def _end_circles(
        self,
        sources: Sources,
        found: Sequence[list[Hypothesis]],
        prefixes: Prefixes,
        numbers: Sequence[int],
        options: SearchOptions,
    ) -> None:
        """Put what is left of those that were cut in circles, ended and scored, in their place."""
        fixed = [len(one.path) if one else 1 for one in prefixes] or [1] * len(found)
        ended = [
            (index, place, one, end)
            for index, several in enumerate(found)
            for place, one in enumerate(several)
            if not one.finished
            and (end := circles_begin(self.subwords.pieces(one.tokens), fixed[index]))
        ]
        told = options.scores or options.search == "beam"
        rows: list[list[float]] = [[] for _ in ended]
        if told and all(one.end_log_probs for _, _, one, _ in ended):
            rows = [
                [*(one.token_log_probs or ())[:end], (one.end_log_probs or ())[end]]
                for _, _, one, end in ended
            ]
        # PyTorch is not started for nothing, and an export knows no scores of given texts.
        elif told and self._weights is not None:
            from scones.search.engine import token_scores

            theirs = [sources[index] for index, *_ in ended]
            texts = [one.tokens[:end] for _, _, one, end in ended]
            rows = self._read(theirs, texts, partial(token_scores, self.output))
        for (index, place, one, end), terms in zip(ended, rows, strict=True):
            total = math.fsum(terms) if terms else None
            found[index][place] = Hypothesis(one.tokens[:end], total, tuple(terms) or None, True)
            fact = "its translation ran in circles and was ended where they begin"
            logger.warning("Sentence %s: %s.", numbers[index], fact)

    @cached_property
    def _step_by_step(self) -> BatchSearcher:
        """Knows prefixes, and runs everywhere."""
        from scones.search.engine import BatchSearcher

        if self._weights is None:
            raise SconesError("An export for CTranslate2 knows no prefixes; use the model folder.")
        return BatchSearcher(self._weights.fastest, self.output)

    def _prefixes(
        self,
        given: Given | Sequence[Given] | None,
        sentences: Sequence[str],
        ids: Sources,
        real: Sequence[int],
    ) -> list[Prefix | None]:
        """How the translations of `real` sentences have to begin; none at all for nothing."""
        if not given:
            return []
        several = [given] * len(sentences) if isinstance(given, str) else given
        if len(several) != len(sentences):
            raise SconesError(
                f"There are {len(several):,} prefixes for {len(sentences):,} sentences; give one "
                "for each, or a single string for all."
            )
        if isinstance(self._searcher, AutoSearcher) and self._searcher.shortlist is not None:
            raise SconesError("A shortlist may lack what a prefix asks for; leave out one of them.")
        asked = [several[index] for index in real]
        cut = {one: Prefix.of(one, self.subwords.target) for one in set(asked)}
        prefixes = [cut[one] for one in asked]
        for index, prefix in zip(real, prefixes, strict=True):
            limit = length_limit(len(ids[index]) + 1, self._sizes.max_length)
            if prefix is not None and len(prefix.path) >= limit:
                raise SconesError(
                    f"The prefix {shown(several[index])} has {len(prefix.path)} pieces, and with "
                    f"its end this sentence's translation may have {limit}; shorten it."
                )
        return prefixes

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
        from scones.search.engine import token_scores

        return self._read(*self._pairs(pairs), partial(token_scores, self.output), max_tokens)

    def positions(
        self, pairs: Sequence[tuple[str, str]], share: float = 0.1
    ) -> list[list[Position]]:
        """What the model holds right at each position of the targets, the end of sentence last.

        Alternatives are the other pieces whose probability there is at least this `share` of the
        best one's.
        """
        if not 0 < share <= 1:
            raise SconesError(f"share must be above 0 and at most 1, not {share}.")
        read = partial(positions, self.output, self.subwords, share)
        return self._read(*self._pairs(pairs), read, _POSITIONS)

    def judge(self, pairs: Sequence[tuple[str, str]]) -> list[Translation]:
        """The targets as if they had been found: with scores, ambiguity, doubt and confidence."""
        sources, targets = self._pairs(pairs)
        judged = []
        facts = self._read(sources, targets, partial(measures, self.output), _POSITIONS)
        for source, ids, rows, (_, text) in zip(sources, targets, facts, pairs, strict=True):
            numbers = _Measured(len(source), *zip(*rows, strict=True))
            given = Hypothesis(tuple(ids), math.fsum(numbers.terms), numbers.terms, True)
            judged += self._translations([given], [text], 0, [numbers])
        return judged

    def _pairs(self, pairs: Sequence[tuple[str, str]]) -> tuple[list[list[int]], list[list[int]]]:
        if any(isinstance(pair, str) or len(pair) != 2 for pair in pairs):
            raise SconesError("Give pairs of a source and a target, such as [('Tee', 'tea')].")
        sources = self._encode([source for source, _ in pairs], name="Source")
        return sources, self._encode([target for _, target in pairs], name="Target")

    def _read(
        self,
        sources: Sources,
        targets: Sources,
        read: Callable[[torch.Tensor, torch.Tensor], list[Fact]],
        max_tokens: int | None = None,
    ) -> list[list[Fact]]:
        """What `read` makes of the logits at each position of each target."""
        if self._weights is None:
            raise SconesError("An export for CTranslate2 gives no scores; use the model folder.")
        from scones.search.engine import padded, read_batch

        lengths = [
            max(len(source), len(target)) + 1
            for source, target in zip(sources, targets, strict=True)
        ]
        model = self._weights.fastest
        # Prepacked products need no large batches, whose logits would not fit a CPU's caches.
        most = max_tokens or (8192 if model.head is None else 512)
        batches = list(batches_by_length(lengths, most))

        def facts_of(batch: list[int]) -> list[list[Fact]]:
            source_BS = padded([sources[index] for index in batch], model.device)
            target_BT = padded([targets[index] for index in batch], model.device)
            return read_batch(model, source_BS, target_BT, read)

        return put_back(batches, map(facts_of, batches))

    def _measured(
        self, sources: Sources, found: Sequence[Sequence[Hypothesis]]
    ) -> list[list[_Measured | None]]:
        """The numbers of each hypothesis, as the search told them or else read in a second pass.

        None for what was cut, and of an export, for what the search did not tell.
        """
        measured = [
            [_Measured.told(source, one) for one in several]
            for source, several in zip(sources, found, strict=True)
        ]
        left = [
            (index, place)
            for index, several in enumerate(found)
            for place, one in enumerate(several)
            if one.finished and measured[index][place] is None
        ]
        if self._weights is None or not left:  # PyTorch is not started for nothing
            return measured
        facts = self._read(
            [sources[index] for index, _ in left],
            [found[index][place].tokens for index, place in left],
            partial(measures, self.output),
            _POSITIONS,
        )
        for (index, place), rows in zip(left, facts, strict=True):
            measured[index][place] = _Measured(len(sources[index]), *zip(*rows, strict=True))
        return measured

    def _encode(
        self,
        sentences: Sequence[str],
        too_long: TooLong = "error",
        numbers: Sequence[int] | None = None,
        name: str = "Sentence",
    ) -> list[list[int]]:
        _check_list(sentences)
        _check_choice("too_long", too_long, TooLong)
        limit = self._sizes.max_length - 1  # the end of sentence takes a position too
        subwords = self.subwords.target if name == "Target" else self.subwords
        ids = subwords.encode(sentences)
        long = [index for index, tokens in enumerate(ids) if len(tokens) > limit]
        called = [index + 1 if numbers is None else numbers[index] for index in long]
        for index, number in zip(long, called, strict=True):
            tokens = ids[index]
            fact = f"{name} {number} has {len(tokens):,} pieces and the model takes {limit:,}"
            if too_long == "error":
                remedy = "split it, or let such sentences be cut or skipped (--too-long)"
                raise TooLongError(f"{fact}; {remedy}.", called)
            ids[index] = tokens[:limit] if too_long == "cut" else []
            logger.warning("%s: it is %s.", fact, "cut" if too_long == "cut" else "skipped")
        return ids

    def _translations(
        self,
        found: Sequence[Hypothesis],
        texts: Sequence[str],
        number: int,
        measured: Sequence[_Measured | None] | None = None,
    ) -> list[Translation]:
        """What a search found for a sentence, the best first: every text once."""
        segmentations: dict[str, list[int]] = {}
        for place, text in enumerate(texts):
            segmentations.setdefault(text, []).append(place)
        cut = next((one for one in found if not one.finished), None)
        if cut is not None:
            fact = f"its translation was cut at the limit of {len(cut.tokens):,} pieces"
            logger.warning("Sentence %s: %s.", number, fact)
        translations = []
        for text, (place, *others) in segmentations.items():
            best, numbers = found[place], measured[place] if measured else None
            translations.append(
                Translation(
                    text,
                    tuple(self.subwords.pieces(best.tokens)),
                    best.log_prob if best.finished else None,
                    best.token_log_probs,
                    best.finished,
                    1 + len(others),
                    **({} if numbers is None else self._judged(text, numbers)),
                )
            )
        return translations

    def _judged(self, text: str, numbers: _Measured) -> dict[str, float | None]:
        ambiguity, doubt = fmean(numbers.ambiguities), fmean(numbers.doubts)
        confidence = None
        if self.calibration is not None:
            known = features(text, numbers.source, numbers.terms, ambiguity, doubt)
            (confidence,) = self.calibration.confidence([known])
        return {"ambiguity": ambiguity, "doubt": doubt, "confidence": confidence}


@dataclass(frozen=True)
class _Measured:
    """What a model says at each token of a translation, the end of sentence last."""

    source: int
    """Pieces of the source."""
    terms: tuple[float, ...]
    ambiguities: tuple[float, ...]
    doubts: tuple[float, ...]

    @classmethod
    def told(cls, source: Sequence[int], found: Hypothesis) -> _Measured | None:
        """What the search told by itself."""
        if found.token_log_probs is None or found.ambiguities is None or found.doubts is None:
            return None
        return cls(len(source), found.token_log_probs, found.ambiguities, found.doubts)
