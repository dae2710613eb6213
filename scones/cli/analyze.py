"""`scones analyze`: beams of many sizes against exact search."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from scones.cli.compare import named_models
from scones.cli.flags import publish
from scones.cli.paper_flags import (
    DeviceFlag,
    DosFlag,
    JsonFlag,
    ModelsArgument,
    PrecisionFlag,
    ReferencesFlag,
    SourceFlag,
    bytes_of,
    choice,
)
from scones.errors import SconesError

_BEAM_SIZES = [1, 2, 4, 8, 16, 32, 64]
_LINES = 10
"""Lines that tell of a search where there is no terminal to draw a bar on."""


def analyze(
    models: ModelsArgument,
    source: SourceFlag,
    reference: ReferencesFlag,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where all results go.")
    ],
    beam_size: Annotated[
        list[int],
        typer.Option(
            help="May be repeated; the work grows with it, so that beams of 1,000 are for a GPU or "
            "a few sentences."
        ),
    ] = _BEAM_SIZES,
    no_exact: Annotated[
        bool, typer.Option("--no-exact", help="Beams alone, no exact search.")
    ] = False,
    max_states: Annotated[
        int, typer.Option(help="Prefixes that exact search may look at, a sentence.")
    ] = 1_000_000,
    max_seconds: Annotated[
        float | None, typer.Option(help="Time of exact search, for all sentences of a model.")
    ] = None,
    sentence_seconds: Annotated[
        float | None, typer.Option(help="Time of exact search, a sentence.")
    ] = None,
    max_memory: Annotated[
        float | None, typer.Option(help="Gigabytes that exact search may take beside the model.")
    ] = None,
    sentences: Annotated[
        int | None, typer.Option(help="Take only so many sentences, the first of the text.")
    ] = None,
    too_long: Annotated[
        str,
        choice(
            values=("error", "cut", "skip"),
            help="What to do with a sentence beyond a model's limit.",
        ),
    ] = "error",
    device: DeviceFlag = "auto",
    precision: PrecisionFlag = "float32",
    dos: DosFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Analyze search: beams of many sizes against exact search.

    In: models and a test set. Out: BLEU, length ratio, search errors, empty outputs,
    log-probabilities and proofs, as analysis.md (also on standard output), analysis.json and plots
    in the output folder, beside what every search gave. The same command goes on where it was
    stopped; another beam size or model can be added.

        scones analyze runs/de-en --source test.de -r test.en -o runs/analysis
        scones analyze softmax=runs/softmax SCONES=runs/scones \\
            --source test.de -r test.en --sentences 200 --max-states 100000 \\
            --beam-size 1 --beam-size 4 --beam-size 100 -o runs/analysis
    """
    from scones.analysis.analyze import Analyzer
    from scones.analysis.figures import draw
    from scones.analysis.tables import markdown
    from scones.search.frontier import ExactOptions
    from scones.text.reading import read_aligned

    if sentences is not None and sentences < 1:
        raise SconesError(f"--sentences must be at least 1, not {sentences}.")
    limits = ExactOptions(
        max_states=max_states,
        max_seconds=max_seconds,
        sentence_seconds=sentence_seconds,
        max_memory=bytes_of(max_memory),
    )
    sources, *references = read_aligned([source, *reference], dos=dos)
    with _progress() as progress:
        result = Analyzer(
            named_models(models),
            sources[:sentences],
            [texts[:sentences] for texts in references],
            output,
            beam_size,
            None if no_exact else limits,
            device,
            precision,  # type: ignore[arg-type]
            too_long,  # type: ignore[arg-type]
            progress,
        ).run()
    publish(output / "analysis", result, markdown(result), lambda: draw(result, output), as_json)


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """Show how far searches are: bars on a terminal, a few lines elsewhere."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress, TaskID, TimeElapsedColumn

    console = Console(stderr=True, highlight=False, markup=False)
    if not console.is_terminal:
        yield _say_tenths
        return
    tasks: dict[str, TaskID] = {}
    with Progress(*Progress.get_default_columns(), TimeElapsedColumn(), console=console) as bars:

        def show(task: str, done: int, total: int) -> None:
            if task not in tasks:
                tasks[task] = bars.add_task(escape(task), total=total)
            bars.update(tasks[task], completed=done)

        yield show


def _say_tenths(task: str, done: int, total: int) -> None:
    if done * _LINES // total != (done - 1) * _LINES // total:
        typer.echo(f"{task}: {done:,} of {total:,} sentences", err=True)
