"""How good translations are: BLEU, chrF and TER as sacreBLEU defines them, BLEURT and COMET.

References come as one list per reference *set*, each as long as the hypotheses, as sacreBLEU
wants them. `None` in a set means that this sentence has no reference there; an empty string is a
real reference that happens to be empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scones.errors import SconesError

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

SACREBLEU_METRICS = {"bleu": "BLEU", "chrf": "chrF2", "ter": "TER"}
LEARNED_METRICS = {"bleurt": "BLEURT", "comet": "COMET"}
METRIC_NAMES = SACREBLEU_METRICS | LEARNED_METRICS
"""What a user types, and the name that is printed."""

TOKENIZERS = ("13a", "intl", "zh", "char", "none")
"""Those of sacreBLEU that need neither a download nor another package."""

ReferenceSets = Sequence[Sequence[str | None]]


@dataclass(frozen=True)
class Score:
    """A number with all that is needed to get the same number again."""

    name: str
    value: float
    signature: str
    length_ratio: float | None = None
    """Hypothesis tokens over reference tokens; only BLEU counts tokens, others leave it out."""


def bleu(hypotheses: Sequence[str], references: ReferenceSets, *, tokenize: str = "13a") -> Score:
    """Corpus BLEU from 0 to 100, higher is better."""
    return _sacrebleu_score("bleu", hypotheses, references, tokenize)


def chrf(hypotheses: Sequence[str], references: ReferenceSets) -> Score:
    """Character n-gram F2-score from 0 to 100, higher is better."""
    return _sacrebleu_score("chrf", hypotheses, references)


def ter(hypotheses: Sequence[str], references: ReferenceSets) -> Score:
    """Translation edit rate: edits per hundred reference words, lower is better."""
    return _sacrebleu_score("ter", hypotheses, references)


def score(
    metric: str,
    hypotheses: Sequence[str],
    references: ReferenceSets,
    *,
    tokenize: str = "13a",
    sources: Sequence[str] | None = None,
    checkpoint: Path | None = None,
) -> Score:
    """Score by the name of a metric: bleu, chrf, ter, bleurt or comet.

    `tokenize` matters to BLEU only, `checkpoint` to BLEURT and COMET, `sources` to COMET.
    """
    check_metric(metric)
    if metric in SACREBLEU_METRICS:
        return _sacrebleu_score(metric, hypotheses, references, tokenize)
    from scones.evaluation.learned import load_learned

    check_references(hypotheses, references)
    return load_learned(metric, checkpoint).score(hypotheses, references, sources)


def length_ratio(
    hypotheses: Sequence[str], references: ReferenceSets, *, tokenize: str = "13a"
) -> float:
    """Hypothesis length over reference length in BLEU's tokens, as BLEU's brevity penalty sees it.

    With several references the one closest in length counts.
    """
    ratio = bleu(hypotheses, references, tokenize=tokenize).length_ratio
    return 0.0 if ratio is None else ratio


def sacrebleu_metric(metric: str, references: ReferenceSets, *, tokenize: str = "13a") -> Metric:
    """Give sacreBLEU's own object for `metric`, with the references already counted in it."""
    # Late, so that a command line that only mentions metrics starts at once.
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    if tokenize not in TOKENIZERS:
        raise SconesError(f"The tokenizer {tokenize!r} is unknown; use {_listed(TOKENIZERS)}.")
    if metric == "bleu":
        return BLEU(tokenize=tokenize, references=references)  # type: ignore[arg-type]
    # sacreBLEU documents None as a missing reference, but its types do not say so.
    return (CHRF if metric == "chrf" else TER)(references=references)  # type: ignore[arg-type]


def check_metric(metric: str) -> None:
    """Refuse a metric that does not exist."""
    if metric not in METRIC_NAMES:
        raise SconesError(f"The metric {metric!r} is unknown; use {_listed(METRIC_NAMES)}.")


def check_references(hypotheses: Sequence[str], references: ReferenceSets) -> None:
    """Refuse hypotheses and references that do not belong together."""
    if not hypotheses:
        raise SconesError("There is nothing to evaluate: no hypotheses were given.")
    if not references:
        raise SconesError("There is nothing to evaluate against: give at least one reference set.")
    for number, reference_set in enumerate(references, start=1):
        if isinstance(reference_set, str):
            raise SconesError(
                "The references are a list of texts; give a list of reference sets, "
                "each with one text per hypothesis."
            )
        if len(reference_set) != len(hypotheses):
            raise SconesError(
                f"Reference set {number} has {len(reference_set)} texts for {len(hypotheses)} "
                "hypotheses; the numbers must be equal."
            )
    for number, texts in enumerate(zip(*references, strict=True), start=1):
        if all(text is None for text in texts):
            raise SconesError(f"Sentence {number} has no reference in any set; give it one.")


def _sacrebleu_score(
    metric: str, hypotheses: Sequence[str], references: ReferenceSets, tokenize: str = "13a"
) -> Score:
    check_references(hypotheses, references)
    scorer = sacrebleu_metric(metric, references, tokenize=tokenize)
    result = scorer.corpus_score(hypotheses, None)
    return Score(
        name=result.name,
        value=float(result.score),
        signature=str(scorer.get_signature()),
        length_ratio=float(result.ratio) if metric == "bleu" else None,
    )


def _listed(names: Sequence[str] | dict[str, str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}"
