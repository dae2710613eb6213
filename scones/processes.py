"""Several processes at one job, as torchrun starts them. One alone is the usual case.

The first process speaks, reads standard input and writes to disk; what the others need to know it
tells them. A process that dies breaks the connections of the others, which then end too.
"""

from __future__ import annotations

import gc
import inspect
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn

from scones.errors import SconesError

T = TypeVar("T")


def is_first() -> bool:
    """Say whether this is the process that speaks: the only one, or torchrun's number 0."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def connected(remedy: str) -> Iterator[Processes]:
    """Join the processes that torchrun started with this one; leave them at the end.

    Where one of them is lost, the others end with a message that closes with `remedy`.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield Processes(0, 1)
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    lost = SconesError(
        "Another process of this job has ended, and this one ends with it; look for its message. "
        + remedy
    )
    with _explained(lost):
        # Small things travel between CPUs, where a lost peer is noticed at once.
        on_gpus = torch.cuda.is_available()
        distributed.init_process_group("cpu:gloo,cuda:nccl" if on_gpus else "gloo")
        yield Processes(distributed.get_rank(), count)
        gc.collect()  # what still held the connections would keep their threads running
        distributed.destroy_process_group()


@contextmanager
def _explained(lost: SconesError) -> Iterator[None]:
    """Turn what a lost process does to the others, broken connections and SIGTERM, into a message.

    After an error nothing is torn down in order: it would take longer than torchrun waits.
    """

    def ended(number: int, frame: FrameType | None) -> None:
        raise lost

    before = signal.signal(signal.SIGTERM, ended)
    try:
        yield
    except RuntimeError as problem:
        if isinstance(problem, distributed.DistError) or "gloo" in str(problem):
            raise lost from problem
        raise
    signal.signal(signal.SIGTERM, before)


class Processes:
    """The processes of a job as one of them sees them; all have to call the same methods."""

    def __init__(self, rank: int, count: int) -> None:
        self.rank = rank
        self.count = count

    @property
    def is_first(self) -> bool:
        """Whether this one speaks and writes."""
        return self.rank == 0

    def sum(self, values: Sequence[float]) -> list[float]:
        """Add up each number over all processes."""
        if self.count == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64)
        distributed.all_reduce(total)
        return list(total.tolist())

    def add_up(self, tensor: Tensor) -> Tensor:
        """Add up a tensor over all processes, in place; on a GPU nothing waits for the result."""
        if self.count > 1:
            distributed.all_reduce(tensor)
        return tensor

    def from_first(self, make: Callable[[], T]) -> T:
        """Let the first process make something (or do something) and give it to all."""
        if self.count == 1:
            return make()
        box: list[Any] = [make() if self.is_first else None]
        distributed.broadcast_object_list(box)
        made: T = box[0]
        return made

    def everyones(self, value: T) -> list[T]:
        """Give all processes what each of them has, in their order."""
        if self.count == 1:
            return [value]
        values: list[Any] = [None] * self.count
        distributed.all_gather_object(values, value)
        return values

    def share_gradients(self, module: nn.Module) -> nn.Module:
        """Let every backward pass through `module` end in the processes' mean gradient."""
        if self.count == 1:
            return module
        wrap = nn.parallel.DistributedDataParallel
        known = inspect.signature(wrap.__init__).parameters
        # All processes have the same buffers; the option is called otherwise before PyTorch 2.13.
        name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        options: dict[str, Any] = {name: False}
        return wrap(module, **options)

    def unshared(self, module: nn.Module) -> AbstractContextManager[None]:
        """Keep gradients to each process itself, while more are to come for the same step."""
        if isinstance(module, nn.parallel.DistributedDataParallel):
            return module.no_sync()
        return nullcontext()
