"""What a server gives a request at most. A request may ask for less, never for more."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from scones.errors import SconesError
from scones.options import Checked, option

if TYPE_CHECKING:
    from scones.model.folder import FolderConfig


@dataclass(frozen=True, kw_only=True)
class Limits(Checked):
    """Bounds of memory and time, whatever is asked."""

    max_characters: int = option(
        5_000, "Characters of a request's texts together.", "Limits", least=1, most=1_000_000
    )
    max_waiting: int = option(
        256, "Sentences that may wait for their turn; then others are sent away (429).", least=1
    )
    max_searches: int = option(8, "The same of exact searches.", least=1)
    max_states: int = option(
        100_000, "Prefixes that exact search may look at.", least=1, most=10_000_000
    )
    max_seconds: float = option(5.0, "Time of an exact search.", above=0, most=600)
    max_memory: float = option(
        0.5, "Gigabytes that exact search may take beside the model.", above=0, most=1e4
    )

    max_alternatives = 1_000
    """Translations in an answer."""
    max_beam = 16
    read_seconds = 10.0
    """Time for a request to arrive."""

    @property
    def max_bytes(self) -> int:
        """Of a request's body: a character may take twelve in JSON (two escapes) and in forms."""
        return 12 * self.max_characters + 4096


@dataclass(frozen=True)
class Served:
    """A model that is served."""

    name: str
    folder: Path

    @cached_property
    def config(self) -> FolderConfig:
        from scones.model.folder import FolderConfig

        config = FolderConfig.read(self.folder)
        if config.facts.is_export:
            raise SconesError(
                f"{self.folder} is an export for CTranslate2, which gives no scores; serve the "
                "model folder."
            )
        return config

    @property
    def source(self) -> str:
        return self.config.facts.source_language

    @property
    def target(self) -> str:
        return self.config.facts.target_language

    @property
    def layer(self) -> str:
        """The name of its output layer."""
        return str(self.config.facts.output.get("layer"))
