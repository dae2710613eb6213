"""`scones paper report`: the paper's tables and figures from stored results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ResultsArgument = Annotated[
    Path, typer.Argument(metavar="RESULTS", help="The results folder of scones paper run.")
]
DataFlag = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        envvar="SCONES_DATA",
        help="A folder with the test sets; else sacreBLEU's own wmt19 sets.",
    ),
]


def report(
    results: ResultsArgument,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write to.")],
    data: DataFlag = None,
    bleurt: Annotated[
        Path | None,
        typer.Option(metavar="CHECKPOINT", help="BLEURT weights, for table 4."),
    ] = None,
) -> None:
    """Write the paper's tables and figures as one page.

    In: stored results. Out: OUT/index.html, which needs no network, OUT/report.md, and every
    figure as an SVG file: the paper's numbers beside ours, each of ours with its command, commit,
    seed, data and translations. What was not run yet says so. Tests of significance need
    references; once made, they are stored beside the results.

        scones paper report docs/results/paper report
        scones paper report docs/results/paper report --data ~/corpora
    """
    from scones.analysis.figures import can_draw
    from scones.paper.report.writing import write_report

    written = write_report(results, out, data, bleurt)
    if not can_draw():
        typer.echo("No plots: install scones[plots], then give this command again.", err=True)
    for problem in dict.fromkeys(written.marks.problems):
        typer.echo(f"No marks of significance for a test set: {problem}", err=True)
    typer.echo(f"{written.files[0]} ({written.missing:,} cells are not run yet)")
