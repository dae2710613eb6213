"""Batches made ahead by a thread: the same ones, in the same places, and no thread left behind."""

import gc
import threading
import time
from itertools import count, islice

import pytest

from scones.training.gpu import ahead


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]


def eventually(true):
    deadline = time.monotonic() + 10
    while not true() and time.monotonic() < deadline:
        time.sleep(0.001)
    return true()


@pytest.mark.parametrize("depth", [0, 1, 4, 30])
def test_items_come_in_their_order(depth):
    assert list(ahead(iter(range(20)), depth)) == list(range(20))
    assert not threads()


def test_a_thread_makes_as_many_as_may_wait_and_no_more():
    made = []

    def items():
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


def test_what_goes_wrong_in_the_thread_is_raised_in_its_place():
    def items():
        yield from range(3)
        raise OSError("the disk is gone")

    numbers = ahead(items(), depth=5)
    assert list(islice(numbers, 3)) == [0, 1, 2]
    with pytest.raises(OSError, match="the disk is gone"):
        next(numbers)
    assert not threads()


@pytest.mark.parametrize("leave", [lambda numbers: numbers.close(), lambda numbers: None])
def test_the_thread_ends_with_its_consumer(leave):
    numbers = ahead(count())
    assert next(numbers) == 0
    assert threads()
    leave(numbers)
    del numbers
    gc.collect()
    assert eventually(lambda: not threads())
