"""Batches prepared ahead, by a thread, while the device computes."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from scones.training.data import Batch, Position

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
