"""Cleaning parallel text: one pair in, one verdict out, and a count for every reason.

A kept text is normalised a little, and the same for every language: white space of any kind
(also a no-break space, a Unicode line separator or a `\\r` at the end) becomes one space, none
stands at either end, and invisible characters that carry no meaning (soft hyphens, zero-width
spaces, byte-order and direction marks) are removed. Zero-width joiners stay, since some scripts
need them; case and compatibility characters stay, since subwords see to them.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from scones.errors import SconesError, optional_import
from scones.options import REQUIRED, option, out_of_bounds
from scones.text.reading import MAX_LINE_BYTES, NOT_TWO_COLUMNS, bad_byte

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier as Py3LangId

REASONS: Final = {
    "columns": "a TSV line without exactly one TAB",
    "encoding": "not UTF-8",
    "control": "control, private-use or replacement characters",
    "empty": "nothing on one side",
    "short": "too few words on one side",
    "long": "too many words or characters on one side",
    "ratio": "one side much longer than the other",
    "held out": "a text of the development or test set",
    "copy": "source and target are the same text",
    "language (source)": "the source is in another language",
    "language (target)": "the target is in another language",
    "duplicate": "the same pair was there before",
}
"""Why a pair is dropped, in the order of checking: the first that applies is counted."""

# Control characters but white space, U+FFFD (text that was decoded wrongly once), private use and
# non-characters: signs of a broken file rather than of a language.
_FORBIDDEN = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f\ufffd\ue000-\uf8ff\ufdd0-\ufdef\ufffe\uffff\U000f0000-\U0010ffff]"
)
_INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")

_MAX_UNREADABLE_SHARE = 0.1  # more is no dirt, but a file in another encoding
_EXAMPLES = 3
_EXAMPLE_CHARACTERS = 80


_count = partial(option, least=1)
_files = partial(option, [], metavar="FILE")


@dataclass(frozen=True)
class CleaningConfig:
    """Which pairs are kept. The defaults suit text of the kind used at WMT."""

    min_words: int = _count(1, "Drop pairs with fewer words on a side, by white space", "Cleaning")
    max_words: int = option(200, "Drop pairs with more words on a side")
    # The limit for languages that are written without spaces.
    max_characters: int = _count(
        1500, "Drop pairs with more characters on a side", most=MAX_LINE_BYTES
    )
    # In characters or in UTF-8 bytes, whichever are closer.
    max_ratio: float = option(3.0, "Drop pairs with a side so many times longer", least=1)
    ratio_slack: int = option(
        20, "So many characters more are allowed, for the sake of short sentences", least=0
    )
    drop_copies: bool = option(True, "Whether to drop pairs of two equal texts")
    # A cleaner sees one pair at a time: whoever reads the whole corpus finds the duplicates.
    drop_duplicates: bool = option(
        True,
        "Whether to keep one of equal pairs only",
        flags=("--drop-duplicates/--keep-duplicates",),
    )
    identify_language: bool = option(
        True,
        "Whether to drop text in other languages",
        flags=("--identify-language/--any-language",),
    )


# Here and not in `prepare`: the flags of the command are made from it, and should not import NumPy.
@dataclass
class PrepareConfig:
    """What `scones prepare` is asked to do: section [prepare] of a recipe."""

    # The order of the fields is that of "options" in report.json.
    source_language: str = option(
        REQUIRED, "Such as de.", "Text", flags=("--source-language", "-s")
    )
    target_language: str = option(REQUIRED, "Such as en.", flags=("--target-language", "-t"))
    source: list[Path] = _files(
        "Source text, one sentence per line; may be repeated to pool corpora."
    )
    target: list[Path] = _files("Target text, once for every --source.")
    tsv: list[Path] = _files("Text in two columns, source TAB target.")
    several: list[Path] = _files(
        "Text in columns, source TAB target TAB target …: all of them right."
    )
    group_sources: bool = option(
        False,
        "Note which pairs have the same source, so that training can tell that all are right",
    )
    times: list[int] = _count(
        [], "How often its pairs are in the store, once for every corpus [1]", metavar="N"
    )
    trusted: list[Path] = _files(
        "A source or TSV file with right pairs alone: equal texts, any language."
    )
    dev_source: Path | None = option(None, "Development set, source.")
    dev_target: Path | None = option(None, "Development set, target.")
    held_out: list[Path] = _files("Text (a test set) that must not be trained on.")
    pieces: int = _count(
        32_000, "Subword pieces of both languages, where the text has so many", "Subwords"
    )
    subwords: Path | None = option(None, "A SentencePiece model to use instead of learning one.")
    # SentencePiece needs about 28 times as much memory as the sample has bytes.
    sample_megabytes: int = _count(32, "Megabytes of text to learn subwords from")
    max_pieces: int = _count(512, "Drop pairs with more pieces on a side", "Cleaning")
    workers: int | None = _count(None, "Processes that clean [all cores]", "Options")
    overwrite: bool = option(False, "Replace the store if it exists.", "Options")
    cleaning: CleaningConfig = field(default_factory=CleaningConfig)

    def validate(self) -> None:
        """Raise one SconesError that names everything that makes no sense."""
        cleaning = self.cleaning
        problems = out_of_bounds(self) + out_of_bounds(cleaning)
        if cleaning.max_words < cleaning.min_words:
            problems.append(
                f"max_words must be at least min_words, {cleaning.min_words}, not "
                f"{cleaning.max_words}"
            )
        if len(self.source) != len(self.target):
            problems.append(
                f"there are {len(self.source)} source and {len(self.target)} target files, "
                "where each needs its other side"
            )
        if not (self.source or self.target or self.tsv or self.several):
            problems.append("there is no text; give --source and --target, --tsv or --several")
        if (self.dev_source is None) != (self.dev_target is None):
            problems.append("dev_source and dev_target need each other")
        corpora = len(self.source) + len(self.tsv) + len(self.several)
        if self.times and len(self.times) != corpora:
            problems.append(f"times has {len(self.times)} numbers for {corpora} corpora")
        problems += [
            f"trusted names {path}, which is none of the source or TSV files"
            for path in self.trusted
            if path not in (*self.source, *self.tsv, *self.several)
        ]
        if problems:
            raise SconesError(f"Nothing can be prepared so: {'; '.join(problems)}.")
        if cleaning.identify_language:
            check_language(self.source_language)
            check_language(self.target_language)


class Verdict(NamedTuple):
    """What the cleaner says of a pair; a dropped pair has a reason and empty texts."""

    reason: str | None
    """A name of `REASONS`, or None: kept."""
    source: str = ""
    target: str = ""
    digest: bytes = b""
    """16 bytes that equal those of another kept pair only if it has the same two texts."""


@dataclass
class Cleaner:
    """Judges pairs one by one; it holds nothing that grows with the corpus.

    `PrepareConfig.validate` checks config and languages: where cleaners are made, in worker
    processes, a refusal would come too late.
    """

    config: CleaningConfig
    source_language: str
    target_language: str
    held_out: frozenset[bytes] = frozenset()
    """The `text_digest` of every text that must not be trained on."""

    def check(self, source: bytes, target: bytes, *, trusted: bool = False) -> Verdict:
        """Judge a pair as `reading.pairs` gives it; the cheap checks come first.

        A trusted pair may have two equal texts, and look like any language: names often do.
        """
        if target == NOT_TWO_COLUMNS:
            return Verdict("columns")
        if max(len(source), len(target)) > MAX_LINE_BYTES:
            return Verdict("long")
        try:
            source_text, target_text = source.decode(), target.decode()
        except UnicodeDecodeError:
            return Verdict("encoding")
        if _FORBIDDEN.search(source_text) or _FORBIDDEN.search(target_text):
            return Verdict("control")
        source_words, target_words = _words(source_text), _words(target_text)
        source_text, target_text = " ".join(source_words), " ".join(target_words)
        reason = (
            self._length_fault(len(source_words), len(target_words), source_text, target_text)
            or ("held out" if self._is_held_out(source_text, target_text) else None)
            or (None if trusted else self._untranslated(source_text, target_text))
        )
        if reason:
            return Verdict(reason)
        return Verdict(None, source_text, target_text, _digest(f"{source_text}\n{target_text}"))

    def _length_fault(
        self, source_words: int, target_words: int, source: str, target: str
    ) -> str | None:
        config = self.config
        if not source_words or not target_words:
            return "empty"
        if min(source_words, target_words) < config.min_words:
            return "short"
        lengths = len(source), len(target)
        if (
            max(source_words, target_words) > config.max_words
            or max(lengths) > config.max_characters
        ):
            return "long"
        # Characters and bytes, since neither is fair to every script: Chinese has few characters,
        # Hindi many bytes.
        if self._lopsided(*lengths) and self._lopsided(len(source.encode()), len(target.encode())):
            return "ratio"
        return None

    def _lopsided(self, one: int, other: int) -> bool:
        return max(one, other) > self.config.max_ratio * min(one, other) + self.config.ratio_slack

    def _is_held_out(self, *texts: str) -> bool:
        # Digests cost time, so none is made where nothing is held out.
        return bool(self.held_out) and any(_digest(text) in self.held_out for text in texts)

    def _untranslated(self, source: str, target: str) -> str | None:
        if self.config.drop_copies and source == target:
            return "copy"
        if not self.config.identify_language:
            return None
        if not is_plausible(source, self.source_language):
            return "language (source)"
        if not is_plausible(target, self.target_language):
            return "language (target)"
        return None


def text_digest(text: str) -> bytes:
    """The 16 bytes by which the cleaner knows a held-out text, however it is spaced."""
    return _digest(" ".join(_words(text)))


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16).digest()


def _words(text: str) -> list[str]:
    return _INVISIBLE.sub("", text).split()


class Example(NamedTuple):
    """A dropped pair, shortened for a reader."""

    line: int
    source: str
    target: str


@dataclass
class CleaningReport:
    """How many pairs were kept, and how many dropped for which reason, with examples.

    Reports of parts of a corpus, made by several processes, are merged into one.
    """

    total: int = 0
    kept: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[Example]] = field(default_factory=dict)
    unreadable: int = 0
    """Pairs that are not UTF-8 or hold a NUL byte: many of them mean a wrong encoding."""
    first_unreadable: tuple[int, str, str] | None = None
    """Its line, its side and what is wrong with it."""

    def add(self, line: int, reason: str | None, source: bytes, target: bytes) -> None:
        """Count one pair, as it was read, by the reason of its verdict."""
        self.total += 1
        if reason is None:
            self.kept += 1
            return
        self.counts[reason] += 1
        examples = self.examples.setdefault(reason, [])
        if len(examples) < _EXAMPLES:
            examples.append(Example(line, _shortened(source), _shortened(target)))
        if reason in ("encoding", "control"):
            for side, text in (("source", source), ("target", target)):
                if fault := bad_byte(text):
                    self.unreadable += 1
                    self.first_unreadable = self.first_unreadable or (line, side, fault)
                    break

    def merge(self, other: CleaningReport) -> None:
        """Add another report's counts; the examples with the lowest line numbers stay."""
        self.total += other.total
        self.kept += other.kept
        self.counts += other.counts
        for reason, examples in other.examples.items():
            both = self.examples.get(reason, []) + examples
            self.examples[reason] = sorted(both)[:_EXAMPLES]
        self.unreadable += other.unreadable
        found = filter(None, (self.first_unreadable, other.first_unreadable))
        self.first_unreadable = min(found, default=None)

    def check_encoding(self, source: Path, target: Path | None = None) -> None:
        """Refuse files of which more than a tenth, as far as they were read, is not UTF-8 text."""
        if not self.first_unreadable or self.unreadable <= _MAX_UNREADABLE_SHARE * self.total:
            return
        line, side, fault = self.first_unreadable
        path = target if target and side == "target" else source
        raise SconesError(
            f"{path} is not UTF-8 text: {self.unreadable:,} of the {self.total:,} pairs read "
            f"are broken, the first in line {line} ({side}: {fault}); convert it, for example "
            "with iconv -f latin1 -t utf-8."
        )

    def check_kept(self, source: Path, target: Path | None = None) -> None:
        """Refuse files of which, read to their end, nothing was kept."""
        if self.kept:
            return
        [(reason, count)] = self.counts.most_common(1) or [("empty", 0)]
        files = f"{source} and {target}" if target else f"{source}"
        raise SconesError(
            f"Nothing of {files} is left after cleaning: {count:,} of {self.total:,} pairs were "
            f"dropped for {reason!r} ({REASONS[reason]}); check the files, their order and their "
            "languages, or loosen the limits."
        )


