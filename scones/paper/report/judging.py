"""How a claim of the paper is judged: what each direction says, how noise is weighed, the vote."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from scones.evaluation.significance import mark
from scones.paper.report.document import MINUS
from scones.paper.report.significance import Marks, Side, comparison
from scones.paper.report.study import DirectionStudy, Study

STANDARD_ERRORS = 2.0
"""A difference of no more standard errors than this is within the noise."""
MIN_SEEDS = 3
"""Fewer say little about noise."""
SIGNIFICANT = 0.05
NOISE_RULE = (
    f"What counts as noise: where both systems have {MIN_SEEDS} seeds or more, differences are "
    f"those of their means, and ± is {STANDARD_ERRORS:g} standard errors over the seeds; a "
    "difference that is not larger takes no side. Elsewhere a paired bootstrap test decides "
    f"(† p < .05, ‡ p < .01, none: within the noise; the p-value is sacreBLEU's, which counts only "
    "how often a difference as large arises by chance, in effect one-sided); where none is stored, "
    f"{STANDARD_ERRORS:g} standard errors by the largest deviation that seeds of any direction "
    "show on the set of that name. Where that is not known either, the sign counts, and the line "
    "says so."
)

Outcome = Literal["confirmed", "not confirmed", "opposite", "not measured"]
Says = Literal["for", "against", "open"]


@dataclass(frozen=True)
class Finding:
    """What one comparison says about a claim."""

    says: Says
    text: str
    """With its numbers, such as "de-en +1.2‡"."""
    values: tuple[float, ...] = ()
    """Numbers that have a mean over all findings."""


@dataclass(frozen=True)
class Judgement:
    """The outcome for a claim, and its numbers or, where it is not measured, what is missing."""

    outcome: Outcome
    numbers: str
    """Those of every direction."""
    line: str = ""
    """All of them in short; none: they are short enough."""

    @property
    def in_short(self) -> str:
        """One line."""
        return self.line or self.numbers


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and how to find out whether it holds."""

    title: str
    rule: str
    """When it is confirmed, and when the opposite is seen."""
    evidence: Callable[[Material], Sequence[tuple[str, str]]]
    """Gives texts and keys of tables and figures."""
    judge: Callable[[Material], Judgement]
    setting: str = ""
    """What in the setting differs from the paper's, whatever the result."""
    by_direction: bool = True
    """Whether further directions can change the verdict."""


@dataclass(frozen=True)
class Difference:
    """Two scores compared."""

    direction: str
    value: float
    base: float
    """The second score."""
    beyond_noise: bool | None
    """None: the noise is not known."""
    error: float | None
    """Standard error over seeds, those of another direction where there are none."""
    shown: str
    """The value with its noise or the mark of its test, such as "+1.2‡"."""

    @property
    def text(self) -> str:
        """Such as "de-en +1.2‡"."""
        return f"{self.direction} {self.shown}"

    @property
    def says(self) -> Says:
        """Whose side it takes; a difference within the noise takes none."""
        if self.beyond_noise is False or not self.value:
            return "open"
        return "for" if self.value > 0 else "against"


