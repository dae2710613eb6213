"""From parallel text to a token store: read, clean, drop duplicates, learn subwords, encode.

Memory stays bounded whatever the corpus. Clean text and digests wait on disk, in a scratch folder
inside the new store, and leave with it if anything goes wrong.
"""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scones.errors import SconesError
from scones.files import new_folder, write_json
from scones.hardware import usable_cores
from scones.text.cleaning import Cleaner, CleaningReport, PrepareConfig, text_digest
from scones.text.reading import pairs, read_aligned, read_texts
from scones.text.report import TOO_MANY_PIECES, Corpus, PrepareReport, Stage
from scones.text.store import KIND, StoreWriter
from scones.text.subwords import Subwords
from scones.text.workers import ordered_map, run_apart

Progress = Callable[[str, int], None]
"""Called now and then with the name of a stage and the pairs that went through it."""

# Small enough that a few dozen chunks on their way cost no memory to speak of, large enough that
# handing them over costs no time.
CHUNK_PAIRS = 2_000
CHUNK_BYTES = 1 << 20
ENCODED_PAIRS = 10_000

_DIGEST = np.dtype("V16")
_RECORD = np.dtype([("digest", _DIGEST), ("number", "<u8")])


def prepare(
    config: PrepareConfig, folder: Path, progress: Progress = lambda stage, pairs: None
) -> PrepareReport:
    """Make the store `folder` from the corpora of `config`, and say what was dropped and why.

    Nothing is left on disk unless all went well.
    """
    folder = Path(folder)
    config.validate()
    corpora = [Corpus(*files) for files in zip(config.source, config.target, strict=True)]
    corpora += [Corpus(path, None) for path in config.tsv]
    corpora += [Corpus(path, None, several=True) for path in config.several]
    for corpus, times in zip(corpora, config.times, strict=False):
        corpus.times = times
    _check_beginnings(corpora)
    KIND.check(folder, config.overwrite)
    options = json.loads(json.dumps(asdict(config), default=str))  # paths become strings
    report = PrepareReport(config.source_language, config.target_language, corpora, options)
    try:
        with new_folder(folder, KIND, overwrite=config.overwrite) as hidden:
            _Preparation(config, report, hidden, progress).run()
    except OSError as problem:
        if problem.errno in (errno.ENOSPC, errno.EDQUOT):
            raise SconesError(
                f"The disk of {folder} is full, so nothing was written; free some space: the "
                "unpacked size of the corpus and half as much again."
            ) from None
        raise
    return report


