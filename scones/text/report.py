"""What `scones prepare` did: pairs read, kept and dropped by reason, and the time of each stage."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scones.text.cleaning import REASONS, CleaningReport

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
    several: bool = False
    """Whether a line may hold several targets, each of which makes a pair."""

    def to_json(self) -> dict[str, Any]:
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
    name: str
    pairs: int = 0
    seconds: float = 0.0

    @property
    def pairs_per_second(self) -> float:
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
        return sum(corpus.cleaning.total for corpus in self.corpora)

    @property
    def pairs_kept(self) -> int:
        """Different pairs: one that stands in the store several `times` counts once."""
        return sum(corpus.cleaning.kept for corpus in self.corpora)

    @property
    def dropped(self) -> Counter[str]:
        return sum((corpus.cleaning.counts for corpus in self.corpora), Counter())

    @property
    def notes(self) -> list[str]:
        """What did not go as it was asked for."""
        asked = self.options["pieces"]
        if self.options["subwords"] or self.vocabulary >= asked:
            return []
        return [f"The text is too small for {asked:,} pieces; it has {self.vocabulary:,}."]

    def to_json(self) -> dict[str, Any]:
        from scones.version import __version__

        dropped = self.dropped
        return {
            "scones_version": __version__,
            "source_language": self.source_language,
            "target_language": self.target_language,
            "pairs_read": self.pairs_read,
            "pairs_kept": self.pairs_kept,
            "dropped": {
                name: {"pairs": dropped[name], "share": dropped[name] / self.pairs_read}
                for name in ALL_REASONS
            },
            "corpora": [corpus.to_json() for corpus in self.corpora],
            "vocabulary": self.vocabulary,
            "notes": self.notes,
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

    def pair_table(self) -> tuple[list[str], list[list[str]]]:
        """Columns and rows: all pairs, those dropped by reason with an example, those kept."""
        read, kept = self.pairs_read, self.pairs_kept
        rows = [["unfiltered", f"{read:,}", "", ""]]
        for name, reason in ALL_REASONS.items():
            if count := self.dropped[name]:
                share = f"{count / read:.2%}"
                rows.append([f"− {reason}", f"{count:,}", share, self._example(name)])
        tokens = f"{self.source_tokens:,} source and {self.target_tokens:,} target tokens"
        rows.append(["filtered", f"{kept:,}", f"{kept / read:.2%}", tokens])
        direction = f"{self.source_language} → {self.target_language}"
        return [direction, "pairs", "share", "for example (line)"], rows

    def stage_table(self) -> tuple[list[str], list[list[str]]]:
        """Columns and rows: the time and the speed of each stage."""
        rows = []
        for stage in self.stages:
            speed = f"{stage.pairs_per_second:,.0f}" if stage.pairs else ""
            rows.append([stage.name, f"{stage.seconds:,.1f}", speed])
        rows.append(["total", f"{sum(stage.seconds for stage in self.stages):,.1f}", ""])
        return ["stage", "seconds", "pairs/s"], rows

    def _example(self, reason: str) -> str:
        for corpus in self.corpora:
            for example in corpus.cleaning.examples.get(reason, []):
                return f"{example.source} | {example.target} ({example.line:,})"
        return ""
