"""What beam search misses: the outputs of beams of many sizes against those of exact search.

A search error is an output that scores less than the mode, the most probable translation of all.
Only sentences whose mode is proved can show one, so that each share comes with the number of
sentences that it is a share of. A sentence that was not searched (an empty one, or one that was
skipped as too long) counts for BLEU and for nothing else.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from scones.errors import SconesError
from scones.evaluation.metrics import ReferenceSets, bleu
from scones.search.frontier import Certificate


@dataclass(frozen=True)
class Output:
    """What a search gave for a sentence."""

    text: str
    log_prob: float | None
    """None where nothing was searched, and of an output that was cut."""
    empty: bool
    """Whether it has no pieces."""
    finished: bool
    """False where the length limit cut it, so that it is no whole translation."""
    tokens: list[str] | None = field(default=None, kw_only=True)
    """Its pieces; earlier versions did not keep them."""

    def __post_init__(self) -> None:
        if self.log_prob is not None and not math.isfinite(self.log_prob):
            raise ValueError("a log-probability is not a number")


@dataclass(frozen=True)
class ExactOutput(Output):
    """What exact search gave for a sentence: the mode, where it is proved."""

    certificate: Certificate | None

    @property
    def proved(self) -> bool:
        """Whether this is known to be the mode."""
        return self.certificate is not None and self.certificate.proved


@dataclass(frozen=True)
class BeamRun:
    """The outputs of beam search for a text, and how long all of them took."""

    outputs: Sequence[Output]
    seconds: float


@dataclass(frozen=True)
class Summary:
    """Many numbers in a few."""

    count: int
    mean: float
    deviation: float
    """Of a sample; 0 for a single number."""
    median: float
    largest: float

    @classmethod
    def of(cls, numbers: Iterable[float | None]) -> Summary | None:
        """Sum numbers up, those that are None left out; None where nothing is left."""
        known = [float(number) for number in numbers if number is not None]
        if not known:
            return None
        deviation = statistics.stdev(known) if len(known) > 1 else 0.0
        return cls(
            len(known), statistics.fmean(known), deviation, statistics.median(known), max(known)
        )


@dataclass(frozen=True)
class OutputFigures:
    """What can be said about the outputs of any search."""

    bleu: float
    length_ratio: float
    signature: str
    searched: int
    empty: float | None
    """Share of the searched sentences with an empty output."""
    cut: int
    """Outputs that the length limit cut."""
    log_probs: Summary | None
    """Of the outputs that were not cut."""


@dataclass(frozen=True)
class SearchErrors:
    """How often a search missed the mode."""

    compared: int
    """Sentences whose mode is proved."""
    share: float | None
    """Those among them whose output is cut, or scores less by more than the tolerance."""
    above: int
    """Outputs that score *more*, by more than the tolerance: rounding, or a mistake of ours."""


@dataclass(frozen=True)
class BeamFigures:
    """What beam search did."""

    outputs: OutputFigures
    seconds: float
    """For all sentences together."""
    errors: SearchErrors | None
    """None without exact search."""


@dataclass(frozen=True)
class ExactFigures:
    """What exact search did; of a sentence that is not proved, the best found counts."""

    outputs: OutputFigures
    proved: int
    unproved: float | None
    """Share of the searched sentences."""
    stopped_by: dict[str, int]
    """Sentences that are not proved, by the limit that was hit."""
    empty_modes: float | None
    """Share of the proved modes that are empty."""
    empty_log_probs: Summary | None
    """Of the empty translation of every sentence."""
    states: Summary | None
    """A sentence; so are the seconds."""
    seconds: Summary | None
    states_by_sentence: list[int | None]
    """None where nothing was searched."""
    proofs: list[bool]


@dataclass(frozen=True)
class Analysis:
    """All figures of one model on one test set."""

    beams: dict[str, BeamFigures]
    """By beam size, which is text as JSON wants its keys."""
    exact: ExactFigures | None


def analyze(
    beams: Mapping[int, BeamRun],
    exact: Sequence[ExactOutput] | None,
    references: ReferenceSets,
) -> Analysis:
    """Compare what beams of several sizes and exact search gave for the same sentences."""
    for found in [run.outputs for run in beams.values()] + ([] if exact is None else [exact]):
        if len(found) != len(references[0]):
            raise SconesError(
                f"A search gave {len(found):,} outputs for {len(references[0]):,} references; "
                "the numbers must be equal."
            )
    figures = {}
    for size, run in sorted(beams.items()):
        errors = None if exact is None else search_errors(run.outputs, exact)
        outputs = _output_figures(run.outputs, references)
        figures[str(size)] = BeamFigures(outputs, run.seconds, errors)
    return Analysis(figures, None if exact is None else _exact_figures(exact, references))


def search_errors(outputs: Sequence[Output], exact: Sequence[ExactOutput]) -> SearchErrors:
    """Count the outputs that miss the mode, among the sentences whose mode is proved."""
    compared = missed = above = 0
    for output, mode in zip(outputs, exact, strict=True):
        if mode.certificate is None or not mode.proved:
            continue
        compared += 1
        if output.log_prob is None or mode.log_prob is None or not output.finished:
            missed += 1
            continue
        # The same translation scored twice may differ in its last bits: batches of other shapes
        # add in another order. The tolerance keeps that from counting as an error.
        gap = mode.log_prob - output.log_prob
        missed += gap > mode.certificate.tolerance
        above += -gap > mode.certificate.tolerance
    return SearchErrors(compared, _share(missed, compared), above)


def _output_figures(outputs: Sequence[Output], references: ReferenceSets) -> OutputFigures:
    score = bleu([output.text for output in outputs], references)
    searched = [one for one in outputs if one.log_prob is not None or not one.finished]
    whole = [output for output in searched if output.finished]
    return OutputFigures(
        bleu=score.value,
        length_ratio=score.length_ratio or 0.0,
        signature=score.signature,
        searched=len(searched),
        empty=_share(sum(output.empty for output in searched), len(searched)),
        cut=len(searched) - len(whole),
        log_probs=Summary.of(output.log_prob for output in whole),
    )


def _exact_figures(exact: Sequence[ExactOutput], references: ReferenceSets) -> ExactFigures:
    known = [output.certificate for output in exact if output.certificate is not None]
    modes = [output for output in exact if output.proved]
    limits = Counter(str(about.stopped_by) for about in known if not about.proved)
    return ExactFigures(
        outputs=_output_figures(exact, references),
        proved=len(modes),
        unproved=_share(len(known) - len(modes), len(known)),
        stopped_by=dict(sorted(limits.items())),
        empty_modes=_share(sum(mode.empty for mode in modes), len(modes)),
        empty_log_probs=Summary.of(about.empty_log_prob for about in known),
        states=Summary.of(about.states for about in known),
        seconds=Summary.of(about.seconds for about in known),
        states_by_sentence=[
            None if one.certificate is None else one.certificate.states for one in exact
        ],
        proofs=[one.proved for one in exact],
    )


def _share(count: int, of: int) -> float | None:
    return count / of if of else None
