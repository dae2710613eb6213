"""`scones translate`: text in, line by line, translations out; and `scones score`."""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from scones.cli.flags import DeviceFlag, JsonFlag, TranslatingFlags, VerifyFlag, finite
from scones.errors import SconesError
from scones.options import argument, option
from scones.search.options import SearchFlags, plainly

if TYPE_CHECKING:
    from scones.search.translations import Translation
    from scones.translator import Translator


logger = logging.getLogger("scones")


@dataclass(frozen=True, kw_only=True)
class OpeningFlags(TranslatingFlags, SearchFlags, VerifyFlag, JsonFlag):
    """How a model is opened and searched by `scones translate` and `scones bulk`."""

    engine: Literal["auto", "torch", "ctranslate2"] = option(
        "auto", "What searches; auto: the fastest that gives the model's own output."
    )
    precision: Literal["auto", "float32", "bf16"] = option(
        "auto",
        "Of matrix products. auto: float32, but on a CPU for a model stored as int8: greedy search "
        "in int8, all else with an int8 encoder and a decoder in bf16 where the CPU has it; "
        "float32: exact for any model; bf16: less exact.",
    )
    shortlist: Path | None = plainly(
        None,
        "A file of scones shortlist: only the pieces listed for a sentence are computed. Their "
        "scores stay exact under SCONES; under softmax they share all the probability.",
    )
    threshold: float | None = option(
        None,
        "The least probability of a translation (all); by default the one from which on a "
        "calibrated model's are mostly acceptable (0.3 for pocket models), else 0.1.",
        above=0,
        most=1,
        only=("search", "all"),
    )

    @property
    def exactly(self) -> bool:
        """Whether exact search is asked for, of either kind."""
        return self.search in ("exact", "all")


@dataclass(frozen=True, kw_only=True)
class Translate(OpeningFlags):
    """What `scones translate` takes."""

    model: Path = argument(
        "A model folder, an export, a Marian folder, or a name: of a pocket model, or of a Marian "
        "model on huggingface.co.",
        "MODEL",
    )
    files: list[Path] = argument("Text, also compressed; standard input without any.", "FILE", [])
    split: bool | None = plainly(
        None,
        "Translate each sentence of a line by itself; by default wherever one translation is "
        "wanted, by greedy or beam search.",
    )
    chunk: int = option(2000, "Lines to read ahead and sort by length.", least=1)
    prefix: str | None = option(
        None,
        "What every translation begins with; its last word may go on, unless a space follows.",
        metavar="TEXT",
    )
    min_confidence: float | None = option(
        None,
        "Leave out what is less probably acceptable than this: an empty line, with a warning. "
        "For calibrated models (scones calibrate).",
        least=0,
        most=1,
    )

    @property
    def splits(self) -> bool:
        """Whether a line may be translated in sentences."""
        one = not self.exactly and self.n_best == 1 and not self.prefix
        return one if self.split is None else self.split


def translate(options: Translate) -> None:
    """Translate text, line by line in order, to standard output.

    In: files, or standard input, whose lines are answered as they arrive; an empty line stays
    empty. Out: a translation per line. A line of several sentences is translated in sentences,
    with the spaces that were between them (--no-split: as one). With --n-best above 1, or --search
    all, a line for each text: input line number, log-probability (none where the length limit cut
    it), text, separated by tabs; with --json an object per line, in which exact search says what it
    proved. Processes of torchrun share the work.

        scones translate pocket-de-en input.de > output.en
        scones translate runs/de-en --search beam --n-best 4 < input.de
        scones translate runs/de-en --json < input.de > output.jsonl
        scones translate runs/de-en --search all --threshold 0.2 < input.de
        scones translate pocket-de-en --prefix "I am sor" < input.de
        torchrun --nproc-per-node 4 -m scones translate runs/de-en < input.de
    """
    from scones.processes import connected
    from scones.translator import load

    _check_places("translate", options.model, options.files)
    with connected("What was not written yet is not translated; start again.") as processes:
        translator = load(
            options.model,
            options.device,
            options.precision,
            options.engine,
            options.shortlist,
            options.verify,
        )
        with translator.shared(processes) as reads_and_writes:
            if options.min_confidence is not None:
                check_calibrated(translator, options.model)
            if reads_and_writes:
                _answer_all(translator, options, options.chunk * processes.count)


