"""A process that owns models and answers, one batch after another, what the server asks it.

The server itself never computes: however hard a sentence is, it goes on answering.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from scones.errors import SconesError
from scones.serving import OURS, Refused, tell_of_error
from scones.serving.answers import Json, alternatives, sentence

if TYPE_CHECKING:
    from scones.search.positions import Position


@dataclass(frozen=True)
class Task:
    """What to do with texts; those of the same task are done together."""

    kind: Literal["translate", "continue", "score", "alternatives"]
    model: str
    search: Literal["greedy", "beam"] = "greedy"
    beam_size: int = 4
    length_penalty: float | None = None
    n_best: int = 1
    share: float | None = None
    """Tokens are told about, with alternatives of at least this share of the best."""
    threshold: float | None = None
    max_states: int = 1
    max_seconds: float = 1.0
    max_memory: int = 1
    most: int = 1
    """Alternatives that are told."""


@dataclass(frozen=True)
class Item:
    """A text, and what its translation is or begins with."""

    text: str
    translation: str | tuple[str, ...] | None = None


class Cancelled(BaseException):
    """Nobody waits for the answer any more."""


def work(line: Connection, cancelled: Any, folders: Mapping[str, Path], aside: bool) -> None:
    """Answer what comes along the line until it is closed.

    `cancelled` holds the number of the batch that nobody waits for. Who works `aside` leaves the
    cores to others whenever they need them.
    """
    doing = -1

    def stop(*_: Any) -> None:
        nonlocal doing
        if cancelled.value == doing:
            doing = -1  # once is enough
            raise Cancelled

    # The server says when to end: it has to answer first.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, stop)
    give_back = _memory_giver()
    try:
        models = Models(folders, aside)
    except (SconesError, OSError) as problem:
        line.send(Refused(503, str(problem)))
        return
    with suppress(EOFError, ConnectionError):  # the server is gone
        line.send(None)
        while True:
            number, task, items = line.recv()
            answers: Any = []
            with suppress(Cancelled):
                doing = number
                stop()
                answers = models.answers(task, items)
                doing = -1
            line.send(answers)
            if number % _TRIM_EVERY == 0:
                give_back()


_TRIM_EVERY = 64
"""Batches after which memory is given back: it takes some milliseconds."""


def _memory_giver() -> Callable[[], object]:
    """What gives memory that lies idle between batches of many shapes back to the system.

    glibc alone keeps it, in heaps that it makes for each thread.
    """
    try:
        library = ctypes.CDLL(None)
        library.mallopt(-8, 2)  # M_ARENA_MAX
        return partial(library.malloc_trim, 0)
    except (OSError, AttributeError):  # another C library
        return lambda: None


class Models:
    """Translators by name."""

    def __init__(self, folders: Mapping[str, Path], aside: bool) -> None:
        # oneDNN remembers 1,024 shapes of products, half a gigabyte that grows for many minutes.
        os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
        import torch

        from scones.translator import load

        if aside:
            os.nice(10)
            torch.set_num_threads(1)
        self._translators = {name: load(folder, "cpu") for name, folder in folders.items()}
        for name in folders:  # whatever is made ready at first use is made ready now
            kind: Any = "alternatives" if aside else "translate"
            self.answers(Task(kind, name, share=0.1), [Item("Tea.")])

    def answers(self, task: Task, items: Sequence[Item]) -> list[Any]:
        """An answer to each item, or why there is none."""
        from scones.translator import TooLongError

        try:
            found: list[Any] = getattr(self, f"_{task.kind}")(task, items)
            return found
        except SconesError as mistake:
            if half := len(items) // 2:  # the mistake is one item's alone
                return self.answers(task, items[:half]) + self.answers(task, items[half:])
            if isinstance(mistake, TooLongError):
                return [Refused(413, f"{str(mistake).partition(';')[0]}; split it.")]
            return [Refused(400, str(mistake))]
        except Exception:  # ours: it costs this batch, not the process
            tell_of_error()
            return [Refused(500, OURS)] * len(items)

    def _translate(self, task: Task, items: Sequence[Item]) -> list[list[Json]]:
        """The translations of each text, the best first, which alone is told token by token."""
        translator, texts = self._translators[task.model], [item.text for item in items]
        found = translator.translate(
            texts,
            task.search,
            task.beam_size,
            task.n_best,
            task.length_penalty,
            confidence=task.share is not None and translator.calibration is not None,
            prefix=[item.translation or "" for item in items] if task.kind == "continue" else None,
        )
        known: Sequence[Sequence[Position]] = [()] * len(texts)
        if task.share is not None:
            pairs = [(text, best.text) for text, (best, *_) in zip(texts, found, strict=True)]
            known = translator.positions(pairs, task.share)
        return [
            [sentence(text, best, positions), *(sentence(text, one) for one in others)]
            for text, (best, *others), positions in zip(texts, found, known, strict=True)
        ]

    _continue = _translate

    def _score(self, task: Task, items: Sequence[Item]) -> list[Json]:
        translator = self._translators[task.model]
        pairs = [(item.text, str(item.translation)) for item in items]
        known = translator.positions(pairs, task.share or 1)
        judged = zip(items, translator.judge(pairs), known, strict=True)
        return [sentence(item.text, given, positions) for item, given, positions in judged]

    def _alternatives(self, task: Task, items: Sequence[Item]) -> list[Json]:
        from scones.search.frontier import ExactOptions

        translator, (item,) = self._translators[task.model], items
        options = ExactOptions(
            task.n_best,
            task.threshold,
            max_states=task.max_states,
            max_seconds=task.max_seconds,
            max_memory=task.max_memory,
        )
        ((_, found),) = translator.exact(
            [item.text],
            options,
            prefix=[item.translation or ""],
            confidence=translator.calibration is not None,
        )
        return [alternatives(found, task.most)]
