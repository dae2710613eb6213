"""From a model's own numbers to the probability that a translation is acceptable.

A logistic regression of a few numbers per translation, none of which may count against its
meaning, and monotone steps behind it, so that what is said holds on average (docs/confidence.md).
NumPy alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scones.errors import SconesError
from scones.options import from_section

Numbers = NDArray[np.float64]

SIGNS = {
    "sum": 1,
    "mean": 1,
    "least": 1,
    "length": 0,
    "source": 0,
    "letters": 1,
    "ambiguity": -1,
    "doubt": -1,
}
"""The features, and which way each may count: 0 is either."""
BINS = 15
_STEPS = 40
"""Bins of the steps behind the regression: a fit of few sentences has fewer."""
_LEAST = 200
"""Translations that a fit takes at least."""
_RIDGE = 1e-3


def features(
    text: str, source: int, terms: Sequence[float], ambiguity: float, doubt: float
) -> list[float]:
    """The features of a translation of a source of so many pieces, in the order of `SIGNS`."""
    count = len(terms)
    return [
        math.fsum(terms),
        math.fsum(terms) / count,
        min(terms),
        math.log(count),
        math.log(source + 1),  # beside the length: how much of it was said
        # Words that the vocabulary knows are few pieces.
        math.log(max(1, len(text.strip())) / count),
        math.log(ambiguity),
        doubt,
    ]


@dataclass(frozen=True)
class Calibration:
    """The map from features to confidence, as it stands in a model's config.json."""

    weights: list[float]
    """One a feature, and the constant last."""
    said: list[float]
    """What the regression says, ascending; between two of them confidence is interpolated."""
    true: list[float]
    """How many were acceptable there."""
    acceptable: str
    """What that means."""
    sentences: int
    base_rate: float
    """The share that was acceptable where it was fitted."""
    threshold: float | None = None
    """The least probability of what is listed where no other is asked for (`search="all"`)."""

    @classmethod
    def from_json(cls, section: Any, origin: str) -> Calibration:
        read = from_section(cls, section if isinstance(section, dict) else {}, origin)
        ascending = all(one <= other for one, other in zip(read.said, read.said[1:], strict=False))
        sizes = (len(read.weights), len(read.said))
        if sizes != (len(SIGNS) + 1, len(read.true)) or not read.said or not ascending:
            raise SconesError(f"{origin}: calibrate the model again.")
        return read

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def confidence(self, features_NF: Sequence[Sequence[float]]) -> list[float]:
        """How probable it is that each translation is acceptable."""
        if not len(features_NF):
            return []
        log_odds_N = _with_constant(np.asarray(features_NF)) @ np.array(self.weights)
        found: list[float] = np.interp(_sigmoid(log_odds_N), self.said, self.true).tolist()
        return found


def fit(
    features_NF: Sequence[Sequence[float]],
    acceptable_N: Sequence[bool],
    meaning: str,
    threshold: float | None = None,
) -> Calibration:
    """Fit the map."""
    known_NF, yes_N = np.asarray(features_NF, float), np.asarray(acceptable_N, float)
    if len(yes_N) < _LEAST or yes_N.min() == yes_N.max():
        raise SconesError(
            f"{len(yes_N):,} translations, of which {int(yes_N.sum()):,} are acceptable, are too "
            f"few to fit a confidence; give at least {_LEAST} of both kinds together."
        )
    weights_F = _regression(known_NF, yes_N)
    said_N = _sigmoid(_with_constant(known_NF) @ weights_F)
    said, true = _steps(said_N, yes_N)
    return Calibration(
        weights_F.tolist(), said, true, meaning, len(yes_N), float(yes_N.mean()), threshold
    )


def _regression(features_NF: Numbers, yes_N: Numbers) -> Numbers:
    """Logistic regression by Newton's method; features that count the wrong way are left out."""
    signs_F = np.array(list(SIGNS.values()))
    scale_F = np.maximum(features_NF.std(axis=0), 1e-9)
    inputs_NF = _with_constant(features_NF / scale_F)
    kept = np.ones(len(signs_F) + 1, bool)
    while True:
        weights = np.zeros(len(kept))
        weights[kept] = _newton(inputs_NF[:, kept], yes_N)
        wrong = kept[:-1] & (signs_F * weights[:-1] < 0)
        if not wrong.any():
            return np.append(weights[:-1] / scale_F, weights[-1])
        kept[:-1] &= ~wrong


