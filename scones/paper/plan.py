"""What the paper's experiments are for one direction: a recipe, read and checked.

[prepare]   the corpora; their languages are the direction
[model]     the sizes and
[train]     the training, the same for all systems; its seed is the first seed
[systems]   a name and an output layer each
[tests]     sets with source and reference; the one with role = "dev" is for choosing
[search]    beams of many sizes and exact search: what, how much of it, limits
[speed]     speed of small beams
[left_out]  what other directions have and this one has not: a name and the reason
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from scones.analysis.tables import texts_digest
from scones.errors import SconesError
from scones.model.config import ModelOptions
from scones.options import entries, from_entries, from_section, load_recipe
from scones.outputs import output_layer
from scones.paper.results import run_name
from scones.text.reading import read_aligned
from scones.text.store import TokenStore
from scones.training.options import TrainOptions

DATA = "SCONES_DATA"
"""The variable that names the folder with the corpora, in recipes as in the environment."""


@dataclass(frozen=True)
class EvaluationSet:
    """A development or test set: an entry of [tests]."""

    source: Path
    reference: Path
    role: Literal["dev", "test"] = "test"
    sentences: int | None = None
    """The first so many of the files are the set; None: all."""

    def read(self, sentences: int | None = None) -> tuple[list[str], list[str]]:
        """Give (the first) sources and references."""
        sources, references = read_aligned([self.source, self.reference])
        both = [one for one in (sentences, self.sentences) if one is not None]
        first = min(both, default=None)
        return sources[:first], references[:first]

    def digests(self) -> tuple[str, str]:
        """Tell its text from others: sources and references."""
        sources, references = self.read()
        return texts_digest(sources), texts_digest(references)


@dataclass(frozen=True)
class SearchSettings:
    """Section [search]."""

    set: str
    sentences: int = 200
    """The first ones of the set."""
    beams: list[int] = field(default_factory=lambda: [1, 2, 4, 8, 16, 32, 64, 100, 250, 500, 1000])
    max_states: int = 100_000
    """Prefixes that exact search may look at, a sentence."""
    max_memory: float | None = None
    """Gigabytes of an exact search, of which --jobs go on at once."""
    systems: list[str] = field(default_factory=list)
    """Those that are searched; none: all."""


@dataclass(frozen=True)
class SpeedSettings:
    """Section [speed]."""

    set: str
    sentences: int = 400
    """The first ones of the set."""
    batch: int = 4
    """Sentences handed over at a time."""
    more_batches: list[int] = field(default_factory=list)
    """Timed as well, to see whether what a beam costs depends on them."""
    beams: list[int] = field(default_factory=lambda: [1, 2, 4, 8])
    repeats: int = 5
    baseline: str = "softmax"
    """What the SCONES system with the chosen α is compared with."""


@dataclass(frozen=True)
class Run:
    """A system and a seed: one training."""

    system: str
    seed: int
    name: str


@dataclass(frozen=True)
class Plan:
    """A recipe of the paper's experiments."""

    recipe: Path
    languages: tuple[str, str]
    sections: Mapping[str, dict[str, Any]]
    """[model] and [train] as they stand there."""
    systems: Mapping[str, dict[str, Any]]
    """Settings of the output layers."""
    sets: Mapping[str, EvaluationSet]
    search: SearchSettings | None
    speed: SpeedSettings | None
    left_out: Mapping[str, str]
    """Why systems, or the speed, are not run."""
    data: Path | None

    @classmethod
    def load(cls, recipe: Path, data: Path | None = None) -> Plan:
        """Read a recipe; `data` is the folder with the corpora, else that of the environment."""
        data = data or (Path(os.environ[DATA]) if DATA in os.environ else None)
        variables = {} if data is None else {DATA: str(data)}
        names = ("prepare", "model", "train", "systems", "tests", "search", "speed", "left_out")
        sections = load_recipe(recipe, *names, variables=variables)

        def place(section: str) -> str:
            return f"{recipe} [{section}]"

        systems = entries(sections["systems"], place("systems"))
        for name, system in systems.items():
            output_layer(system, f"{place('systems')} {name}")
        from_section(ModelOptions, sections["model"], place("model"))
        from_section(TrainOptions, sections["train"], place("train"))
        search, speed = sections["search"], sections["speed"]
        plan = cls(
            Path(recipe),
            _languages(sections["prepare"], place("prepare")),
            {name: sections[name] for name in ("model", "train")},
            systems,
            from_entries(EvaluationSet, sections["tests"], place("tests")),
            from_section(SearchSettings, search, place("search")) if search else None,
            from_section(SpeedSettings, speed, place("speed")) if speed else None,
            {name: str(reason) for name, reason in sections["left_out"].items()},
            data,
        )
        plan._check()
        return plan

    def _check(self) -> None:
        """Refuse what speaks of a set or a system that is not there."""
        developing = [name for name, one in self.sets.items() if one.role == "dev"]
        if len(developing) != 1:
            raise SconesError(
                f'{self.recipe} [tests] must have one set with role = "dev", not {len(developing)}.'
            )
        if not self.systems:
            raise SconesError(f"{self.recipe} names no systems; add a section [systems].")
        for name in self.left_out:
            if name in self.systems or (name == "speed" and self.speed is not None):
                raise SconesError(
                    f"{self.recipe}: '{name}' is in [left_out] and is also to be run."
                )
        for name, test in self.sets.items():
            if test.sentences is not None and test.sentences < 1:
                raise SconesError(
                    f"{self.recipe} [tests] {name}: sentences must be at least 1, not "
                    f"{test.sentences}."
                )
        for settings in (self.search, self.speed):
            if settings is not None:
                self._check_numbers(settings)
                self._check_set(settings)
        if self.search is not None:
            self.check_systems(self.search.systems)
        if self.speed is not None:
            self.check_systems([self.speed.baseline])

    def _check_numbers(self, settings: SearchSettings | SpeedSettings) -> None:
        """Refuse what would fail after all trainings."""
        section = "search" if isinstance(settings, SearchSettings) else "speed"
        for name, value in vars(settings).items():
            values = value if isinstance(value, list) else [value]
            for one in values:
                if isinstance(one, (int, float)) and not one > 0:
                    raise SconesError(
                        f"{self.recipe} [{section}]: {name} must be above 0, not {one}."
                    )
        if not settings.beams:
            raise SconesError(f"{self.recipe} [{section}] names no beams.")

    def _check_set(self, settings: SearchSettings | SpeedSettings) -> None:
        """Refuse a set that is not there, or that is too short."""
        if settings.set not in self.sets:
            known = ", ".join(self.sets)
            raise SconesError(
                f"{self.recipe}: '{settings.set}' is not a set of [tests]; there are {known}."
            )
        there = self.sets[settings.set].sentences
        if there is not None and settings.sentences > there:
            raise SconesError(
                f"{self.recipe}: {settings.sentences:,} sentences of '{settings.set}' are asked "
                f"for, which [tests] cuts to {there:,}; ask for fewer, or raise the cut."
            )

    def check_systems(self, names: Sequence[str]) -> None:
        """Refuse a system that the recipe does not know."""
        for name in names:
            if name not in self.systems:
                known = ", ".join(self.systems)
                raise SconesError(f"{self.recipe} has no system '{name}'; there are {known}.")

    def check_store(self, store: TokenStore) -> None:
        """Refuse a store of another direction."""
        found = store.source_language, store.target_language
        if found != self.languages:
            raise SconesError(
                f"{store.path} goes from {found[0]} to {found[1]}, and {self.recipe} from "
                f"{self.languages[0]} to {self.languages[1]}; scones prepare --reversed turns a "
                "store round."
            )

    @property
    def direction(self) -> str:
        """Such as "de-en"."""
        return "-".join(self.languages)

    @property
    def dev(self) -> str:
        """The set that things are chosen on."""
        return next(name for name, one in self.sets.items() if one.role == "dev")

    @cached_property
    def first_seed(self) -> int:
        """The recipe's own."""
        return from_section(TrainOptions, self.sections["train"], f"{self.recipe} [train]").seed

    def run(self, system: str, seed: int | None = None) -> Run:
        """Name the training of a system with a seed, the first one if not given."""
        self.check_systems([system])
        seed = self.first_seed if seed is None else seed
        return Run(system, seed, run_name(system, seed, self.first_seed))

    def without_place(self, command: str) -> str:
        """Say a command without telling where on this machine the data is."""
        if self.data is None:
            return command
        return command.replace(f"{self.data}/", "").replace(str(self.data), "…")

    def shown(self, path: Path) -> str:
        """Name a file without saying where on this machine the data is."""
        if self.data is not None and path.is_relative_to(self.data):
            return str(path.relative_to(self.data))
        return "/".join(path.parts[-2:])


def _languages(section: Mapping[str, Any], place: str) -> tuple[str, str]:
    try:
        return str(section["source_language"]), str(section["target_language"])
    except KeyError as missing:
        raise SconesError(f"{place}: {missing} is missing.") from None
