"""`scones paper run` and `scones paper score`: the paper's experiments for one direction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scones.cli.flags import print_json
from scones.cli.paper_flags import DeviceFlag, JsonFlag, choice
from scones.errors import SconesError

if TYPE_CHECKING:
    from scones.paper.results import RunResult

_STAGES = ("train", "translate", "search", "speed")  # asking scones.paper would import PyTorch

RecipeArgument = Annotated[
    Path, typer.Argument(metavar="RECIPE", help="The experiments of a direction, a TOML file.")
]
ResultsArgument = Annotated[
    Path, typer.Argument(metavar="RESULTS", help="The results folder, of all directions.")
]
DataFlag = Annotated[
    Path | None, typer.Option("--data", help="The folder with the corpora [$SCONES_DATA]")
]


def run(
    recipe: RecipeArgument,
    results: ResultsArgument,
    store: Annotated[
        Path, typer.Option("--store", metavar="STORE", help="What scones prepare made.")
    ],
    runs: Annotated[
        Path, typer.Option("--runs", metavar="FOLDER", help="Where models and logs go.")
    ],
    data: DataFlag = None,
    system: Annotated[
        list[str] | None, typer.Option(help="A system of RECIPE; may be repeated [all]")
    ] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(metavar="NUMBER", help="A seed; may be repeated [that of RECIPE]"),
    ] = None,
    max_steps: Annotated[
        int | None, typer.Option(help="Steps of each training, whatever RECIPE says.")
    ] = None,
    max_minutes: Annotated[
        float | None, typer.Option(help="Minutes of each training, whatever RECIPE says.")
    ] = None,
    last: Annotated[str, choice("--until", values=_STAGES, help="The stage to end with.")] = (
        "speed"
    ),
    skip_search: Annotated[
        bool, typer.Option("--skip-search", help="Leave the searches out: come to speed at once.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Train also what has results but no model in FOLDER.")
    ] = False,
    jobs: Annotated[int, typer.Option(help="Processes side by side.")] = 1,
    device: DeviceFlag = "auto",
    as_json: JsonFlag = False,
) -> None:
    """Train, translate, search and time the systems of a direction.

    In: RECIPE, and STORE, which scones prepare made with it. Out: RESULTS (scores, translations,
    how they were made; scones paper report makes a page of it) and a table of BLEU on standard
    output. What has results is not made again, even when its model is gone; the same command goes
    on where it was stopped, on another machine too. Systems go side by side (--jobs), each at its
    own pace, and one that fails stops no other; speed is measured last, when nothing else runs.

        scones paper run recipes/paper/de-en.toml results --store data/de-en \\
            --runs runs/paper --jobs 6
        scones paper run recipes/paper/de-en.toml results --store data/de-en \\
            --runs runs/paper --system softmax --system scones-0.5 \\
            --seed 2 --seed 3 --until translate
    """
    from scones.paper.plan import Plan
    from scones.paper.running import Budget, Experiments

    if last not in _STAGES:
        raise SconesError(f"--until {last} is not a stage; there are {', '.join(_STAGES)}.")
    experiments = Experiments(
        Plan.load(recipe, data),
        results,
        store,
        runs,
        list(dict.fromkeys(system or [])),
        list(dict.fromkeys(seed or [])),
        Budget(max_steps, max_minutes),
        again,
        jobs,
        device,
        last,  # type: ignore[arg-type]
        skip_search,
        say=lambda text: typer.echo(text, err=True),
    )
    experiments.run()
    _show(experiments.direction.runs(), as_json)


def score(
    recipe: RecipeArgument,
    results: ResultsArgument,
    data: DataFlag = None,
    metric: Annotated[
        list[str] | None, typer.Option(help="May be repeated [bleu chrf ter]")
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes side by side [all cores]")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Add the scores that results lack, from their translations.

    In: RECIPE, which names the references, and RESULTS of scones paper run, which leaves out TER:
    it takes half a minute a set, and no model. Out: RESULTS, completed.

        scones paper score recipes/paper/de-en.toml results
        scones paper score recipes/paper/de-en.toml results --metric ter --jobs 2
    """
    from scones.evaluation.metrics import SACREBLEU_METRICS
    from scones.paper.plan import Plan
    from scones.paper.rescoring import rescore
    from scones.paper.results import Results
    from scones.text.workers import usable_cores

    metrics = list(dict.fromkeys(metric or SACREBLEU_METRICS))
    for name in metrics:
        if name not in SACREBLEU_METRICS:
            known = ", ".join(SACREBLEU_METRICS)
            raise SconesError(f"The metric '{name}' is not one of sacreBLEU's: {known}.")
    if jobs is not None and jobs < 1:
        raise SconesError(f"--jobs must be at least 1, not {jobs}.")
    plan = Plan.load(recipe, data)
    direction = Results(results).direction(plan.direction)
    if not direction.runs():
        raise SconesError(f"{direction.folder} has no results; scones paper run makes them.")
    rescore(
        plan,
        direction,
        metrics,
        jobs or usable_cores(),
        say=lambda text: typer.echo(text, err=True),
    )
    _show(direction.runs(), as_json)


def _show(runs: list[RunResult], as_json: bool) -> None:
    """Print the scores of all runs of a direction: BLEU as a table, everything as JSON."""
    if as_json:
        print_json({run.name: _scores(run) for run in runs})
        return
    columns = list(dict.fromkeys((test, one) for run in runs for test, one in _searches(run)))
    rows = [["", *(f"{test} {search}" for test, search in columns)]]
    for run in runs:
        found = (run.score(test, search) for test, search in columns)
        rows.append([run.name, *("–" if bleu is None else f"{bleu:.2f}" for bleu in found)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *cells in rows:
        values = (f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True))
        typer.echo("  ".join([f"{name:{widths[0]}}", *values]).rstrip())


def _searches(run: RunResult) -> list[tuple[str, str]]:
    return [(test, search) for test, found in run.tests.items() for search in found.searches]


def _scores(run: RunResult) -> dict[str, Any]:
    return {
        test: {search: dict(one.scores) for search, one in found.searches.items()}
        for test, found in run.tests.items()
    }
