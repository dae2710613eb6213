"""BLEU cells of the report computed again from their translations, and compared with the stored."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from replication.significance import SAME, References
from replication.table import Number, read_table
from scones.errors import SconesError
from scones.evaluation.metrics import bleu
from scones.text.reading import read_texts


@dataclass(frozen=True)
class Checked:
    """A cell that was computed again."""

    cell: Number
    path: Path
    """Its translations."""
    again: float

    @property
    def same(self) -> bool:
        """Whether the stored number is right."""
        return abs(self.again - self.cell.value) <= SAME

    @property
    def title(self) -> str:
        """What it is the BLEU of."""
        one = self.cell
        return f"{one.variant} {one.direction}, {one.run}, {one.set}, {one.search}"


def check(results: Path, data: Path | None, cells: int | None, seed: int = 1) -> Iterator[Checked]:
    """Compute so many cells again, chosen at random, the same for the same seed; None: all."""
    table, references = read_table(results), References(data)
    known = [one for one in table.numbers if one.metric == "bleu" and one.digest]
    if not known:
        raise SconesError(f"{results} has no BLEU cell whose translations are kept.")
    count = len(known) if cells is None else min(cells, len(known))
    for cell in random.Random(seed).sample(known, count):
        path = table.path(cell)
        yield Checked(cell, path, bleu(read_texts(path), [references.of(cell)]).value)
