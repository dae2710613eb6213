"""The paper's claims about search errors, and the α that has the fewest: 7 and 8."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from scones.paper.report.claims_of_beams import WIDE_BEAM, widest_beam
from scones.paper.report.judging import (
    STANDARD_ERRORS,
    Claim,
    Difference,
    Finding,
    Judgement,
    Material,
    Says,
    at,
    judged,
)
from scones.paper.report.searching import bleu
from scones.paper.report.significance import Side
from scones.paper.report.study import SOFTMAX, DirectionStudy, label_by_name

Json = dict[str, Any]

PROVED_ALONE = (
    "Search errors can be seen only where the mode is proved, and a small α leaves more sentences "
    "unproved, most of them long: of all sentences the shares would be larger. How wide the "
    "widest beam is differs by direction."
)


class _Errors(NamedTuple):
    """Search errors of a system."""

    share: float
    compared: int

    @property
    def variance(self) -> float:
        """Of the share, given the number of sentences; not 0 where no error was seen."""
        careful = (self.share * self.compared + 1) / (self.compared + 2)
        return careful * (1 - careful) / self.compared

    def fewer(self, other: _Errors) -> Says:
        """Say whether these are fewer than others."""
        noise = STANDARD_ERRORS * math.sqrt(self.variance + other.variance)
        if abs(self.share - other.share) <= noise:
            return "open"
        return "for" if self.share < other.share else "against"

    def __str__(self) -> str:
        return f"{self.share:.1%} of {self.compared}"


def _alphas(rows: Mapping[str, Json]) -> dict[str, float]:
    """Give α of the searched SCONES systems without label smoothing, the smallest first."""
    outputs = {name: row["output"] for name, row in rows.items()}
    found = {
        name: float(output["alpha"])
        for name, output in outputs.items()
        if output.get("alpha") is not None and not output.get("label_smoothing")
    }
    return dict(sorted(found.items(), key=lambda one: one[1]))


class _Searched(NamedTuple):
    """What is known about the searches of a direction."""

    beam: int
    """The widest that all were searched with."""
    alphas: dict[str, float]
    """By system, the smallest first; two at least."""
    errors: dict[str, _Errors]
    """By system, softmax last."""


def _searched(direction: DirectionStudy) -> _Searched | None:
    rows = direction.searched_systems
    alphas = _alphas(rows)
    systems = [*alphas, SOFTMAX]
    beam = widest_beam(rows, *systems)
    if beam is None or len(alphas) < 2:
        return None
    found = {one: rows[one]["beams"][str(beam)].get("errors") for one in systems}
    errors = {
        one: _Errors(float(about["share"]), int(about["compared"]))
        for one, about in found.items()
        if about and about["compared"]
    }
    return _Searched(beam, alphas, errors) if len(errors) == len(systems) else None


def _search_errors(material: Material) -> Judgement:
    findings = []
    for direction in material.study.done:
        found = _searched(direction)
        if found is None:
            continue
        small, *_, large = found.alphas
        votes = {found.errors[small].fewer(found.errors[other]) for other in (large, SOFTMAX)}
        shares = ", ".join(f"{label_by_name(one)} {about}" for one, about in found.errors.items())
        text = f"{direction.name}, beam {found.beam:,}: {shares}"
        values = tuple(found.errors[one].share for one in (small, large, SOFTMAX))
        findings.append(Finding(votes.pop() if len(votes) == 1 else "open", text, values))
    missing = (
        f"no direction has search errors of beams of {WIDE_BEAM} or more for softmax and two α yet"
    )
    counted = "search errors, fewer at the smallest α than at the largest and with softmax in"
    return judged(
        findings,
        counted,
        missing,
        mean=lambda small, large, softmax: f"{small:.1%}, {large:.1%} and {softmax:.1%}",
    )


def _best_alpha(material: Material) -> Judgement:
    found = [_alpha_finding(material, direction) for direction in material.study.done]
    missing = "no direction has a chosen α, and search errors and exact search of two α yet"
    findings = [one for one in found if one is not None]
    return judged(findings, "the best BLEU is at the larger α, beyond the noise, in", missing)


def _alpha_finding(material: Material, direction: DirectionStudy) -> Finding | None:
    found, choice, rows = _searched(direction), direction.choice, direction.searched_systems
    if found is None or choice is None:
        return None
    alphas = found.alphas
    if any(not rows[one]["exact"] or one not in direction.systems for one in alphas):
        return None
    exact = {one: bleu(rows[one]["exact"]) or 0.0 for one in alphas}
    # Of equals the larger α, which makes it harder for the claim.
    fewest = min(alphas, key=lambda one: (found.errors[one].share, -alphas[one]))
    truest = max(alphas, key=lambda one: (exact[one], alphas[one]))
    others = [alphas[fewest], alphas[truest]]
    leads = _leads(material, direction, dict.fromkeys((fewest, truest)))
    if leads is None:
        return None
    says: Says = "open"
    if all(lead.says == "for" for lead in leads.values()):
        if choice.alpha > max(others):
            says = "for"
        elif choice.alpha < min(others):
            says = "against"
    text = (
        f"{direction.name} best BLEU on {choice.dev} at α = {choice.alpha:g}, fewest search errors "
        f"at {others[0]:g}, best BLEU of exact search at {others[1]:g}"
    )
    ahead = [f"{lead.shown} over {alphas[one]:g}" for one, lead in leads.items()]
    return Finding(says, f"{text} ({', '.join(ahead)})")


def _leads(
    material: Material, direction: DirectionStudy, others: Iterable[str]
) -> dict[str, Difference] | None:
    """Give by how much the chosen α is ahead of others on the development set.

    None where that is not known of one of them.
    """
    run, choice = direction.tuned, direction.choice
    assert run is not None
    assert choice is not None
    found = {}
    for one in others:
        sides = Side(run, "greedy"), Side(direction.systems[one], "greedy")
        lead = material.compare(direction, *sides, choice.dev)
        if lead is None:
            return None
        found[one] = lead
    return found


SEARCH_ERRORS = Claim(
    "Small α leaves fewer search errors",
    f"Confirmed: with the widest beam ({WIDE_BEAM} or more) the smallest α has fewer search errors "
    f"than the largest and than softmax, by more than {STANDARD_ERRORS:g} standard errors of the "
    "shares, in most measured directions. Opposite: more than both in most.",
    at(("figure 7", "figure-7"), ("table 7", "table-7")),
    _search_errors,
    PROVED_ALONE,
)
BEST_ALPHA = Claim(
    "The best BLEU is at a larger α than the fewest search and model errors",
    "Confirmed: in most measured directions the α with the best greedy BLEU on the development set "
    "is larger than the α with the fewest search errors and than the α with the best BLEU of exact "
    "search, and has more BLEU than both there by more than the noise. Opposite: it has, but is "
    "smaller than both, in most.",
    at(("table 5", "table-5"), ("figure 7", "figure-7"), ("table 6", "table-6")),
    _best_alpha,
    "Few values of α were tried; the best is tested on the set that it was chosen on.",
)