@dataclass
class _Preparation:
    """One run of the pipeline, stage by stage."""

    config: PrepareConfig
    report: PrepareReport
    folder: Path
    progress: Progress

    def __post_init__(self) -> None:
        self.scratch = self.folder / "scratch"
        self.text = CleanText(self.scratch / "text", len(self.report.corpora))
        self.workers = self.config.workers or usable_cores()

    def run(self) -> None:
        # What can be refused is read first: cleaning takes hours on a large corpus.
        config, report = self.config, self.report
        dev = _read_dev(config)
        subwords = Subwords.load(config.subwords) if config.subwords else None
        duplicates = DuplicateFinder(self.scratch / "digests")
        with report.stage("clean") as stage:
            self._clean(_held_out(config, dev), duplicates, stage)
        if config.cleaning.drop_duplicates:
            with report.stage("find duplicates") as stage:
                self.text.marks = duplicates.mark()
                stage.pairs = len(self.text.marks)
        if subwords is None:
            with report.stage("learn subwords") as stage:
                subwords = self._learn_subwords(stage)
        with StoreWriter(
            self.folder,
            subwords,
            config.source_language,
            config.target_language,
            config.group_sources or bool(config.several),
        ) as writer:
            with report.stage("encode") as stage:
                self._encode(subwords, writer, stage)
            if dev:
                writer.append_dev(*dev)
            shutil.rmtree(self.scratch)  # before the digest, and before the folder becomes a store
            with report.stage("write"):
                report.digest = writer.finish()
        report.vocabulary = len(subwords)
        report.dev_pairs = len(dev[0]) if dev else 0
        write_json(self.folder / "report.json", report.to_json())

    def _clean(self, held_out: frozenset[bytes], duplicates: DuplicateFinder, stage: Stage) -> None:
        config, corpora = self.config, self.report.corpora
        make_cleaner = partial(
            Cleaner, config.cleaning, config.source_language, config.target_language, held_out
        )
        chunks = _chunks(corpora, {*config.trusted})
        with closing(ordered_map(_clean_chunk, chunks, make_cleaner, self.workers)) as results:
            for cleaned in results:
                corpus = corpora[cleaned.corpus]
                corpus.cleaning.merge(cleaned.report)
                corpus.cleaning.check_encoding(corpus.source, corpus.target)
                self.text.append(cleaned)
                # Only the main process sees every chunk, in the order of the corpora, so that the
                # first of equal pairs stays whatever the number of workers.
                if config.cleaning.drop_duplicates:
                    duplicates.add(cleaned.digests)
                stage.pairs += cleaned.report.total
                self.progress(stage.name, stage.pairs)
        for corpus in corpora:
            corpus.cleaning.check_kept(corpus.source, corpus.target)

    def _learn_subwords(self, stage: Stage) -> Subwords:
        sample = self.scratch / "sample"
        with sample.open("w", encoding="utf-8", newline="\n") as file:
            for pair in self.text.sample(self.config.sample_megabytes * 1_000_000):
                file.write(f"{pair.source}\n{pair.target}\n")
                stage.pairs += 1
        self.progress(stage.name, stage.pairs)
        # In a process of its own: SentencePiece takes gigabytes, and does not heed Ctrl-C.
        learn = partial(_learn_subwords, sample, self.config.pieces)
        return Subwords(run_apart(learn, self.workers))

    def _encode(self, subwords: Subwords, writer: StoreWriter, stage: Stage) -> None:
        for number, corpus in enumerate(self.report.corpora):
            clean = self.text.pairs(number)
            late = CleaningReport()
            while chunk := list(islice(clean, ENCODED_PAIRS)):
                sources, targets = self._encode_chunk(chunk, subwords, late)
                writer.append("train", sources * corpus.times, targets * corpus.times)
                self.report.source_tokens += sum(map(len, sources)) * corpus.times
                self.report.target_tokens += sum(map(len, targets)) * corpus.times
                stage.pairs += len(chunk)
                self.progress(stage.name, stage.pairs)
            # These pairs were read before, and counted as kept until now.
            late.kept, late.total = -late.total, 0
            corpus.cleaning.merge(late)
        if not self.report.pairs_kept:
            raise SconesError(
                f"No pair has at most {self.config.max_pieces} subword pieces on both sides; "
                "raise --max-pieces."
            )

    def _encode_chunk(
        self, chunk: list[CleanPair], subwords: Subwords, late: CleaningReport
    ) -> tuple[list[list[int]], list[list[int]]]:
        """The ids of the pairs of a chunk that stay; the others are counted in `late`."""

        def drop(pair: CleanPair, reason: str) -> None:
            late.add(pair.line, reason, pair.source.encode(), pair.target.encode())

        for pair in chunk:
            if pair.duplicate:
                drop(pair, "duplicate")
        fresh = [pair for pair in chunk if not pair.duplicate]
        sources = subwords.encode([pair.source for pair in fresh])
        targets = subwords.encode([pair.target for pair in fresh])
        keep = []
        for pair, source, target in zip(fresh, sources, targets, strict=True):
            if max(len(source), len(target)) > self.config.max_pieces:
                drop(pair, TOO_MANY_PIECES)
            elif not source or not target:  # nothing but characters that SentencePiece removes
                drop(pair, "empty")
            else:
                keep.append((source, target))
        return [source for source, _ in keep], [target for _, target in keep]


class _Chunk(NamedTuple):
    """Some lines of a corpus, as they were read: the work of one call in a worker process."""

    corpus: int
    first_line: int
    pairs: list[tuple[bytes, bytes]]
    trusted: bool


class _CleanChunk(NamedTuple):
    corpus: int
    content: bytes
    """Line, source and target of each pair that was kept, as a line of JSON."""
    size: int
    """Of the texts in it, in bytes, with a line end each."""
    digests: bytes
    report: CleaningReport


def _check_beginnings(corpora: Iterable[Corpus]) -> None:
    """Find out at once, not after hours, that the last of many files is missing or UTF-16."""
    for corpus in corpora:
        # What a pipe has given is gone, so a pipe is not looked into.
        if not any(path and path.is_fifo() for path in (corpus.source, corpus.target)):
            next(pairs(corpus.source, corpus.target, several=corpus.several))


def _chunks(corpora: Iterable[Corpus], trusted: set[Path]) -> Iterator[_Chunk]:
    for number, corpus in enumerate(corpora):
        chunk, size, first = [], 0, 1
        is_trusted = corpus.source in trusted
        for pair in pairs(corpus.source, corpus.target, several=corpus.several):
            chunk.append(pair)
            size += len(pair[0]) + len(pair[1])
            if len(chunk) >= CHUNK_PAIRS or size >= CHUNK_BYTES:
                yield _Chunk(number, first, chunk, is_trusted)
                chunk, size, first = [], 0, first + len(chunk)
        if chunk:
            yield _Chunk(number, first, chunk, is_trusted)


def _clean_chunk(cleaner: Cleaner, chunk: _Chunk) -> _CleanChunk:
    report = CleaningReport()
    kept, digests = [], bytearray()
    for line, (source, target) in enumerate(chunk.pairs, start=chunk.first_line):
        verdict = cleaner.check(source, target, trusted=chunk.trusted)
        report.add(line, verdict.reason, source, target)
        if verdict.reason is None:
            kept.append((line, verdict.source, verdict.target))
            digests += verdict.digest
    content = json.dumps(kept, ensure_ascii=False).encode() + b"\n"
    size = sum(len(f"{source}\n{target}\n".encode()) for _, source, target in kept)
    return _CleanChunk(chunk.corpus, content, size, bytes(digests), report)


