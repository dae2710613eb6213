"""The paper's figure 2: how fast small beams are, and how good.

Sentences are handed over a few at a time, those of like length together. All models and beams take
turns, round after round, so that whatever else happens to the machine happens to all of them.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path

from replication.plan import Plan, SpeedSettings
from replication.results import Direction, Json
from replication.runner import Say, differences
from scones.analysis.tables import model_digest
from scones.evaluation.metrics import bleu
from scones.files import Provenance
from scones.model.folder import read_facts
from scones.translator import Translator, load

WITH_SCORES = "greedy_with_scores"
"""Greedy search that also gives probabilities: there softmax needs its normaliser."""


def is_timed(kept: Json | None, models: Json, settings: SpeedSettings) -> bool:
    """Whether speed.json is about these models, given by digest, and these settings."""
    if kept is None:
        return False
    found = {name: system["model_digest"] for name, system in kept["systems"].items()}
    asked = {"models": models, "settings": asdict(settings)}
    return not differences(asked, {**kept, "models": found})


def measure_speed(
    models: Mapping[str, Path], plan: Plan, direction: Direction, device: str, say: Say
) -> Json:
    """Measure the models and keep their translations; gives what stands in speed.json."""
    settings = plan.speed
    assert settings is not None
    sources, references = plan.sets[settings.set].read(settings.sentences)
    translators = {name: load(folder, device, engine="torch") for name, folder in models.items()}
    beam = {"search": "beam", "length_penalty": 0.0}
    searches: dict[str, Json] = {str(size): beam | {"beam_size": size} for size in settings.beams}
    searches["1"] = {"search": "greedy", "scores": False}
    searches[WITH_SCORES] = {"search": "greedy", "scores": True}
    texts: dict[tuple[str, str], list[str]] = {}
    times: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    others = [size for size in settings.more_batches if size != settings.batch]
    for batch in (*others, settings.batch):  # that whose translations are kept comes last
        for number in range(settings.repeats + 1):
            say(f"speed, batches of {batch}: round {number} of {settings.repeats}")
            for system, search in product(models, searches):
                found, seconds = _timed(translators[system], sources, batch, searches[search])
                texts[system, search] = found
                if number:  # the round before the first warms up every shape that will come
                    times[system, search][str(batch)].append(seconds)
    rows: dict[str, Json] = defaultdict(dict)
    for system, search in product(models, searches):
        file = direction.keep_texts(system, settings.set, f"speed.{search}", texts[system, search])
        score = bleu(direction.texts(file), [references])
        speeds = {
            size: {"sentences_per_second": len(sources) / statistics.median(spent), "times": spent}
            for size, spent in times[system, search].items()
        }
        rows[system][search] = {
            **speeds.pop(str(settings.batch)),
            "more_batches": speeds,
            "bleu": score.value,
            "signature": score.signature,
            "length_ratio": score.length_ratio,
            "file": file,
        }
    return {
        **Provenance.now(device).to_json(),
        "direction": plan.direction,
        "test": settings.set,
        "sentences": len(sources),
        "batch": settings.batch,
        "repeats": settings.repeats,
        "precision": "float32",
        "settings": asdict(settings),
        "systems": {
            system: {
                "output": read_facts(folder).output,
                "model_digest": model_digest(folder),
                WITH_SCORES: rows[system].pop(WITH_SCORES),
                "beams": rows[system],
            }
            for system, folder in models.items()
        },
    }


def _timed(
    translator: Translator, sources: Sequence[str], batch: int, options: Json
) -> tuple[list[str], float]:
    """Translate everything; gives the translations, and the seconds that it took."""
    order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
    texts, begin = [""] * len(sources), time.perf_counter()
    for first in range(0, len(order), batch):
        part = order[first : first + batch]
        some = [sources[index] for index in part]
        found = translator.translate(some, **options, end_circles=False)
        for index, (best, *_) in zip(part, found, strict=True):
            texts[index] = best.text
    return texts, time.perf_counter() - begin
