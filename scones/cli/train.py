"""`scones train`: a store in, a model folder out; and `scones tune`, which chooses α."""

from __future__ import annotations

import dataclasses
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from scones.cli.flags import JsonFlag, answer, print_json, progress, table
from scones.errors import SconesError
from scones.model.config import ModelOptions
from scones.options import Given, argument, load_recipe, option
from scones.outputs import DEFAULT, OutputLayer, layer_names, output_layer
from scones.processes import is_first
from scones.training.options import Experiment, TrainOptions

if TYPE_CHECKING:
    from scones.training.checkpoints import TrainResult


@dataclass(frozen=True, kw_only=True)
class Training(JsonFlag):
    """What both commands take."""

    store: Path = argument("What scones prepare made.", "STORE")
    folder: Path = argument("The model folder to make.", "MODEL")
    recipe: Path | None = option(
        None, "A TOML file with what no flag gives: [model] [output] [train]"
    )
    label_smoothing: float | None = option(
        None, "λ: how far labels are from 0 and 1 [0.0]", "Output"
    )
    model: Given[ModelOptions]
    train: Given[TrainOptions]

    def experiment(self, layer: str | None, output: dict[str, Any]) -> Experiment:
        """Put together what the recipe says and, over it, what the flags say."""
        store, folder = self.store, self.folder
        if (folder / "store.json").is_file() and not (store / "store.json").is_file():
            raise SconesError(f"{folder} is a store, which comes first: {folder} {store}.")
        if self.label_smoothing is not None:
            output = {"label_smoothing": self.label_smoothing, **output}
        sections = load_recipe(self.recipe, "model", "output", "train")
        origin = self.recipe or "flags"
        train = self.train.over(sections["train"], f"{origin} [train]")
        if train.start_from is not None:
            sections |= self._like(*_said_of(train.start_from, self.folder), sections)
        return Experiment(
            self.model.over(sections["model"], f"{origin} [model]"),
            _output_layer(sections["output"], layer, output, f"{origin} [output]"),
            train,
        )

    def _like(
        self, sizes: dict[str, Any], layer: dict[str, Any], sections: dict[str, dict[str, Any]]
    ) -> dict[str, dict[str, Any]]:
        """The sections, where they say nothing as the model to start from has it."""
        model, output = sections["model"], sections["output"]
        if not {"preset", "layers"} & {*model, *self.model.values}:  # which stand for all sizes
            model = {**sizes, **model}
        if output.get("layer") in (None, layer["layer"]):
            output = {**layer, **output}
        return {"model": model, "output": output}


@dataclass(frozen=True, kw_only=True)
class Train(Training):
    """What `scones train` takes; any output layer that is registered will do."""

    output_layer: str | None = option(
        None, "what turns logits into probabilities [scones]", values=tuple(layer_names())
    )
    alpha: float | None = option(None, "α of SCONES: weight of the tokens that are not gold [0.5]")
    output: list[str] = option(
        [], "another setting of the output layer; may be repeated", metavar="KEY=VALUE"
    )

    def settings(self) -> dict[str, Any]:
        """The layer's own settings that were given, as a recipe would write them."""
        settings = {} if self.alpha is None else {"alpha": self.alpha}
        for setting in self.output:
            name, equals, value = setting.partition("=")
            if not equals:
                raise SconesError(f"--output {setting} is not KEY=VALUE, such as alpha=0.5.")
            if name in settings or name == "layer":
                raise SconesError(f"--output {setting} is given twice, or has a flag of its own.")
            settings[name] = _toml_value(value)
        return settings


def train(options: Train) -> None:
    """Train a model; the same command goes on where it was stopped.

    In: STORE, made by scones prepare. Out: MODEL, the best model by greedy BLEU on the development
    set, and in MODEL/training its log and its checkpoints; standard error shows how it goes. Every
    option is also a key of a recipe, a TOML file; flags win over it. Processes of torchrun share
    every batch.

        scones train store runs/de-en --preset small --max-minutes 60
        scones train store runs/softmax --output-layer softmax --max-steps 20000
        scones train store runs/tea --recipe recipes/creamtea.toml --seed 2
        scones train shop runs/shop --start-from pocket-de-en --max-minutes 5
        torchrun --nproc-per-node 4 -m scones train store runs/de-en
    """
    from scones.training.loop import train as train_model

    experiment = options.experiment(options.output_layer, options.settings())
    result = train_model(experiment, options.store, options.folder)
    if is_first():
        sys.stderr.write(describe(result, options.folder) + "\n")
    if options.as_json and is_first():
        print_json({"model": str(options.folder), **dataclasses.asdict(result)})
    if result.interrupted:
        raise typer.Exit(130)


