"""`scones tune`: choose α by development BLEU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from scones.cli.flags import flags_of
from scones.cli.train import RecipeFlag, SmoothingFlag, read_experiment
from scones.model.config import ModelOptions
from scones.training.options import TrainOptions


@flags_of(ModelOptions, TrainOptions)
def tune(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="What scones prepare made.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the models go.")],
    alphas: Annotated[
        list[float] | None,
        typer.Option("--alpha", help="An α to try; may be repeated [0.2 0.5 0.7 1.0]"),
    ] = None,
    recipe: RecipeFlag = None,
    label_smoothing: SmoothingFlag = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not a table.")] = False,
    *,
    flags: dict[type, dict[str, Any]],
) -> None:
    """Train SCONES once for each α and choose the best by greedy BLEU on the development set.

    Each model is FOLDER/alpha-X, an ordinary run: what is trained already is not trained again.
    """
    from rich.console import Console

    from scones.training.tune import tune as tune_alpha
    from scones.training.tune import tuning_table

    experiment = read_experiment(recipe, flags, "scones", None, label_smoothing)
    result = tune_alpha(experiment, store, folder, alphas or [0.2, 0.5, 0.7, 1.0])
    if as_json:
        typer.echo(json.dumps(result.to_json(), indent=2))
        return
    Console(highlight=False).print(tuning_table(result))
