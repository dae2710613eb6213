"""`scones train`: a store in, a model folder out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scones.cli.flags import flags_of
from scones.model.config import ModelOptions
from scones.training.options import TrainOptions

if TYPE_CHECKING:
    from scones.training.experiment import Experiment
    from scones.training.loop import TrainResult

OutputFlag = Annotated[
    str | None, typer.Option("--output-layer", help="The output layer: scones or softmax [scones]")
]
AlphaFlag = Annotated[
    float | None, typer.Option(help="α of SCONES: weight of the tokens that are not gold [0.5]")
]
SmoothingFlag = Annotated[
    float | None, typer.Option(help="λ: how far labels are from 0 and 1 [0.0]")
]
RecipeFlag = Annotated[
    Path | None, typer.Option(help="A TOML file with what no flag gives: [model] [output] [train]")
]


@flags_of(ModelOptions, TrainOptions)
def train(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="What scones prepare made.")],
    folder: Annotated[Path, typer.Argument(metavar="MODEL", help="The model folder to make.")],
    recipe: RecipeFlag = None,
    output_layer: OutputFlag = None,
    alpha: AlphaFlag = None,
    label_smoothing: SmoothingFlag = None,
    *,
    flags: dict[type, dict[str, Any]],
) -> None:
    """Train a model; the same command goes on where it was stopped."""
    from scones.training.loop import train as train_model

    experiment = read_experiment(recipe, flags, output_layer, alpha, label_smoothing)
    result = train_model(experiment, store, folder)
    sys.stderr.write(describe(result, folder) + "\n")
    if result.interrupted:
        raise typer.Exit(130)


def describe(result: TrainResult, folder: Path) -> str:
    """Say in a line how a run ended."""
    best = "never validated"
    if result.best_bleu is not None:
        best = f"best dev BLEU {result.best_bleu:.2f} at step {result.best_step}"
    return (
        f"{folder}: {result.steps} steps in {result.seconds / 60:.1f} minutes, {best} "
        f"({result.reason})."
    )


def read_experiment(
    recipe: Path | None,
    flags: dict[type, dict[str, Any]],
    output_layer: str | None,
    alpha: float | None,
    label_smoothing: float | None,
) -> Experiment:
    """Put together what the recipe says and, over it, what the flags say."""
    from scones.outputs import output_layer as make_output
    from scones.recipes import from_section, load_recipe
    from scones.training.experiment import Experiment

    sections = load_recipe(recipe, "model", "output", "train") if recipe else {}
    place = str(recipe) if recipe else "flags"
    output = dict(sections.get("output", {}))
    if output_layer is not None and output_layer != output.get("layer", "scones"):
        # The recipe's other settings (α) are those of its own layer.
        kept = {"label_smoothing"} & output.keys()
        output = {name: output[name] for name in kept} | {"layer": output_layer}
    given = {"alpha": alpha, "label_smoothing": label_smoothing}
    output |= {name: value for name, value in given.items() if value is not None}
    model = sections.get("model", {}) | flags[ModelOptions]
    training = sections.get("train", {}) | flags[TrainOptions]
    return Experiment(
        from_section(ModelOptions, model, f"{place} [model]"),
        make_output(output, f"{place} [output]"),
        from_section(TrainOptions, training, f"{place} [train]"),
    )
