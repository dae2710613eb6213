"""Batches made ahead by a thread: the same ones, in the same places, and no thread left behind."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path

import pytest
import torch
from tiny_run import checkpoint, events

from scones.training import gpu, loop
from scones.training.gpu import GpuSteps, ahead


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]


def eventually(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while not true() and time.monotonic() < deadline:
        time.sleep(0.001)
    return true()


@pytest.mark.parametrize("depth", [0, 1, 4, 30])
def test_items_come_in_their_order(depth: int) -> None:
    assert list(ahead(iter(range(20)), depth)) == list(range(20))
    assert not threads()


def test_a_thread_makes_as_many_as_may_wait_and_no_more() -> None:
    made: list[str] = []

    def items() -> Iterator[int]:
        for number in count():
            made.append(threading.current_thread().name)
            yield number

    numbers = ahead(items(), depth=3)
    assert made == []  # nothing is begun before it is asked for
    assert next(numbers) == 0
    assert eventually(lambda: len(made) == 4)
    assert next(numbers) == 1
    assert eventually(lambda: len(made) == 5)
    time.sleep(0.02)
    assert len(made) == 5
    assert all(name.startswith("ahead") for name in made)
    numbers.close()


def test_what_goes_wrong_in_the_thread_is_raised_in_its_place() -> None:
    def items() -> Iterator[int]:
        yield from range(3)
        raise OSError("the disk is gone")

    numbers = ahead(items(), depth=5)
    assert list(islice(numbers, 3)) == [0, 1, 2]
    with pytest.raises(OSError, match="the disk is gone"):
        next(numbers)
    assert not threads()


@pytest.mark.parametrize("leave", [lambda numbers: numbers.close(), lambda numbers: None])
def test_the_thread_ends_with_its_consumer(leave: Callable[[Iterator[int]], None]) -> None:
    numbers = ahead(count())
    assert next(numbers) == 0
    assert threads()
    leave(numbers)
    del numbers
    gc.collect()
    assert eventually(lambda: not threads())


def test_a_run_with_the_thread_ends_with_the_same_bits(
    run_training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"max_tokens": 200, "accumulate": 2}
    run_training(tmp_path / "without", {**options, "max_steps": 6})
    monkeypatch.setattr(loop, "CpuSteps", GpuSteps)
    monkeypatch.setattr(gpu, "ahead", lambda batches, depth: ahead(batches, 4))
    for steps in (2, 6):
        run_training(tmp_path / "with", {**options, "max_steps": steps})
        assert not threads()
    expected, found = (checkpoint(tmp_path / name, 6) for name in ("without", "with"))
    assert all(torch.equal(tensor, found[name]) for name, tensor in expected.items())
    without, with_thread = (events(tmp_path / name) for name in ("without", "with"))
    assert [event["loss"] for event in without] == [event["loss"] for event in with_thread]
