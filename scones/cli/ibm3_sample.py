"""`scones ibm3 sample`: translations drawn from IBM Model 3, of a text or of a store."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scones.errors import SconesError

if TYPE_CHECKING:
    from scones.ibm3.parameters import Parameters

ModelArgument = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A folder of scones ibm3 fit or import.")
]
SeedFlag = Annotated[int, typer.Option(help="The same seed gives the same translations.")]
MaxLengthFlag = Annotated[
    int,
    typer.Option(
        help="Words of the longest sentence: a longer source has no translation, a longer target "
        "is drawn again."
    ),
]
ThreadsFlag = Annotated[
    int | None, typer.Option(help="All cores by default; they change nothing but the time.")
]

_PATIENCE = 10  # seconds between two lines that tell of the progress


def sample(
    model: ModelArgument,
    temperature: Annotated[
        float,
        typer.Option(
            "--temperature", "-T", help="γ: near 0 only what is most probable; 1 is the model."
        ),
    ] = 1.0,
    seed: SeedFlag = 0,
    max_length: MaxLengthFlag = 250,
    threads: ThreadsFlag = None,
    store: Annotated[
        Path | None, typer.Option(help="Translate the sources of a store instead of a text.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="STORE", help="The store to make.")
    ] = None,
    pairs: Annotated[
        int | None, typer.Option(help="Take only so many training pairs of the store, the first.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the store if it exists.")
    ] = False,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write what became of all sentences here.")
    ] = None,
) -> None:
    """Sample translations from IBM Model 3, as random as the temperature says.

    In: one sentence a line, split as the model's text was: by its subwords, or at spaces. Out: a
    translation a line, empty where there is none. Or in: a store with the model's pieces; out: a
    store with the same sources, their translations sampled, for scones train; pairs without a
    translation are left out. How many had none, and why, is said at the end.

        scones ibm3 sample de-en.ibm3 --temperature 0.5 < input.de > output.en
        scones ibm3 sample de-en.ibm3 -T 0.3 --store data/de-en --output data/new
    """
    from scones.files import write_json
    from scones.ibm3.parameters import Parameters

    _check_flags(store, output, pairs, overwrite)
    parameters = Parameters.load(model)
    settings: dict[str, Any] = {"max_length": max_length, "threads": threads}
    if store is None or output is None:
        found = _sample_text(parameters, temperature, seed, settings)
    else:
        from scones.ibm3.sampling import sample_store

        settings |= {"pairs": pairs, "overwrite": overwrite, "progress": _progress()}
        found = sample_store(store, parameters, output, temperature, seed, **settings)
    if report is not None:
        report.parent.mkdir(parents=True, exist_ok=True)
        write_json(report, found)
    for name, counts in found["splits"].items():
        typer.echo(f"{name}: {_sentence(counts)}", err=True)


def _check_flags(
    store: Path | None, output: Path | None, pairs: int | None, overwrite: bool
) -> None:
    if (store is None) != (output is None):
        raise SconesError("--store and --output belong together; give both or neither.")
    if store is None and (overwrite or pairs is not None):
        raise SconesError("--pairs and --overwrite are for a store; give --store and --output.")
    if pairs is not None and pairs < 1:
        raise SconesError(f"--pairs must be at least 1, not {pairs}.")


def _sample_text(
    parameters: Parameters, temperature: float, seed: int, settings: dict[str, Any]
) -> dict[str, Any]:
    """Translate standard input to standard output; gives the report."""
    from dataclasses import asdict

    from scones.cli.stream import chunks_of_lines
    from scones.ibm3.sampling import Counts, Sampler

    sampler = Sampler(parameters, temperature, seed, **settings)
    counts = Counts()
    for lines in chunks_of_lines(sys.stdin.buffer, sampler.chunk):
        texts = sampler.sample_texts([text for _, text in lines], lines[0][0] - 1, counts)
        sys.stdout.buffer.write("".join(f"{text}\n" for text in texts).encode())
        sys.stdout.flush()
    return sampler.facts() | {"splits": {"text": asdict(counts)}}


def _progress() -> Callable[[str, int], None]:
    import time

    said = time.monotonic()

    def say(split: str, done: int) -> None:
        nonlocal said
        if time.monotonic() - said >= _PATIENCE:
            said = time.monotonic()
            typer.echo(f"{split}: {done:,} pairs", err=True)

    return say


def _sentence(counts: dict[str, int]) -> str:
    """Say what became of the sentences, in words; what did not happen is not said."""
    reasons = {
        "source_too_long": "{:,} too long",
        "target_too_long": "{:,} with a translation that is always too long",
        "empty": "{:,} without a word to translate",
    }
    said = f"{counts['translated']:,} of {counts['sentences']:,} sentences translated"
    why = [text.format(counts[name]) for name, text in reasons.items() if counts[name]]
    said += f" ({', '.join(why)})" if why else ""
    copied, dropped = counts["never_seen_and_copied"], counts["never_seen_and_dropped"]
    if copied or dropped:
        said += (
            f"; of {counts['source_words']:,} words {copied + dropped:,} were never seen, "
            f"{copied:,} of them copied, {dropped:,} dropped"
        )
    return f"{said}."
