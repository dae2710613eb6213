"""The beginning of a run: what to train, whether it can be trained, and the folder it claims."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from scones.errors import SconesError
from scones.files import new_folder, read_json, write_json
from scones.hardware import choose_device
from scones.model.config import ModelOptions
from scones.model.folder import ModelFolder
from scones.model.transformer import Transformer
from scones.outputs import OutputLayer
from scones.text.store import TokenStore
from scones.training.data import check_lengths
from scones.training.options import TrainOptions


@dataclass(frozen=True)
class Experiment:
    """What to train: the sections of a recipe."""

    model: ModelOptions
    output: OutputLayer
    train: TrainOptions

    def decisive(self) -> dict[str, Any]:
        """Give what may not change under a run."""
        return {
            "model": dataclasses.asdict(self.model),
            "output": self.output.to_config(),
            "train": self.train.decisive(),
        }


def check_data(experiment: Experiment, store: TokenStore) -> None:
    """Refuse a store that the experiment cannot be trained on."""
    training = store.split("train")
    if len(training) == 0:
        raise SconesError(f"{store.path} has no training pairs; prepare it with more text.")
    if store.dev_texts is None and not experiment.train.has_budget:
        raise SconesError(
            f"{store.path} has no development set for patience to watch, so training would never "
            "end; give max_steps or max_minutes."
        )
    limits = {"max_length": experiment.model.max_length}
    if store.dev_texts is not None:
        check_lengths(store.split("dev"), limits, f"The development set of {store.path}")
    limits["max_tokens"] = experiment.train.max_tokens
    check_lengths(training, limits, f"The training set of {store.path}")


def new_model(experiment: Experiment, store: TokenStore) -> Transformer:
    """Make the model with random weights, as a run without `start_from` begins."""
    device = choose_device(experiment.train.device)
    torch.manual_seed(experiment.train.seed)
    model = Transformer(experiment.model.build(len(store.subwords)))
    with torch.no_grad():
        model.output_bias.fill_(experiment.output.initial_bias(model.config.vocabulary))
    return model.to(device)


def start_from(path: Path, model: Transformer, store: TokenStore) -> None:
    """Give the model the weights of a model folder, which has to fit."""
    start = ModelFolder.load(path)
    if start.subwords != store.subwords.model:
        raise SconesError(
            f"{path} has another vocabulary than {store.path}; "
            "prepare the store with --subwords and that model's subwords.model."
        )
    if differences := start.model.config.other_shape(model.config):
        sizes = ", ".join(
            f"{name} {ours} where {theirs} is asked for" for name, ours, theirs in differences
        )
        raise SconesError(f"{path} has other sizes: {sizes}; give the sizes of that model.")
    model.load_state_dict(start.model.state_dict())


def claim_folder(folder: Path, experiment: Experiment, store: TokenStore) -> None:
    """Begin a run folder, or check that the one there is this very run."""
    wanted = {**experiment.decisive(), "data": store.digest}
    record = folder / "training" / "run.json"
    if not record.exists():
        if folder.exists() and not _is_empty(folder):
            raise SconesError(f"{folder} exists and is not a training run; choose another folder.")
        with new_folder(folder / "training") as place:
            (place / "checkpoints").mkdir()
            write_json(place / "run.json", wanted)
        return
    differences = _differences(read_json(record), wanted)
    if differences:
        raise SconesError(
            f"{folder} holds another run ({'; '.join(differences)}); choose another folder, or "
            "give the options it was started with."
        )


def _is_empty(folder: Path) -> bool:
    """Say whether nothing is there, or only what a killed process was writing."""
    return folder.is_dir() and all(path.name.startswith(".") for path in folder.iterdir())


def _differences(old: Any, new: Any, name: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            difference
            for key in sorted({*old, *new})
            for difference in _differences(old.get(key), new.get(key), f"{name}.{key}".strip("."))
        ]
    return [] if old == new else [f"{name} was {old!r} and now is {new!r}"]
