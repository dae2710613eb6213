"""The HTTP API and the page: `scones serve` (docs/serving.md)."""

import logging
import traceback
from dataclasses import dataclass

OURS = "Something went wrong here; the server's log knows more."
"""What is answered to a request that finds a bug."""


@dataclass(eq=False)
class Refused(Exception):
    """An answer in one sentence instead of what was asked for."""

    status: int
    """HTTP's number for it."""
    sentence: str


def tell_of_error() -> None:
    """Log the exception that is being handled, with escapes for what a request may have put in."""
    for line in traceback.format_exc().splitlines():
        logging.getLogger("scones").error("%s", line.encode("unicode_escape").decode())
