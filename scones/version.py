"""The version of the package and the commit it runs from, without anything heavy."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

__version__ = "0.1.0"


def versions() -> str:
    """Everything that decides a run's numbers: scones, its commit, PyTorch and Python."""
    import platform
    from importlib.metadata import version

    source = commit()
    at = f" (commit {source})" if source else ""
    # Asking the installed package is a thousand times faster than importing it.
    return (
        f"scones {__version__}{at}, PyTorch {version('torch')}, Python {platform.python_version()}"
    )


@functools.cache
def commit() -> str | None:
    """The git commit of the source tree, "+" behind it if changed; None when installed.

    A copy of the tree without its history is told by the variable SCONES_COMMIT.
    """
    if told := os.environ.get("SCONES_COMMIT"):
        return told
    here = Path(__file__).resolve().parent
    if not (here.parent / ".git").exists():
        return None

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "-s", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return None
