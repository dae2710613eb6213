"""The grammar in memory: entries, rules, and what a rule says in German and in English."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from scones.text.creamtea.pattern import Pattern, Slot, capitalised, spellings


@dataclass(frozen=True, eq=False)
class Entry:
    """A word in both languages; each form of its English may have several wordings."""

    german: Mapping[str, str]
    english: Mapping[str, tuple[str, ...]]
    agrees: str | None = None


Binding = Mapping[str, Entry]
"""Which entry stands in which slot."""


@dataclass(frozen=True)
class Rule:
    """One German pattern and all the English patterns that translate it.

    The rule's readings are numbered: a number below `size` chooses an entry for every slot.
    """

    german: Pattern
    english: tuple[Pattern, ...]
    slots: Mapping[str, tuple[Entry, ...]]
    contractions: Mapping[str, str]

    @property
    def size(self) -> int:
        """How many numbers there are; some bind nothing (see `binding`)."""
        return math.prod(len(entries) for entries in self.slots.values())

    def binding(self, number: int) -> Binding | None:
        """The entries that a number stands for; None where one entry would stand twice."""
        chosen = {}
        for name, entries in reversed(list(self.slots.items())):
            number, position = divmod(number, len(entries))
            chosen[name] = entries[position]
        return chosen if len(set(chosen.values())) == len(chosen) else None

    def numbered_sources(self) -> Iterator[tuple[int, str]]:
        """Every number that binds, with its German sentence."""
        for number, entries in enumerate(itertools.product(*self.slots.values())):
            if len(set(entries)) == len(entries):
                yield number, self.source(dict(zip(self.slots, entries, strict=True)))

    def source(self, binding: Binding) -> str:
        """The German sentence."""
        words = []
        for piece in self.german:
            if isinstance(piece, Slot):
                forms = binding[piece.name].german
                words.append(forms.get(_form(piece, binding)) or forms["plain"])
            else:
                words.append(piece)
        return capitalised("".join(words))

    def translations(self, binding: Binding) -> set[str]:
        """Every English sentence that translates the German one under this binding."""
        return {
            sentence
            for pattern in self.english
            for pieces in itertools.product(*(_wordings(piece, binding) for piece in pattern))
            for sentence in spellings("".join(pieces), self.contractions)
        }


@dataclass(frozen=True)
class SentenceType:
    """Rules that are drawn together, with one weight."""

    name: str
    weight: int
    rules: tuple[Rule, ...]


@dataclass(frozen=True)
class Grammar:
    """All sentence types, and what is needed to spoil a translation."""

    types: tuple[SentenceType, ...]
    alike: frozenset[str]
    """Lists whose members are too alike for a swap to be surely wrong."""
    dispensable: frozenset[str]
    """Lists whose words may be dropped and leave a fair translation."""
    negations: frozenset[str]
    """English words without which a sentence says the contrary."""


def _form(slot: Slot, binding: Binding) -> str:
    if slot.partner is None:
        return slot.form
    return binding[slot.partner].agrees or "plain"


def _wordings(piece: str | Slot, binding: Binding) -> tuple[str, ...]:
    if isinstance(piece, str):
        return (piece,)
    forms = binding[piece.name].english
    return forms.get(_form(piece, binding)) or forms["plain"]
