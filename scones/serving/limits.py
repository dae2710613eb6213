"""What a server is told: what it gives a request at most, and where it listens to whom."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scones.errors import SconesError
from scones.options import Checked, option


@dataclass(frozen=True, kw_only=True)
class Limits(Checked):
    """Bounds of memory and time; a request may ask for less, never for more."""

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


@dataclass(frozen=True, kw_only=True)
class Serving(Limits):
    """The limits, where a server listens, and whom it answers."""

    host: str = option("127.0.0.1", "Where to listen; 0.0.0.0: to everybody.", "Server")
    port: int = option(8000, "The port.", least=0, most=65_535)
    keys: Path | None = option(
        None, "A file of API keys, one a line; only who has one is answered."
    )
    origins: list[str] = option(
        [], "Other sites whose pages may ask (CORS); may be repeated.", flags=("--origin",)
    )


class Served:
    """A model that is served."""

    def __init__(self, name: str, folder: Path) -> None:
        from scones.model.folder import FolderConfig

        config = FolderConfig.read(folder)
        if config.facts.is_export:
            raise SconesError(
                f"{folder} is an export for CTranslate2, which gives no scores; serve the "
                "model folder."
            )
        self.name, self.folder = name, config.folder
        self.source, self.target = config.facts.source_language, config.facts.target_language
        self.layer = str(config.facts.output["layer"])
