"""The paper's experiment with synthetic languages: how ambiguous may one be, and who copes with it?

For every temperature γ of IBM Model 3 a language is sampled; softmax and SCONES with several α are
trained on it and translate its test set with a beam of 4 and by exact search. All of it goes into
one folder, and what is there is not made again:

    gamma-0.5/language/                      the sampled language (see `synthetic_language`)
    gamma-0.5/softmax/, scones-0.2/, …       models
    gamma-0.5/softmax.search/, …             what their searches gave (see `analysis`)
    gamma-0.5/*.log, *.done.json             trainings and searches: what they said, that they ended
    synthetic.json, synthetic.md, *.svg      figures, tables, plots

Trainings and searches are processes and go side by side: a small model leaves most of a GPU idle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from scones.analysis.analyze import read_modes
from scones.errors import SconesError
from scones.evaluation.significance import paired_bootstrap
from scones.files import Provenance, read_json
from scones.ibm3.sampling import check_temperature
from scones.model.config import ModelOptions
from scones.model.folder import read_facts
from scones.options import from_section, load_recipe
from scones.outputs import output_layer
from scones.paper.jobs import Job, run_all
from scones.paper.synthetic_language import (
    Language,
    LanguageSettings,
    find_language,
    sample_language,
)
from scones.paper.synthetic_verdict import judge
from scones.training.options import TrainOptions

BEAM = 4
Stage = Literal["sample", "train", "search"]
STAGES: tuple[Stage, ...] = ("sample", "train", "search")


@dataclass(frozen=True)
class System:
    """An output layer to train."""

    alpha: float | None
    """Of SCONES; None is softmax."""

    @property
    def name(self) -> str:
        """The beginning of its files' names, and its key among the figures."""
        return "softmax" if self.alpha is None else f"scones-{self.alpha}"

    @property
    def flags(self) -> list[str]:
        """What `scones train` has to be told."""
        if self.alpha is None:
            return ["--output-layer", "softmax"]
        return ["--output-layer", "scones", "--alpha", str(self.alpha)]


