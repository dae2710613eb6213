"""What `scones prepare` did: pairs read, kept and dropped by reason, and the time of each stage."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scones.text.cleaning import REASONS, CleaningReport

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

TOO_MANY_PIECES = "long (pieces)"
ALL_REASONS = REASONS | {TOO_MANY_PIECES: "too many subword pieces on one side"}


@dataclass
class Corpus:
    """One pair of files, or one TSV, and what became of its pairs."""

    source: Path
    target: Path | None
    cleaning: CleaningReport = field(default_factory=CleaningReport)
    times: int = 1
    """How often every pair that was kept is in the store."""

    def to_json(self) -> dict[str, Any]:
        """Give the corpus as plain values, the reasons in their order."""
        cleaning = self.cleaning
        return {
            "source": str(self.source),
            "target": str(self.target) if self.target else None,
            "times": self.times,
            "pairs_read": cleaning.total,
            "pairs_kept": cleaning.kept,
            "dropped": {name: cleaning.counts[name] for name in ALL_REASONS},
            "examples": {
                name: [example._asdict() for example in cleaning.examples[name]]
                for name in ALL_REASONS
                if name in cleaning.examples
            },
        }


@dataclass
class Stage:
    """A part of the work, and how fast it went."""

    name: str
    pairs: int = 0
    seconds: float = 0.0

    @property
    def pairs_per_second(self) -> float:
        """Pairs that went through the stage in a second."""
        return self.pairs / self.seconds if self.seconds else 0.0


@dataclass
class PrepareReport:
    """The whole report; `report.json` in a store is its `to_json()`."""

    source_language: str
    target_language: str
    corpora: list[Corpus]
    options: dict[str, Any]
    stages: list[Stage] = field(default_factory=list)
    vocabulary: int = 0
    source_tokens: int = 0
    target_tokens: int = 0
    dev_pairs: int = 0
    digest: str = ""

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """Time a stage; whoever works in it counts its pairs."""
        stage = Stage(name)
        self.stages.append(stage)
        begin = time.perf_counter()
        yield stage
        stage.seconds = time.perf_counter() - begin

    @property
    def pairs_read(self) -> int:
        """Pairs of all corpora before cleaning."""
        return sum(corpus.cleaning.total for corpus in self.corpora)

    @property
    def pairs_kept(self) -> int:
        """Different pairs of all corpora that went into the store."""
        return sum(corpus.cleaning.kept for corpus in self.corpora)

    @property
    def dropped(self) -> Counter[str]:
        """Dropped pairs of all corpora by reason."""
        return sum((corpus.cleaning.counts for corpus in self.corpora), Counter())

    def to_json(self) -> dict[str, Any]:
        """Give the report as plain values."""
        from scones.version import __version__

        dropped = self.dropped
        return {
            "scones_version": __version__,
            "source_language": self.source_language,
            "target_language": self.target_language,
            "pairs_read": self.pairs_read,
            "pairs_kept": self.pairs_kept,
            "dropped": {
                name: {"pairs": dropped[name], "share": _share(dropped[name], self.pairs_read)}
                for name in ALL_REASONS
            },
            "corpora": [corpus.to_json() for corpus in self.corpora],
            "vocabulary": self.vocabulary,
            "source_tokens": self.source_tokens,
            "target_tokens": self.target_tokens,
            "dev_pairs": self.dev_pairs,
            "digest": self.digest,
            "stages": [
                {
                    "name": stage.name,
                    "pairs": stage.pairs,
                    "seconds": round(stage.seconds, 3),
                    "pairs_per_second": round(stage.pairs_per_second, 1),
                }
                for stage in self.stages
            ],
            "options": self.options,
        }

    def table(self) -> Group:
        """Give the report as tables for rich to print."""
        from rich.console import Group

        return Group(self._pair_table(), self._stage_table())

    def _pair_table(self) -> Table:
        table = _table(f"{self.source_language} → {self.target_language}", "pairs", "share")
        table.add_column("for example (line)", overflow="fold")
        table.add_row("unfiltered", f"{self.pairs_read:,}", "")
        for name, count in _in_order(self.dropped):
            share = f"{_share(count, self.pairs_read):.2%}"
            table.add_row(f"− {ALL_REASONS[name]}", f"{count:,}", share, self._example(name))
        kept = f"{_share(self.pairs_kept, self.pairs_read):.2%}"
        tokens = f"{self.source_tokens:,} source and {self.target_tokens:,} target tokens"
        table.add_row("filtered", f"{self.pairs_kept:,}", kept, tokens, style="bold")
        return table

    def _stage_table(self) -> Table:
        table = _table("stage", "seconds", "pairs/s")
        for stage in self.stages:
            speed = f"{stage.pairs_per_second:,.0f}" if stage.pairs else ""
            table.add_row(stage.name, f"{stage.seconds:,.1f}", speed)
        table.add_row("total", f"{sum(stage.seconds for stage in self.stages):,.1f}", style="bold")
        return table

    def _example(self, reason: str) -> str:
        for corpus in self.corpora:
            for example in corpus.cleaning.examples.get(reason, []):
                return f"{example.source} | {example.target} ({example.line:,})"
        return ""


def _in_order(dropped: Counter[str]) -> list[tuple[str, int]]:
    return [(name, dropped[name]) for name in ALL_REASONS if dropped[name]]


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _table(first: str, *numbers: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column(first)
    for name in numbers:
        table.add_column(name, justify="right")
    return table