def _shortened(line: bytes) -> str:
    # Four bytes per character at most: enough of a very long line without decoding all of it.
    text = line[: 4 * _EXAMPLE_CHARACTERS + 4].decode(errors="backslashreplace").strip()
    return text if len(text) <= _EXAMPLE_CHARACTERS else text[: _EXAMPLE_CHARACTERS - 1] + "…"


_ENOUGH_CHARACTERS = 120  # more tells nothing new and costs time
_ENOUGH_LETTERS = 60  # with fewer the verdict is unsure, and less is asked of a language
_PLAUSIBLE = 0.2  # of the best language's probability; where two are close, both are accepted


# Languages, told apart by py3langid. Of the identifiers compared in
# `benchmarks/language_identification.py` (on German, Finnish, Lithuanian and English) it loses few
# right lines, also short ones, and lets very few wrong ones through; others are faster, but it does
# for millions of pairs, and it brings its model along in a wheel of pure Python.


def languages() -> frozenset[str]:
    """ISO 639-1 codes of the languages that can be told apart."""
    return frozenset(_model().labels)


def is_plausible(text: str, language: str) -> bool:
    """Whether `text` is plausibly in `language`, one of `languages()`; made to be lenient.

    A clean line lost costs more than a doubtful line kept, so a language that is not the
    most probable one, but plausible beside it, is accepted too; more easily so the fewer
    letters there are, and always where there are none. Only the first 120 characters count.
    """
    text = text[:_ENOUGH_CHARACTERS]
    model = _model()
    best, probability = model.classify(text)
    if best == language:
        return True
    letters = sum(map(str.isalpha, text))
    needed = _PLAUSIBLE * min(1.0, letters / _ENOUGH_LETTERS) * probability
    return bool(dict(model.rank(text))[language] >= needed)


def languages_of(text: str) -> list[tuple[str, float]]:
    """How probable each language is for a text, the likeliest first."""
    ranked = _model().rank(text[:_ENOUGH_CHARACTERS])
    return [(language, float(probability)) for language, probability in ranked]


def check_language(code: str) -> None:
    """Raise a `SconesError` that names near codes if no such language can be identified."""
    known = languages()
    if code in known:
        return
    near = get_close_matches(code, sorted(known), n=5, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "try for example de, fi, lt or en."
    raise SconesError(
        f"{code!r} is not a language that can be identified; give a two-letter ISO 639-1 code or "
        f"turn the identification off; {hint}"
    )


@cache
def _model() -> Py3LangId:
    import numpy as np

    absent = "Telling languages apart needs py3langid; install it, or give --any-language."
    langid = optional_import("py3langid.langid", absent)
    model: Py3LangId = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
    # Its three-letter languages (Ligurian, Venetian, ...) would only compete with common ones.
    model.set_languages([label for label in model.labels if len(label) == 2])
    # A table of float32 in row order, instead of float16 in column order, doubles the speed.
    model.nb_ptc = np.ascontiguousarray(model.nb_ptc, dtype=np.float32)
    return model
