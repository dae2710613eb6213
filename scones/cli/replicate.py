"""`scones replicate`: softmax against SCONES over several seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scones.cli.flags import print_json
from scones.cli.paper_flags import DeviceFlag, DosFlag, JsonFlag


def replicate(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="What scones prepare made.")],
    folder: Annotated[Path, typer.Argument(metavar="RUNS", help="Where the runs go.")],
    recipe: Annotated[Path, typer.Option(help="The recipe, the same for both output layers.")],
    source: Annotated[Path, typer.Option(help="The test set's source text.")],
    reference: Annotated[
        list[Path],
        typer.Option("--reference", "-r", metavar="FILE", help="References; may be repeated."),
    ],
    alpha: Annotated[
        list[float] | None,
        typer.Option(metavar="NUMBER", help="An α to try; may be repeated [0.2 0.5 0.7 1.0]"),
    ] = None,
    tuning_seed: Annotated[int, typer.Option(help="Seed of the runs that choose α.")] = 100,
    seed: Annotated[
        list[int] | None,
        typer.Option(metavar="NUMBER", help="A seed to test; may be repeated [1 2 3]"),
    ] = None,
    dos: DosFlag = False,
    jobs: Annotated[int, typer.Option(help="Trainings side by side.")] = 8,
    device: DeviceFlag = "auto",
    output: Annotated[
        Path | None, typer.Option(help="Write OUTPUT.json and OUTPUT.md [RUNS/replication]")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Softmax against SCONES over several seeds, α chosen on the dev set.

    In: STORE, made by scones prepare, and a test set. Out: the models under RUNS (those finished
    already are not trained again) and a report, which OUTPUT.md and OUTPUT.json keep. Nothing is
    chosen on the test set: it is used once, when everything is trained.

        scones replicate store runs/multi30k --recipe recipes/multi30k.toml \\
            --source test.de -r test.en --jobs 2
        scones replicate store runs/quick --recipe recipes/multi30k.toml \\
            --source test.de -r test.en --alpha 0.5 --seed 1 --json
    """
    from scones.paper.replication import Replication, write_report
    from scones.text.reading import read_aligned

    sources, *references = read_aligned([source, *reference], dos=dos)
    replication = Replication(
        store,
        recipe,
        folder,
        list(dict.fromkeys(alpha or [0.2, 0.5, 0.7, 1.0])),
        tuning_seed,
        list(dict.fromkeys(seed or [1, 2, 3])),
        jobs,
        device,
        say=lambda text: typer.echo(text, err=True),
    )
    result = replication.run(sources, references)
    report = write_report(result, output or folder / "replication")
    if as_json:
        print_json(result)
        return
    typer.echo(report)
