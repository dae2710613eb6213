"""Translations that begin as somebody has fixed it.

A text is cut into pieces, which have to come first, one after another. But its last word may be
unfinished: "I am sor" goes on to "sorry", which may be one piece that starts neither with "so" nor
with "r". So wherever a piece of the last word is due, every piece may come instead that spells all
that is left of it, and more. Whoever takes such a piece is through; so is whoever has taken all of
the word's own. Behind a space the last word is finished: a new one has to begin, or nothing more.
Pieces that are given as such have to come as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scones.errors import SconesError
from scones.text import END, UNKNOWN
from scones.text.subwords import Subwords

Given = str | Sequence[str]
"""A text, or pieces."""


@dataclass(frozen=True)
class Prefix:
    """How a translation has to begin."""

    path: tuple[int, ...]
    """Its own pieces, one of the ways to spell it."""
    allowed: tuple[tuple[int, ...], ...]
    """What may stand at each position, as long as all before it came from the path."""

    @classmethod
    def of(cls, given: Given, subwords: Subwords) -> Prefix | None:
        """What a text or pieces ask for; None where that is nothing."""
        path = subwords.encode([given])[0] if isinstance(given, str) else subwords.ids(given)
        if any(token <= UNKNOWN for token in path):
            raise SconesError(
                f"The prefix {shown(given)} has a part that the model has no piece for; leave it "
                "out."
            )
        if not path:
            return None
        allowed: list[tuple[int, ...]] = [(token,) for token in path]
        if isinstance(given, str):
            allowed = _open_ended(path, subwords.pieces(), given[-1].isspace())
        return cls(tuple(path), tuple(allowed))

    def after(self, tokens: Sequence[int]) -> tuple[int, ...] | None:
        """What may come behind tokens; None where everything may."""
        depth = len(tokens)
        if depth < len(self.allowed) and tuple(tokens) == self.path[:depth]:
            return self.allowed[depth]
        return None


def _open_ended(path: list[int], pieces: list[str], finished: bool) -> list[tuple[int, ...]]:
    """What may come at each position for a text whose last word may go on."""
    allowed: list[tuple[int, ...]] = [(token,) for token in path]
    if finished:
        new = [token for token, piece in enumerate(pieces) if piece.startswith("▁")]
        return [*allowed, (END, *new)]
    own = [pieces[token] for token in path]
    longest = max(map(len, pieces))
    last = max((at for at, piece in enumerate(own) if piece.startswith("▁")), default=0)
    for at in range(last, len(path)):
        left = "".join(own[at:])
        if len(left) > longest:
            continue
        longer = (token for token, piece in enumerate(pieces) if piece.startswith(left))
        allowed[at] = (path[at], *(token for token in longer if token != path[at]))
    return allowed


def shown(given: Given) -> str:
    """A prefix as messages show it."""
    return repr(given) if len(given) < 60 else f"{given[:50]!r}…"


Prefixes = Sequence[Prefix | None]
"""Of several sentences; none at all where nobody has fixed anything."""


class Followers:
    """Which hypotheses of a beam still follow their sentence's prefix."""

    def __init__(self, prefixes: Prefixes, beam_size: int) -> None:
        self._prefixes = list(prefixes)
        self._beam_size = beam_size
        self._follow = [[True] * beam_size for _ in prefixes]

    def allowed(self, position: int) -> dict[int, tuple[int, ...]]:
        """What the rows that follow may take at a position."""
        return {
            sentence * self._beam_size + beam: prefix.allowed[position]
            for sentence, prefix in enumerate(self._prefixes)
            if prefix is not None and position < len(prefix.allowed)
            for beam, follows in enumerate(self._follow[sentence])
            if follows
        }

    def go_on(self, position: int, parents: list[list[int]], tokens: list[list[int]]) -> None:
        """Take note of what each hypothesis continues, and with which token."""
        for sentence, prefix in enumerate(self._prefixes):
            if prefix is not None and position < len(prefix.path):
                before = self._follow[sentence]
                self._follow[sentence] = [
                    before[parent] and token == prefix.path[position]
                    for parent, token in zip(parents[sentence], tokens[sentence], strict=True)
                ]

    def keep(self, staying: list[int]) -> None:
        self._prefixes = [self._prefixes[sentence] for sentence in staying]
        self._follow = [self._follow[sentence] for sentence in staying]
