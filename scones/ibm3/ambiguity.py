"""How ambiguous a synthetic language is: what the temperature of sampling does to a text.

The same sources are sampled several times at each temperature, and measured:

entropy         of all choices of the process, each given those before it, in bits per target word:
                how many yes-no questions it takes to tell a translation, with the source word
                behind every word, from all others. The entropies of n and t are exact; those of d
                depend on what is vacant, and of NULL's number on how many words there are, so that
                the samples decide which ones count. By the chain rule the expectation of the sum is
                the entropy of the process
translations    different target words that a source word became in all samples together: the mean
                over the words of the text that became any
self-BLEU       BLEU of the second sample with the first as reference: 100 is a language in which
                everything is said in one way only
length ratio    target words over source words, in sentences that have a translation
reordering      share of the pairs of target words from different source words that stand in the
                opposite order of those: 0 keeps the order of the source, 0.5 is any order
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scones.errors import SconesError
from scones.evaluation.metrics import bleu
from scones.ibm3.options import GRID, MeasureOptions
from scones.ibm3.parameters import Parameters
from scones.ibm3.sampling import (
    SEEN,
    Counts,
    Ids,
    Lengths,
    Outcome,
    Sampler,
    Samples,
    check_temperature,
)
from scones.text.store import FlatSentences


@dataclass(frozen=True)
class Entropy:
    """Bits per target word, by the kind of choice."""

    fertilities: float
    words: float
    places: float
    null: float
    """The number of NULL's words; which ones they are counts with the words."""

    @property
    def total(self) -> float:
        """All choices together."""
        return self.fertilities + self.words + self.places + self.null


@dataclass(frozen=True)
class Ambiguity:
    """What was measured at a temperature; see the module."""

    temperature: float
    entropy: Entropy
    translations: float
    self_bleu: float
    length_ratio: float
    reordering: float
    counts: Counts

    def to_json(self) -> dict[str, Any]:
        row = asdict(self)
        row["entropy"]["total"] = self.entropy.total
        return row


Sources = Sequence[str] | FlatSentences
"""Texts, or words one after another with the lengths of the sentences."""


def measure_over(
    parameters: Parameters,
    sources: Sources,
    temperatures: Sequence[float] = GRID,
    options: MeasureOptions | None = None,
    progress: Callable[[float], None] = lambda temperature: None,
) -> list[Ambiguity]:
    """Measure at several temperatures, in rising order; `progress` hears of each before it."""
    for temperature in temperatures:
        check_temperature(temperature)
    measured = []
    for temperature in sorted(set(temperatures)):
        progress(temperature)
        measured.append(measure(parameters, sources, temperature, options))
    return measured


def measure(
    parameters: Parameters,
    sources: Sources,
    temperature: float,
    options: MeasureOptions | None = None,
) -> Ambiguity:
    """Measure at one temperature."""
    options = options or MeasureOptions()
    sampler = Sampler(parameters, temperature, options.seed, options.max_length, options.threads)
    vocabulary = sampler.vocabulary
    given = sources if isinstance(sources, tuple) else vocabulary.encode(sources)
    tokens, lengths = given[0].astype(np.int32), given[1].astype(np.int64)
    policy = vocabulary.policy_of(tokens)
    counts = Counts()
    found = []
    for sample in range(options.samples):
        # Numbers go on from sample to sample, or all samples would be the same.
        number = sample * len(lengths)
        found.append(sampler.sample(tokens, lengths, number, measured=True))
        counts.add(policy, found[-1])
    if not counts.translated:
        raise SconesError(
            f"None of the {len(lengths):,} sentences to measure could be translated; give "
            "text of the source language of the model."
        )
    first, second = (vocabulary.decode(one.tokens, one.lengths) for one in found[:2])
    return Ambiguity(
        temperature,
        _entropy(sampler, tokens, policy, lengths, found),
        _translations(lengths, found),
        bleu(second, [first]).value,
        _length_ratio(lengths, found),
        _reordering(found),
        counts,
    )