@dataclass(frozen=True)
class Limits:
    """How much is searched."""

    sentences: int | None = None
    """Of the test set, the first ones; None: all."""
    max_states: int = 1_000_000
    """Prefixes that exact search may look at, a sentence."""
    max_memory: float = 4.0
    """Gigabytes of an exact search; as many go on at once as there are jobs."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and not value > 0:
                raise SconesError(f"{name} must be above 0, not {value}.")


@dataclass(frozen=True)
class Synthetic:
    """What to sample, train and search, and where the results go."""

    language: LanguageSettings
    recipe: Path
    folder: Path
    temperatures: Sequence[float]
    alphas: Sequence[float]
    limits: Limits = Limits()
    max_steps: int | None = None
    """Of a training; None: what the recipe says."""
    jobs: int = 1
    device: str = "auto"
    last: Stage = "search"
    """The stage to end with."""
    say: Callable[[str], None] = lambda text: None
    """Told whenever something begins or ends."""

    def run(self) -> dict[str, Any] | None:
        """Do what is not done yet; gives all figures, or None where it ended before the last."""
        self._check()
        languages = {value: self._language(value) for value in self.temperatures}
        if self.last == "sample":
            return None
        each = [(*language, system) for language in languages.items() for system in self.systems]
        steps = [self._training, self._search][: STAGES.index(self.last)]
        run_all([[step(*one) for step in steps] for one in each], self.jobs, self.say)
        return self._figures(languages) if self.last == "search" else None

    @cached_property
    def systems(self) -> list[System]:
        """Softmax, which the others are compared with, and SCONES with every α."""
        return [System(alpha) for alpha in (None, *self.alphas)]

    def _check(self) -> None:
        """Refuse before hours of work what would be refused after them."""
        for name, value in (("jobs", self.jobs), ("pairs", self.language.pairs)):
            if value is not None and value < 1:
                raise SconesError(f"{name} must be at least 1, not {value}.")
        if self.folder.exists() and not self.folder.is_dir():
            raise SconesError(f"{self.folder} is a file; give a folder to write to.")
        if not self.temperatures:
            raise SconesError("There is nothing to sample: give at least one temperature.")
        for temperature in self.temperatures:
            check_temperature(temperature)
        for alpha in self.alphas:
            output_layer({"layer": "scones", "alpha": alpha})
        from_section(ModelOptions, self._sections["model"], f"{self.recipe} [model]")
        training = self._sections["train"]
        if self.max_steps is not None:
            training = training | {"max_steps": self.max_steps}
        from_section(TrainOptions, training, f"{self.recipe} [train]")
        for temperature in self.temperatures:
            self._find_language(temperature)

    @cached_property
    def _sections(self) -> dict[str, dict[str, Any]]:
        return load_recipe(self.recipe, "model", "output", "train")

    def _place(self, temperature: float) -> Path:
        return self.folder / f"gamma-{temperature}"

    def _find_language(self, temperature: float) -> Language | None:
        place = self._place(temperature) / "language"
        return find_language(place, self.language.at(temperature))

    def _language(self, temperature: float) -> Language:
        found = self._find_language(temperature)
        if found is None:
            self.say(f"γ = {temperature}: sampling")
            place = self._place(temperature) / "language"
            found = sample_language(place, self.language, temperature)
        return found

    def _training(self, temperature: float, language: Language, system: System) -> Job:
        place = self._place(temperature)
        seed = self.language.seed
        command = ["train", str(language.store), str(place / system.name), *system.flags]
        command += ["--recipe", str(self.recipe), "--seed", str(seed), "--device", self.device]
        if self.max_steps is not None:
            command += ["--max-steps", str(self.max_steps)]
        return Job(
            f"γ = {temperature}, {system.name}: training",
            command,
            place / f"{system.name}.train.log",
            {
                "data": language.facts["data_digest"],
                "recipe": self._sections,
                "max_steps": self.max_steps,
                "seed": seed,
            },
        )

    def _search(self, temperature: float, language: Language, system: System) -> Job:
        place = self._place(temperature)
        command = ["analyze", f"{system.name}={place / system.name}", "--beam-size", str(BEAM)]
        command += ["--source", str(language.source), "--reference", str(language.reference)]
        command += ["--sentences", str(self._sentences(language)), "--device", self.device]
        command += ["--max-states", str(self.limits.max_states)]
        command += ["--max-memory", str(self.limits.max_memory)]
        command += ["--output", str(place / f"{system.name}.search")]
        return Job(
            f"γ = {temperature}, {system.name}: search",
            command,
            place / f"{system.name}.search.log",
            {
                "training": self._training(temperature, language, system).made_with,
                "beam": BEAM,
                **asdict(self.limits),
            },
        )

    def _sentences(self, language: Language) -> int:
        there: int = language.facts["test_sentences"]
        return min(there, self.limits.sentences or there)

    def _figures(self, languages: dict[float, Language]) -> dict[str, Any]:
        systems = {system.name: system.alpha for system in self.systems}
        rows = {
            str(temperature): self._row(temperature, language)
            for temperature, language in languages.items()
        }
        first = self._analysis(self.temperatures[0], self.systems[0])
        return {
            **Provenance.now(self.device, {"ibm3": self.language.model}).to_json(),
            "store": str(self.language.store),
            "recipe": str(self.recipe),
            "settings": self._sections,
            "max_steps": self.max_steps,
            "seed": self.language.seed,
            "beam": BEAM,
            "limits": first["limits"],
            "first_beam": first["first_beam"],
            "systems": systems,
            "temperatures": rows,
            "verdict": judge(rows, systems),
        }

    def _row(self, temperature: float, language: Language) -> dict[str, Any]:
        """Give the figures of all systems at a temperature."""
        analyses = {
            system.name: self._analysis(temperature, system)["systems"][system.name]
            for system in self.systems
        }
        modes = {system.name: self._modes(temperature, system) for system in self.systems}
        references = language.references(self._sentences(language))
        tested = paired_bootstrap("bleu", modes, [references])
        base = analyses["softmax"]["beams"][str(BEAM)]["outputs"]["bleu"]
        return {
            **language.facts,
            "sentences": len(references),
            "systems": {
                name: {
                    **analysis,
                    "training": read_facts(self._place(temperature) / name).to_json(),
                    "relative": analysis["exact"]["outputs"]["bleu"] / base if base else None,
                    "p": result.p,
                }
                for (name, analysis), result in zip(analyses.items(), tested, strict=True)
            },
        }

    def _analysis(self, temperature: float, system: System) -> dict[str, Any]:
        folder = self._place(temperature) / f"{system.name}.search"
        analysis: dict[str, Any] = read_json(folder / "analysis.json")
        return analysis

    def _modes(self, temperature: float, system: System) -> list[str]:
        """Give what exact search found."""
        folder = self._place(temperature) / f"{system.name}.search"
        return read_modes(folder / f"{system.name}.exact.jsonl")
