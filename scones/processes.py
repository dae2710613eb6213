"""Several processes at one job, as torchrun starts them. One alone is the usual case.

The first process speaks, reads standard input and writes to disk; what the others need to know it
tells them. A process that dies breaks the connections of the others, which then end too.
"""

from __future__ import annotations

import gc
import inspect
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from scones.errors import SconesError

# One process alone does not need it.
if TYPE_CHECKING:
    from torch import Tensor, nn

T = TypeVar("T")

PATIENCE = "SCONES_PATIENCE"
"""The variable that says for how many seconds processes wait for one that is silent."""


def is_first() -> bool:
    """Whether this is the process that speaks: the only one, or torchrun's rank 0."""
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
    import torch
    from torch import distributed

    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    lost = SconesError(
        "Another process of this job has ended or cannot be reached, and this one ends with it; "
        "look for its message. " + remedy
    )

    # What the others feel of a lost process is a broken connection, or SIGTERM from torchrun.
    def ended(number: int, frame: FrameType | None) -> None:
        raise lost

    before = signal.signal(signal.SIGTERM, ended)
    try:
        # Small things travel between CPUs, where a lost peer is noticed at once.
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        patience = timedelta(seconds=float(os.environ.get(PATIENCE, "1800")))
        distributed.init_process_group(backend, timeout=patience)
        yield Processes(distributed.get_rank(), count)
        gc.collect()  # what still held the connections would keep their threads running
        distributed.destroy_process_group()
    except RuntimeError as problem:
        # Nothing is torn down in order then: it would take longer than torchrun waits.
        if isinstance(problem, distributed.DistError) or "gloo" in str(problem):
            raise lost from problem
        raise
    signal.signal(signal.SIGTERM, before)


class Processes:
    """The ranks of a job, as one of them sees them.

    The methods are collectives, as in torch.distributed: every rank has to call the same ones in
    the same order, or all wait for ever. With one process alone they cost nothing.
    """

    def __init__(self, rank: int, count: int) -> None:
        self.rank = rank
        self.count = count

    @property
    def is_first(self) -> bool:
        """Whether this one speaks and writes."""
        return self.rank == 0

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Add up a tensor over all ranks, in place; on a GPU nothing waits for the result."""
        if self.count > 1:
            from torch import distributed

            distributed.all_reduce(tensor)
        return tensor

    def broadcast(self, make: Callable[[], T]) -> T:
        """Send what rank 0 makes to all; the other ranks do not call `make`."""
        if self.count == 1:
            return make()
        from torch import distributed

        box: list[Any] = [make() if self.is_first else None]
        distributed.broadcast_object_list(box)
        return box[0]

    def all_gather(self, value: T) -> list[T]:
        """The values of all ranks, in the order of the ranks."""
        if self.count == 1:
            return [value]
        from torch import distributed

        values: list[Any] = [None] * self.count
        distributed.all_gather_object(values, value)
        return values

    def data_parallel(self, module: nn.Module) -> nn.Module:
        """Wrap a module so that every backward pass ends in the mean of the ranks' gradients."""
        if self.count == 1:
            return module
        from torch import nn

        wrap = nn.parallel.DistributedDataParallel
        known = inspect.signature(wrap.__init__).parameters
        # All processes have the same buffers; the option is called otherwise before PyTorch 2.13.
        name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        options: dict[str, Any] = {name: False}
        return wrap(module, **options)

    def no_sync(self, module: nn.Module) -> AbstractContextManager[None]:
        """Keep each rank's gradients to itself while more are to come for the same step."""
        from torch import nn

        if isinstance(module, nn.parallel.DistributedDataParallel):
            return module.no_sync()
        return nullcontext()
