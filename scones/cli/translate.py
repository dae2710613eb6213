"""`scones translate`: standard input to standard output, line by line in order."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scones.cli.flags import DeviceFlag, PrecisionFlag, bytes_of, choice
from scones.errors import SconesError

if TYPE_CHECKING:
    from scones.translator import ExactTranslations, Translation


def translate(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="A model folder, an export, or a pocket model's name."
        ),
    ],
    search: Annotated[
        str,
        choice(
            values=("greedy", "beam", "exact", "all"),
            help="How to search; exact: the most probable translations of all, with a proof; all: "
            "every translation above a probability.",
        ),
    ] = "greedy",
    beam_size: Annotated[
        int, typer.Option(help="Hypotheses that beam search keeps; exact search begins with it.")
    ] = 4,
    n_best: Annotated[int, typer.Option(help="Translations a sentence (beam, exact).")] = 1,
    length_penalty: Annotated[
        float, typer.Option(help="Rank by log-probability / length**p; 0: no normalisation.")
    ] = 0.0,
    too_long: Annotated[
        str,
        choice(
            values=("error", "cut", "skip"),
            help="What to do with a sentence beyond the model's limit: stop, cut it, or skip it "
            "(an empty line); cut and skip warn.",
        ),
    ] = "error",
    max_tokens: Annotated[
        int | None, typer.Option(help="Padded tokens of a batch; by default what suits the device.")
    ] = None,
    chunk: Annotated[int, typer.Option(help="Lines to read ahead and sort by length.")] = 2000,
    device: DeviceFlag = "auto",
    precision: PrecisionFlag = "float32",
    engine: Annotated[
        str,
        choice(
            values=("auto", "torch", "ctranslate2"),
            help="What searches; auto: the fastest that gives the model's own output.",
        ),
    ] = "auto",
    shortlist: Annotated[
        Path | None,
        typer.Option(
            help="A file of scones shortlist: only the pieces listed for a sentence are computed. "
            "Their scores stay exact under SCONES; under softmax they share all the probability.",
        ),
    ] = None,
    threshold: Annotated[
        float, typer.Option(help="The least probability of a translation (all).")
    ] = 0.1,
    max_states: Annotated[
        int, typer.Option(help="Prefixes to look at, a sentence (exact, all).")
    ] = 1_000_000,
    max_seconds: Annotated[
        float | None, typer.Option(help="Time for each chunk of lines (exact, all).")
    ] = None,
    max_memory: Annotated[
        float | None,
        typer.Option(help="Gigabytes that search may take beside the model (exact, all)."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object a line, tokens with probabilities.")
    ] = False,
) -> None:
    """Translate standard input to standard output, line by line in order.

    In: one sentence a line, answered as it arrives; an empty line stays empty. Out: its
    translation; with --n-best above 1, or --search all, a line for each: input line number,
    log-probability, text, separated by tabs; with --json an object a line, in which exact search
    says what it proved. Processes of torchrun share the work.

        scones translate pocket-de-en < input.de > output.en
        scones translate runs/de-en --search beam --n-best 5 < input.de
        scones translate runs/de-en --json < input.de > output.jsonl
        scones translate runs/de-en --search all --threshold 0.2 < input.de
        torchrun --nproc-per-node 4 -m scones translate runs/de-en < input.de
    """
    from scones.processes import connected
    from scones.search.exact import in_order
    from scones.search.frontier import ExactOptions
    from scones.translator import load

    if chunk < 1:
        raise SconesError(f"--chunk must be at least 1, not {chunk}.")
    exactly = search in ("exact", "all")
    if exactly and length_penalty:
        raise SconesError("Exact search ranks by probability; leave out --length-penalty.")
    exact_options = ExactOptions(
        n_best,
        threshold if search == "all" else None,
        max_states,
        max_seconds,
        max_memory=bytes_of(max_memory),
    )

    def answer_exactly(lines: list[tuple[int, str]]) -> None:
        found = translator.exact(
            [text for _, text in lines],
            exact_options,
            beam_size,
            too_long,  # type: ignore[arg-type]
            lines[0][0],
        )
        for index, result in in_order(found):
            number, source = lines[index]
            several = n_best if search == "exact" else 2
            _print(number, source, result.translations, as_json, several, result)
            sys.stdout.flush()

    def answer(lines: list[tuple[int, str]]) -> None:
        results = translator.translate(
            [text for _, text in lines],
            search=search,  # type: ignore[arg-type]
            beam_size=beam_size,
            n_best=n_best,
            length_penalty=length_penalty,
            scores=as_json,
            max_tokens=max_tokens,
            too_long=too_long,  # type: ignore[arg-type]
            first_number=lines[0][0],
        )
        for (number, source), translations in zip(lines, results, strict=True):
            _print(number, source, translations, as_json, n_best)
        sys.stdout.flush()

    with connected("What was not written yet is not translated; start again.") as processes:
        translator = load(
            model,
            device,
            precision,  # type: ignore[arg-type]
            engine,  # type: ignore[arg-type]
            shortlist,
        )
        with translator.shared(processes) as reads_and_writes:
            if reads_and_writes:
                _answer_all(answer_exactly if exactly else answer, chunk * processes.count)


def _answer_all(answer: Callable[[list[tuple[int, str]]], None], chunk: int) -> None:
    from scones.cli.stream import chunks_of_lines
    from scones.translator import TooLongError

    for lines in chunks_of_lines(sys.stdin.buffer, chunk):
        try:
            answer(lines)
        except TooLongError as mistake:
            if mistake.index:  # the lines before it are answered first
                answer(lines[: mistake.index])
            raise


def _print(
    number: int,
    source: str,
    translations: list[Translation],
    as_json: bool,
    n_best: int,
    exact: ExactTranslations | None = None,
) -> None:
    if as_json:
        known = {} if exact is None else _exactly(exact)
        _write(json.dumps(_as_json(source, translations) | known, ensure_ascii=False))
    elif n_best > 1:
        for found in translations:
            score = "" if found.log_prob is None else f"{found.log_prob:.4f}"
            _write(f"{number}\t{score}\t{found.text}")
    else:
        _write(translations[0].text)


def _write(line: str) -> None:
    # A model that spells in bytes can spell a line end; one sentence stays one line.
    sys.stdout.buffer.write(line.replace("\n", " ").encode() + b"\n")


def _as_json(source: str, translations: list[Translation]) -> dict[str, Any]:
    return {
        "source": source,
        "translations": [
            {
                "text": found.text,
                "log_prob": found.log_prob,
                "probability": found.probability,
                "finished": found.finished,
                "tokens": _tokens(found),
            }
            for found in translations
        ],
    }


def _exactly(exact: ExactTranslations) -> dict[str, Any]:
    from dataclasses import asdict

    certificate = None if exact.certificate is None else asdict(exact.certificate)
    return {"certificate": certificate, "lattice": exact.lattice.to_json()}


def _tokens(found: Translation) -> list[dict[str, Any]]:
    import math

    pieces = [*found.tokens, *(["</s>"] if found.finished else [])]
    return [
        {"piece": piece, "log_prob": term, "probability": math.exp(term)}
        for piece, term in zip(pieces, found.token_log_probs or (), strict=False)
    ]
