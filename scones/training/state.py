"""Where a run stands, and how it ended."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from scones.training.data import Position


@dataclass
class RunState:
    """Where a run stands; kept in every checkpoint."""

    step: int = 0
    position: Position = field(default_factory=Position)
    seconds: float = 0.0
    tokens: int = 0
    best_bleu: float | None = None
    best_step: int = 0
    validations_without_gain: int = 0
    skipped: int = 0
    """Steps whose loss or gradient was not finite."""
    skipped_in_a_row: int = 0

    def to_json(self) -> dict[str, Any]:
        """Give it as plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> RunState:
        """Read it back."""
        return cls(**{**values, "position": Position(**values["position"])})


@dataclass(frozen=True)
class TrainResult:
    """How a run ended."""

    reason: str
    steps: int
    seconds: float
    best_bleu: float | None
    best_step: int
    skipped: int = 0
    interrupted: bool = False
