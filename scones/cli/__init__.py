"""The command line: one thin file per command, put together in `commands`.

Here is what happens around a command. It imports next to nothing, so that Ctrl-C is answered from
the first moment.
"""

from __future__ import annotations

import contextlib
import errno
import sys

from scones.errors import SconesError

USAGE, INTERRUPTED = 2, 130
_NO_MEMORY = ("MemoryError", "OutOfMemoryError")
"""Python's and PyTorch's; the latter cannot be named without importing PyTorch."""
_NOT_ALLOCATED = "can't allocate memory"
"""What PyTorch says of a CPU's memory, in an error without a name of its own."""


def main() -> None:
    """Run the command line; a user's mistake is one sentence on stderr and exit code 2."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run the command line with these arguments and give the exit code."""
    try:
        from scones.cli.commands import call

        return call(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except SconesError as mistake:
        return _refuse(str(mistake))
    except OSError as problem:
        return _refuse(_about(problem))
    except OverflowError as problem:
        return _refuse(f"A number that was given is too large to compute with ({problem}).")
    except RecursionError:
        return _refuse("A file that was given is nested too deeply to be read.")
    except (MemoryError, RuntimeError) as problem:
        no_memory = type(problem).__name__ in _NO_MEMORY or _NOT_ALLOCATED in str(problem)
        if not no_memory:
            raise
        return _refuse(
            "There is not enough memory left; give less at a time (fewer --jobs, --max-tokens or "
            "--beam-size), or let fewer programs share it."
        )


def _refuse(sentence: str) -> int:
    with contextlib.suppress(OSError):  # where nobody takes the output, the sentence still counts
        sys.stdout.flush()
    sys.stderr.write(f"scones: {sentence}\n")
    return USAGE


def _about(problem: OSError) -> str:
    """Say what the system refused, where, and what helps."""
    place = f" {problem.filename}" if problem.filename else ""
    if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"There is no space left to write{place}; free some space."
    if problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"There is no permission to use{place or ' a file'}; change it or choose another."
    return f"The system refuses{place}: {problem.strerror or problem}."
