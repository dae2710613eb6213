"""The paper's claims about the quality of translations: 1, 2, 3, 10 and 11."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from scones.paper.report.judging import (
    STANDARD_ERRORS,
    Claim,
    Difference,
    Finding,
    Judgement,
    Material,
    Outcome,
    Says,
    at,
    difference,
    judged,
    most,
    signed,
)
from scones.paper.report.retraining import longer_tables
from scones.paper.report.rows import smoothed, softmax
from scones.paper.report.significance import Side, plain_twin
from scones.paper.report.study import NEWS, SEARCHES, DirectionStudy

SHORT: Mapping[str, str] = {"greedy": "greedy", "beam4": "beam 4"}
NOTHING = f"no direction has softmax and SCONES with a chosen α on {NEWS} yet"
SMALL_CORPORA = (
    "The training sets are far smaller than the paper's and hold little news (table 2); training "
    "ends after a budget, not at convergence."
)
_TABLE_3 = ("table 3", f"table-3-{NEWS}")


def _sides(direction: DirectionStudy, search: str, other: str) -> tuple[Side, Side] | None:
    """Give tuned SCONES and softmax."""
    run, baseline = direction.tuned, softmax(direction)
    if run is None or baseline is None:
        return None
    return Side(run, search), Side(baseline, other)


def _differences(
    material: Material, search: str, other: str | None = None
) -> Iterator[tuple[DirectionStudy, Difference]]:
    """Compare tuned SCONES with softmax in every direction that has both."""
    for direction in material.study.done:
        sides = _sides(direction, search, other or search)
        found = None if sides is None else material.compare(direction, *sides, NEWS)
        if found is not None:
            yield direction, found


def _gains(material: Material) -> Judgement:
    found = {search: [one for _, one in _differences(material, search)] for search in SEARCHES}
    together = [one for differences in found.values() for one in differences]
    if not together:
        return Judgement("not measured", f"{NOTHING}.")
    says = [one.says for one in together]
    parts = [
        f"{SHORT[search]}: better in {sum(one.value > 0 for one in differences)} of "
        f"{len(differences)} ({', '.join(one.text for one in differences)})"
        for search, differences in found.items()
        if differences
    ]
    numbers = (
        f"{'; '.join(parts)}. Of the {len(together)} differences, {says.count('for')} are gains "
        f"and {says.count('against')} losses beyond the noise."
    )
    better = sum(one.value > 0 for one in together)
    mean = statistics.fmean(one.value for one in together)
    line = (
        f"better in {better} of {len(together)} (greedy and beam 4), beyond the noise in "
        f"{says.count('for')}; on average {signed(mean)}."
    )
    if better == len(together) and most(says.count("for"), len(together)):
        return Judgement("confirmed", numbers, line)
    opposite = most(says.count("against"), len(together))
    return Judgement("opposite" if opposite else "not confirmed", numbers, line)


@dataclass
class _Pair:
    """The gains of a language pair in per cent, both directions and searches."""

    name: str
    sentences: int
    gains: list[float] = field(default_factory=list)
    errors: dict[str, list[float | None]] = field(default_factory=dict)
    """By direction, of every search: searches of one model share its noise."""

    @property
    def gain(self) -> float:
        """The mean."""
        return statistics.fmean(self.gains)

    @property
    def error(self) -> float | None:
        """The standard error of the mean."""
        means = []
        for errors in self.errors.values():
            known = [error for error in errors if error is not None]
            if len(known) < len(errors):
                return None
            means.append(statistics.fmean(known))
        return math.hypot(*means) / len(means)

    def gains_less_than(self, other: _Pair) -> Says:
        """Say whether another language pair gains more, beyond the noise where it is known."""
        known = self.error is not None and other.error is not None
        noise = STANDARD_ERRORS * math.hypot(self.error or 0.0, other.error or 0.0) if known else 0
        if abs(other.gain - self.gain) <= noise:
            return "open"
        return "for" if other.gain > self.gain else "against"

    def __str__(self) -> str:
        noise = "" if self.error is None else f" ± {STANDARD_ERRORS * self.error:.1f}"
        return f"{self.name} {signed(self.gain)}{noise} % ({self.sentences:,} pairs)"


def _pairs(material: Material) -> list[_Pair]:
    """Give all language pairs, the one with the most training data first."""
    pairs: dict[frozenset[str], _Pair] = {}
    for search in SEARCHES:
        for direction, found in _differences(material, search):
            corpora = direction.corpora
            if not found.base or corpora is None:
                continue
            languages = sorted(direction.name.split("-"), key="en".__eq__)
            pair = pairs.setdefault(
                frozenset(languages), _Pair(" ↔ ".join(languages), int(corpora["pairs_kept"]))
            )
            pair.gains.append(100 * found.value / found.base)
            error = None if found.error is None else 100 * found.error / found.base
            pair.errors.setdefault(direction.name, []).append(error)
    return sorted(pairs.values(), key=lambda pair: -pair.sentences)


def _less_data(material: Material) -> Judgement:
    pairs = _pairs(material)
    if len(pairs) < 2:
        reason = (
            f"it takes two language pairs with results and corpora, and there are {len(pairs)}."
        )
        return Judgement("not measured", reason)
    known = all(pair.error is not None for pair in pairs)
    numbers = f"mean gain, most data first: {', '.join(map(str, pairs))}"
    numbers += "." if known else " (noise not known)."
    votes = {more.gains_less_than(less) for more, less in pairwise(pairs)}
    outcomes: dict[Says, Outcome] = {"for": "confirmed", "against": "opposite"}
    vote = votes.pop() if len(votes) == 1 else "open"
    return Judgement(outcomes.get(vote, "not confirmed"), numbers)


def _greedy_against_beam(material: Material) -> Judgement:
    findings = [
        Finding("for" if one.value >= 0 else one.says, one.text, (one.value,))
        for _, one in _differences(material, "greedy", "beam4")
    ]
    counted = "BLEU of SCONES greedy minus softmax beam 4, at least 0 in"
    return judged(findings, counted, NOTHING, mean=signed)


def _smoothing(material: Material) -> Judgement:
    findings = []
    for direction in material.study.done:
        run = smoothed("scones")(direction)
        twin = None if run is None else plain_twin(direction.systems.values(), run)
        if run is None or twin is None:
            continue
        for search in SEARCHES:
            found = material.compare(direction, Side(run, search), Side(twin, search), NEWS)
            if found is not None:
                says: Says = "against" if found.says == "for" else "for"
                after = found.base + found.value
                text = f"{found.text} to {after:.1f} ({SHORT[search]}, α = {run.alpha:g})"
                findings.append(Finding(says, text, (found.base, after)))
    missing = "no direction has SCONES with and without label smoothing at the same α yet"
    counted = "BLEU with minus without it, not a gain in"
    return judged(
        findings, counted, missing, "all", mean=lambda base, after: f"{base:.1f} → {after:.1f}"
    )


def _second_difference(material: Material, direction: DirectionStudy, search: str) -> float | None:
    """Give BLEURT, where weights were given, or chrF of tuned SCONES minus that of softmax."""
    sides = _sides(direction, search, search)
    assert sides is not None
    if material.learned is None:
        return difference(direction, *sides, NEWS, "chrf")
    keys = [direction.origin(side.run, NEWS, search).key for side in sides]
    scores = [material.learned.get(key) for key in keys]
    return None if scores[0] is None or scores[1] is None else 100 * (scores[0] - scores[1])


def _second_metric(material: Material) -> Judgement:
    name = "chrF" if material.learned is None else "BLEURT"
    findings = []
    for search in SEARCHES:
        for direction, found in _differences(material, search):
            other = _second_difference(material, direction, search)
            if other is None:
                continue
            says: Says = "for" if found.value * other > 0 else "against"
            text = f"{found.text} and {signed(other)} ({SHORT[search]})"
            values = found.value, other
            findings.append(Finding("open" if found.says == "open" else says, text, values))
    counted = f"SCONES minus softmax, BLEU and {name}, of one sign, BLEU beyond the noise, in"
    return judged(
        findings, counted, NOTHING, mean=lambda bleu, other: f"{signed(bleu)} and {signed(other)}"
    )


def _table_3(material: Material) -> Sequence[tuple[str, str]]:
    """Point to what more training would change, too, where that was tried."""
    return (_TABLE_3, *longer_tables(material.study))


def _table_4(material: Material) -> Sequence[tuple[str, str]]:
    key = f"table-4-chrf-{NEWS}" if material.learned is None else "table-4"
    return (("table 4", key), _TABLE_3)


GAINS = Claim(
    "BLEU gains in all directions, greedy and beam 4",
    f"Confirmed: SCONES with the α chosen on the development set has more BLEU on {NEWS} than "
    "softmax in all measured directions with both searches, and most differences are beyond the "
    "noise. Opposite: most are losses beyond the noise.",
    _table_3,
    _gains,
    SMALL_CORPORA,
)
LESS_DATA = Claim(
    "Larger gains with less data",
    "Confirmed: in the order of their training pairs, every language pair with less data has a "
    "larger mean gain in per cent (both directions, both searches) than the one before it, by "
    "more than the noise. Opposite: every one has a smaller gain, by more than the noise.",
    at(_TABLE_3, ("table 2", "table-2")),
    _less_data,
    "Languages and kinds of text change with the amount of data, as in the paper; here all pairs "
    "have less than the paper's smallest.",
)
GREEDY_FOR_BEAM = Claim(
    "Greedy SCONES at least as good as softmax with beam 4 in most directions",
    "Confirmed: its BLEU is equal or higher in most measured directions; to be as good it need not "
    "be ahead by more than the noise. Opposite: it is behind by more than the noise in most.",
    _table_3,
    _greedy_against_beam,
    SMALL_CORPORA,
)
SMOOTHING = Claim(
    "Label smoothing does not help SCONES",
    "Confirmed: no direction and search has a gain beyond the noise over the same α without label "
    "smoothing. Opposite: most have.",
    at(("table 3, every system", f"table-3-{NEWS}-all")),
    _smoothing,
    "The paper names no λ; here it is 0.1.",
)
SECOND_METRIC = Claim(
    "The same picture under a second metric",
    "Confirmed: of the differences between SCONES and softmax, most are beyond the noise in BLEU "
    "and have the same sign in the second metric. Opposite: most are beyond the noise in BLEU and "
    "have the other sign.",
    _table_4,
    _second_metric,
    "The paper's second metric is BLEURT; here it is chrF unless weights of BLEURT are given.",
)
