"""A set of translations as a lattice: the smallest automaton that spells exactly these.

Translations that begin alike share their beginnings, those that end alike their ends; so a few
arcs show what hundreds of lines would hide: where a model sees several right ways to go on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Lattice:
    """States are numbers, 0 is where all begin; every arc leads to a larger number."""

    arcs: tuple[dict[str, int], ...]
    """For each state, where its pieces lead."""
    final: tuple[bool, ...]
    """Where a translation may end."""
    merged: int = 0
    """Other segmentations of these translations, which it does not spell."""

    @classmethod
    def of(cls, translations: Sequence[Sequence[str]], merged: int = 0) -> Lattice:
        """Make the smallest lattice of translations, given as pieces."""
        # First as a tree, in which every node comes before its children.
        ways: list[dict[str, int]] = [{}]
        ends = [False]
        for pieces in translations:
            node = 0
            for piece in pieces:
                if piece not in ways[node]:
                    ways[node][piece] = len(ways)
                    ways.append({})
                    ends.append(False)
                node = ways[node][piece]
            ends[node] = True
        # Nodes from which the same can follow are one state.
        kinds: dict[tuple[bool, tuple[tuple[str, int], ...]], int] = {}
        kind = [0] * len(ways)
        for node in range(len(ways) - 1, -1, -1):
            arcs = tuple(sorted((piece, kind[to]) for piece, to in ways[node].items()))
            kind[node] = kinds.setdefault((ends[node], arcs), len(kinds))
        # A state is made after all that it leads to: backwards, the first comes first.
        last = len(kinds) - 1
        backwards = list(kinds)[::-1]
        return cls(
            tuple({piece: last - to for piece, to in arcs} for _, arcs in backwards),
            tuple(final for final, _ in backwards),
            merged,
        )

    def paths(self) -> list[int]:
        """Count the ways from each state to an end."""
        counts = [0] * len(self.arcs)
        for state in range(len(self.arcs) - 1, -1, -1):
            onwards = sum(counts[to] for to in self.arcs[state].values())
            counts[state] = onwards + self.final[state]
        return counts

    def __len__(self) -> int:
        """How many translations it spells."""
        return self.paths()[0]

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        """All translations, in the order of their pieces."""
        waiting: list[tuple[int, tuple[str, ...]]] = [(0, ())]
        while waiting:
            state, pieces = waiting.pop()
            if self.final[state]:
                yield pieces
            for piece, to in sorted(self.arcs[state].items(), reverse=True):
                waiting.append((to, (*pieces, piece)))

    def compact(self) -> str:
        """All of them as one text, such as "{I'm|I am} sorry."; braces of theirs get a backslash.

        Where all ways meet, a choice ends.
        """
        if not len(self):
            return ""
        states = len(self.arcs)
        # Ways on from each state; behind the last all ends meet.
        ways = [
            [(_escaped(piece), to) for piece, to in sorted(arcs.items())] + [("", states)] * final
            for arcs, final in zip(self.arcs, self.final, strict=True)
        ]

        def spelled(state: int, end: int) -> str:
            """The ways from a state to one where they all meet."""
            parts = []
            while state != end:
                meeting = _meeting(ways, state)
                options = [piece + spelled(to, meeting) for piece, to in ways[state]]
                parts.append(_choice(options))
                state = meeting
            return "".join(parts)

        return _BYTES.sub(_characters, spelled(0, states)).strip()

    def to_json(self) -> dict[str, Any]:
        """Describe it, with the number of translations that go through every arc."""
        onwards = self.paths()
        arriving = [0] * len(self.arcs)
        arriving[0] = 1
        arcs = []
        for state, ways in enumerate(self.arcs):
            for piece, to in sorted(ways.items()):
                arriving[to] += arriving[state]
                count = arriving[state] * onwards[to]
                arcs.append({"from": state, "to": to, "piece": piece, "translations": count})
        return {
            "states": len(self.arcs),
            "final": [state for state, ends in enumerate(self.final) if ends],
            "translations": onwards[0],
            "segmentations": onwards[0] + self.merged,
            "arcs": arcs,
        }


_BYTES = re.compile(r"(?:<0x[0-9A-F]{2}>)+")


def _characters(pieces: re.Match[str]) -> str:
    return bytes.fromhex(re.sub(r"<0x|>", "", pieces[0])).decode(errors="replace")


def _escaped(piece: str) -> str:
    return re.sub(r"([{|}\\])", r"\\\1", piece).replace("▁", " ")


def _meeting(ways: Sequence[Sequence[tuple[str, int]]], state: int) -> int:
    """The first state that all ways from here go through."""
    open_ends = {to for _, to in ways[state]}
    while len(open_ends) > 1:
        first = min(open_ends)  # arcs lead to larger numbers: nothing else can lead here any more
        open_ends.remove(first)
        open_ends.update(to for _, to in ways[first])
    return open_ends.pop()


def _choice(options: Sequence[str]) -> str:
    if len(options) == 1:
        return options[0]
    spaced = all(option.startswith(" ") for option in options)
    return " " * spaced + "{" + "|".join(option[spaced:] for option in options) + "}"