def _newton(inputs_NF: Numbers, yes_N: Numbers) -> Numbers:
    weights_F = np.zeros(inputs_NF.shape[1])
    ridge_FF = _RIDGE * np.eye(len(weights_F))
    for _ in range(50):
        said_N = _sigmoid(inputs_NF @ weights_F)
        slope_F = inputs_NF.T @ (said_N - yes_N) / len(yes_N) + ridge_FF @ weights_F
        curve_NF = inputs_NF * (said_N * (1 - said_N))[:, None]
        step_F = np.linalg.solve(curve_NF.T @ inputs_NF / len(yes_N) + ridge_FF, slope_F)
        weights_F = weights_F - step_F
        if np.abs(step_F).max() < 1e-9:
            break
    return weights_F


def _steps(said_N: Numbers, yes_N: Numbers) -> tuple[list[float], list[float]]:
    """Means of bins of equal mass, neighbours joined until they ascend (isotonic regression)."""
    merged: list[list[float]] = []
    for part in _bins(said_N, min(_STEPS, len(said_N) // 50)):
        merged.append([float(len(part)), float(said_N[part].sum()), float(yes_N[part].sum())])
        while len(merged) > 1 and merged[-2][2] * merged[-1][0] >= merged[-1][2] * merged[-2][0]:
            last = merged.pop()
            merged[-1] = [one + other for one, other in zip(merged[-1], last, strict=True)]
    return [said / count for count, said, _ in merged], [yes / count for count, _, yes in merged]


def _bins(said_N: Numbers, count: int) -> list[NDArray[np.int64]]:
    return np.array_split(np.argsort(said_N, kind="stable"), max(1, count))


def _with_constant(features_NF: Numbers) -> Numbers:
    return np.column_stack([features_NF, np.ones(len(features_NF))])


def _sigmoid(log_odds_N: Numbers) -> Numbers:
    return np.asarray(1 / (1 + np.exp(-np.clip(log_odds_N, -500, 500))))


# Does a confidence hold?


@dataclass(frozen=True)
class Reliability:
    """How a confidence stands beside what was acceptable."""

    sentences: int
    base_rate: float
    """The share that is acceptable: all that a constant could say."""
    error: float
    """The expected calibration error, over bins of equal mass."""
    area: float
    """Chance that an acceptable one is held surer than one that is not; a tie counts half."""
    bins: list[tuple[float, float]]
    """Mean confidence and share acceptable of each bin, ascending."""
    risks: list[tuple[float, float]]
    """Who answers the surest share alone is wrong in so many."""


def reliability(confidences: Sequence[float], acceptable: Sequence[bool]) -> Reliability:
    """Compare what was said with what was true."""
    from scones.evaluation.significance import acceptance

    said_N, yes_N = np.asarray(confidences, float), np.asarray(acceptable, bool)
    if yes_N.all() or not yes_N.any():
        raise SconesError("All translations are acceptable, or none; there is nothing to compare.")
    parts = _bins(said_N, BINS)
    bins = [(float(said_N[part].mean()), float(yes_N[part].mean())) for part in parts if len(part)]
    shares = [len(part) / len(said_N) for part in parts if len(part)]
    error = sum(abs(said - true) * share for (said, true), share in zip(bins, shares, strict=True))
    surest = np.argsort(-said_N, kind="stable")
    covered = [round(tenth * len(surest) / 10) for tenth in range(1, 11)]
    risks = [
        (count / len(surest), float(1 - yes_N[surest[:count]].mean())) for count in covered if count
    ]
    area = acceptance(said_N[yes_N].tolist(), said_N[~yes_N].tolist(), 0.5).area
    return Reliability(len(said_N), float(yes_N.mean()), error, area, bins, risks)
