"""Several processes on one stream: results in order, bounded memory, no process left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from scones.errors import SconesError

Tool = TypeVar("Tool")
Item = TypeVar("Item")
Result = TypeVar("Result")


def ordered_map(
    function: Callable[[Tool, Item], Result],
    items: Iterable[Item],
    make_tool: Callable[[], Tool],
    workers: int,
) -> Generator[Result, None, None]:
    """Yield `function(tool, item)` for each item, in order, from `workers` processes.

    Each process makes its own tool once. Items are read only as fast as results are taken. With
    one worker no process is started. Close the iterator (`contextlib.closing`) to end the
    processes at once, whatever they are doing.
    """
    if workers == 1:
        tool = make_tool()
        yield from (function(tool, item) for item in items)
        return
    context = multiprocessing.get_context("spawn")  # forking a process with threads may hang
    # Nothing is ever sent through this pipe. Its other end closes when this process closes it or
    # dies, even by SIGKILL, and then the workers end themselves.
    lifeline, held_here = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, context, _begin, (lifeline, make_tool))
    pending: deque[Future[Result]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(_work, function, item))
            if len(pending) > 2 * workers:  # enough that no worker waits
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
        pool.shutdown()
    except BrokenProcessPool:
        raise SconesError(
            "A worker process died, most likely for want of memory; use fewer with --workers."
        ) from None
    finally:
        held_here.close()
        pool.shutdown(wait=True, cancel_futures=True)
        lifeline.close()


def run_apart(function: Callable[[], Result], workers: int) -> Result:
    """Run a function in a process of its own, or in this one where there is one worker only.

    Its memory goes back when it ends, and Ctrl-C need not wait for it.
    """
    with closing(ordered_map(_call, [function], type(None), workers)) as results:
        return next(results)


def _call(_: None, function: Callable[[], Result]) -> Result:
    return function()


_tool: Any = None


def _begin(lifeline: Connection, make_tool: Callable[[], Any]) -> None:
    global _tool
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the first process to answer
    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
    _tool = make_tool()


def _end_with_parent(lifeline: Connection) -> None:
    """Exit when the other end of the pipe is closed, by the parent's will or by its death."""
    lifeline.poll(None)
    os._exit(1)


def _work(function: Callable[[Any, Any], Any], item: Any) -> Any:
    return function(_tool, item)