def _check_places(command: str, model: Path, files: list[Path]) -> None:
    """Refuse a text in the place of the model, and texts that cannot be read, before the work."""
    from scones.model.folder import pocket_models
    from scones.text.reading import check_beginning

    if model.is_file():
        models = [str(one) for one in files if one.is_dir() or str(one) in pocket_models()]
        texts = [str(one) for one in (model, *files) if str(one) not in models]
        words = " ".join([command, *(models[:1] or ["MODEL"]), *texts])
        raise SconesError(f"{model} is a file, and the model comes first: scones {words}.")
    for number, file in enumerate(files):
        call = f"scones {command} {model}"
        if " " in str(file) and not file.exists():
            piped = f"a sentence is given by standard input: echo '{file}' | {call}"
            raise SconesError(f"{file} does not exist; {piped}.")
        if number and command == "translate" and not file.exists():
            whole = " ".join([call, *map(str, files[:number])])
            raise SconesError(
                f"{file} does not exist; translations go to standard output: {whole} > {file}."
            )
        check_beginning(file)


def _answer_all(translator: Translator, options: Translate, most: int) -> None:
    from scones.text.reading import chunks_of_files, chunks_of_lines
    from scones.translator import TooLongError

    if not options.files and sys.stdin.isatty():
        sys.stderr.write(
            f"{options.model} waits for text ({translator.source_language} → "
            f"{translator.target_language}): type a line and press Enter; Ctrl-D ends.\n"
        )
    files, arriving = chunks_of_files(options.files, most), chunks_of_lines(sys.stdin.buffer, most)
    for number, lines in enumerate(files if options.files else arriving):
        if number == 0:
            _check_direction(translator, "\n".join(text for _, text in lines))
        try:
            _answer(translator, options, lines)
        except TooLongError as mistake:
            before = [line for line in lines if line[0] < mistake.numbers[0]]
            if before:  # they are answered first
                _answer(translator, options, before)
            raise


def _check_direction(translator: Translator, text: str) -> None:
    """Warn where a text is clearly in another language than the model reads."""
    from scones.model.folder import pocket_models
    from scones.text.languages import NAMES, other_language

    source, target = translator.source_language, translator.target_language
    if found := other_language(text, source):
        back = f"pocket-{found}-{source}"
        known = found == target and back in pocket_models()
        fact = f"{translator.name} translates from {NAMES[source]}"
        remedy = f"; {back} goes the other way" if known else ""
        logger.warning("The text looks like %s, but %s%s.", NAMES[found], fact, remedy)


def _answer(translator: Translator, options: Translate, lines: list[tuple[int, str]]) -> None:
    """Write what lines, given with their numbers, are in the other language."""
    several = options.search == "all" or options.n_best > 1
    for index, translations, known in _found(translator, options, lines):
        number, source = lines[index]
        if options.search == "all" and not translations:
            least = f"{options.threshold or translator.likely:.3g}"
            fact = f"no translation is as probable as {least}; lower --threshold"
            logger.warning("Line %s, taken as one sentence: %s.", number, fact)
        translations = _sure(translations, options, number)
        if options.as_json:
            facts = {"source": source, "translations": [_facts(found) for found in translations]}
            _write(json.dumps(facts | known, ensure_ascii=False))
        elif several:
            for found in translations:
                score = "" if found.log_prob is None else f"{found.log_prob:.4f}"
                _write(f"{number}\t{score}\t{found.text}")
        else:
            _write(translations[0].text if translations else "")
        if options.exactly:  # the next may take long
            sys.stdout.flush()
    sys.stdout.flush()


