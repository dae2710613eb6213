"""A lane: those that wait, and the process that answers them in batches.

There are two: one for what takes milliseconds, one for exact search. Each has its own process, so
that neither waits for the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from scones.errors import SconesError
from scones.serving import Refused
from scones.serving.worker import Item, Task, work

_START_SECONDS = 300.0


class Unavailable(SconesError):
    """The process died, or it did not answer in time; another one is being started."""


class Owner:
    """The process that owns the models, and the line to it. Its methods wait, but `interrupt`."""

    def __init__(self, folders: Mapping[str, Path], aside: bool = False) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._folders, self._aside = folders, aside
        self._cancelled = self._context.Value("q", -1, lock=False)
        self._number = 0

    def start(self) -> Owner:
        """Start it; refuses what its models are refused for."""
        self._line, theirs = self._context.Pipe()
        self._process = self._context.Process(
            target=work, args=(theirs, self._cancelled, self._folders, self._aside), daemon=True
        )
        # Ctrl-C in the terminal reaches this process too, and is the server's affair: what is
        # blocked here is so there from the first moment. (The tracker, once started, unblocks.)
        resource_tracker.ensure_running()
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        self._process.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        theirs.close()  # so that its end is the end of the line
        if refusal := self._heard(_START_SECONDS):
            raise SconesError(refusal.sentence)
        return self

    def answers(self, task: Task, items: Sequence[Item], seconds: float) -> list[Any]:
        """Hand over a batch and wait for the answers; none if it was interrupted."""
        self._number += 1
        try:
            self._line.send((self._number, task, items))
        except OSError:
            raise Unavailable("The models were lost; ask again in a moment.") from None
        found: list[Any] = self._heard(seconds)
        return found

    def _heard(self, seconds: float) -> Any:
        with contextlib.suppress(EOFError, OSError):
            if self._line.poll(seconds):
                return self._line.recv()
        raise Unavailable("The models do not answer; ask again in a moment.")

    def interrupt(self) -> None:
        """Let it give up the batch that it has, if it has one."""
        self._cancelled.value = self._number
        with contextlib.suppress(ProcessLookupError, TypeError):
            os.kill(self._process.pid, signal.SIGUSR1)  # type: ignore[arg-type]

    def stop(self) -> None:
        self._line.close()
        self._process.join(1)
        self._process.kill()
        self._process.join()


@dataclass(eq=False)
class _Waiting:
    task: Task
    item: Item
    answer: asyncio.Future[Any]


class Lane:
    """Those that wait for an owner of models."""

    def __init__(self, owner: Owner, together: int, most: int, seconds: float) -> None:
        """At most so many are answered `together`, within so many `seconds`; `most` may wait."""
        self._owner, self._together, self._most, self._seconds = owner, together, most, seconds
        self._waiting: list[_Waiting] = []
        self._doing: list[_Waiting] = []
        self._someone = asyncio.Event()
        self._thread = ThreadPoolExecutor(1)
        self.ready = True

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def ask(self, task: Task, items: Sequence[Item]) -> list[Any]:
        """The answers to items of a task; whoever is cancelled meanwhile gives up the place."""
        # A request alone may be larger than the queue.
        if self._waiting and len(self._waiting) + len(items) > self._most:
            raise Refused(429, "Too many requests are waiting; ask again later.")
        loop = asyncio.get_running_loop()
        asked = [_Waiting(task, item, loop.create_future()) for item in items]
        self._waiting += asked
        self._someone.set()
        try:
            return await asyncio.gather(*(one.answer for one in asked))
        finally:
            self._forget(asked)

    def _forget(self, asked: Sequence[_Waiting]) -> None:
        """Take those who went away out of the queue, and stop what is done for nobody."""
        if all(one.answer.done() and not one.answer.cancelled() for one in asked):
            return
        for one in asked:
            one.answer.cancel()
        self._waiting = [one for one in self._waiting if not one.answer.done()]
        if self._doing and all(one.answer.done() for one in self._doing):
            self._owner.interrupt()

    async def run(self) -> None:
        """Answer for ever."""
        loop = asyncio.get_running_loop()
        while True:
            while not self._waiting:
                self._someone.clear()
                await self._someone.wait()
            self._doing = batch = self._next()
            items = [one.item for one in batch]
            try:
                answers = await loop.run_in_executor(
                    self._thread, self._owner.answers, batch[0].task, items, self._seconds
                )
            except Unavailable as problem:
                self.ready = False
                answers = [Refused(503, str(problem))] * len(batch)
            self._doing = []
            # There are none for a batch that was interrupted, and nobody who waits.
            for one, answer in zip(batch, answers, strict=False):
                if not one.answer.done():
                    one.answer.set_result(answer)
            if not self.ready:
                await self._restart()

    def _next(self) -> list[_Waiting]:
        """The one that waits longest and, of those with the same task, the nearest in length."""
        first = self._waiting[0]
        length = len(first.item.text)
        alike = [one for one in self._waiting if one.task == first.task]
        alike.sort(key=lambda one: abs(len(one.item.text) - length))
        batch = alike[: self._together]
        taken = set(batch)
        self._waiting = [one for one in self._waiting if one not in taken]
        return batch

    async def _restart(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._owner.stop)
        with contextlib.suppress(SconesError):  # else the next batch tries again
            await loop.run_in_executor(self._thread, self._owner.start)
            self.ready = True

    def close(self) -> None:
        self._owner.interrupt()
        self._thread.shutdown()
        self._owner.stop()
