"""The results folder, with what the report asks of it: who was compared, and where numbers stand.

Directions that are not run yet are there too; whatever they are asked for is None.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from scones.errors import SconesError
from scones.paper.report.document import Cell, Origin, missing, ours
from scones.paper.report.published import DIRECTIONS
from scones.paper.results import (
    LONGER,
    RETRAINED,
    Choice,
    Direction,
    Results,
    RunResult,
    SearchResult,
    choose,
)

Json = dict[str, Any]

NEWS = "newstest2019"
TESTS: Mapping[str, str] = {
    NEWS: "news, the paper's test set",
    "europarl": "parliament speeches, held-out sittings",
    "msdocs": "product documentation",
    "tatoeba": "everyday sentences",
}
_LANGUAGES = {"europarl": ("de",), "tatoeba": ("fi", "lt")}
"""Test sets that the recipes of some languages alone have."""
SEARCHES: Mapping[str, str] = {"greedy": "Greedy search", "beam4": "Beam search (4)"}
SOFTMAX = "softmax"
SMALL_ALPHA = "scones-0.2"
"""Whose exact search the paper shows."""


@dataclass(frozen=True)
class DirectionStudy:
    """One direction: its runs, its choice of α, its searches and its speed."""

    direction: Direction
    apart: str = ""
    """The folder of results that are not of the recipe itself, such as "longer"."""

    @property
    def name(self) -> str:
        """Such as "de-en"."""
        return self.direction.name

    @property
    def place(self) -> str:
        """Where it lies in the results folder, which no other has."""
        return f"{self.apart}/{self.name}" if self.apart else self.name

    @cached_property
    def runs(self) -> dict[str, RunResult]:
        """By name, softmax first."""
        return {run.name: run for run in self.direction.runs()}

    @cached_property
    def choice(self) -> Choice | None:
        """The best α; None where nothing was tested on the development set."""
        return choose(self.runs.values())

    @cached_property
    def tuned(self) -> RunResult | None:
        """SCONES with the best α, the recipe's first seed."""
        return None if self.choice is None else self.runs[self.choice.system]

    @cached_property
    def analysis(self) -> Json | None:
        """Beams of many sizes and exact search."""
        return self.direction.analysis

    @property
    def searched_systems(self) -> dict[str, Json]:
        """The systems of the analysis; none where there is no analysis yet."""
        systems: dict[str, Json] = (self.analysis or {"systems": {}})["systems"]
        return systems

    @cached_property
    def speed(self) -> Json | None:
        """Speed and BLEU of small beams."""
        return self.direction.speed

    @cached_property
    def corpora(self) -> Json | None:
        """What was trained on."""
        return self.direction.corpora

    @cached_property
    def left_out(self) -> Mapping[str, str]:
        """Why something will not be run, by its name."""
        return self.direction.left_out

    @property
    def systems(self) -> dict[str, RunResult]:
        """The runs with the recipe's first seed, by system."""
        return {name: run for name, run in self.runs.items() if name == run.system}

    def seeds(self, system: str) -> list[RunResult]:
        """Give all runs of a system."""
        return [run for run in self.runs.values() if run.system == system]

    def is_tested_on(self, test: str) -> bool:
        """Say whether there are, or will be, results on a test set."""
        spoken = self.name.split("-")
        planned = any(one in spoken for one in _LANGUAGES.get(test, spoken))
        return planned or any(test in run.tests for run in self.runs.values())

    def missing(self, reason: str) -> Cell:
        """Show that there is no number yet, and why."""
        return missing(self.name, reason if self.runs else "no results yet")

    def not_trained(self, system: str) -> Cell:
        """Show that there is no such run, and why where the recipe says so."""
        return self.missing(f"{system}: {self.left_out.get(system, 'not trained yet')}")

    def not_translated(self, run: RunResult | None) -> Cell:
        """Show that there is nothing to show of a run."""
        return self.missing("not trained yet" if run is None else f"{run.name}: not translated yet")

    def not_searched(self, system: str) -> Cell:
        """Show that there is no search of a system, or not the one that is asked for, and why."""
        if not self.searched_systems:
            return self.missing("not searched yet")
        row = self.searched_systems.get(system)
        if row is None:
            return self.missing(f"{system}: {self.left_out.get(system, 'not searched')}")
        if row["exact"] is None:
            return self.missing(f"{system}: exact search is not finished")
        return self.missing(f"{system}: not searched with this beam")

    def not_timed(self) -> Cell:
        """Show that there is no speed."""
        return self.missing(f"speed: {self.left_out.get('speed', 'not measured yet')}")

    def score(self, run: RunResult | None, test: str, search: str, metric: str = "bleu") -> Cell:
        """Show a score of a run; its origin is the translation."""
        found = None if run is None else run.score(test, search, metric)
        if run is None or found is None:
            if run is not None and run.search(test, search) is not None:
                return self.missing(f"{metric} is not computed yet (scones paper score)")
            return self.not_translated(run)
        return ours(f"{found:.1f}", self.origin(run, test, search))

    def origin(self, run: RunResult, test: str, search: str) -> Origin:
        """Say where the scores of a translation come from."""
        result = run.tests[test]
        found = run.search(test, search)
        assert found is not None
        return Origin(
            _key(self.place, run.name, test, search),
            f"{self.place}, {run.name}: {test}, {search}",
            _search_facts(found)
            | {
                "sentences": f"{result.sentences:,}",
                "source digest": result.source_digest,
                "reference digest": result.reference_digest,
            },
            f"{self.place}/{found.file}",
            self.run_origin(run),
        )

    def run_origin(self, run: RunResult) -> Origin:
        """Say how a model was trained."""
        facts = {
            "trained by": run.command,
            "commit": run.commit or "unknown",
            "seed": str(run.seed),
            "data digest": run.data_digest,
            "model digest": run.model_digest,
            "device": run.device,
            "versions": ", ".join(f"{name} {version}" for name, version in run.versions.items()),
        }
        title = f"{self.place}, {run.name}: the model"
        return Origin(_key(self.place, run.name), title, facts, f"{self.place}/{run.name}.json")

    def file_origin(self, kind: str, value: Json, facts: Mapping[str, Any] | None = None) -> Origin:
        """Say where the figures of a file such as corpora.json come from."""
        return _file_origin(
            _key(self.place, kind),
            f"{self.place}: {kind}",
            value,
            facts or {},
            f"{self.place}/{kind}.json",
        )

    def searched_origin(self, system: str, found: Mapping[str, Any]) -> Origin:
        """Say where a figure of analysis.json comes from; `found` is what a beam gave, or exact."""
        analysis = self.analysis or {}
        row = analysis["systems"][system]
        facts = {
            "command": row.get("command") or analysis.get("command"),
            "commit": ", ".join(row["commits"]),
            "device": ", ".join(row["devices"]),
            "model digest": row["model_digest"],
            "source digest": analysis["source_digest"],
            "reference digest": ", ".join(analysis["reference_digests"]),
            "number format": analysis["precision"],
            "BLEU": found["outputs"]["signature"],
        }
        file = str(found.get("file") or "analysis.json")
        run = self.runs.get(system)
        return Origin(
            _key(self.place, "analysis", system, file.removesuffix(".txt.xz")),
            f"{self.place}, {system}: analysis of search",
            _known(facts),
            f"{self.place}/{file}",
            None if run is None else self.run_origin(run),
        )


