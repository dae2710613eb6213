"""Is a difference between systems more than luck? Paired bootstrap resampling (Koehn, 2004).

The test sentences are drawn anew, with replacement, many times; all systems are scored on the
same draws. The draws, the intervals and the p-values are those of `sacrebleu --paired-bs` for the
same seed. sacreBLEU's own class is not used because it takes its seed from the environment,
ignores a seed of 0, gives only half the width of the interval, and finds that a system differs
significantly from itself.

`acceptance`, at the end, asks another question: does a model believe the right translations?
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scones.errors import SconesError
from scones.evaluation.metrics import (
    SACREBLEU_METRICS,
    LearnedMetric,
    ReferenceSets,
    Texts,
    check_metric,
    check_references,
    load_learned,
    sacrebleu_metric,
)


@dataclass(frozen=True)
class SystemResult:
    """One system's score, how far chance could move it, and how it compares with the baseline."""

    system: str
    metric: str
    score: float
    mean: float
    """Over the resamples."""
    low: float
    high: float
    """`low` to `high` holds 95 % of the resampled scores."""
    p: float | None
    """How often chance alone would give such a difference; None for the baseline itself."""
    signature: str

    @property
    def mark(self) -> str:
        """`mark(p)`, and nothing for the baseline."""
        return "" if self.p is None else mark(self.p)


@dataclass(frozen=True)
class _Measure:
    """What resampling asks of a metric: numbers per sentence that add up, and a score of sums."""

    name: str
    signature: str
    statistics: Callable[[Sequence[str]], Sequence[Sequence[float]]]
    value: Callable[[Sequence[float]], float]


def mark(p: float) -> str:
    """ "‡" for p < 0.01, "†" for p < 0.05, and nothing for more."""
    return "‡" if p < 0.01 else "†" if p < 0.05 else ""


def paired_bootstrap(
    metric: str,
    systems: Mapping[str, Sequence[str]],
    references: ReferenceSets,
    *,
    resamples: int = 1000,
    seed: int = 12345,
    tokenize: str = "13a",
    sources: Sequence[str] | None = None,
    checkpoint: Path | None = None,
) -> list[SystemResult]:
    """Score all systems and test each against the first; results come in the systems' order.

    `metric` and the last three arguments are those of `scones.evaluation.metrics.score`.
    """
    check_metric(metric)
    if not systems:
        raise SconesError("There is nothing to evaluate: no systems were given.")
    for hypotheses in systems.values():
        check_references(hypotheses, references)
    if metric in SACREBLEU_METRICS:
        measure = _sacrebleu_measure(metric, references, tokenize)
    else:
        measure = _learned_measure(load_learned(metric, checkpoint), references, sources)
    return _compare(measure, systems, resamples, seed)


def _sacrebleu_measure(metric: str, references: ReferenceSets, tokenize: str) -> _Measure:
    scorer = sacrebleu_metric(metric, references, tokenize=tokenize)
    return _Measure(
        name=SACREBLEU_METRICS[metric],
        signature=str(scorer.get_signature()),
        # Private to sacreBLEU, but the only door to chrF's counts; the tests keep watch over it.
        statistics=lambda hypotheses: scorer._extract_corpus_statistics(hypotheses, None),
        value=lambda sums: float(scorer._compute_score_from_stats(list(sums)).score),
    )


def _learned_measure(
    scorer: LearnedMetric, references: ReferenceSets, sources: Texts | None
) -> _Measure:
    return _Measure(
        name=scorer.name,
        signature=scorer.signature,
        # A mean as a score of sums: the scores' sum over the number of sentences.
        statistics=lambda hypotheses: [
            (score, 1.0) for score in scorer.sentence_scores(hypotheses, references, sources)
        ],
        value=lambda sums: sums[0] / sums[1],
    )


def _compare(
    measure: _Measure, systems: Mapping[str, Sequence[str]], resamples: int, seed: int
) -> list[SystemResult]:
    # N sentences, S systems, K statistics, R resamples.
    statistics = [np.asarray(measure.statistics(texts), np.float64) for texts in systems.values()]
    statistics_NSK = np.stack(statistics, axis=1)
    # Statistics add up over sentences, so a draw is scored from sums, never from texts again.
    scores_S = _scores(measure, statistics_NSK.sum(axis=0))
    random, sentences = np.random.default_rng(seed), len(statistics_NSK)
    # One draw at a time, so that memory stays small.
    draws = (random.choice(sentences, sentences) for _ in range(resamples))
    resampled_RS = [_scores(measure, statistics_NSK[draw].sum(axis=0)) for draw in draws]
    resampled_SR = np.array(resampled_RS).T
    number_of_references, settings = measure.signature.split("|", 1)
    signature = f"{number_of_references}|bs:{resamples}|seed:{seed}|{settings}"
    results: list[SystemResult] = []
    for name, score, resampled_R in zip(systems, scores_S, resampled_SR, strict=True):
        low, high = _interval(resampled_R)
        results.append(
            SystemResult(
                system=name,
                metric=measure.name,
                score=score,
                mean=float(resampled_R.mean()),
                low=low,
                high=high,
                p=p_value(resampled_R - resampled_SR[0], score - scores_S[0]) if results else None,
                signature=signature,
            )
        )
    return results


def _scores(measure: _Measure, sums_SK: np.ndarray) -> list[float]:
    return [measure.value(sums) for sums in sums_SK.tolist()]


def _interval(scores_R: np.ndarray) -> tuple[float, float]:
    """Cut one in forty resamples off at either end."""
    ordered = np.sort(scores_R)
    cut = len(ordered) // 40
    return float(ordered[cut]), float(ordered[-1 - cut])


def p_value(differences_R: np.ndarray, difference: float) -> float:
    """How often the resampled difference strays from its mean by the real difference or more.

    Counting "or more" gives a system that equals the baseline p = 1.
    """
    sizes_R = np.abs(differences_R)
    as_large = int(np.sum(sizes_R - sizes_R.mean() >= abs(difference)))
    return (as_large + 1) / (len(sizes_R) + 1)


# Does a model believe the right translations? Where every valid translation of a sentence is known,
# a model that judges pairs one by one should accept the valid ones and refuse the others. The
# threshold is chosen on the development set, because on the test set it would flatter the model;
# the ROC area needs none.


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
    """The threshold with the largest `found` - `believed`; of equals, the highest one."""
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
