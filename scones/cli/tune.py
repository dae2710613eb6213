"""`scones tune`: choose α by development BLEU."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from scones.cli.flags import JsonFlag, flags_of, print_json
from scones.cli.train import RecipeFlag, SmoothingFlag, read_experiment
from scones.model.config import ModelOptions
from scones.training.options import TrainOptions


@flags_of(ModelOptions, TrainOptions)
def tune(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="What scones prepare made.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the models go.")],
    recipe: RecipeFlag = None,
    alphas: Annotated[
        list[float] | None,
        typer.Option(
            "--alpha",
            metavar="NUMBER",
            help="an α to try; may be repeated [0.2 0.5 0.7 1.0]",
            rich_help_panel="Output",
        ),
    ] = None,
    label_smoothing: SmoothingFlag = None,
    as_json: JsonFlag = False,
    *,
    flags: dict[type, dict[str, Any]],
) -> None:
    """Choose α by BLEU on the development set.

    In: STORE, made by scones prepare with a development set. Out: one model for each α,
    FOLDER/alpha-X, an ordinary run (what is trained already is not trained again); a table, which
    FOLDER/tune.json keeps. BLEU is that of greedy search.

        scones tune store runs/sweep --max-minutes 30
        scones tune store runs/sweep --alpha 0.5 --alpha 1 --max-steps 5000
    """
    from rich.console import Console

    from scones.processes import is_first
    from scones.training.tune import tune as tune_alpha
    from scones.training.tune import tuning_table

    experiment = read_experiment(recipe, flags, "scones", None, label_smoothing)
    result = tune_alpha(experiment, store, folder, alphas or [0.2, 0.5, 0.7, 1.0])
    if not is_first():
        return
    if as_json:
        print_json(result.to_json())
        return
    Console(highlight=False).print(tuning_table(result))
