"""`scones translate`: standard input to standard output, line by line; and `scones score`."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from scones.cli.flags import DeviceFlag, DosFlag, JsonFlag, TranslatingFlags, VerifyFlag, finite
from scones.errors import SconesError
from scones.options import argument, option
from scones.search.options import SearchFlags

if TYPE_CHECKING:
    from scones.translator import Translation, Translator


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
    shortlist: Path | None = option(
        None,
        "A file of scones shortlist: only the pieces listed for a sentence are computed. Their "
        "scores stay exact under SCONES; under softmax they share all the probability.",
    )
    threshold: float = option(0.1, "The least probability of a translation (all).", above=0, most=1)

    @property
    def exactly(self) -> bool:
        """Whether exact search is asked for, of either kind."""
        return self.search in ("exact", "all")


@dataclass(frozen=True, kw_only=True)
class Translate(OpeningFlags):
    """What `scones translate` takes."""

    model: Path = argument("A model folder, an export, or a pocket model's name.", "MODEL")
    chunk: int = option(2000, "Lines to read ahead and sort by length.", least=1)


def translate(options: Translate) -> None:
    """Translate standard input to standard output, line by line in order.

    In: one sentence per line, answered as it arrives; an empty line stays empty. Out: its
    translation; with --n-best above 1, or --search all, a line for each text: input line number,
    log-probability (none where the length limit cut it), text, separated by tabs; with --json an
    object per line, in which exact search says what it proved. Processes of torchrun share the
    work.

        scones translate pocket-de-en < input.de > output.en
        scones translate runs/de-en --search beam --n-best 5 < input.de
        scones translate runs/de-en --json < input.de > output.jsonl
        scones translate runs/de-en --search all --threshold 0.2 < input.de
        torchrun --nproc-per-node 4 -m scones translate runs/de-en < input.de
    """
    from scones.processes import connected
    from scones.translator import load

    if options.exactly and options.length_penalty:
        raise SconesError("Exact search ranks by probability; leave out --length-penalty.")
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
            if reads_and_writes:
                _answer_all(translator, options, options.chunk * processes.count)


def _answer_all(translator: Translator, options: Translate, chunk: int) -> None:
    from scones.text.reading import chunks_of_lines
    from scones.translator import TooLongError

    for lines in chunks_of_lines(sys.stdin.buffer, chunk):
        try:
            _answer(translator, options, lines)
        except TooLongError as mistake:
            if mistake.indices[0]:  # the lines before it are answered first
                _answer(translator, options, lines[: mistake.indices[0]])
            raise


def _answer(translator: Translator, options: Translate, lines: list[tuple[int, str]]) -> None:
    """Write what lines, given with their numbers, are in the other language."""
    several = options.search == "all" or options.n_best > 1
    for index, translations, known in _found(translator, options, lines):
        number, source = lines[index]
        if options.as_json:
            facts = {"source": source, "translations": [_facts(found) for found in translations]}
            _write(json.dumps(facts | known, ensure_ascii=False))
        elif several:
            for found in translations:
                score = "" if found.log_prob is None else f"{found.log_prob:.4f}"
                _write(f"{number}\t{score}\t{found.text}")
        else:
            _write(translations[0].text)
        if options.exactly:  # the next may take long
            sys.stdout.flush()
    sys.stdout.flush()


def _found(
    translator: Translator, options: Translate, lines: list[tuple[int, str]]
) -> Iterator[tuple[int, list[Translation], dict[str, Any]]]:
    """The translations of each line in order, and what exact search knows about them."""
    texts, first_number = [text for _, text in lines], lines[0][0]
    if options.exactly:
        from scones.search.exact import in_order

        limits = options.exact_options(
            options.n_best, options.threshold if options.search == "all" else None
        )
        exact = translator.exact(texts, limits, options.beam_size, options.too_long, first_number)
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
        scores=options.as_json,
        max_tokens=options.max_tokens,
        too_long=options.too_long,
        first_number=first_number,
    )
    for index, translations in enumerate(results):
        yield index, translations, {}


def _write(line: str) -> None:
    # A model that spells in bytes can spell a line end; one sentence stays one line.
    sys.stdout.buffer.write(line.replace("\n", " ").encode() + b"\n")


def _facts(found: Translation) -> dict[str, Any]:
    pieces = [*found.tokens, *(["</s>"] if found.finished else [])]
    return {
        "text": found.text,
        "log_prob": found.log_prob,
        "probability": found.probability,
        "finished": found.finished,
        "segmentations": found.segmentations,
        "tokens": [
            {"piece": piece, "log_prob": term, "probability": math.exp(term)}
            for piece, term in zip(pieces, found.token_log_probs or (), strict=False)
        ],
    }


@dataclass(frozen=True, kw_only=True)
class Score(DeviceFlag, DosFlag, JsonFlag):
    """What `scones score` takes."""

    model: Path = argument("A model folder, or a pocket model's name.", "MODEL")
    source: Path = argument("Sentences, one per line.", "SOURCE")
    target: Path = argument("Their translations.", "TARGET")
    max_tokens: int = option(8192, "Padded tokens of a batch.")


def score(options: Score) -> None:
    """Print the log-probability of given translations, one per line.

    In: SOURCE and TARGET, as many lines each. Out: log P(z = 1 | x) of each pair, in order; with
    --json an object per line, which holds the terms of all tokens too.

        scones score runs/de-en test.de test.en > scores.txt
        scones score runs/de-en test.de test.en --json > scores.jsonl
    """
    from scones.text.reading import read_aligned
    from scones.translator import load

    sources, targets = read_aligned([options.source, options.target], dos=options.dos)
    pairs = list(zip(sources, targets, strict=True))
    translator = load(options.model, options.device)
    for terms in translator.score_tokens(pairs, options.max_tokens):
        log_prob = math.fsum(terms)
        if options.as_json:
            facts = {
                "log_prob": log_prob,
                "probability": math.exp(log_prob),
                "token_log_probs": terms,
            }
            typer.echo(json.dumps(finite(facts)))
        else:
            typer.echo(f"{log_prob:.6f}")
