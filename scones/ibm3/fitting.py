"""Fitting IBM Model 3 to parallel text, with sil-thot: IBM 1, then HMM or IBM 2, then IBM 3.

The estimation is sil-thot's, in C++ on all cores (OMP_NUM_THREADS says otherwise). Here is what
goes in, what comes out, and whether it went well: after every iteration the log-probability of the
best alignment, per target word, of a sample of the pairs. It should rise within a model; from
one model to the next it cannot be compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from scones.errors import SconesError, optional_import
from scones.ibm3.options import FitOptions
from scones.ibm3.parameters import Packed, Parameters, pack
from scones.text import reading
from scones.text.store import TokenStore
from scones.text.subwords import Subwords

SAMPLED_PAIRS = 2000
# The probability of a longer sentence may be less than the smallest number that sil-thot can hold.
SAMPLED_LENGTH = 50

# sil-thot's own numbers of words: 1 and 2 belong to no word.
NULL = 0
FIRST_WORD = 3

# Of the millions of pairs of words that occur together, almost all are as good as impossible.
_NOTHING = 1e-9
_RECORDS_AT_ONCE = 1 << 22
_LINES_AT_ONCE = 10_000

Item = TypeVar("Item")
Pair = tuple[Sequence[int] | NDArray[Any], Sequence[int] | NDArray[Any]]
Progress = Callable[[str, int, int], None]
"""Told the stage, what is done of it (iterations or pairs), and of how many (0: unknown)."""


class StorePairs:
    """The training pairs of a store, or `limit` of them from all over it."""

    def __init__(self, store: TokenStore, limit: int | None = None) -> None:
        self.subwords = store.subwords
        self.source_words = self.target_words = store.subwords.pieces()
        self._pairs = store.split("train")
        self._limit = limit

    def __iter__(self) -> Iterator[Pair]:
        total = len(self._pairs)
        for index in _evenly(range(total), total, self._limit):
            yield self._pairs.sources[index], self._pairs.targets[index]


class FilePairs:
    """The lines of two files, or `limit` of them, split by a subword model or else at spaces."""

    def __init__(
        self,
        source: Path,
        target: Path,
        subwords: Subwords | None = None,
        limit: int | None = None,
    ) -> None:
        """Read the files once, for their words and their number of lines."""
        self.subwords = subwords
        self._paths = (source, target)
        self._limit = limit
        self._lines = 0
        self._numbers: tuple[dict[str, int], dict[str, int]] = ({}, {})
        # The number of lines has to be known to take some of them evenly from all.
        for texts in self._texts():
            self._lines += 1
            if not subwords:
                for numbers, text in zip(self._numbers, texts, strict=True):
                    for word in text.split():
                        numbers.setdefault(word, len(numbers))
        self.source_words, self.target_words = (
            subwords.pieces() if subwords else list(numbers) for numbers in self._numbers
        )

    def __iter__(self) -> Iterator[Pair]:
        chosen = _evenly(self._texts(), self._lines, self._limit)
        while some := list(islice(chosen, _LINES_AT_ONCE)):
            sources, targets = zip(*some, strict=True)
            yield from zip(self._encode(0, sources), self._encode(1, targets), strict=True)

    def _encode(self, side: int, texts: Sequence[str]) -> list[list[int]]:
        if self.subwords:
            return self.subwords.encode(texts)
        numbers = self._numbers[side]
        return [[numbers[word] for word in text.split()] for text in texts]

    def _texts(self) -> Iterator[tuple[str, str]]:
        for number, pair in enumerate(reading.pairs(*self._paths), start=1):
            for path, line in zip(self._paths, pair, strict=True):
                if fault := reading.bad_byte(line):
                    raise SconesError(
                        f"{path}, line {number:,} is not UTF-8 text ({fault}); clean the text "
                        "with scones prepare, and fit to its store."
                    )
            yield pair[0].decode(), pair[1].decode()


def _evenly(items: Iterable[Item], total: int, limit: int | None) -> Iterator[Item]:
    """`limit` of the items, spread evenly over all of them, of which there are `total`."""
    limit = total if limit is None else min(limit, total)
    for index, item in enumerate(items):
        if (index + 1) * limit // total > index * limit // total:
            yield item


@dataclass
class Stage:
    """A model on the way, or what else takes time."""

    name: str
    seconds: float = 0.0
    log_probs: list[float] = field(default_factory=list)
    """After each iteration: of the best alignment, per target word, on the sample."""


@dataclass
class FitReport:
    """What went in, how it went, what was cut off."""

    source_counts: NDArray[np.int64]
    """Of the words of the pairs that are fitted to, by our numbers."""
    pairs: int = 0
    left_out: dict[str, int] = field(default_factory=lambda: {"empty": 0, "too long": 0})
    stages: list[Stage] = field(default_factory=list)
    lost: dict[str, float] = field(default_factory=dict)
    """The probability that pruning took, on average over the words of the source text."""
    sizes: dict[str, int] = field(default_factory=dict)
    peak_memory: int = 0
    """Bytes, of the whole process."""

    def to_json(self) -> dict[str, Any]:
        facts = asdict(self)
        del facts["source_counts"]  # as long as the vocabulary
        return facts


def fit(
    pairs: Iterable[Pair],
    source_words: Sequence[str],
    target_words: Sequence[str],
    options: FitOptions | None = None,
    progress: Progress = lambda stage, done, total: None,
    subwords: Subwords | None = None,
) -> tuple[Parameters, FitReport]:
    """Fit to pairs of sentences, each a sequence of numbers of words; the source is given.

    `subwords` is kept with the parameters where the words of both languages are its pieces.
    """
    options = options or FitOptions()
    corpus = TrainingPairs(pairs, len(source_words), len(target_words), options, progress)
    report = corpus.report
    model = estimate(corpus, options)
    begin = time.perf_counter()
    packed, p1 = _packed(model, options, report)
    report.stages.append(Stage("tables", time.perf_counter() - begin))
    report.peak_memory = _peak_memory()
    facts = {"made_by": f"sil-thot {version('sil-thot')}", "options": asdict(options)}
    facts |= report.to_json()
    return Parameters(source_words, target_words, *packed, p1, subwords, facts), report


def import_thot() -> Any:
    absent = "Fitting IBM Model 3 needs sil-thot; install scones[ibm3]."
    return optional_import("thot.alignment", absent)


class TrainingPairs:
    """The pairs, in sil-thot, and a sample of them; `model` is the first model, not yet trained.

    `report` says what went in, and how the training went.
    """

    def __init__(
        self,
        pairs: Iterable[Pair],
        sources: int,
        targets: int,
        options: FitOptions,
        progress: Progress = lambda stage, done, total: None,
    ) -> None:
        begin = time.perf_counter()
        self._progress = progress
        self.model = import_thot().Ibm1AlignmentModel()
        self.report = report = FitReport(np.zeros(sources, np.int64))
        # Words of one length, since sil-thot smooths fertilities among words of equal length.
        digits = len(str(max(sources, targets)))
        self._names = [f"{number:0{digits}}" for number in range(max(sources, targets))]
        for source, target in pairs:
            self._add(source, target, options.max_length)
            if report.pairs and report.pairs % 1000 == 0:
                progress("read", report.pairs, 0)
        if not report.pairs:
            why = ", ".join(f"{count:,} are {reason}" for reason, count in report.left_out.items())
            raise SconesError(f"There is no pair of sentences to fit IBM Model 3 to: {why}.")
        report.stages.append(Stage("read", time.perf_counter() - begin))
        self.sample = self._sample()

    def _add(self, source: Any, target: Any, max_length: int) -> None:
        if not len(source) or not len(target):
            self.report.left_out["empty"] += 1
        elif max(len(source), len(target)) > max_length:
            self.report.left_out["too long"] += 1
        else:
            self.report.pairs += 1
            np.add.at(self.report.source_counts, source, 1)
            names = self._names
            # The models that follow share the pairs that the first one holds.
            self.model.add_sentence_pair([names[i] for i in source], [names[j] for j in target])

    def _sample(self) -> list[tuple[list[str], list[str]]]:
        """Pairs from all over the corpus, the long ones aside."""
        # Evenly spread: text is often sorted by where it comes from.
        numbers = range(0, self.report.pairs, max(1, self.report.pairs // SAMPLED_PAIRS))
        some = (self.model.get_sentence_pair(number) for number in numbers)
        return [(x, y) for x, y, _ in some if max(len(x), len(y)) <= SAMPLED_LENGTH]

    def log_prob(self, model: Any) -> float | None:
        """Log-probability of the best alignments of the sample, per target word."""
        if not self.sample:
            return None
        sources, targets = zip(*self.sample, strict=True)
        total = sum(log_prob for log_prob, _ in model.get_best_alignments(sources, targets))
        # sil-thot adds the probability of the length, which no iteration changes.
        total -= sum(model.sentence_length_log_prob(len(x), len(y)) for x, y in self.sample)
        return float(total / sum(map(len, targets)))

    def train(self, model: Any, name: str, iterations: int) -> None:
        """Train a model on the pairs, which it has from the first one."""
        begin = time.perf_counter()
        self._progress(name, 0, iterations)
        stage = Stage(name)
        model.start_training()  # IBM 3 takes over what the model before it knows
        for iteration in range(iterations):
            model.train()
            if (log_prob := self.log_prob(model)) is not None:
                stage.log_probs.append(log_prob)
            self._progress(name, iteration + 1, iterations)
        model.end_training()
        stage.seconds = time.perf_counter() - begin
        self.report.stages.append(stage)


def estimate(corpus: TrainingPairs, options: FitOptions) -> Any:
    """Train the models one after another; gives sil-thot's IBM 3."""
    thot = import_thot()
    corpus.train(corpus.model, "IBM 1", options.ibm1)
    if options.hmm:
        middle, name = thot.HmmAlignmentModel(corpus.model), "HMM"
    else:
        middle, name = thot.Ibm2AlignmentModel(corpus.model), "IBM 2"
        middle.compact_alignment_table = options.distortions == "target"
    corpus.train(middle, name, options.hmm or options.ibm2)
    last = thot.Ibm3AlignmentModel(middle)
    last.compact_alignment_table = options.distortions == "target"
    # Rare words get fertilities from the mean word, or they would remember each of their pairs.
    last.fertility_smoothing_factor = options.fertility_smoothing
    corpus.train(last, "IBM 3", options.ibm3)
    return last


