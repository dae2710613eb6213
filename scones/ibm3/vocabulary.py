"""Text to the numbers of source words, the numbers of target words to text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from scones.ibm3.parameters import Parameters
from scones.ibm3.samples import Ids, Samples
from scones.ibm3.story import DROPPED, SEEN, fates
from scones.text.store import FlatSentences, flat_sentences


class Vocabulary:
    """The words of both languages of a model, pieces or not, and what becomes of them."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self.fates = fates(parameters)

    def encode(self, texts: Sequence[str]) -> FlatSentences:
        """Split texts into pieces, or at spaces, and give their numbers as `sample` takes them.

        A word that is not in the source vocabulary has a negative number, which says what becomes
        of it: -1 nothing, -2 the target word 0, and so on.
        """
        if self._parameters.subwords is not None:
            return flat_sentences(self._parameters.subwords.encode(texts))
        return flat_sentences([[self._number(word) for word in text.split()] for text in texts])

    def _number(self, word: str) -> int:
        sources, targets = self._numbers
        number = sources.get(word)
        return number if number is not None else -2 - targets.get(word, DROPPED)

    @cached_property
    def _numbers(self) -> tuple[dict[str, int], dict[str, int]]:
        sides = (self._parameters.source_words, self._parameters.target_words)
        sources, targets = ({word: i for i, word in enumerate(words)} for words in sides)
        return sources, targets

    def decode(self, samples: Samples) -> list[str]:
        """Join target words to texts, each of a single line."""
        sentences = samples.split()
        if self._parameters.subwords is None:
            words = self._parameters.target_words
            return [" ".join(words[number] for number in sentence) for sentence in sentences]
        # Pieces can spell a line end in bytes.
        return [text.replace("\n", " ") for text in self._parameters.subwords.decode(sentences)]

    def fates_of(self, tokens: Ids) -> Ids:
        """Say what becomes of source words: seen, dropped, or copied to a target word."""
        there = np.where(tokens < 0, 0, tokens)
        known = self.fates[there] if len(self.fates) else np.full(len(tokens), SEEN, np.int32)
        return np.where(tokens < 0, -2 - tokens, known)
