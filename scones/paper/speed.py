"""The paper's figure 2: how fast small beams are, and how good.

Sentences are handed over a few at a time, those of like length together. All models and beams take
turns, round after round, so that whatever else happens to the machine happens to all of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scones.analysis.tables import model_digest
from scones.evaluation.metrics import bleu
from scones.files import Provenance
from scones.model.folder import read_facts
from scones.paper.plan import SpeedSettings
from scones.paper.results import Direction, hypothesis_file, one_line
from scones.translator import Translator, load

WITH_SCORES = "greedy_with_scores"
"""Greedy search that also gives probabilities: there softmax needs its normaliser."""


@dataclass
class _Contender:
    """A model and a way to search."""

    system: str
    translator: Translator
    name: str
    options: Mapping[str, Any]
    times: dict[int, list[float]] = field(default_factory=dict)
    """By the size of the batch."""
    texts: dict[int, list[str]] = field(default_factory=dict)

    def time(self, sources: Sequence[str], batch: int) -> None:
        """Translate everything once more, and keep the seconds that it took."""
        seconds = self.translate(sources, batch)
        self.times.setdefault(batch, []).append(seconds)

    def translate(self, sources: Sequence[str], batch: int) -> float:
        """Translate everything, keep the output, and give the seconds that it took."""
        order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
        texts = [""] * len(sources)
        begin = time.perf_counter()
        for first in range(0, len(order), batch):
            part = order[first : first + batch]
            found = self.translator.translate([sources[index] for index in part], **self.options)
            for index, (best, *_) in zip(part, found, strict=True):
                texts[index] = best.text
        seconds = time.perf_counter() - begin
        self.texts[batch] = [one_line(text) for text in texts]
        return seconds


def measure_speed(
    models: Mapping[str, Path],
    sources: Sequence[str],
    references: Sequence[str],
    settings: SpeedSettings,
    direction: Direction,
    device: str,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Measure the models and keep their translations; gives what stands in speed.json."""
    contenders = [
        _Contender(system, translator, name, options)
        for system, translator in (
            (system, load(folder, device, engine="torch")) for system, folder in models.items()
        )
        for name, options in _searches(settings.beams).items()
    ]
    for batch in dict.fromkeys((settings.batch, *settings.more_batches)):
        for one in contenders:
            one.translate(sources, batch)  # warms up every shape that will come
        for round_number in range(settings.repeats):
            say(f"speed, batches of {batch}: round {round_number + 1} of {settings.repeats}")
            for one in contenders:
                one.time(sources, batch)
    systems: dict[str, dict[str, Any]] = {}
    for system, folder in models.items():
        rows = {
            one.name: _figures(one, references, settings, direction)
            for one in contenders
            if one.system == system
        }
        with_scores = rows.pop(WITH_SCORES)
        systems[system] = {
            "output": read_facts(folder).output,
            "model_digest": model_digest(folder),
            "beams": rows,
            WITH_SCORES: with_scores,
        }
    return {
        **Provenance.now(device).to_json(),
        "direction": direction.name,
        "test": settings.set,
        "sentences": len(sources),
        "batch": settings.batch,
        "repeats": settings.repeats,
        "precision": "float32",
        "systems": systems,
    }


def is_timed(
    kept: Mapping[str, Any] | None,
    models: Mapping[str, str],
    settings: SpeedSettings,
    sentences: int,
) -> bool:
    """Say whether speed.json is about these models, given by digest, and these settings."""
    asked_for = {"sentences": sentences, "batch": settings.batch, "repeats": settings.repeats}
    if kept is None or any(kept[name] != value for name, value in asked_for.items()):
        return False
    batches = {str(batch) for batch in settings.more_batches} - {str(settings.batch)}
    rows = [row for system in kept["systems"].values() for row in system["beams"].values()]
    asked = {name for name in _searches(settings.beams) if name != WITH_SCORES}
    return (
        {name: row["model_digest"] for name, row in kept["systems"].items()} == dict(models)
        and all(asked <= row["beams"].keys() for row in kept["systems"].values())
        and all(batches <= row.get("more_batches", {}).keys() for row in rows)
    )


def _searches(beams: Sequence[int]) -> dict[str, dict[str, Any]]:
    searches: dict[str, dict[str, Any]] = {
        str(size): {"search": "beam", "beam_size": size} for size in sorted({1, *beams})
    }
    searches["1"] = {"search": "greedy", "scores": False}
    return {**searches, WITH_SCORES: {"search": "greedy", "scores": True}}


def _figures(
    one: _Contender, references: Sequence[str], settings: SpeedSettings, direction: Direction
) -> dict[str, Any]:
    file = hypothesis_file(one.system, settings.set, f"speed.{one.name}")
    texts = one.texts[settings.batch]
    direction.write_hypotheses(file, texts)
    score = bleu(texts, [references])
    found = {
        batch: {"sentences_per_second": len(texts) / statistics.median(times), "times": times}
        for batch, times in one.times.items()
    }
    return {
        **found.pop(settings.batch),
        "more_batches": {str(batch): figures for batch, figures in found.items()},
        "bleu": score.value,
        "signature": score.signature,
        "length_ratio": score.length_ratio,
        "file": file,
    }