@dataclass(frozen=True)
class Study:
    """All six directions of the paper, and whatever other direction there are results of."""

    results: Results

    @cached_property
    def directions(self) -> dict[str, DirectionStudy]:
        """By name: the paper's order, others behind."""
        found = [direction.name for direction in self.results.directions()]
        found += [direction.name for direction in (*self.retrained, *self.longer)]
        names = dict.fromkeys([*DIRECTIONS, *found])
        return {name: DirectionStudy(self.results.direction(name)) for name in names}

    @property
    def done(self) -> list[DirectionStudy]:
        """The directions that have runs."""
        return [direction for direction in self.directions.values() if direction.runs]

    @cached_property
    def retrained(self) -> list[DirectionStudy]:
        """Systems that were trained a second time, by direction."""
        return self._apart(RETRAINED)

    @cached_property
    def longer(self) -> list[DirectionStudy]:
        """Systems that were trained with more steps than their recipe has, by direction."""
        return self._apart(LONGER)

    @property
    def stored(self) -> list[DirectionStudy]:
        """All that there are runs of."""
        return [*self.done, *self.retrained, *self.longer]

    def _apart(self, name: str) -> list[DirectionStudy]:
        found = self.results.apart(name).directions()
        return [DirectionStudy(direction, name) for direction in found]

    @cached_property
    def synthetic(self) -> Json | None:
        """What `scones synthetic` found."""
        return self.results.synthetic

    def check(self) -> None:
        """Refuse a folder that has no results at all."""
        if not self.results.folder.is_dir():
            raise SconesError(
                f"{self.results.folder} is no folder; give the results folder of scones paper run."
            )
        if not self.results.directions() and self.synthetic is None:
            raise SconesError(
                f"{self.results.folder} holds no results; run `scones paper run` first."
            )

    def systems(self) -> dict[str, str]:
        """Name all systems that were run, softmax first, for readers."""
        runs = [run for direction in self.done for run in direction.systems.values()]
        order = sorted(
            {run.system: run for run in runs}.values(),
            key=lambda run: (
                run.alpha is not None,
                run.label_smoothing > 0,
                run.alpha or 0.0,
            ),
        )
        return {run.system: label(run.output) for run in order}

    def synthetic_origin(self, temperature: str, system: str) -> Origin:
        """Say where a figure of synthetic.json comes from."""
        value = self.synthetic or {}
        row = value["temperatures"][temperature]
        figures = row["systems"][system]
        facts = {
            "commit": ", ".join(figures["commits"]),
            "device": ", ".join(figures["devices"]),
            "data digest": row["data_digest"],
            "model digest": figures["model_digest"],
            "BLEU": figures["exact"]["outputs"]["signature"],
        }
        title, key = f"synthetic language, γ = {temperature}, {system}", (temperature, system)
        return _file_origin(_key("synthetic", *key), title, value, facts, "synthetic.json")


