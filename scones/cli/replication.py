"""The paper's experiments by their old names; they lie beside the package, in a checkout of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from scones.errors import SconesError

_ROOT = Path(__file__).resolve().parents[2]


def __getattr__(name: str) -> Any:
    """Give the group `paper`, or the command `replicate` or `synthetic`."""
    if not (_ROOT / "replication" / "cli.py").exists():
        return _missing
    if str(_ROOT) not in sys.path:
        sys.path.append(str(_ROOT))
    from replication import cli

    return getattr(cli, name)


def _missing() -> None:
    """Reproduce the paper: in a checkout of the repository."""
    raise SconesError(
        "The paper's experiments are not part of an installation; clone the repository of scones "
        "and give this command there, or `python -m replication`, which needs no installation."
    )
