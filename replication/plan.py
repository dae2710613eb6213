"""What is to be run: recipes, read and checked.

A recipe of a direction of the paper has the sections

[prepare]   the corpora; their languages are the direction
[model]     the sizes and
[train]     the training, the same for all systems; its seed is the first seed
[systems]   a name and an output layer each
[tests]     sets with source and reference; the one with role = "dev" is for choosing
[search]    beams of many sizes and exact search: what, how much of it, limits
[speed]     speed of small beams
[left_out]  what other directions have and this one has not: a name and the reason

Of one for `replicate` and `synthetic` only [model], [output] and [train] are read (`Training`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from replication.options import DATA, DataFlag
from replication.results import Json
from scones.errors import SconesError
from scones.model.config import ModelOptions
from scones.options import Checked, entries, from_entries, from_section, load_recipe, option
from scones.outputs import output_layer
from scones.text.reading import read_aligned
from scones.training.options import TrainOptions


@dataclass(frozen=True)
class EvaluationSet(Checked):
    """A development or test set: an entry of [tests]."""

    source: Path
    reference: Path
    role: Literal["dev", "test"] = "test"
    sentences: int | None = option(None, "the first so many of the files; None: all", least=1)

    def read(self, sentences: int | None = None) -> tuple[list[str], list[str]]:
        """Give (the first) sources and references."""
        sources, references = read_aligned([self.source, self.reference])
        first = min((one for one in (sentences, self.sentences) if one is not None), default=None)
        return sources[:first], references[:first]


@dataclass(frozen=True)
class SearchSettings(Checked):
    """Section [search]."""

    set: str
    sentences: int = option(200, "the first ones of the set", least=1)
    beams: list[int] = option([1, 2, 4, 8, 16, 32, 64, 100, 250, 500, 1000], "sizes", least=1)
    max_states: int = option(100_000, "prefixes that exact search may look at, a sentence", above=0)
    max_memory: float | None = option(None, "gigabytes of each of the --jobs searches", above=0)
    systems: list[str] = field(default_factory=list)
    """Those that are searched; none: all."""


@dataclass(frozen=True)
class SpeedSettings(Checked):
    """Section [speed]."""

    set: str
    sentences: int = option(400, "the first ones of the set", least=1)
    batch: int = option(4, "sentences handed over at a time", least=1)
    more_batches: list[int] = option([], "timed as well: does a beam's cost depend on it?", least=1)
    beams: list[int] = option([1, 2, 4, 8], "sizes", least=1)
    repeats: int = option(5, "rounds", least=1)
    baseline: str = "softmax"
    """What the SCONES system with the chosen α is compared with."""


@dataclass(frozen=True)
class Training:
    """What all trainings of an experiment have in common."""

    recipe: Path
    sections: Json
    """[model] and [train] of the recipe, as they stand there."""
    output: Json
    """Its [output], which a system's own settings overrule."""
    budget: Json
    """max_steps and max_minutes, where they are not to be the recipe's."""
    device: str = "auto"

    @classmethod
    def load(cls, recipe: Path, device: str, **budget: float | None) -> Training:
        """Read a recipe; a wrong one is refused before hours of work."""
        sections = load_recipe(recipe, "model", "output", "train")
        given = {name: value for name, value in budget.items() if value is not None}
        from_section(ModelOptions, sections["model"], f"{recipe} [model]")
        from_section(TrainOptions, sections["train"] | given, f"{recipe} [train]")
        return cls(Path(recipe), sections, sections.pop("output"), given, device)

    @property
    def first_seed(self) -> int:
        """The recipe's own."""
        return from_section(TrainOptions, self.sections["train"], f"{self.recipe} [train]").seed


@dataclass(frozen=True)
class Plan:
    """A recipe of the paper's experiments: one direction."""

    recipe: Path
    direction: str
    """Such as "de-en"."""
    systems: Mapping[str, Json]
    """Settings of the output layers."""
    sets: Mapping[str, EvaluationSet]
    search: SearchSettings | None
    speed: SpeedSettings | None
    left_out: Mapping[str, str]
    """Why systems, or the speed, are not run."""
    data: Path | None
    """The folder with the corpora."""

    @classmethod
    def load(cls, recipe: Path, data: Path | None = None) -> Plan:
        """Read a recipe; `data` is the folder with the corpora, else that of the environment."""
        data = DataFlag(data=data).corpora
        names = ("prepare", "systems", "tests", "search", "speed", "left_out")
        variables = {} if data is None else {DATA: str(data)}
        sections = load_recipe(recipe, *names, variables=variables)
        systems = entries(sections["systems"], f"{recipe} [systems]")
        for name, system in systems.items():
            output_layer(system, f"{recipe} [systems] {name}")
        languages = [sections["prepare"].get(f"{side}_language") for side in ("source", "target")]
        if None in languages:
            raise SconesError(f"{recipe} [prepare] must name source_language and target_language.")
        search, speed = sections["search"], sections["speed"]
        plan = cls(
            Path(recipe),
            "-".join(map(str, languages)),
            systems,
            from_entries(EvaluationSet, sections["tests"], f"{recipe} [tests]"),
            from_section(SearchSettings, search, f"{recipe} [search]") if search else None,
            from_section(SpeedSettings, speed, f"{recipe} [speed]") if speed else None,
            {name: str(reason) for name, reason in sections["left_out"].items()},
            data,
        )
        plan._check()
        return plan

    def _check(self) -> None:
        """Refuse what speaks of a set or a system that is not there."""
        developing = sum(one.role == "dev" for one in self.sets.values())
        if developing != 1:
            self._refuse(f'[tests] must have one set with role = "dev", not {developing}')
        if not self.systems:
            self._refuse("it names no systems; add a section [systems]")
        for name in self.left_out:
            if name in self.systems or (name == "speed" and self.speed is not None):
                self._refuse(f"'{name}' is in [left_out] and is also to be run")
        self.check_systems(self.search.systems if self.search else [])
        self.check_systems([self.speed.baseline] if self.speed else [])
        for settings in (one for one in (self.search, self.speed) if one is not None):
            if settings.set not in self.sets:
                self._refuse(f"'{settings.set}' is not a set of [tests]: {', '.join(self.sets)}")
            if not settings.beams:
                self._refuse("a section names no beams")
            if settings.sentences > (self.sets[settings.set].sentences or settings.sentences):
                self._refuse(f"there are fewer sentences of '{settings.set}' than are searched")

    def check_systems(self, names: Sequence[str]) -> None:
        """Refuse a system that the recipe does not know."""
        for name in names:
            if name not in self.systems:
                self._refuse(f"there is no system '{name}'; there are {', '.join(self.systems)}")

    def _refuse(self, problem: str) -> None:
        raise SconesError(f"{self.recipe}: {problem}.")

    @property
    def dev(self) -> str:
        """The set that things are chosen on."""
        return next(name for name, one in self.sets.items() if one.role == "dev")

    def without_place(self, text: str) -> str:
        """Say something without telling where on this machine the data is."""
        if self.data is None:
            return text
        return text.replace(f"{self.data}/", "").replace(str(self.data), "…")
