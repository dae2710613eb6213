"""`scones translate`: standard input to standard output, line by line in order."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scones.errors import SconesError

if TYPE_CHECKING:
    from scones.translator import Translation


def translate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder.")],
    search: Annotated[str, typer.Option(help="greedy or beam.")] = "greedy",
    beam_size: Annotated[int, typer.Option(help="Hypotheses that beam search keeps.")] = 4,
    n_best: Annotated[int, typer.Option(help="Translations a sentence (beam search).")] = 1,
    length_penalty: Annotated[
        float, typer.Option(help="Rank by log-probability / length**p; 0: no normalisation.")
    ] = 0.0,
    too_long: Annotated[
        str,
        typer.Option(
            help="What to do with a sentence beyond the model's limit: error (stop), cut it, or "
            "skip it (an empty line); cut and skip warn."
        ),
    ] = "error",
    max_tokens: Annotated[int, typer.Option(help="Padded tokens of a batch.")] = 8192,
    chunk: Annotated[int, typer.Option(help="Lines to read ahead and sort by length.")] = 2000,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    precision: Annotated[str, typer.Option(help="float32 or bf16.")] = "float32",
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object a line, tokens with probabilities.")
    ] = False,
) -> None:
    """Translate standard input, one sentence a line; an empty line stays empty.

    With --n-best above 1 each translation is a line: input line number, log-probability, text,
    separated by tabs.
    """
    from scones.cli.stream import chunks_of_lines
    from scones.translator import TooLongError, load

    if chunk < 1:
        raise SconesError(f"--chunk must be at least 1, not {chunk}.")
    translator = load(model, device, precision)  # type: ignore[arg-type]

    def answer(lines: list[tuple[int, str]]) -> None:
        results = translator.translate(
            [text for _, text in lines],
            search=search,  # type: ignore[arg-type]
            beam_size=beam_size,
            n_best=n_best,
            length_penalty=length_penalty,
            scores=as_json or n_best > 1,
            max_tokens=max_tokens,
            too_long=too_long,  # type: ignore[arg-type]
            first_number=lines[0][0],
        )
        for (number, source), translations in zip(lines, results, strict=True):
            _print(number, source, translations, as_json, n_best)
        sys.stdout.flush()

    for lines in chunks_of_lines(sys.stdin.buffer, chunk):
        try:
            answer(lines)
        except TooLongError as mistake:
            if mistake.index:  # the lines before it are answered first
                answer(lines[: mistake.index])
            raise


def _print(
    number: int, source: str, translations: list[Translation], as_json: bool, n_best: int
) -> None:
    if as_json:
        _write(json.dumps(_as_json(source, translations), ensure_ascii=False))
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


def _tokens(found: Translation) -> list[dict[str, Any]]:
    import math

    pieces = [*found.tokens, *(["</s>"] if found.finished else [])]
    return [
        {"piece": piece, "log_prob": term, "probability": math.exp(term)}
        for piece, term in zip(pieces, found.token_log_probs or (), strict=False)
    ]
