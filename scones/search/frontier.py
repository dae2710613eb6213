"""What exact search keeps: prefixes that wait, and prefixes that were expanded.

A prefix that waits is a few numbers: its score, its last token and the expanded prefix before it.
An expanded one is a row: of a pool of keys and values that the model keeps, and of the tables here.
It lists the rows of all prefixes before it, so that nobody copies keys or values.

Shape letters: P rows of the pool, R of them expanded together, T positions, F prefixes that wait.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass
class Prefixes:
    """Prefixes that were not expanded yet."""

    scores: Tensor
    """Log-probabilities, float64."""
    terms: Tensor
    """Log-probabilities of the last tokens alone, float32."""
    tokens: Tensor
    """The last tokens."""
    parents: Tensor
    """The rows of the prefixes before them; -1 where there is none."""
    sentences: Tensor

    @classmethod
    def roots(cls, sentences: int, start: int, device: torch.device) -> Prefixes:
        """Give the beginning of every sentence; the first lies on top."""
        none = torch.zeros(sentences, dtype=torch.int32, device=device)
        return cls(
            none.double(),
            none.float(),
            none + start,
            none - 1,
            torch.arange(sentences - 1, -1, -1, dtype=torch.int32, device=device),
        )

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, which: Tensor | slice) -> Prefixes:
        if isinstance(which, Tensor) and which.dtype == torch.bool:
            which = which.nonzero().squeeze(1)  # once, and not again for every column
        return Prefixes(*(column[which] for column in self.columns))

    def before(self, others: Prefixes) -> Prefixes:
        """Give these and others, which come last."""
        both = zip(self.columns, others.columns, strict=True)
        return Prefixes(*(torch.cat(columns) for columns in both))

    @property
    def columns(self) -> list[Tensor]:
        """All of its columns."""
        return [getattr(self, field.name) for field in fields(self)]


BYTES_A_PREFIX = 2 * (8 + 4 + 4 + 4 + 4)
"""Twice what its columns take: the stack is copied when it grows, and when it is weeded."""


class Stack:
    """Waiting prefixes; the last to come are the first to go, which favours depth."""

    def __init__(self, prefixes: Prefixes, most: int) -> None:
        self._prefixes = prefixes
        self._count = len(prefixes)
        self.most = most
        """How many fit."""

    def __len__(self) -> int:
        return self._count

    @property
    def waiting(self) -> Prefixes:
        """All of them, the last to come last."""
        return self._prefixes[slice(self._count)]

    def pop(self, count: int) -> Prefixes:
        """Take up to so many off the top."""
        begin = max(0, self._count - count)
        taken = self._prefixes[slice(begin, self._count)]
        self._count = begin
        # A later push writes over them.
        return Prefixes(*(column.clone() for column in taken.columns))

    def push(self, prefixes: Prefixes) -> None:
        """Put prefixes on top; there has to be room for them."""
        end = self._count + len(prefixes)
        if end > len(self._prefixes):
            size = min(self.most, max(end, 2 * len(self._prefixes), 4096))
            self._prefixes = Prefixes(
                *(
                    torch.cat([column[: self._count], column.new_empty(size - self._count)])
                    for column in self._prefixes.columns
                )
            )
        for column, new in zip(self._prefixes.columns, prefixes.columns, strict=True):
            column[self._count : end] = new
        self._count = end

    def keep(self, which: Tensor) -> None:
        """Keep those for which a mask over all says so."""
        kept = self.waiting[which]
        self._count = 0
        self.push(kept)


class Tree:
    """Expanded prefixes."""

    def __init__(self, rows: int, steps: int, device: torch.device) -> None:
        self.paths_PT = torch.zeros(rows, steps, dtype=torch.int32, device=device)
        """The rows of the prefixes before each, and then its own."""
        self.depths_P = torch.zeros(rows, dtype=torch.int32, device=device)
        self.tokens_P = torch.zeros(rows, dtype=torch.int32, device=device)
        self.terms_P = torch.zeros(rows, device=device)
        self._free = torch.arange(rows, dtype=torch.int32, device=device)

    @property
    def room(self) -> int:
        """How many rows are free."""
        return len(self._free)

    @staticmethod
    def bytes_a_row(steps: int) -> int:
        """Give the memory that a row takes here."""
        return 4 * steps + 4 + 4 + 4 + 4

    def add(self, prefixes: Prefixes) -> Tensor:
        """Give prefixes rows, of which enough have to be free."""
        rows_R, self._free = self._free[: len(prefixes)], self._free[len(prefixes) :]
        has_parent = prefixes.parents >= 0
        parents_R = prefixes.parents.clamp(min=0)
        depths_R = torch.where(has_parent, self.depths_P[parents_R] + 1, 0)
        self.paths_PT[rows_R] = self.paths_PT[parents_R]
        self.paths_PT[rows_R, depths_R] = rows_R
        self.depths_P[rows_R] = depths_R
        self.tokens_P[rows_R] = prefixes.tokens
        self.terms_P[rows_R] = prefixes.terms
        return rows_R

    def collect(self, waiting: Prefixes) -> None:
        """Free all rows but those that waiting prefixes continue."""
        rows, steps = self.paths_PT.shape
        needed_P = torch.zeros(rows + 1, dtype=torch.bool, device=self.paths_PT.device)
        needed_P[waiting.parents] = True  # -1, for none, is the last and is not looked at
        parents = needed_P[:rows].nonzero().squeeze(1)
        places_T = torch.arange(steps, device=parents.device)
        on_path = places_T <= self.depths_P[parents].unsqueeze(1)
        needed_P[self.paths_PT[parents][on_path]] = True
        self._free = (~needed_P[:rows]).nonzero().squeeze(1).int()

    def read(self, rows_R: Tensor) -> list[tuple[list[int], list[float]]]:
        """Give the tokens of prefixes, without the start, and their log-probabilities."""
        depths = self.depths_P[rows_R].tolist()
        paths_RT = self.paths_PT[rows_R, : max(depths) + 1]
        tokens, terms = (column[paths_RT].tolist() for column in (self.tokens_P, self.terms_P))
        return [
            (some[1 : depth + 1], their[1 : depth + 1])
            for some, their, depth in zip(tokens, terms, depths, strict=True)
        ]
