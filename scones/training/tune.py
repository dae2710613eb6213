"""Choosing a setting of the output layer, such as α: one run for each value, the best BLEU wins."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scones.errors import SconesError
from scones.files import write_json
from scones.outputs import output_layer
from scones.text.store import TokenStore
from scones.training.loop import train
from scones.training.options import Experiment


@dataclasses.dataclass(frozen=True)
class Tuning:
    """What a sweep found."""

    scores: dict[float, float]
    """Greedy development BLEU by value."""
    folders: dict[float, str]
    """Model folder by value."""
    name: str
    """The setting that was varied."""

    @property
    def symbol(self) -> str:
        """How people write it."""
        return {"alpha": "α"}.get(self.name, self.name)

    @property
    def best(self) -> float | None:
        """The value with the highest BLEU; of equal ones the smallest. None where all have 0."""
        if not any(self.scores.values()):
            return None
        return min(self.scores, key=lambda value: (-self.scores[value], value))

    def to_json(self) -> dict[str, Any]:
        rows = [
            {self.name: value, "dev_bleu": bleu, "model": self.folders[value]}
            for value, bleu in self.scores.items()
        ]
        return {f"best_{self.name}": self.best, "runs": rows}

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Columns and rows, the chosen value marked."""
        rows = []
        for value, bleu in self.scores.items():
            chosen = "← chosen" if value == self.best else ""
            rows.append([f"{value:g}", f"{bleu:.2f}", self.folders[value], chosen])
        return [self.symbol, "dev BLEU", "model", ""], rows


def tune(
    experiment: Experiment, store: Path, folder: Path, values: Sequence[float], quiet: bool = False
) -> Tuning:
    """Train the experiment once for every value of the setting that its output layer has tuned.

    The runs go under `folder`, and with them tune.json.
    """
    output, name = experiment.output, experiment.output.tuned
    if name is None:
        raise SconesError(f"The output layer '{output.name}' has no setting to tune.")
    tuning = Tuning({}, {}, name)
    if TokenStore.open(store).dev_texts is None:
        raise SconesError(
            f"{store} has no development set to choose {tuning.symbol} on; prepare it with one."
        )
    # A run that has ended ends at once when it is started again: a sweep that was stopped, or is
    # given more values, trains only what is missing.
    for value in sorted(set(values)):
        changed = output_layer({**output.to_config(), name: value})
        run = folder / f"{name}-{value:g}"
        result = train(dataclasses.replace(experiment, output=changed), store, run, quiet)
        if result.interrupted:
            raise KeyboardInterrupt
        if result.best_bleu is None:
            raise SconesError(f"{run} was never validated; make validate_every smaller.")
        tuning.scores[value], tuning.folders[value] = result.best_bleu, str(run)
    write_json(folder / "tune.json", tuning.to_json())
    return tuning