def _learn_subwords(sample: Path, pieces: int) -> bytes:
    with sample.open(encoding="utf-8", newline="\n") as file:
        return Subwords.train((line[:-1] for line in file), pieces).model


def _read_dev(config: PrepareConfig) -> list[list[str]]:
    """The two sides of the development set; none where there is no such set."""
    return read_aligned([path for path in (config.dev_source, config.dev_target) if path])


def _held_out(config: PrepareConfig, dev: list[list[str]]) -> frozenset[bytes]:
    texts = [text for side in dev for text in side]
    for path in config.held_out:
        texts += read_texts(path)
    return frozenset(text_digest(text) for text in texts)


# Clean text on its way from the cleaner to the store: written once, read twice (for the sample that
# subwords are learned from, and for the store), then removed.


class CleanPair(NamedTuple):
    """A pair that passed the cleaner, the line it stood in, and whether it was there before."""

    line: int
    source: str
    target: str
    duplicate: bool


class CleanText:
    """The clean pairs of several corpora in a scratch folder, a line of JSON a chunk.

    `marks` are the duplicates among all pairs in the order of writing; without them none is one.
    """

    def __init__(self, folder: Path, corpora: int) -> None:
        self.marks: NDArray[np.bool_] | None = None
        self._files = [folder / f"{corpus}.jsonl" for corpus in range(corpora)]
        self._counts = [0] * corpora
        self._bytes = 0
        folder.mkdir(parents=True, exist_ok=True)
        for path in self._files:
            path.touch()  # so that a corpus of which nothing is left can be read too

    def append(self, chunk: _CleanChunk) -> None:
        """Add the next pairs of a corpus; corpora come one after another."""
        with self._files[chunk.corpus].open("ab") as file:
            file.write(chunk.content)
        self._counts[chunk.corpus] += chunk.report.kept
        self._bytes += chunk.size

    def pairs(self, corpus: int) -> Iterator[CleanPair]:
        first = sum(self._counts[:corpus])
        with self._files[corpus].open(encoding="utf-8", newline="\n") as file:
            pairs = chain.from_iterable(map(json.loads, file))
            for number, (line, source, target) in enumerate(pairs, start=first):
                duplicate = self.marks is not None and bool(self.marks[number])
                yield CleanPair(line, source, target, duplicate)

    def sample(self, size: int) -> Iterator[CleanPair]:
        """Pairs of about `size` bytes in all, evenly spread over the corpora, no duplicates."""
        share = min(1.0, size / self._bytes)
        # No random numbers: a pair is taken whenever `share` of those so far passes a whole number.
        fresh = 0
        for corpus in range(len(self._files)):
            for pair in self.pairs(corpus):
                if pair.duplicate:
                    continue
                fresh += 1
                if int(fresh * share) > int((fresh - 1) * share):
                    yield pair


class DuplicateFinder:
    """Collects digests on disk and marks every pair that was seen before.

    Digests go to 256 files by their first byte, so that equal ones meet in the same file;
    afterwards each file is sorted alone, and memory holds a 256th of them at a time.
    """

    def __init__(self, folder: Path, buffered: int = 500_000) -> None:
        """Keep the files in `folder`, and up to `buffered` digests (24 bytes each) in memory."""
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._limit = buffered
        self._waiting = bytearray()
        self._written = 0

    def add(self, digests: bytes) -> None:
        """Add the digests of the next pairs, joined to one string of 16 bytes each."""
        self._waiting += digests
        if len(self._waiting) >= self._limit * _DIGEST.itemsize:
            self._flush()

    def mark(self) -> NDArray[np.bool_]:
        """One boolean per pair, mapped from a file: whether an earlier pair has its digest."""
        self._flush()
        if not self._written:
            return np.zeros(0, bool)
        _write_zeros(self._folder / "marks", self._written)
        marks = np.memmap(self._folder / "marks", dtype=bool, mode="r+")
        for path in self._folder.glob("bucket.*"):
            records = np.fromfile(path, _RECORD)
            # Pairs lie there in their order, and of equal digests the first is found.
            _, first = np.unique(records["digest"], return_index=True)
            marks[np.delete(records["number"], first)] = True
            path.unlink()
        return marks

    def _flush(self) -> None:
        digests = np.frombuffer(self._waiting, _DIGEST)
        records = np.empty(len(digests), _RECORD)
        records["digest"] = digests
        records["number"] = self._written + np.arange(len(digests))
        first_bytes = np.frombuffer(self._waiting, np.uint8)[:: _DIGEST.itemsize].copy()
        for bucket in np.unique(first_bytes):
            # One file open at a time: some systems allow a process only 256.
            with (self._folder / f"bucket.{bucket:02x}").open("ab") as file:
                file.write(records[first_bytes == bucket].tobytes())
        self._written += len(records)
        self._waiting = bytearray()


def _write_zeros(path: Path, count: int) -> None:
    """Fill a file, for a full disk is an error here but kills a process that writes to a map."""
    with path.open("wb") as file:
        while count > 0:
            count -= file.write(bytes(min(count, 1 << 20)))
