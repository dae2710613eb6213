"""What there is to say about a fit: time, log-probabilities, what was cut off, some words."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scones.ibm3.parameters import Parameters

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

BEGIN = "▁"
"""What begins a word, among the pieces of SentencePiece."""


@dataclass
class Stage:
    """A model on the way, or what else takes time."""

    name: str
    seconds: float = 0.0
    log_probs: list[float] = field(default_factory=list)
    """After each iteration: of the best alignment, a target word, on the sample."""


@dataclass
class FitReport:
    """What went in, how it went, what was cut off."""

    pairs: int
    left_out: dict[str, int]
    source_counts: NDArray[np.int64]
    stages: list[Stage] = field(default_factory=list)
    lost: dict[str, float] = field(default_factory=dict)
    """The probability that pruning took, on average over the words of the source text."""
    sizes: dict[str, int] = field(default_factory=dict)
    peak_memory: int = 0
    """Bytes, of the whole process."""

    def to_json(self) -> dict[str, Any]:
        """Give what there is to keep."""
        return {
            "pairs": self.pairs,
            "left_out": self.left_out,
            "stages": [asdict(stage) for stage in self.stages],
            "lost": self.lost,
            "sizes": self.sizes,
            "peak_memory": self.peak_memory,
        }

    def tables(self) -> Group:
        """Give what went in and how it went as tables for rich to print."""
        from rich.console import Group

        went = new_table("stage", "seconds", "log-probability a word, after each iteration")
        for stage in self.stages:
            log_probs = "  ".join(f"{value:.3f}" for value in stage.log_probs)
            went.add_row(stage.name, f"{stage.seconds:,.1f}", log_probs)
        total = sum(stage.seconds for stage in self.stages)
        went.add_row("total", f"{total:,.1f}", "", style="bold")
        facts = new_table("", "")
        facts.add_row("pairs", f"{self.pairs:,}")
        for reason, count in self.left_out.items():
            facts.add_row(f"left out, {reason}", f"{count:,}")
        for name, size in self.sizes.items():
            facts.add_row(name, f"{size:,}")
        for name, share in self.lost.items():
            facts.add_row(f"pruned of {name}", f"{share:.3%}")
        facts.add_row("peak memory", f"{self.peak_memory / 1e6:,.0f} MB")
        return Group(went, facts)


Example = tuple[str, list[tuple[str, float]]]
"""A source word, and its most probable translations."""


def frequent_words(
    parameters: Parameters, counts: NDArray[np.int64], number: int, best: int = 5
) -> list[Example]:
    """Give the most frequent source words of three letters or more, and their translations.

    Where words are pieces, only those that begin a word: a reader can judge them.
    """
    found: list[Example] = []
    for word in np.argsort(-counts, kind="stable"):
        text = parameters.source_words[word]
        bare = text.removeprefix(BEGIN)
        if counts[word] == 0 or len(found) == number:
            break
        if len(bare) >= 3 and bare.isalpha() and (not parameters.subwords or bare != text):
            targets, probs = parameters.translations.of(int(word))
            shown = zip(targets[:best], probs[:best], strict=True)
            found.append((text, [(parameters.target_words[y], float(p)) for y, p in shown]))
    return found


def word_table(examples: list[Example]) -> Table:
    """Give words and their translations as a table for rich to print."""
    table = new_table("source word", "most probable translations")
    table.columns[1].justify = "left"
    for word, translations in examples:
        table.add_row(word, "  ".join(f"{text} {prob:.3f}" for text, prob in translations))
    return table


def new_table(first: str, *others: str) -> Table:
    """Make a table in the style of the house; all columns but the first are numbers."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_header=bool(first))
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table
