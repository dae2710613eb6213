"""Passes that a GPU repeats by itself.

A pass forward and back is a thousand small commands, and telling a GPU to do them takes longer than
many of them do. As a CUDA graph it is recorded once for every shape of batch and then given as one
command. Batches are settled to a few shapes for it (`PackedBatch.settled`).
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from scones.training.data import Batch, Objective, PackedBatch, Position

# Batches prepared ahead, by a thread, while the device computes.

T = TypeVar("T")


def ahead(items: Iterator[T], depth: int = 4) -> Generator[T, None, None]:
    """Give what an iterator gives, up to `depth` items of it made ahead by a thread; 0: no thread.

    What goes wrong in the thread is raised here, in its place. Closing ends the thread.
    """
    if depth == 0:
        yield from items
        return
    thread = ThreadPoolExecutor(1, "ahead")
    waiting = deque(thread.submit(next, items) for _ in range(depth))
    try:
        while True:
            item = waiting.popleft().result()
            waiting.append(thread.submit(next, items))
            yield item
    except StopIteration:
        return
    finally:
        thread.shutdown(cancel_futures=True)


def pinned(
    batches: Iterator[tuple[Batch, Position]], device: torch.device
) -> Iterator[tuple[Batch, Position]]:
    """Put batches into memory that a GPU fetches by itself, so that copying them waits for nothing.

    The copy itself is left to the consumer: on its stream it takes some 20 µs, and needs no care.
    """
    for batch, position in batches:
        with torch.cuda.device(device):  # a new thread would wake the first GPU instead
            ready = batch.pinned()
        yield ready, position


# Steps that the device was given and the host has not looked at.
#
# On a GPU the host runs a little ahead: by the time it looks at a step's loss, the step has ended
# and the number lies in its own memory. So nothing waits, a step that went wrong is known two steps
# later, and time and Ctrl-C still count. On a CPU a step has ended when it is given.

STEPS_AHEAD = {"cpu": 0, "cuda": 2}
"""How far the host may run ahead of each kind of device."""


@dataclass(frozen=True)
class Outcome:
    """What came of a step."""

    step: int
    loss: float
    norm: float
    """The gradient's norm, before clipping."""

    @property
    def finite(self) -> bool:
        """Whether the step was made."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)


@dataclass(frozen=True)
class _Given:
    step: int
    values: Tensor
    ended: torch.cuda.Event | None

    def outcome(self) -> Outcome:
        if self.ended is not None:
            self.ended.synchronize()
        loss, norm = self.values.tolist()
        return Outcome(self.step, loss, norm)


class InFlight:
    """The steps in flight on a device, in their order."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._most = STEPS_AHEAD[device.type]
        self._given: deque[_Given] = deque()

    def add(self, step: int, loss: Tensor, norm: Tensor) -> list[Outcome]:
        """Take note of a step that was just given; gives the steps that it is time to look at."""
        values = torch.stack([loss, norm]).to("cpu", non_blocking=True)
        ended = None
        if self._device.type == "cuda":
            ended = torch.cuda.Event(blocking=True)
            torch.cuda.current_stream(self._device).record_event(ended)
        self._given.append(_Given(step, values, ended))
        return self._landed(self._most)

    def land(self) -> list[Outcome]:
        """Wait for all steps; gives those that were not looked at."""
        return self._landed(0)

    def _landed(self, left: int) -> list[Outcome]:
        count = len(self._given) - left
        return [self._given.popleft().outcome() for _ in range(count)]


_GRAINS = 32
"""Sizes of batches; with as many, some 2 % of their tokens are fillers."""
_MOST = 256
"""Graphs; batches of rarer shapes are computed command by command."""


_MUCH_WORK = 4e12
"""Tokens times weights of a pass: so much that a GPU is busy for longer than the host."""


def replays_pay(objective: Objective, max_tokens: int) -> bool:
    """Say whether passes over so many tokens should be recorded; larger ones gain nothing by it."""
    weights = sum(parameter.numel() for parameter in objective.parameters())
    return replayable(objective) and max_tokens * weights < _MUCH_WORK


def replayable(objective: Objective) -> bool:
    """Say whether an objective's passes can be recorded: on a GPU, in batches without padding."""
    return objective.packed and objective.model.device.type == "cuda"


def grain(max_tokens: int) -> int:
    """Give the number of tokens of which the sizes of settled batches are multiples."""
    return max(1, max_tokens // _GRAINS)


@dataclass(frozen=True)
class _Recording:
    graph: torch.cuda.CUDAGraph
    batch: PackedBatch
    """Where the pass finds its batch."""
    loss: Tensor
    """Where it leaves its loss."""


class Replays:
    """Gradients of an objective, one command a batch for shapes that it has seen before."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self._device = objective.model.device
        self._parameters = [p for p in objective.parameters() if p.requires_grad]
        self._gradients = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._factor = torch.ones((), device=self._device)
        self._pool = torch.cuda.graph_pool_handle()
        self._recordings: dict[tuple[int, ...], _Recording | None] = {}
        self.seconds = 0.0
        """Spent on recording."""

    @property
    def count(self) -> int:
        """How many shapes were recorded."""
        return sum(recording is not None for recording in self._recordings.values())

    def gradient(self, batch: PackedBatch, divisor: float) -> Tensor:
        """Add the gradient of the loss over `divisor` to the weights'; gives that loss, summed."""
        self._lend_gradients()
        self._factor.fill_(1 / divisor)
        shape = batch.shape
        if shape not in self._recordings:  # the first of its shape also warms everything up
            if len(self._recordings) < _MOST:
                self._recordings[shape] = None
            return self._pass(batch.to(self._device))
        recording = self._recordings[shape] or self._record(batch)
        recording.batch.fill_from(batch)
        recording.graph.replay()
        return recording.loss.clone()

    def _lend_gradients(self) -> None:
        """Let the weights' gradients be where the graphs add to; the optimiser has dropped them."""
        if self._parameters[0].grad is None:
            torch._foreach_zero_(self._gradients)
            for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
                parameter.grad = gradient

    def _pass(self, batch: PackedBatch) -> Tensor:
        loss: Tensor = self._objective(batch)
        (loss * self._factor).backward()
        return loss.detach()

    def _record(self, batch: PackedBatch) -> _Recording:
        begin = time.perf_counter()
        own = batch.to(self._device).copy()
        graph = torch.cuda.CUDAGraph()
        # Other threads may go on preparing batches meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            loss = self._pass(own)
        recording = _Recording(graph, own, loss)
        self._recordings[batch.shape] = recording
        self.seconds += time.perf_counter() - begin
        return recording
