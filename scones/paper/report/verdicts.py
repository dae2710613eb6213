"""The verdicts: what became of the paper's eleven claims, before all tables and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import get_args

from scones.paper.report import published
from scones.paper.report.claims_of_beams import CURSE, SPEED
from scones.paper.report.claims_of_errors import BEST_ALPHA, SEARCH_ERRORS
from scones.paper.report.claims_of_modes import AMBIGUITY, MODES
from scones.paper.report.claims_of_quality import (
    GAINS,
    GREEDY_FOR_BEAM,
    LESS_DATA,
    SECOND_METRIC,
    SMOOTHING,
)
from scones.paper.report.document import Row, Section, Table, leading_to, prose
from scones.paper.report.judging import (
    MIN_SEEDS,
    NOISE_RULE,
    Claim,
    Judgement,
    Material,
    Outcome,
)
from scones.paper.report.significance import Marks
from scones.paper.report.study import NEWS, Study
from scones.paper.report.summary import summary

CLAIMS: Sequence[Claim] = (
    GAINS,
    LESS_DATA,
    GREEDY_FOR_BEAM,
    SPEED,
    CURSE,
    MODES,
    SEARCH_ERRORS,
    BEST_ALPHA,
    AMBIGUITY,
    SMOOTHING,
    SECOND_METRIC,
)


def verdicts(study: Study, marks: Marks, learned: Mapping[str, float] | None) -> Section:
    """Make the section that the report opens with."""
    material = Material(study, marks, learned)
    judgements = [claim.judge(material) for claim in CLAIMS]
    return Section(
        "verdicts",
        "The verdicts",
        [_directions(study), _tally(judgements), _noise(material)],
        [_table(material, judgements), summary(study, marks), _numbers(judgements), _rules()],
    )


def _directions(study: Study) -> str:
    names = [one.name for one in study.done]
    named = f": {', '.join(names)}" if names else ""
    return (
        f"{len(names)} of the paper's {len(published.DIRECTIONS)} directions have results{named}."
    )


def _tally(judgements: Sequence[Judgement]) -> str:
    counts = Counter(one.outcome for one in judgements)
    outcomes = [f"{counts[one]} {one}" for one in get_args(Outcome) if counts[one]]
    return f"Of the paper's {len(judgements)} claims: {', '.join(outcomes)}."


def _noise(material: Material) -> str:
    """Say how far the seeds of one system are apart."""
    several = []
    for direction in material.study.done:
        count = max((len(direction.seeds(one)) for one in direction.systems), default=0)
        if count >= MIN_SEEDS:
            several.append(f"{direction.name} ({count} seeds)")
    deviation = material.deviation(NEWS)
    if deviation is None:
        return f"No system was trained with {MIN_SEEDS} seeds yet."
    return (
        f"Systems were trained with several seeds in {', '.join(several)}: the standard deviation "
        f"of BLEU on {NEWS} is {deviation:.2f} at most."
    )


def _table(material: Material, judgements: Sequence[Judgement]) -> Table:
    rows = [
        Row(
            _name(number, claim),
            [
                prose(_verdict(material, claim, judgement), strong=True),
                prose(judgement.in_short),
                leading_to(*claim.evidence(material)),
            ],
        )
        for number, (claim, judgement) in enumerate(zip(CLAIMS, judgements, strict=True), 1)
    ]
    return Table(
        "claims",
        "The paper's claims",
        "Each is judged by a fixed rule (below) from the numbers of the tables and figures named "
        "beside it; those of every direction stand below, too. BLEU differences are points on "
        f"{NEWS}; wide beams, exact search and speed are measured on its first sentences.",
        ["", "verdict", "by these numbers", "evidence"],
        rows,
    )


def _numbers(judgements: Sequence[Judgement]) -> Table:
    rows = [
        Row(_name(number, claim), [prose(judgement.numbers)])
        for number, (claim, judgement) in enumerate(zip(CLAIMS, judgements, strict=True), 1)
    ]
    return Table(
        "numbers",
        "The numbers behind the verdicts",
        "What every direction says to a claim.",
        ["", "direction by direction"],
        rows,
    )


def _verdict(material: Material, claim: Claim, judgement: Judgement) -> str:
    """Say the outcome, and that it may change while directions are missing."""
    measured = judgement.outcome != "not measured"
    early = len(material.study.done) < len(published.DIRECTIONS) and claim.by_direction
    return f"{judgement.outcome} so far" if measured and early else judgement.outcome


def _rules() -> Table:
    rows = [
        Row(_name(number, claim), [prose(claim.rule), prose(claim.setting or "–")])
        for number, claim in enumerate(CLAIMS, 1)
    ]
    return Table(
        "rules",
        "The rules of the verdicts",
        "“Most” is more than half of the directions that were measured. What is neither confirmed "
        "nor the opposite is not confirmed.",
        ["", "rule", "what differs from the paper's setting and might explain a difference"],
        rows,
        notes=[NOISE_RULE],
    )


def _name(number: int, claim: Claim) -> str:
    return f"{number}. {claim.title}"
