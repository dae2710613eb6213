"""Beams of many sizes and exact search, one process a system, put together in analysis.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scones.analysis.analyze import read_modes
from scones.analysis.tables import texts_digest
from scones.errors import SconesError
from scones.files import read_json, sole_use
from scones.paper.plan import Plan, Run, SearchSettings
from scones.paper.results import Direction, Json, hypothesis_file, one_line

_SHARED = ("source_digest", "reference_digests", "sentences", "precision", "first_beam", "limits")
"""What all systems of an analysis must have in common."""
_OWN = ("commit", "device", "scones", "torch", "python")
"""What each has for itself, since they need not be searched at one time."""


@dataclass(frozen=True)
class Searching:
    """The searches of a direction, and where their results go."""

    plan: Plan
    settings: SearchSettings
    direction: Direction

    def check(self) -> None:
        """Refuse to add to an analysis of other sentences or with other limits."""
        kept = self.direction.analysis
        if kept is None:
            return
        sources, references = self.plan.sets[self.settings.set].read(self.settings.sentences)
        memory = self.settings.max_memory
        ours = {
            "sentences": len(sources),
            "max_states": self.settings.max_states,
            "max_memory": None if memory is None else int(memory * 1e9),
            "source text": texts_digest(sources),
            "reference text": [texts_digest(references)],
        }
        theirs = {
            "sentences": kept["sentences"],
            "max_states": kept["limits"]["max_states"],
            "max_memory": kept["limits"]["max_memory"],
            "source text": kept["source_digest"],
            "reference text": kept["reference_digests"],
        }
        for name, value in ours.items():
            if theirs[name] != value:
                raise SconesError(
                    f"{self.direction.folder / 'analysis.json'} was made with {name} "
                    f"{theirs[name]}, not {value}; give the same again, or remove the file."
                )

    def is_done(self, run: Run, model: str | None) -> bool:
        """Say whether everything was searched, by the model of this digest where it is known."""
        kept = (self.direction.analysis or {"systems": {}})["systems"].get(run.name)
        if kept is None or (model is not None and kept["model_digest"] != model):
            return False
        beams = {str(size) for size in self.settings.beams}
        return beams <= kept["beams"].keys() and kept["exact"] is not None

    def command(self, run: Run, model: Path, folder: Path, device: str) -> list[str]:
        """Give the words of `scones analyze` for a system."""
        test = self.plan.sets[self.settings.set]
        words = ["analyze", f"{run.name}={model}", "--source", str(test.source)]
        words += ["--reference", str(test.reference), "--output", str(folder)]
        words += ["--sentences", str(self.settings.sentences), "--device", device]
        words += ["--max-states", str(self.settings.max_states)]
        if self.settings.max_memory is not None:
            words += ["--max-memory", str(self.settings.max_memory)]
        for size in self.settings.beams:
            words += ["--beam-size", str(size)]
        return words

    def collect(self, run: Run, folder: Path, command: Sequence[str]) -> None:
        """Take over what `scones analyze`, called with these words, left in a folder."""
        found: Json = read_json(folder / "analysis.json")
        system = found["systems"][run.name]
        translated = self.direction.run(run.name)
        if translated is None or translated.model_digest != system["model_digest"]:
            raise SconesError(
                f"{folder} was searched with another model than the one whose translations are in "
                f"{self.direction.folder}; remove {folder}, or give --again."
            )
        with sole_use(self.direction.folder, wait=True):  # others may add their systems
            self._collect(run, folder, found, command)

    def _collect(self, run: Run, folder: Path, found: Json, command: Sequence[str]) -> None:
        system = found["systems"][run.name]
        shared = {name: found[name] for name in _SHARED}
        kept = self.direction.analysis or {**shared, "systems": {}}
        for name in _SHARED:
            if kept[name] != shared[name]:
                raise SconesError(
                    f"{self.direction.folder / 'analysis.json'} has {name} {kept[name]}, and "
                    f"{folder} has {shared[name]}; remove one of them."
                )
        for size, row in system["beams"].items():
            outputs = read_json(folder / f"{run.name}.beam{size}.json")["outputs"]
            row["file"] = self._keep(run, f"beam{size}", [one["text"] for one in outputs])
        modes = read_modes(folder / f"{run.name}.exact.jsonl")
        system["exact"]["file"] = self._keep(run, "exact", modes)
        system["command"] = self.plan.without_place(" ".join(["scones", *command]))
        system |= {name: found[name] for name in _OWN}
        systems = {**kept["systems"], run.name: system}
        order = [name for name in self.plan.systems if name in systems]
        whole = {"direction": self.plan.direction, "test": self.settings.set, **shared}
        whole["systems"] = {name: systems[name] for name in dict.fromkeys([*order, *systems])}
        self.direction.write_json("analysis", whole)

    def _keep(self, run: Run, search: str, texts: Sequence[str]) -> str:
        file = hypothesis_file(run.name, self.settings.set, f"analysis.{search}")
        self.direction.write_hypotheses(file, [one_line(text) for text in texts])
        return file
