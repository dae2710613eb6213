"""Training on a GPU: all that only a GPU runs, and nothing that a CPU run enters.

Batches without padding; batches prepared ahead; steps that the host does not wait for; and passes
that a GPU repeats by itself, as CUDA graphs. `GpuSteps`, at the end, puts them together.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from scones.kernels import IGNORED, PackedTokens, Spans, packed_tokens
from scones.model.transformer import Transformer
from scones.processes import Processes
from scones.text import PAD
from scones.text.store import ParallelTokens, Sentences
from scones.training.data import WHOLE, Batch, Position
from scones.training.data import LossModule as Objective
from scones.training.data import Shard as Share
from scones.training.data import shard_of_batch as _portion
from scones.training.loop import CpuSteps
from scones.training.loop import StepResult as Outcome
from scones.training.options import TrainOptions

# Batches without padding.


@dataclass(frozen=True)
class PackedBatch(Batch):
    """Sentences one behind another: nothing is computed for padding, but kernels are needed."""

    source: PackedTokens
    inputs: PackedTokens

    def hidden(self, model: Transformer) -> Tensor:
        """Give the hidden states of all places."""
        from scones.model.gpu import forward_packed

        return forward_packed(model, self.source, self.inputs)

    def fill_from(self, other: Self) -> None:
        """Copy another batch of the same shape into the tensors of this one."""
        for place, tensor in zip(_tensors(self), _tensors(other), strict=True):
            place.copy_(tensor, non_blocking=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """What has to be equal in batches of which one can take another's place."""
        sides = (self.source, self.inputs)
        return tuple(
            size
            for side in sides
            for size in (side.ids_N.numel(), side.spans.starts.numel(), side.spans.longest)
        )

    def settled(self, grain: int) -> PackedBatch:
        """Fill it up with sentences of no weight, to multiples of `grain` tokens.

        So a corpus makes batches of few shapes, and what a GPU does for one can be repeated.
        """
        sides = (self.source, self.inputs)
        longest = [max(16, _power_of_two(side.spans.longest)) for side in sides]
        # A filler has at least one token on either side, and is no longer than the sentences.
        least = max(1, 2 * grain // min(longest))
        gaps = [least + -(side.ids_N.numel() + least) % grain for side in sides]
        fillers = max(-(-gap // most) for gap, most in zip(gaps, longest, strict=True))
        sentences = _power_of_two(self.source.spans.starts.numel() - 1 + fillers)
        source, inputs = (
            _filled(side, gap, fillers, sentences, most)
            for side, gap, most in zip(sides, gaps, longest, strict=True)
        )
        targets_N = functional.pad(self.targets_N, (0, gaps[1]), value=IGNORED)
        weights_N = self.weights_N
        if weights_N is not None:
            weights_N = functional.pad(weights_N, (0, gaps[1]))
        return replace(self, source=source, inputs=inputs, targets_N=targets_N, weights_N=weights_N)


def _filled(
    tokens: PackedTokens, gap: int, fillers: int, sentences: int, longest: int
) -> PackedTokens:
    """Append `gap` tokens as sentences of about equal length, and empty ones up to a number."""
    starts = tokens.spans.starts
    ends = starts[-1] + gap * torch.arange(1, fillers + 1) // fillers
    empty = ends[-1].expand(sentences + 1 - len(starts) - fillers)
    starts = torch.cat([starts, ends, empty]).to(starts.dtype)
    ids_N, places_N = (
        functional.pad(numbers, (0, gap), value=PAD) for numbers in (tokens.ids_N, tokens.places_N)
    )
    return PackedTokens(ids_N, places_N, Spans(starts, longest))


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def _tensors(value: Any) -> Iterator[Tensor]:
    """Give the tensors of a dataclass, and of those in it."""
    if isinstance(value, Tensor):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from _tensors(getattr(value, field.name))


def make_packed_batch(
    tokens: ParallelTokens, indices: np.ndarray, by_sentence: bool, share: Share = WHOLE
) -> PackedBatch:
    """Make the same batch without padding."""
    tokens, mine, predicted, facts = _portion(tokens, indices, by_sentence, share)
    source = _pack(tokens.sources, mine)
    target = _pack(tokens.targets, mine)
    inputs_N = target.ids_N.roll(1)
    inputs_N[target.spans.starts[:-1].long()] = PAD
    return PackedBatch(
        targets_N=target.ids_N[:predicted],
        source=source,
        inputs=replace(target, ids_N=inputs_N),
        **facts,
    )


def _pack(sentences: Sentences, indices: np.ndarray) -> PackedTokens:
    """Put sentences, each ended, one behind another."""
    return packed_tokens(*sentences.gather(indices))


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


# Passes that a GPU repeats by itself.
#
# A pass forward and back is a thousand small commands, and telling a GPU to do them takes longer
# than many of them do. As a CUDA graph it is recorded once for every shape of batch and then given
# as one command. Batches are settled to a few shapes for it (`PackedBatch.settled`).

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
        # What is left of earlier passes in cycles would hold nodes of the stream that they ran on.
        gc.collect()
        own = batch.to(self._device).copy()
        graph = torch.cuda.CUDAGraph()
        # Other threads may go on preparing batches meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            loss = self._pass(own)
        recording = _Recording(graph, own, loss)
        self._recordings[batch.shape] = recording
        self.seconds += time.perf_counter() - begin
        return recording


class GpuSteps(CpuSteps):
    """The steps of a GPU, which computes while the host prepares the next ones."""

    def __init__(self, loss_module: Objective, processes: Processes, options: TrainOptions) -> None:
        super().__init__(loss_module, processes, options)
        self.replays = self._replays()
        self.in_flight = InFlight(self.device)

    def _replays(self) -> Replays | None:
        """Record passes where that is wanted and can be done."""
        wanted = {
            "auto": replays_pay(self.loss_module, self.options.max_tokens),
            "yes": replayable(self.loss_module),
            "no": False,
        }
        if not wanted[self.options.graphs] or self.processes.count > 1:
            return None
        return Replays(self.loss_module)

    def batches(
        self, tokens: ParallelTokens, start: Position
    ) -> Generator[tuple[Batch, Position], None, None]:
        batches = super().batches(tokens, start)
        if self.device.type == "cuda":
            return ahead(pinned(batches, self.device))
        return ahead(batches, depth=0)  # a thread would only take a core from the arithmetic

    def make_batch(
        self, tokens: ParallelTokens, indices: np.ndarray, by_sentence: bool, shard: Share
    ) -> Batch:
        if not self.loss_module.packed:
            return super().make_batch(tokens, indices, by_sentence, shard)
        batch = make_packed_batch(tokens, indices, by_sentence, shard)
        return batch if self.replays is None else batch.settled(grain(self.options.max_tokens))

    def backward(self, batch: Batch, divisor: float) -> Tensor:
        if self.replays is not None and isinstance(batch, PackedBatch):
            return self.replays.gradient(batch, divisor)
        return super().backward(batch, divisor)

    def note(self, step: int, loss: Tensor, norm: Tensor) -> list[Outcome]:
        return self.in_flight.add(step, loss, norm)

    def finish(self) -> list[Outcome]:
        return self.in_flight.land()

    @property
    def stats(self) -> dict[str, Any]:
        if self.replays is None:
            return {}
        return {"graphs": self.replays.count, "graph_seconds": self.replays.seconds}