@dataclass(frozen=True, kw_only=True)
class Tune(Training):
    """What `scones tune` takes."""

    folder: Path = argument("Where the models go.", "FOLDER")
    alphas: list[float] = option(
        [0.2, 0.5, 0.7, 1.0], "an α to try; may be repeated", flags=("--alpha",), metavar="NUMBER"
    )


def tune(options: Tune) -> None:
    """Choose α by BLEU on the development set.

    In: STORE, made by scones prepare with a development set. Out: one model for each α,
    FOLDER/alpha-X, an ordinary run (what is trained already is not trained again); a table, which
    FOLDER/tune.json keeps. BLEU is that of greedy search.

        scones tune store runs/sweep --max-minutes 30
        scones tune store runs/sweep --alpha 0.5 --alpha 1 --max-steps 5000
    """
    from scones.training.tune import tune as tune_alpha

    experiment = options.experiment(DEFAULT, {})
    result = tune_alpha(experiment, options.store, options.folder, options.alphas)
    if is_first():
        title = "α by greedy BLEU on the development set"
        shown = table(*result.table(), text=(2, 3), title=title)
        none = ["None is chosen: all have 0 BLEU; train longer."] if result.best is None else []
        answer(options.as_json, result.to_json(), shown, *none)


@dataclass(frozen=True, kw_only=True)
class Mine(JsonFlag):
    """What `scones mine` takes."""

    store: Path = argument("A store of scones prepare --group-sources.", "STORE")
    model: Path = argument("The model whose mistakes are wanted.", "MODEL")
    out: Path = argument("The file to write.", "OUT")
    probability: float = option(0.5, "Only tokens that are at least so probable.", above=0, most=1)
    references: int = option(2, "Only sources with so many different targets.", least=1)
    device: str = option("auto", "auto, cpu, cuda or cuda:N")


def mine(options: Mine) -> None:
    """Find what a model wrongly takes for right, to train on that.

    In: STORE, whose pairs know which of them have the same source, and MODEL. Out: a file for
    scones train --mistakes: the tokens that MODEL finds probable at a prefix of a training target
    and that no target of that source goes on with, or holds.

        scones mine store pocket-de-en store.mistakes
        scones mine store runs/de-en sure.list --probability 0.8 --references 4
        scones train store again --negatives 10 --mistakes store.mistakes
    """
    from scones.model.folder import find_model
    from scones.text.store import TokenStore
    from scones.training.mistakes import mine as mine_mistakes

    store, limits = TokenStore.open(options.store), (options.probability, options.references)
    with progress("pairs") as show:
        facts = mine_mistakes(
            store, find_model(options.model), options.out, *limits, options.device, show
        )
    text = f"{options.out}: {facts['mistakes']:,} mistakes in {facts['pairs']:,} pairs."
    answer(options.as_json, {"file": str(options.out), **facts}, text)


def describe(result: TrainResult, folder: Path) -> str:
    """How a run ended, in a line."""
    best = "never validated (without a development set, or before --validate-every)"
    if result.best_bleu is not None:
        best = f"best dev BLEU {result.best_bleu:.2f} at step {result.best_step}"
    skipped = f", {result.skipped} steps skipped that were not finite" if result.skipped else ""
    return (
        f"{folder}: {result.steps} steps in {result.seconds / 60:.1f} minutes, {best}{skipped} "
        f"({result.reason})."
    )


def _said_of(start: Path, run: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Sizes and output layer of a model to start from, or of the run that has, when it goes on."""
    from scones.files import read_json
    from scones.model.folder import FolderConfig

    if (record := run / "training" / "run.json").is_file():  # the model may be gone by now
        begun = read_json(record)
        sizes, output = begun["model"], begun["output"]
    else:
        config = FolderConfig.read(start)
        sizes, output = dataclasses.asdict(config.sizes()), config.facts.output
    known = {field.name for field in dataclasses.fields(ModelOptions)}
    return {name: sizes[name] for name in known & sizes.keys()}, output


def _output_layer(
    section: dict[str, Any], layer: str | None, given: dict[str, Any], origin: str
) -> OutputLayer:
    if layer is not None and layer != section.get("layer", DEFAULT):
        # The recipe means another layer: of its settings those stay that both layers have.
        chosen = output_layer({"layer": layer}, origin)
        names = {field.name for field in dataclasses.fields(chosen)}  # type: ignore[arg-type]
        section = {name: section[name] for name in names & section.keys()} | {"layer": layer}
    return output_layer({**section, **given}, origin)


def _toml_value(text: str) -> Any:
    """A value as a recipe would have it; what TOML does not know is a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
