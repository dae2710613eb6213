"""Choosing α: one run for each value, the best greedy BLEU on the development set wins."""

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
    """Greedy development BLEU by α."""
    folders: dict[float, str]
    """Model folder by α."""

    @property
    def best(self) -> float:
        """The α with the highest BLEU; of equal ones the smallest."""
        return min(self.scores, key=lambda alpha: (-self.scores[alpha], alpha))

    def to_json(self) -> dict[str, Any]:
        rows = [
            {"alpha": alpha, "dev_bleu": bleu, "model": self.folders[alpha]}
            for alpha, bleu in self.scores.items()
        ]
        return {"best_alpha": self.best, "runs": rows}

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Columns and rows, the chosen α marked."""
        rows = []
        for alpha, bleu in self.scores.items():
            chosen = "← chosen" if alpha == self.best else ""
            rows.append([f"{alpha:g}", f"{bleu:.2f}", self.folders[alpha], chosen])
        return ["α", "dev BLEU", "model", ""], rows


def tune(
    experiment: Experiment, store: Path, folder: Path, alphas: Sequence[float], quiet: bool = False
) -> Tuning:
    """Train the experiment once for every α under `folder` and write tune.json there."""
    if TokenStore.open(store).dev_texts is None:
        raise SconesError(f"{store} has no development set to choose α on; prepare it with one.")
    scores: dict[float, float] = {}
    folders: dict[float, str] = {}
    for alpha in sorted(set(alphas)):
        output = output_layer({**experiment.output.to_config(), "layer": "scones", "alpha": alpha})
        run = folder / f"alpha-{alpha:g}"
        result = train(dataclasses.replace(experiment, output=output), store, run, quiet)
        if result.interrupted:
            raise KeyboardInterrupt
        if result.best_bleu is None:
            raise SconesError(f"{run} was never validated; make validate_every smaller.")
        scores[alpha], folders[alpha] = result.best_bleu, str(run)
    tuning = Tuning(scores, folders)
    write_json(folder / "tune.json", tuning.to_json())
    return tuning
