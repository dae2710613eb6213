"""`scones paper check`: BLEU cells of the report, computed again."""

from __future__ import annotations

from typing import Annotated

import typer

from scones.cli.flags import print_json
from scones.cli.paper_flags import JsonFlag
from scones.cli.paper_report import DataFlag, ResultsArgument
from scones.errors import SconesError


def check(
    results: ResultsArgument,
    data: DataFlag = None,
    seed: Annotated[
        int | None, typer.Option(help="Decides which cells are chosen; else another every time.")
    ] = None,
    cells: Annotated[int, typer.Option(help="How many cells to compute again.")] = 1,
    as_json: JsonFlag = False,
) -> None:
    """Compute BLEU cells of the report again, chosen at random.

    In: stored results, and references. Out: every chosen cell with the stored number and the one
    that its translations have now. Where they differ, the exit code is 1.

        scones paper check docs/results/paper --data ~/corpora --cells 10
        scones paper check docs/results/paper --seed 7
    """
    import random

    from scones.paper.report.checking import check as check_cells
    from scones.paper.report.references import References
    from scones.paper.report.study import Study
    from scones.paper.results import Results

    if cells < 1:
        raise SconesError(f"--cells must be at least 1, not {cells}.")
    study = Study(Results(results))
    study.check()
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    found = []
    for one in check_cells(study, References(data), cells, seed):
        found.append(one)
        if not as_json:
            verdict = "the same" if one.same else "DIFFERENT"
            typer.echo(
                f"{one.cell.direction.place}, {one.cell.title}: stored {one.cell.stored:.4f}, "
                f"again {one.again:.4f}, {verdict} ({one.cell.path})"
            )
    wrong = [one for one in found if not one.same]
    if as_json:
        rows = [
            {
                "direction": one.cell.direction.place,
                "cell": one.cell.title,
                "file": str(one.cell.path),
                "stored": one.cell.stored,
                "again": one.again,
                "same": one.same,
            }
            for one in found
        ]
        print_json({"seed": seed, "cells": rows})
    else:
        typer.echo(f"{len(found) - len(wrong)} of {len(found)} are the same (--seed {seed}).")
    if wrong:
        typer.echo(
            f"scones: {len(wrong)} of {len(found)} BLEU cells are not what their translations "
            f"give, the first is {wrong[0].cell.direction.place}, {wrong[0].cell.title}.",
            err=True,
        )
        raise typer.Exit(1)
