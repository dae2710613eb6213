"""What the commands take: every field is a flag or an argument of the same name."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from scones.cli.flags import DeviceFlag, JsonFlag, ReferencesFlag
from scones.options import REQUIRED, argument, option

DATA = "SCONES_DATA"
"""The variable that names the folder with the corpora, in recipes as in the environment."""


@dataclass(frozen=True, kw_only=True)
class DataFlag:
    data: Path | None = option(None, "The folder with the corpora [$SCONES_DATA]", metavar="FOLDER")

    @property
    def corpora(self) -> Path | None:
        """What was given, else what the environment says."""
        return self.data or (Path(os.environ[DATA]) if DATA in os.environ else None)


@dataclass(frozen=True, kw_only=True)
class Scoring(DataFlag, JsonFlag):
    """What every command takes that adds to the results of a direction."""

    recipe: Path = argument("The experiments of a direction, a TOML file.", "RECIPE")
    results: Path = argument("The results folder, of all directions.", "RESULTS")


@dataclass(frozen=True, kw_only=True)
class Translate(Scoring, DeviceFlag):
    """What `scones paper translate` takes."""

    store: Path = option(REQUIRED, "What scones prepare made.", metavar="STORE")
    runs: Path = option(REQUIRED, "Where models and logs go.", metavar="FOLDER")
    system: list[str] = option([], "A system of RECIPE; may be repeated [all]")
    seed: list[int] = option([], "A seed; may be repeated [that of RECIPE]")
    max_steps: int | None = option(None, "Steps of each training, whatever RECIPE says.", least=1)
    max_minutes: float | None = option(None, "Minutes of each training, likewise.", above=0)


@dataclass(frozen=True, kw_only=True)
class Run(Translate):
    """What `scones paper run` takes."""

    until: Literal["train", "translate", "search", "speed"] = option(
        "speed", "The stage to end with."
    )
    skip_search: bool = option(False, "Leave the searches out: come to speed at once.")
    again: bool = option(False, "Train also what has results but no model in FOLDER.")
    jobs: int = option(1, "Processes side by side.", least=1)


@dataclass(frozen=True, kw_only=True)
class Score(Scoring):
    """What `scones paper score` takes."""

    metric: list[str] = option(["bleu", "chrf", "ter"], "May be repeated.")
    jobs: int | None = option(None, "Processes side by side [all cores]", least=1)


@dataclass(frozen=True, kw_only=True)
class Report(DataFlag):
    """What `scones paper report` takes."""

    results: Path = argument("The results folder of scones paper run.", "RESULTS")
    out: Path = argument("The folder to write to.", "OUT")
    bleurt: Path | None = option(None, "BLEURT weights, for table 4.", metavar="CHECKPOINT")


@dataclass(frozen=True, kw_only=True)
class Check(DataFlag, JsonFlag):
    """What `scones paper check` takes."""

    results: Path = argument("The results folder of scones paper run.", "RESULTS")
    cells: int = option(1, "How many cells to compute again; 0: all.", least=0)
    seed: int | None = option(None, "Decides which cells are chosen; else another every time.")


@dataclass(frozen=True, kw_only=True)
class Replicate(ReferencesFlag, DeviceFlag):
    """What `scones replicate` takes."""

    store: Path = argument("What scones prepare made.", "STORE")
    folder: Path = argument("Where the runs go.", "RUNS")
    recipe: Path = option(REQUIRED, "The recipe, the same for both output layers.")
    source: Path = option(REQUIRED, "The test set's source text.")
    alpha: list[float] = option([0.2, 0.5, 0.7, 1.0], "An α to try; may be repeated.")
    tuning_seed: int = option(100, "Seed of the runs that choose α.")
    seed: list[int] = option([1, 2, 3], "A seed to test; may be repeated.")
    jobs: int = option(8, "Trainings side by side.", least=1)
    output: Path | None = option(None, "Write OUTPUT.json and OUTPUT.md [RUNS/replication]")


@dataclass(frozen=True, kw_only=True)
class Synthetic(JsonFlag, DeviceFlag):
    """What `scones synthetic` takes."""

    store: Path = argument("What scones prepare made.", "STORE")
    model: Path = argument("What scones ibm3 fit made.", "IBM3")
    folder: Path = argument("Where everything goes.", "OUT")
    recipe: Path = option(REQUIRED, "The recipe, the same for all models.")
    source: Path = option(REQUIRED, "The test set's source text.")
    temperature: list[float] = option(
        [0.1, 0.2, 0.3, 0.5, 0.7, 1.0], "May be repeated.", metavar="γ"
    )
    alpha: list[float] = option([0.2, 0.5, 1.0], "Of SCONES; may be repeated.", metavar="α")
    pairs: int | None = option(None, "Training pairs, the first of STORE [all]", least=1)
    max_steps: int | None = option(None, "Of each training, whatever the recipe says.", least=1)
    sentences: int | None = option(None, "Of the test set, the first ones [all]", least=1)
    max_states: int = option(1_000_000, "Prefixes that exact search may look at per sentence.")
    max_memory: float = option(4.0, "Gigabytes of an exact search, of which --jobs go on at once.")
    seed: int = option(1, "Of the sampled languages (their test sets: one more) and trainings.")
    jobs: int = option(1, "Trainings and searches side by side.", least=1)
    until: Literal["sample", "train", "search"] = option("search", "The stage to end with.")
