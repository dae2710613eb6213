"""The one exception for a user's mistake.

Whatever a user can mend (a missing file, a wrong flag, a damaged model) is raised as a
`SconesError` whose text is one sentence: the value, the place, the remedy. The command line
prints that sentence and exits with code 2; a program catches one class.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class SconesError(Exception):
    """A mistake that the user can mend, said in one sentence."""


def optional_import(module: str, absent: str) -> Any:
    """A module that is no part of every installation; `absent` tells how to get it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as problem:
        if str(problem.name).startswith(module.partition(".")[0]):
            raise SconesError(absent) from None
        raise SconesError(f"{module} is there, but its package {problem.name} is not.") from None