def _found(
    translator: Translator, options: Translate, lines: list[tuple[int, str]]
) -> Iterator[tuple[int, list[Translation], dict[str, Any]]]:
    """The translations of each line in order, and what exact search knows about them."""
    texts, first_number = [text for _, text in lines], lines[0][0]
    scores = options.as_json or options.min_confidence is not None
    confidence = scores and translator.calibration is not None
    if options.exactly:
        from scones.search.exact import in_order

        limits = options.exact_options(
            options.n_best,
            (options.threshold or translator.likely) if options.search == "all" else None,
        )
        exact = translator.exact(
            texts,
            limits,
            options.beam_size,
            options.too_long,
            first_number,
            prefix=options.prefix,
            confidence=confidence,
        )
        for index, result in in_order(exact):
            known: dict[str, Any] = {}
            if options.as_json:
                certificate = result.certificate and asdict(result.certificate)
                known = {"certificate": certificate, "lattice": result.lattice.to_json()}
            yield index, result.translations, known
        return
    results = translator.translate(
        texts,
        search=options.search,
        beam_size=options.beam_size,
        n_best=options.n_best,
        length_penalty=options.length_penalty,
        scores=scores,
        confidence=confidence,
        max_tokens=options.max_tokens,
        too_long=options.too_long,
        first_number=first_number,
        split=options.splits,
        prefix=options.prefix,
    )
    for index, translations in enumerate(results):
        yield index, translations, {}


def _sure(found: list[Translation], options: Translate, number: int) -> list[Translation]:
    """What is sure enough, with a warning where nothing is; an empty sentence needs no judge."""
    least = options.min_confidence
    if least is None or not any(one.text for one in found):
        return found
    sure = [one for one in found if (one.confidence or 0) >= least]
    if not sure:
        most = max(one.confidence or 0 for one in found)
        fact = f"its confidence is {most:.2f}, below {least:g}: it is left empty"
        logger.warning("Line %s: %s.", number, fact)
    return sure


def check_calibrated(translator: Translator, model: Path) -> None:
    if translator.calibration is None:
        command = f"scones calibrate {model} --source dev.de -r dev.en"
        raise SconesError(f"{model} is not calibrated; fit its confidence by {command}.")


def _write(line: str) -> None:
    # A model that spells in bytes can spell a line end; one sentence stays one line.
    sys.stdout.buffer.write(line.replace("\n", " ").encode() + b"\n")


_TOLD = ["text", "log_prob", "probability", "finished", "segmentations"]
_TOLD += ["ambiguity", "doubt", "confidence"]


def _facts(found: Translation) -> dict[str, Any]:
    pieces = [*found.tokens, "</s>"]  # which has no probability where it was cut
    tokens = [
        {"piece": piece, "log_prob": term, "probability": math.exp(term)}
        for piece, term in zip(pieces, found.token_log_probs or (), strict=False)
    ]
    return {name: getattr(found, name) for name in _TOLD} | {"tokens": tokens}


@dataclass(frozen=True, kw_only=True)
class Score(DeviceFlag, JsonFlag):
    """What `scones score` takes."""

    model: Path = argument("A model folder, or a pocket model's name.", "MODEL")
    source: Path = argument("Sentences, one per line.", "SOURCE")
    target: Path = argument("Their translations.", "TARGET")
    max_tokens: int = option(8192, "Padded tokens of a batch.")
    confidence: bool = option(
        False,
        "Print a second column, separated by a tab: how probable it is that the translation is "
        "acceptable. For calibrated models (scones calibrate).",
    )


_SCORED = ("log_prob", "probability", "token_log_probs", "ambiguity", "doubt", "confidence")


def score(options: Score) -> None:
    """Print the log-probability of given translations, one sentence per line.

    In: SOURCE and TARGET, as many lines each. Out: log P(z = 1 | x) of each pair, in order; with
    --json an object per line, which holds the terms of all tokens too, ambiguity, doubt and, of a
    calibrated model, confidence.

        scones score runs/de-en test.de test.en > scores.txt
        scones score runs/de-en test.de test.en --json > scores.jsonl
    """
    from scones.text.reading import read_aligned
    from scones.translator import load

    files = [options.source, options.target]
    _check_places("score", options.model, files)
    sources, targets = read_aligned(files)
    pairs = list(zip(sources, targets, strict=True))
    translator = load(options.model, options.device)
    _check_direction(translator, "\n".join(sources[:100]))
    if options.confidence:
        check_calibrated(translator, options.model)
    if not options.as_json and not options.confidence:
        for log_prob in translator.score(pairs, options.max_tokens):
            typer.echo(f"{log_prob:.6f}")
        return
    for found in translator.judge(pairs):
        if options.as_json:
            typer.echo(json.dumps(finite({name: getattr(found, name) for name in _SCORED})))
        else:
            typer.echo(f"{found.log_prob:.6f}\t{found.confidence:.4f}")
