"""The notation of the grammar's patterns: `{slot}`, `(a|b)`, `~word`.

Alternatives are unfolded when the grammar is read, so a `Pattern` is a flat row of text and slots.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from scones.errors import SconesError

_SLOT = re.compile(r"\{(\w+)(?:\.(\w+)|:(\w+))?\}")
_INNERMOST = re.compile(r"\(([^()]*)\)")


@dataclass(frozen=True)
class Slot:
    """A place for a word, in a named form or in the form that agrees with another slot."""

    name: str
    form: str = "plain"
    partner: str | None = None

    @property
    def list_name(self) -> str:
        """The list to choose from: `{who2}` is a second word of the list `who`."""
        return self.name.rstrip("0123456789")


Pattern = tuple[str | Slot, ...]


def unfold(text: str, place: str) -> list[str]:
    """Every reading of a text with alternatives: "(a|b) c" is "a c" and "b c"."""
    group = _INNERMOST.search(text)
    if group is None:
        if any(mark in text for mark in "()|"):
            raise SconesError(f"{place}: the brackets of '{text}' do not match; close every '('.")
        return [" ".join(text.split())]
    # Innermost first: what an alternative holds is unfolded before it becomes one of several.
    before, after = text[: group.start()], text[group.end() :]
    readings = (unfold(before + choice + after, place) for choice in group[1].split("|"))
    return list(dict.fromkeys(reading for some in readings for reading in some))


def parse(text: str, place: str) -> Pattern:
    """Split a text without alternatives into literal pieces and slots."""
    pieces: list[str | Slot] = []
    end = 0
    for match in _SLOT.finditer(text):
        pieces += [text[end : match.start()], Slot(match[1], match[2] or "plain", match[3])]
        end = match.end()
    pieces.append(text[end:])
    if any("{" in piece or "}" in piece for piece in pieces if isinstance(piece, str)):
        raise SconesError(
            f"{place}: '{text}' holds a slot that cannot be read; "
            "write {list}, {list.form} or {list:slot}."
        )
    return tuple(piece for piece in pieces if piece != "")


def slots_of(pattern: Pattern) -> list[Slot]:
    """The slots of a pattern, in order."""
    return [piece for piece in pattern if isinstance(piece, Slot)]


def rename(pattern: Pattern, lists: Mapping[str, str]) -> Pattern:
    """The same pattern with the slots of a pairing put in place of its own."""

    def renamed(piece: str | Slot) -> str | Slot:
        if isinstance(piece, str):
            return piece
        partner = piece.partner and lists.get(piece.partner, piece.partner)
        return Slot(lists.get(piece.name, piece.name), piece.form, partner)

    return tuple(renamed(piece) for piece in pattern)


def capitalised(sentence: str) -> str:
    """The sentence with a capital first letter, the rest as it was."""
    return sentence[:1].upper() + sentence[1:]


def spellings(text: str, contractions: Mapping[str, str]) -> Iterator[str]:
    """Every way to write an English text in which some words may lean (`~is`) on their neighbour.

    Settles punctuation, the article "an" and the capital as well.
    """
    words = re.sub(r"\s+([.,?!])", r"\1", text).split()
    for row in _contracted(words, contractions):
        sentence = " ".join(row)
        yield capitalised(re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", sentence))


def _contracted(words: list[str], contractions: Mapping[str, str]) -> Iterator[list[str]]:
    """Walk the words from the left; where a pair may be contracted, go both ways."""
    for number, (left, right) in enumerate(pairwise(words)):
        pair = f"{left.removeprefix('~')} {right.removeprefix('~')}"
        if right.startswith("~") and pair in contractions:
            head = [word.removeprefix("~") for word in words[:number]]
            # The contracted pair is one finished word: its right neighbour must stand alone.
            tails = words[number + 2 :]
            settled = [word.removeprefix("~") for word in tails[:1]] + tails[1:]
            for tail in _contracted(settled, contractions):
                yield [*head, contractions[pair], *tail]
            for tail in _contracted([right.removeprefix("~"), *tails], contractions):
                yield [*head, left.removeprefix("~"), *tail]
            return
    yield [word.removeprefix("~") for word in words]
