"""Systems are compared fairly if they differ in the output layer alone; this compares the rest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from scones.paper.results import RunResult

_WITHOUT_EFFECT = ("seed", "log_every", "tensorboard", "device", "threads", "graphs")
"""Keys of [train] that may differ."""


def made_from(
    data_digest: str, sections: Mapping[str, Mapping[str, Any]], budget: Mapping[str, float]
) -> dict[str, Any]:
    """Give what all runs of a direction must have in common; `budget` overrules the recipe."""
    train = {**sections.get("train", {}), **budget}
    return {
        "training data": data_digest,
        "[model]": dict(sections.get("model", {})),
        "[train]": {name: value for name, value in train.items() if name not in _WITHOUT_EFFECT},
    }


def origin_of(run: RunResult) -> dict[str, Any]:
    """Give the same of a run that is stored."""
    flags = re.findall(r"--(max-steps|max-minutes) (\S+)", run.command)
    budget = {name.replace("-", "_"): float(value) for name, value in flags}
    return made_from(run.data_digest, run.training.get("recipe") or {}, budget)


def disagreements(runs: Iterable[RunResult]) -> list[str]:
    """Say what runs do not have in common with the first of them."""
    known = list(runs)
    said = []
    for run in known[1:]:
        first, other = origin_of(known[0]), origin_of(run)
        named = ", ".join(name for name in first if first[name] != other[name])
        if named:
            said.append(f"{run.name} differs from {known[0].name} in {named}")
    return said
