"""A model folder written again in another form: as int8, or back in full for Hugging Face."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scones.errors import SconesError
from scones.model.folder import ModelFolder, Storage, read_model_config
from scones.pocket import find_model


@dataclass(frozen=True)
class Stored:
    """What was written, and how it compares with the model it came from."""

    folder: Path
    storage: Storage
    parameters: int
    bytes: int
    largest_error: float
    """The largest difference between a weight and what is read back for it."""


def store_again(
    source: Path,
    target: Path,
    storage: Storage,
    told: Mapping[str, Any] | None = None,
    *,
    overwrite: bool = False,
) -> Stored:
    """Write the model folder `source` as `target`, whole or not at all, and read it back.

    `told` is for the model card (`scones.model.card.check_told`).
    """
    source, target = find_model(source), Path(target)
    if target.exists() and overwrite:
        _check_replaceable(source, target)
    if "engine" in read_model_config(source)["scones"]:
        raise SconesError(f"{source} is an export itself; export the model folder it came from.")
    folder = ModelFolder.load(source)
    folder.facts.pop("name", None)  # whoever writes it elsewhere says how it is called there
    folder.facts |= told or {}
    folder.save(target, overwrite=overwrite, storage=storage)
    written = ModelFolder.load(target).model.state_dict()
    weights = folder.model.state_dict()
    errors = [(tensor - written[name]).abs().max().item() for name, tensor in weights.items()]
    return Stored(
        target,
        storage,
        sum(tensor.numel() for tensor in weights.values()),
        sum(path.stat().st_size for path in target.iterdir()),
        max(errors),
    )


def _check_replaceable(source: Path, target: Path) -> None:
    """Refuse to replace what somebody may still need: the model itself, a run, any other folder."""
    try:
        read_model_config(target)
    except SconesError:
        raise SconesError(
            f"{target} is not a model, so it is not overwritten; choose another name."
        ) from None
    if target.samefile(source) or (target / "training").exists():
        raise SconesError(f"{target} is the model itself or a training run; choose another name.")
