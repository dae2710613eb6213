"""The HTTP API and the page: `scones serve` (docs/serving.md)."""

import logging
import traceback

OURS = "Something went wrong here; the server's log knows more."
"""What is answered to a request that finds a bug."""


def tell_of_error() -> None:
    """Log the exception that is being handled, with escapes for what a request may have put in."""
    for line in traceback.format_exc().splitlines():
        logging.getLogger("scones").error("%s", line.encode("unicode_escape").decode())