_COUNTS = [("entry", "<f4"), ("all", "<f4")]
_TRANSLATION = np.dtype([("source", "<u4"), ("target", "<u4"), *_COUNTS])
_FERTILITY = np.dtype([("source", "<u4"), ("fertility", "<u4"), *_COUNTS])
_DISTORTION = np.dtype([("position", "<u4", 4), *_COUNTS])  # i, l (0 for any), m, j

Records = NDArray[Any]


class Tables:
    """The entries of all tables of a model of sil-thot, by sil-thot's numbers of words.

    They are read from its saved files: records without a header, little-endian, of logarithms of
    expected counts: that of an entry, and that of all entries with the same condition, so that
    their difference is a log-probability.

    What sil-thot's functions of single probabilities add on top, a floor of 1e-7 and guesses for
    words that it has never seen, is not taken over: it would be noise, which a high temperature
    makes loud.
    """

    def __init__(self, model: Any) -> None:
        """Let a fitted `Ibm3AlignmentModel` save itself, and read that."""
        with TemporaryDirectory(prefix="scones-ibm3-") as folder:
            prefix = Path(folder) / "model"
            if not model.print(str(prefix)):
                raise SconesError(
                    f"sil-thot could not save its tables in {folder}; make room there, or name "
                    "another folder with the environment variable TMPDIR."
                )
            self.translations, self.translation_probs = _read(prefix, "ibm_lexnd", _TRANSLATION)
            self.fertilities, self.fertility_probs = _read(prefix, "fertnd", _FERTILITY)
            distortions, self.distortion_probs = _read(prefix, "distnd", _DISTORTION)
            self.distortions: NDArray[np.uint32] = distortions["position"]
            self.p1 = float(prefix.with_suffix(".p1").read_text())


