"""`scones train`: a store in, a model folder out."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scones.cli.flags import JsonFlag, choice, flags_of, print_json
from scones.model.config import ModelOptions
from scones.training.options import TrainOptions

if TYPE_CHECKING:
    from scones.training.checkpoints import TrainResult
    from scones.training.options import Experiment

OUTPUT_LAYERS = ("scones", "softmax")  # asking scones.outputs would import PyTorch

OutputFlag = Annotated[
    str | None,
    choice(
        "--output-layer",
        values=OUTPUT_LAYERS,
        help="what turns logits into probabilities [scones]",
        heading="Output",
    ),
]
AlphaFlag = Annotated[
    float | None,
    typer.Option(
        help="α of SCONES: weight of the tokens that are not gold [0.5]", rich_help_panel="Output"
    ),
]
SmoothingFlag = Annotated[
    float | None,
    typer.Option(help="λ: how far labels are from 0 and 1 [0.0]", rich_help_panel="Output"),
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
    as_json: JsonFlag = False,
    *,
    flags: dict[type, dict[str, Any]],
) -> None:
    """Train a model; the same command goes on where it was stopped.

    In: STORE, made by scones prepare. Out: MODEL, the best model by greedy BLEU on the development
    set, and in MODEL/training its log and its checkpoints; standard error shows how it goes. Every
    option is also a key of a recipe, a TOML file; flags win over it. Processes of torchrun share
    every batch.

        scones train store runs/de-en --preset small --max-minutes 60
        scones train store runs/softmax --output-layer softmax --max-steps 20000
        scones train store runs/tea --recipe recipes/creamtea.toml --seed 2
        torchrun --nproc-per-node 4 -m scones train store runs/de-en
    """
    from scones.processes import is_first
    from scones.training.loop import train as train_model

    experiment = read_experiment(recipe, flags, output_layer, alpha, label_smoothing)
    result = train_model(experiment, store, folder)
    if is_first():
        sys.stderr.write(describe(result, folder) + "\n")
    if as_json and is_first():
        print_json({"model": str(folder), **asdict(result)})
    if result.interrupted:
        raise typer.Exit(130)


def describe(result: TrainResult, folder: Path) -> str:
    """Say in a line how a run ended."""
    best = "never validated"
    if result.best_bleu is not None:
        best = f"best dev BLEU {result.best_bleu:.2f} at step {result.best_step}"
    skipped = f", {result.skipped} steps skipped that were not finite" if result.skipped else ""
    return (
        f"{folder}: {result.steps} steps in {result.seconds / 60:.1f} minutes, {best}{skipped} "
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
    from scones.options import from_section, load_recipe
    from scones.outputs import output_layer as make_output
    from scones.training.options import Experiment

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