@dataclass(frozen=True)
class Material:
    """All that claims are judged from."""

    study: Study
    marks: Marks
    learned: Mapping[str, float] | None = None
    """BLEURT by the key of the origin, where weights were given."""

    def compare(
        self, direction: DirectionStudy, first: Side, second: Side, test: str
    ) -> Difference | None:
        """Give BLEU of the first minus that of the second; None where one is not known."""
        scores = _scores(direction, first, second, test)
        if scores is None:
            return None
        base, value = scores[1], scores[0] - scores[1]
        shown = signed(value)
        found = partial(Difference, direction.name, value, base)
        groups = [_seeds(direction, side, test) for side in (first, second)]
        if min(map(len, groups)) >= MIN_SEEDS:
            error = math.hypot(*(statistics.stdev(one) / math.sqrt(len(one)) for one in groups))
            noise = STANDARD_ERRORS * error
            return found(abs(value) > noise, error, f"{shown} ± {noise:.1f}")
        deviation = self.deviation(test)
        borrowed = None if deviation is None else math.sqrt(2) * deviation
        about = self.marks.known.get(
            (direction.place, first.run.name, test, comparison(first, second))
        )
        if about is not None:
            beyond = about["p"] < SIGNIFICANT
            return found(beyond, borrowed, shown + mark(about["p"]))
        if borrowed is not None:
            return found(abs(value) > STANDARD_ERRORS * borrowed, borrowed, shown)
        return found(None, None, f"{shown} (noise not known)")

    def deviation(self, test: str) -> float | None:
        """Give the largest standard deviation of BLEU over seeds, of all systems and searches."""
        groups = [
            _seeds(direction, Side(run, search), test)
            for direction in self.study.done
            for run in direction.systems.values()
            if test in run.tests
            for search in run.tests[test].searches
        ]
        known = [statistics.stdev(scores) for scores in groups if len(scores) >= MIN_SEEDS]
        return max(known, default=None)


def difference(
    direction: DirectionStudy, first: Side, second: Side, test: str, metric: str = "bleu"
) -> float | None:
    """Give the difference of two scores, of the means where both sides have enough seeds."""
    scores = _scores(direction, first, second, test, metric)
    return None if scores is None else scores[0] - scores[1]


def _scores(
    direction: DirectionStudy, first: Side, second: Side, test: str, metric: str = "bleu"
) -> tuple[float, float] | None:
    """Give both scores, the means of seeds where both sides have enough of them."""
    groups = [_seeds(direction, side, test, metric) for side in (first, second)]
    if min(map(len, groups)) >= MIN_SEEDS:
        return statistics.fmean(groups[0]), statistics.fmean(groups[1])
    one, other = (side.run.score(test, side.search, metric) for side in (first, second))
    return None if one is None or other is None else (one, other)


def _seeds(direction: DirectionStudy, side: Side, test: str, metric: str = "bleu") -> list[float]:
    found = (run.score(test, side.search, metric) for run in direction.seeds(side.run.system))
    return [score for score in found if score is not None]


def most(count: int, of: int) -> bool:
    """Say whether it is more than half."""
    return 2 * count > of


def judged(
    findings: Sequence[Finding],
    counted: str,
    missing: str,
    needed: Literal["all", "most"] = "most",
    left_out: Sequence[str] = (),
    mean: Callable[..., str] | None = None,
) -> Judgement:
    """Judge by a vote: confirmed if all (or most) are for it, opposite if most are against it.

    `counted` says what the findings for it have in common, `missing` what is missing if there are
    none at all; `left_out` says why directions that were measured do not count. `mean` words the
    means of the findings' values.
    """
    aside = f" Not counted: {'; '.join(left_out)}." if left_out else ""
    total = len(findings)
    if not total:
        return Judgement("not measured", f"{missing}.{aside}")
    votes = [one.says for one in findings]
    texts = "; ".join(one.text for one in findings)
    count = f"{counted} {votes.count('for')} of {total}"
    numbers, line = f"{count}: {texts}.{aside}", ""
    if total > 1:
        excluded = f" ({len(left_out)} not counted)" if left_out else ""
        line = f"{count}{excluded}{_means(findings, mean)}."
    if votes.count("for") == total or (needed == "most" and most(votes.count("for"), total)):
        return Judgement("confirmed", numbers, line)
    opposite = most(votes.count("against"), total)
    return Judgement("opposite" if opposite else "not confirmed", numbers, line)


def _means(findings: Sequence[Finding], word: Callable[..., str] | None) -> str:
    if word is None:
        return ""
    columns = zip(*(one.values for one in findings), strict=True)
    return f"; on average {word(*map(statistics.fmean, columns))}"


def signed(value: float) -> str:
    """Show a difference."""
    return f"{value:+.1f}".replace("-", MINUS)


def at(*keys: tuple[str, str]) -> Callable[[Material], Sequence[tuple[str, str]]]:
    """Name evidence that is the same for all results."""
    return lambda material: keys