def _read(prefix: Path, ending: str, kind: np.dtype[Any]) -> tuple[Records, NDArray[np.float64]]:
    """Read the records that have a probability at all, a part of the file at a time."""
    records, probs = [np.zeros(0, kind)], [np.zeros(0)]
    with prefix.with_suffix(f".{ending}").open("rb") as file:
        while len(part := np.fromfile(file, kind, _RECORDS_AT_ONCE)):
            prob = np.exp(part["entry"].astype(np.float64) - part["all"])
            kept = prob > _NOTHING
            records.append(part[kept])
            probs.append(prob[kept])
    return np.concatenate(records), np.concatenate(probs)


def _packed(model: Any, options: FitOptions, report: FitReport) -> tuple[Packed, float]:
    """Read sil-thot's tables t, n, d and p1, with our numbers of words, and prune them."""
    tables = Tables(model)
    t, n = tables.translations, tables.fertilities
    sources = _our_numbers(model.get_src_word, model.src_vocab_size)
    targets = _our_numbers(model.get_trg_word, model.trg_vocab_size)
    sources[NULL] = len(report.source_counts)  # behind the last source word
    packed, report.lost = pack(
        (sources[t["source"]], targets[t["target"]], tables.translation_probs),
        (sources[n["source"]], n["fertility"], tables.fertility_probs),
        (tables.distortions, tables.distortion_probs),
        report.source_counts,
        options,
    )
    translations, _, distortions = packed
    report.sizes = {
        "source words": int((report.source_counts > 0).sum()),
        "translations": len(translations.words),
        "places": len(distortions.probs),
    }
    return packed, tables.p1


def _our_numbers(word: Callable[[int], str], size: int) -> NDArray[np.int64]:
    """Our number of each word by sil-thot's, which was given ours as the word itself."""
    numbers = np.full(size, -1, np.int64)
    numbers[FIRST_WORD:] = [int(word(number)) for number in range(FIRST_WORD, size)]
    return numbers


def _peak_memory() -> int:
    import resource
    import sys

    # macOS counts in bytes, Linux in kilobytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
