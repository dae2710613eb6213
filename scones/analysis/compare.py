"""The paper's first comparison, for any models: BLEU with significance, and speed.

Where the test set knows all valid translations of its sentences (the cream-tea corpus does), it
also counts what no real corpus can: how many outputs are valid, which share of the valid
translations a model accepts, and which share of near misses it believes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scones.errors import SconesError
from scones.evaluation.significance import (
    Acceptance,
    SystemResult,
    acceptance,
    choose_threshold,
    paired_bootstrap,
)
from scones.files import Provenance, read_json
from scones.translator import Translator, load

SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"search": "greedy", "scores": False, "end_circles": False},
    "beam 4": {"search": "beam", "beam_size": 4, "length_penalty": 0.0, "end_circles": False},
}


@dataclass(frozen=True)
class Judged:
    """A sentence with all its valid translations and some invalid ones."""

    source: str
    references: tuple[str, ...]
    near_misses: tuple[str, ...]


def read_judged(path: Path) -> list[Judged]:
    """Read a file such as the test.json of the cream-tea corpus."""
    try:
        return [
            Judged(entry["source"], tuple(entry["references"]), tuple(entry["near_misses"]))
            for entry in read_json(path)
        ]
    except (KeyError, TypeError):
        raise SconesError(
            f"{path} is not a judged set: a list of objects with source, references and "
            "near_misses is wanted."
        ) from None


@dataclass
class SystemReport:
    """What was measured of one model."""

    hypotheses: dict[str, list[str]] = field(default_factory=dict)
    """Translations by search."""
    sentences_per_second: dict[str, float] = field(default_factory=dict)
    valid: dict[str, float] = field(default_factory=dict)
    """Share of the translations that are valid, by search."""
    acceptance: Acceptance | None = None


@dataclass
class Comparison:
    """Everything that was measured, and how."""

    systems: dict[str, SystemReport]
    bleu: dict[str, list[SystemResult]]
    """By search, in the order of the systems."""
    provenance: Provenance

    def to_json(self) -> dict[str, Any]:
        """All figures with what is needed to get them again."""
        systems: dict[str, Any] = {}
        for index, (name, report) in enumerate(self.systems.items()):
            results = {search: scores[index] for search, scores in self.bleu.items()}
            systems[name] = {
                "bleu": {search: result.score for search, result in results.items()},
                "p": {search: result.p for search, result in results.items()},
                "signature": next(iter(results.values())).signature,
                "sentences_per_second": report.sentences_per_second,
                "valid": report.valid,
                "acceptance": vars(report.acceptance) if report.acceptance else None,
            }
        return {**self.provenance.to_json(), "systems": systems}


def compare(
    models: Mapping[str, Path],
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    judged: Sequence[Judged] = (),
    judged_dev: Sequence[Judged] = (),
    device: str = "auto",
    say: Callable[[str], None] = lambda text: None,
) -> Comparison:
    """Translate `sources` with every model, greedily and with a beam of 4, and compare.

    The first model is the baseline of the significance test. Thresholds of acceptance are chosen
    on `judged_dev` and applied to `judged`, whose sources must begin as `sources` does.
    """
    if [entry.source for entry in judged] != list(sources[: len(judged)]):
        raise SconesError("The judged set is not the test set: their sources differ.")
    systems = {}
    for name, folder in models.items():
        # One engine for both searches: "auto" may pick one per search, and speeds would then
        # compare engines.
        translator = load(folder, device, engine="torch")
        systems[name] = report = SystemReport()
        for search, options in SEARCHES.items():
            say(f"{name}: {search}")
            translator.translate(sources[:8], **options)  # warm-up, not counted
            begin = time.perf_counter()
            found = translator.translate(sources, **options)
            report.sentences_per_second[search] = len(sources) / (time.perf_counter() - begin)
            report.hypotheses[search] = [translations[0].text for translations in found]
            if judged:
                pairs = zip(report.hypotheses[search], judged, strict=False)
                right = sum(hypothesis in entry.references for hypothesis, entry in pairs)
                report.valid[search] = right / len(judged)
        if judged and judged_dev:
            say(f"{name}: scoring valid translations and near misses")
            threshold = choose_threshold(*_log_probs(translator, judged_dev))
            report.acceptance = acceptance(*_log_probs(translator, judged), threshold)
    bleu = {}
    for search in SEARCHES:
        outputs = {name: report.hypotheses[search] for name, report in systems.items()}
        bleu[search] = paired_bootstrap("bleu", outputs, references)
    return Comparison(systems, bleu, Provenance.now(device, models))


def _log_probs(
    translator: Translator, judged: Sequence[Judged], most_sentences: int = 200, most: int = 20
) -> tuple[list[float], list[float]]:
    """Score (some of) the valid and the invalid translations of (some of) the sentences."""
    valid: list[tuple[str, str]] = []
    invalid: list[tuple[str, str]] = []
    for entry in judged[:most_sentences]:
        # A stride instead of the first ones: neighbours are alike, and some of every kind count.
        stride = max(1, -(-len(entry.references) // most))
        valid += [(entry.source, text) for text in entry.references[::stride]]
        invalid += [(entry.source, text) for text in entry.near_misses[:most]]
    return translator.score(valid), translator.score(invalid)
