import multiprocessing
import operator
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from functools import partial

import psutil
import pytest

from scones.errors import SconesError
from scones.text.workers import ordered_map, run_apart

make_sleeper = partial(partial, time.sleep)  # operator.call(sleeper, seconds) then sleeps


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_order(workers):
    # A process adds to a number of its own; the long first item must not be overtaken.
    results = ordered_map(operator.add, range(20), partial(int, "100"), workers)
    assert list(results) == list(range(100, 120))


def test_items_are_read_only_as_results_are_taken():
    read = 0

    def items():
        nonlocal read
        while True:
            read += 1
            yield 0

    with closing(ordered_map(operator.call, items(), make_sleeper, workers=2)) as results:
        next(results)
        assert read <= 5
        next(results)
        assert read <= 6


def test_closing_ends_the_processes_at_once():
    before = set(multiprocessing.active_children())
    with closing(ordered_map(operator.call, [0, *[60] * 20], make_sleeper, workers=2)) as results:
        next(results)
        begin = time.monotonic()
    assert time.monotonic() - begin < 10
    assert set(multiprocessing.active_children()) <= before


def test_a_worker_that_dies_is_said_in_a_sentence():
    results = ordered_map(os.kill, [signal.SIGKILL], os.getpid, workers=2)
    with pytest.raises(SconesError, match=r"worker process died.*--workers"):
        list(results)


def test_an_error_in_a_worker_comes_through():
    with pytest.raises(ValueError, match="invalid literal"):
        run_apart(partial(int, "many"), workers=2)


def test_run_apart_runs_elsewhere_unless_there_is_one_worker():
    assert run_apart(os.getpid, workers=1) == os.getpid()
    assert run_apart(os.getpid, workers=2) != os.getpid()


PARENT = """
import multiprocessing, operator
from functools import partial
from scones.text.workers import ordered_map
import time
if __name__ == "__main__":
    sleeper = partial(partial, time.sleep)
    results = ordered_map(operator.call, [0, 60, 60, 60, 60, 60], sleeper, 2)
    next(results)
    print(*[child.pid for child in multiprocessing.active_children()], flush=True)
    next(results)
"""


def test_workers_do_not_outlive_a_killed_parent():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        children = [int(pid) for pid in parent.stdout.readline().split()]
        assert children
        parent.kill()
    deadline = time.monotonic() + 10
    while any(map(_lives, children)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(_lives, children))


def _lives(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
