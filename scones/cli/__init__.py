"""The command line: one thin file per command, put together in `commands`.

Here is what happens around a command. It imports next to nothing, so that Ctrl-C is answered from
the first moment.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import os
import sys
from typing import Any

from scones.errors import SconesError

USAGE, INTERRUPTED = 2, 130
_NO_MEMORY = ("MemoryError", "OutOfMemoryError")
"""Python's and PyTorch's; the latter cannot be named without importing PyTorch."""
_NOT_ALLOCATED = "can't allocate memory"
"""What PyTorch says of a CPU's memory, in an error without a name of its own."""


def main() -> None:
    """Run the command line; a user's mistake is one sentence on stderr and exit code 2."""
    _open_streams()
    # Importing makes objects that stay: to look through them for garbage, again and again, and
    # once more at the exit, takes as long as a third of the imports.
    gc.set_threshold(50_000, 20, 20)
    code = run(sys.argv[1:])
    if "torch" not in sys.modules:  # whose objects would complain of having been left behind
        gc.freeze()
    sys.exit(code)


class _Stream(io.FileIO):
    """Standard output or error, which may be closed or full, or a pipe that nobody reads any more.

    What standard error does not take is dropped: that is no reason to end the work it tells of.
    What standard output does not take ends the command. What is written behind that is dropped,
    or Python would stumble over it again when it exits.
    """

    ended = False

    def write(self, content: Any) -> int:
        try:
            return len(content) if self.ended else super().write(content)
        except OSError as problem:
            if self.fileno() == 2:
                return len(content)
            self.ended = True
            if problem.errno == errno.EPIPE:  # its reader has had enough: no sentence
                raise SystemExit(USAGE) from None
            raise OSError(problem.errno, problem.strerror, "standard output") from None


def _open_streams() -> None:
    """Make the standard streams safe to use, whatever this process was started with."""
    # The place of one that is closed would be taken by the next file that anybody opens. What is
    # put there instead cannot be used: it is open for the wrong direction.
    for descriptor, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):
        if stream is None:
            os.open(os.devnull, os.O_RDONLY if descriptor else os.O_WRONLY)
    sys.stdin = sys.stdin or io.TextIOWrapper(io.FileIO(0))
    encoding = getattr(sys.stdout, "encoding", None)
    errors = "backslashreplace"  # a file's name may hold what no encoding has
    out, err = (_Stream(descriptor, "w", closefd=False) for descriptor in (1, 2))
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(out), encoding, errors)
    sys.stderr = io.TextIOWrapper(err, encoding, errors, write_through=True)


def run(arguments: list[str]) -> int:
    """Run the command line with these arguments and give the exit code."""
    try:
        from scones.cli.commands import call

        code = call(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except SconesError as mistake:
        return _refuse(str(mistake))
    except OSError as problem:
        return _refuse(_about(problem))
    except OverflowError as problem:
        return _refuse(f"A number that was given is too large to compute with ({problem}).")
    except UnicodeEncodeError as problem:
        return _refuse(f"A text that was given cannot be written ({problem}).")
    except RecursionError:
        return _refuse("A file that was given is nested too deeply to be read.")
    except (MemoryError, RuntimeError) as problem:
        if type(problem).__name__ not in _NO_MEMORY and _NOT_ALLOCATED not in str(problem):
            raise
        return _refuse(
            "There is not enough memory left; give less at a time (fewer --jobs, --max-tokens or "
            "--beam-size), or let fewer programs share it."
        )


def _refuse(sentence: str) -> int:
    # Where nobody takes the output, the sentence still counts.
    with contextlib.suppress(OSError, SystemExit):
        sys.stdout.flush()
    sys.stderr.write(f"scones: {printable(sentence)}\n")
    return USAGE


def printable(text: str) -> str:
    """A text from somebody's file as one line, with escapes for what a terminal would obey."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def _about(problem: OSError) -> str:
    """Say what the system refused, where, and what helps."""
    place = f" {problem.filename}" if problem.filename else ""
    if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"There is no space left to write{place}; free some space."
    if problem.errno == errno.EBADF:
        return f"There is no{place or ' standard input'}: it is closed; give it a file."
    if problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"There is no permission to use{place or ' a file'}; change it or choose another."
    return f"The system refuses{place}: {problem.strerror or problem}."
