"""Does a model believe the right translations? Valid against invalid ones, by log-probability.

Where every valid translation of a sentence is known, a model that judges pairs one by one should
accept the valid ones and refuse the others. A threshold is chosen on the development set and
judged on the test set; the ROC area needs no threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scones.errors import SconesError


@dataclass(frozen=True)
class Acceptance:
    """How well log-probabilities tell valid translations from invalid ones."""

    threshold: float
    found: float
    """Share of the valid translations at or above the threshold."""
    believed: float
    """Share of the invalid translations at or above the threshold."""
    area: float
    """Chance that a random valid one scores above a random invalid one; a tie counts half."""


def choose_threshold(valid: Sequence[float], invalid: Sequence[float]) -> float:
    """Give the threshold with the largest `found` - `believed`; of equals, the highest one."""
    valids, invalids = _sorted(valid, "valid"), _sorted(invalid, "invalid")
    # Lifting a threshold to the next valid score loses nothing, so no other value is better.
    thresholds = valids[::-1]
    found = len(valids) - np.searchsorted(valids, thresholds)
    believed = len(invalids) - np.searchsorted(invalids, thresholds)
    # Whole numbers, because two equal shares may differ in their last bit.
    gain = found * len(invalids) - believed * len(valids)
    return float(thresholds[np.argmax(gain)])


def acceptance(valid: Sequence[float], invalid: Sequence[float], threshold: float) -> Acceptance:
    """Judge the scores of valid and invalid translations, pooled over all sentences."""
    valids, invalids = _sorted(valid, "valid"), _sorted(invalid, "invalid")
    lower = np.searchsorted(invalids, valids, side="left").sum()
    lower_or_equal = np.searchsorted(invalids, valids, side="right").sum()
    return Acceptance(
        threshold=threshold,
        found=_share_from(valids, threshold),
        believed=_share_from(invalids, threshold),
        area=float((lower + lower_or_equal) / (2 * len(valids) * len(invalids))),
    )


def _share_from(ordered: np.ndarray, threshold: float) -> float:
    return float((len(ordered) - np.searchsorted(ordered, threshold)) / len(ordered))


def _sorted(scores: Sequence[float], kind: str) -> np.ndarray:
    ordered = np.sort(np.asarray(scores, dtype=np.float64))
    if not len(ordered):
        raise SconesError(f"There are no scores of {kind} translations; give at least one.")
    if np.isnan(ordered[-1]):  # sorting puts NaN last
        raise SconesError(f"A score of the {kind} translations is NaN; give log-probabilities.")
    return ordered
