"""Translations as users get them: text, pieces, scores and what is known beside them."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from scones.search.lattice import Lattice

if TYPE_CHECKING:
    from scones.search.frontier import Certificate


@dataclass(frozen=True)
class Translation:
    """One translation of a sentence."""

    text: str
    tokens: tuple[str, ...]
    """Its pieces, without the end of sentence."""
    log_prob: float | None
    """log P(z = 1 | x), end of sentence included.

    None where it was not computed, and where the translation was cut: it is not known to be whole.
    """
    token_log_probs: tuple[float, ...] | None
    """The terms of that sum, one per token, the end of sentence last."""
    finished: bool = True
    """False where the length limit cut the translation."""
    segmentations: int = 1
    """In how many ways of cutting it into pieces it was found; the best of them stands here."""
    ambiguity: float | None = None
    """How many next tokens are right, if any is: the mean over its positions.

    This, doubt and confidence are told where they are asked for, and by `judge`. None of a
    translation that was cut.
    """
    doubt: float | None = None
    """How probable it is that no next token is right: the mean over its positions."""
    confidence: float | None = None
    """How probable it is that it is acceptable, if the model is calibrated (docs/confidence.md)."""

    @property
    def probability(self) -> float | None:
        """The probability itself."""
        return None if self.log_prob is None else math.exp(self.log_prob)


NOTHING = Translation("", (), None, None)
"""What becomes of an empty sentence."""


def joined(parts: Sequence[tuple[str, Translation]]) -> Translation:
    """The translation of a text from its sentences, as they stand there, and theirs.

    An end of sentence between two of them is a token like any other.
    """
    if not parts:
        return NOTHING
    texts, tokens, found = [], [], [translation for _, translation in parts]
    for sentence, one in parts:
        before, _, after = sentence.partition(sentence.strip())
        texts.append(before + one.text + after)
        tokens += [*one.tokens, *["</s>"] * one.finished]
    log_probs = [one.log_prob for one in found if one.log_prob is not None]
    terms = [one.token_log_probs for one in found if one.token_log_probs is not None]
    confidences = [one.confidence for one in found if one.confidence is not None]
    text = "".join(texts)
    return Translation(
        text if text.strip() else "",
        tuple(tokens[: len(tokens) - found[-1].finished]),
        math.fsum(log_probs) if len(log_probs) == len(found) else None,
        tuple(chain.from_iterable(terms)) if len(terms) == len(found) else None,
        all(one.finished for one in found),
        math.prod(one.segmentations for one in found),
        _mean_over_tokens([one.ambiguity for one in found], found),
        _mean_over_tokens([one.doubt for one in found], found),
        math.prod(confidences) if len(confidences) == len(found) else None,
    )


def _mean_over_tokens(values: Sequence[float | None], found: Sequence[Translation]) -> float | None:
    """Of sentences' values, if all are known."""
    known = [value for value in values if value is not None]
    lengths = [len(one.tokens) + 1 for one in found]
    if len(known) < len(values):
        return None
    return sum(map(operator.mul, known, lengths)) / sum(lengths)


@dataclass(frozen=True)
class ExactTranslations:
    """What exact search found for a sentence, and what is known about it."""

    translations: list[Translation]
    """The best first."""
    certificate: Certificate | None
    """None for an empty sentence, for which nothing was searched."""

    @property
    def lattice(self) -> Lattice:
        """All of them as the smallest automaton over the pieces of their best segmentations."""
        merged = sum(found.segmentations - 1 for found in self.translations)
        return Lattice.of([found.tokens for found in self.translations], merged)