def _entropy(
    sampler: Sampler, tokens: Ids, policy: Ids, lengths: Lengths, found: list[Samples]
) -> Entropy:
    # A word that was never seen has nothing to choose; it borrows a row, and gives nothing back.
    seen = policy == SEEN
    borrowed = np.where(seen, tokens, 0)
    of_fertility = np.where(seen, sampler.fertility_entropies[borrowed], 0.0)
    of_word = np.where(seen, sampler.word_entropies[borrowed], 0.0)
    # No sentence has more words that NULL could follow.
    longest = max(int(sample.lengths.max()) for sample in found)
    of_number = _binomial_entropies(sampler.p1, longest)
    nats = np.zeros(4)
    words = 0
    rows = np.arange(len(lengths))
    for sample in found:
        translated = sample.outcomes == Outcome.TRANSLATED
        nats[0] += of_fertility[np.repeat(translated, lengths)].sum()
        own, source = _aligned(lengths, sample)
        nats[1] += of_word[source].sum()
        nats[1] += np.count_nonzero(~own) * sampler.word_entropies[-1]
        nats[2] += sample.position_entropies.sum()
        explained = np.bincount(np.repeat(rows, sample.lengths)[own], minlength=len(rows))
        nats[3] += of_number[explained[translated]].sum()
        words += len(sample.tokens)
    return Entropy(*(nats / np.log(2) / words).tolist())


def _aligned(lengths: Lengths, sample: Samples) -> tuple[NDArray[np.bool_], NDArray[Any]]:
    """Which target words come from a source word, and the index of each one's in all sources."""
    own = sample.origins > 0
    starts = np.cumsum(lengths) - lengths
    return own, np.repeat(starts, sample.lengths)[own] + sample.origins[own] - 1


def _binomial_entropies(p1: float, most: int) -> NDArray[np.float64]:
    """The entropies of the binomial distributions of 0, 1, … `most` trials, in nats."""
    result = np.zeros(most + 1)
    probs = np.ones(1)
    for trials in range(1, most + 1):
        # One more trial: Pascal's triangle, with probabilities.
        probs = np.convolve(probs, [1 - p1, p1])
        there = probs[probs > 0]
        result[trials] = -(there * np.log(there)).sum()
    return result


def _translations(lengths: Lengths, found: list[Samples]) -> float:
    """The mean number of different target words, of the source words that became any."""
    pairs = []
    for sample in found:
        own, source = _aligned(lengths, sample)
        # Both numbers in one of 64 bits: np.unique is many times as fast as with pairs.
        pairs.append(np.unique(source << 32 | sample.tokens[own]))
    different = np.unique(np.concatenate(pairs))
    return len(different) / len(np.unique(different >> 32))


def _length_ratio(lengths: Lengths, found: list[Samples]) -> float:
    targets = sum(len(sample.tokens) for sample in found)
    sources = sum(lengths[sample.outcomes == Outcome.TRANSLATED].sum() for sample in found)
    return float(targets / sources)


def _reordering(found: list[Samples]) -> float:
    turned = pairs = 0
    for sample in found:
        for origins in np.split(sample.origins, np.cumsum(sample.lengths)[:-1]):
            own = origins[origins > 0]
            # All pairs at once: sentences are short enough for a square of their length.
            before = np.triu(np.ones((len(own), len(own)), bool), 1)
            turned += int(np.count_nonzero((own[:, None] > own) & before))
            pairs += int(np.count_nonzero((own[:, None] != own) & before))
    return turned / pairs if pairs else 0.0


def markdown(measured: Sequence[Ambiguity], title: str = "Ambiguity by temperature") -> str:
    """Show measurements as a table."""
    heads = ["γ", "entropy, bits a word", "of fertilities", "of words", "of places", "of NULL",
             "translations a word", "self-BLEU", "length ratio", "reordering"]  # fmt: skip
    lines = [f"# {title}", "", f"| {' | '.join(heads)} |", "|" + "---:|" * len(heads)]
    for row in measured:
        entropy = row.entropy
        bits = (entropy.total, entropy.fertilities, entropy.words, entropy.places, entropy.null)
        cells = [
            f"{row.temperature:g}",
            *(f"{value:.3f}" for value in bits),
            f"{row.translations:.2f}",
            f"{row.self_bleu:.1f}",
            f"{row.length_ratio:.3f}",
            f"{row.reordering:.3f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])
