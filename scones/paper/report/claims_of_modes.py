"""The paper's claims about the most probable translation, the mode: 6 and 9."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from scones.paper.report.claims_of_quality import SMALL_CORPORA
from scones.paper.report.judging import (
    SIGNIFICANT,
    Claim,
    Finding,
    Judgement,
    Material,
    Says,
    at,
    judged,
)
from scones.paper.report.searching import FIRST_BEAM, bleu
from scones.paper.report.study import SMALL_ALPHA, SOFTMAX, label_by_name
from scones.paper.synthetic_verdict import RULE

Json = dict[str, Any]

ADEQUATE = 0.8
"""Modes are adequate if exact search keeps at least this part of the BLEU of beam search (4)."""
PROVED = 0.5
"""If less than this part of the modes is proved, nothing is said about them."""
LARGE_ALPHA = "scones-1.0"
LIMITED = (
    "Exact search has a smaller limit of states than the paper's and fewer sentences; where it "
    "ends at the limit, the best translation found so far counts, which may be that of a beam."
)


class _Modes(NamedTuple):
    """What exact search gave for a system."""

    kept: float
    """Of the BLEU of beam search."""
    proved: int
    sentences: int

    def __str__(self) -> str:
        return f"{self.kept:.0%} ({self.proved} of {self.sentences} proved)"


def _modes(rows: Mapping[str, Json], system: str) -> _Modes | str:
    """Give what is known about the modes of a system, or why it does not count."""
    row = rows.get(system)
    if row is None or not row["exact"] or FIRST_BEAM not in row["beams"]:
        return f"{label_by_name(system)} has no finished exact search"
    exact, beam = row["exact"], bleu(row["beams"][FIRST_BEAM])
    proved, sentences = exact["proved"], exact["outputs"]["searched"]
    if proved < PROVED * sentences:
        return f"only {proved} of {sentences} modes of {label_by_name(system)} are proved"
    if not beam:
        return f"{label_by_name(system)} has no BLEU"
    return _Modes((bleu(exact) or 0.0) / beam, proved, sentences)


def _adequate(material: Material) -> Judgement:
    findings, left_out = [], []
    for direction in material.study.done:
        rows = direction.searched_systems
        if not rows:
            continue
        asked = (SMALL_ALPHA, SOFTMAX, LARGE_ALPHA)
        found = {label_by_name(one): _modes(rows, one) for one in asked}
        modes = {name: one for name, one in found.items() if isinstance(one, _Modes)}
        if len(modes) < len(found):
            reasons = [one for one in found.values() if isinstance(one, str)]
            left_out.append(f"{direction.name}, since {' and '.join(reasons)}")
            continue
        small, *others = (one.kept for one in modes.values())
        says: Says = "open"
        if small >= ADEQUATE and max(others) < ADEQUATE:
            says = "for"
        elif small < ADEQUATE <= min(others):
            says = "against"
        shares = ", ".join(f"{name} {one}" for name, one in modes.items())
        findings.append(Finding(says, f"{direction.name}: {shares}", (small, *others)))
    missing = "it takes softmax, α = 0.2 and α = 1, all searched exactly"
    counted = f"exact search keeps of beam 4's BLEU, α = 0.2 alone {ADEQUATE:.0%} or more in"
    return judged(
        findings,
        counted,
        missing,
        left_out=left_out,
        mean=lambda small, softmax, large: f"{small:.0%}, softmax {softmax:.0%}, α = 1 {large:.0%}",
    )


def _ambiguous(material: Material) -> Judgement:
    result = material.study.synthetic
    if result is None:
        return Judgement("not measured", "the synthetic languages were not run yet.")
    verdict = result["verdict"]
    if verdict["seen"] is None:
        return Judgement("not measured", "it takes two values of α, and BLEU of softmax above 0.")
    relative = verdict["relative"]
    *others, small = relative
    p = verdict["p"][small]
    rows = {float(one): row for one, row in result["temperatures"].items()}
    line = (
        f"at γ = {verdict['temperature']} exact search keeps of softmax's beam BLEU: "
        f"{_kept(rows.pop(verdict['temperature']), relative)}; {label_by_name(small)} against "
        f"softmax p = {p:.3f}."
    )
    below = "; ".join(f"γ = {one:g}: {_kept(row, relative)}" for one, row in sorted(rows.items()))
    numbers = (
        f"{line} At lower temperatures, which the rule leaves out: {below}." if below else line
    )
    if p < SIGNIFICANT and verdict["seen"]:
        return Judgement("confirmed", numbers, line)
    behind = relative[small] < min(relative[one] for one in others)
    return Judgement("opposite" if p < SIGNIFICANT and behind else "not confirmed", numbers, line)


def _kept(row: Json, systems: Iterable[str]) -> str:
    """Say what exact search keeps at a temperature, and how much of it is proved."""
    kept = []
    for system in systems:
        found = row["systems"][system]
        share, unproved = found["relative"], found["exact"]["unproved"] or 0.0
        text = "–" if share is None else f"{share:.0%}"
        kept.append(f"{label_by_name(system)} {text} ({1 - unproved:.1%} proved)")
    return ", ".join(kept)


MODES = Claim(
    "With exact search, modes of α = 0.2 are adequate, those of softmax and α = 1 are not",
    f"Confirmed: in most measured directions exact search keeps at least {ADEQUATE:.0%} of the "
    "BLEU of beam 4 for α = 0.2, and less for softmax and for α = 1. Opposite: the other way "
    f"round in most. Only directions where at least {PROVED:.0%} of the modes of each are proved "
    "count.",
    at(("table 6", "table-6"), ("figure 5", "figure-5"), ("table 7", "table-7")),
    _adequate,
    f"{LIMITED} {SMALL_CORPORA}",
)
AMBIGUITY = Claim(
    "At high synthetic ambiguity only α = 0.2 keeps adequate modes",
    f"Confirmed: {RULE}, which differs from softmax significantly (p < {SIGNIFICANT:g}). "
    "Opposite: SCONES with the smallest α keeps less than both, than softmax significantly.",
    at(("figure 9", "figure-9"), ("figure 8", "figure-8")),
    _ambiguous,
    f"{LIMITED} The languages are sampled on a smaller corpus, and the models are small.",
    by_direction=False,
)