def absent(there: Collection[str]) -> str:
    """Name the directions of the paper that a figure lacks, where it has some."""
    missing_ones = [name for name in DIRECTIONS if name not in there]
    return f" Not run yet: {', '.join(missing_ones)}." if there and missing_ones else ""


def label(output: Mapping[str, Any]) -> str:
    """Name an output layer for readers."""
    smoothing = float(output.get("label_smoothing") or 0.0)
    settings = []
    if output.get("alpha") is not None:
        settings.append(f"α = {output['alpha']:g}")
    if smoothing:
        settings.append(f"λ = {smoothing:g}")
    name = "SCONES" if output.get("layer") == "scones" else "Softmax"
    return f"{name} ({', '.join(settings)})" if settings else name


def label_by_name(system: str) -> str:
    """Name a system for readers where only its name is known."""
    layer, _, alpha = system.partition("-")
    if layer == "scones" and re.fullmatch(r"[0-9.]+", alpha):
        return label({"layer": layer, "alpha": float(alpha)})
    return "Softmax" if system == SOFTMAX else system


def _search_facts(found: SearchResult) -> dict[str, str]:
    return {
        "translated by": found.command,
        **{name.upper() if name != "chrf" else "chrF": s for name, s in found.signatures.items()},
    }


def _file_origin(key: str, title: str, value: Json, facts: Mapping[str, Any], file: str) -> Origin:
    known = {
        "command": value.get("command"),
        "commit": value.get("commit"),
        "seed": value.get("seed"),
        "device": value.get("device"),
        "data digest": value.get("data_digest") or value.get("digest"),
        "scones": value.get("scones") or value.get("scones_version"),
        "torch": value.get("torch"),
    }
    return Origin(key, title, _known({**known, **facts}), file)


def _known(facts: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(fact) for name, fact in facts.items() if fact not in (None, "")}


def _key(*parts: str) -> str:
    return ".".join(re.sub(r"[^A-Za-z0-9.-]", "-", part) for part in parts)
