"""The paper's claims about what a beam costs, and what a wide one does: 4 and 5."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from scones.paper.report import published
from scones.paper.report.claims_of_quality import SMALL_CORPORA
from scones.paper.report.judging import (
    Claim,
    Finding,
    Judgement,
    Material,
    Says,
    at,
    judged,
    signed,
)
from scones.paper.report.searching import bleu
from scones.paper.report.speed import SCONES, timed
from scones.paper.report.study import SMALL_ALPHA, SOFTMAX

Json = dict[str, Any]

SPEED_UP = 0.5 * float(published.SPEED_UP.text.rstrip("×"))
"""Half of the paper's: less is not called its speed-up."""
EQUAL_QUALITY = 0.5
"""BLEU points that equal quality may lack."""
WIDE_BEAM = 64
"""Beams of this size or larger are called wide."""
CURSED = 0.05
"""A wide beam that loses more than this part of the best beam's BLEU is the beam search curse."""


def _speed_up(material: Material) -> Judgement:
    findings = []
    for direction in material.study.done:
        found = direction.speed or {"systems": {}}
        asked = ((SCONES, "1"), (SOFTMAX, "4"), (SOFTMAX, "1"))
        fast, slow, greedy = (timed(found, *one) for one in asked)
        if fast is not None and slow is not None and greedy is not None:
            findings.append(_speed_finding(direction.name, fast, slow, greedy))
    counted = (
        f"SCONES greedy over softmax beam 4, {SPEED_UP:.2f}× or more at equal quality and mostly "
        "by the beam in"
    )
    missing = "the speed of no direction was measured yet"
    return judged(findings, counted, missing, mean=lambda whole: f"{whole:.2f}×")


def _speed_finding(name: str, fast: Json, slow: Json, greedy: Json) -> Finding:
    """Weigh SCONES greedy (fast) against softmax with beam 4 (slow) and with greedy search."""
    whole = fast["sentences_per_second"] / slow["sentences_per_second"]
    beam = greedy["sentences_per_second"] / slow["sentences_per_second"]
    least = min(slow["times"]) / max(fast["times"])
    largest = max(slow["times"]) / min(fast["times"])
    better = fast["bleu"] - slow["bleu"]
    says: Says = "open"
    if largest < 1:
        says = "against"
    elif least >= SPEED_UP and better >= -EQUAL_QUALITY and 2 * math.log(beam) > math.log(whole):
        says = "for"
    text = (
        f"{name} {whole:.2f}× ({least:.2f} to {largest:.2f} over the runs) with {signed(better)} "
        f"BLEU; the beam alone {beam:.2f}×"
    )
    return Finding(says, text, (whole,))


class _Curve(NamedTuple):
    """What becomes of BLEU from the best beam to the widest."""

    best: float
    widest: float

    @property
    def loss(self) -> float:
        """As a part of the best; 0 where that is 0."""
        return 1 - self.widest / self.best if self.best else 0.0

    def __str__(self) -> str:
        return f"{self.best:.1f} → {self.widest:.1f} ({signed(-100 * self.loss)} %)"


def widest_beam(rows: Mapping[str, Json], *systems: str) -> int | None:
    """Give the widest beam that all of these systems were searched with, if it is a wide one."""
    if not systems or any(one not in rows for one in systems):
        return None
    sizes = [{int(size) for size in rows[one]["beams"]} for one in systems]
    widest = max(set.intersection(*sizes), default=0)
    return widest if widest >= WIDE_BEAM else None


def _curve(row: Json, widest: int) -> _Curve:
    scores = {int(size): bleu(one) or 0.0 for size, one in row["beams"].items()}
    return _Curve(max(scores[size] for size in scores if size <= widest), scores[widest])


def _curse(material: Material) -> Judgement:
    findings = []
    for direction in material.study.done:
        rows = direction.searched_systems
        widest = widest_beam(rows, SMALL_ALPHA, SOFTMAX)
        if widest is None:
            continue
        small, softmax = (_curve(rows[one], widest) for one in (SMALL_ALPHA, SOFTMAX))
        says: Says = "open"
        if small.loss <= CURSED:
            says = "for"
        elif small.loss >= softmax.loss:
            says = "against"
        text = f"{direction.name}, beam {widest:,}: α = 0.2 {small}, softmax {softmax}"
        findings.append(Finding(says, text, (-100 * small.loss, -100 * softmax.loss)))
    missing = f"no direction has beams of {WIDE_BEAM} or more for softmax and α = 0.2 yet"
    counted = f"BLEU, best → widest beam; α = 0.2 loses at most {CURSED:.0%} in"
    return judged(
        findings,
        counted,
        missing,
        mean=lambda small, softmax: f"{signed(small)} %, softmax {signed(softmax)} %",
    )


SPEED = Claim(
    "3.9× the speed at equal quality, mostly by the smaller beam",
    f"Confirmed: in most measured directions SCONES with greedy search is, in its slowest run, at "
    f"least {SPEED_UP:.2f} times (half of the paper's factor) as fast as softmax with beam 4 in "
    f"its fastest, loses at most {EQUAL_QUALITY:g} BLEU on the same sentences, and more than half "
    "of the factor (of its logarithm) is softmax's own from beam 4 to greedy. Opposite: its "
    "fastest run is slower than softmax's slowest in most.",
    at(("figure 2", "figure-2"), ("what the speed-up is made of", "speed-shares")),
    _speed_up,
    f"The factor depends on hardware and program: the paper's is of an {published.SPEED_DEVICE}.",
)
CURSE = Claim(
    "No beam search curse at α = 0.2",
    f"Confirmed: with the widest beam ({WIDE_BEAM} or more) α = 0.2 has lost at most {CURSED:.0%} "
    "of the BLEU of its best beam in most measured directions. Opposite: it has lost more, and no "
    "less than softmax, in most.",
    at(("figure 3", "figure-3"), ("figure 4", "figure-4")),
    _curse,
    "Beams were tried on the first sentences of the test set, on which BLEU is less certain, and "
    "the widest is not the same in all directions. "
    f"{SMALL_CORPORA}",
)
