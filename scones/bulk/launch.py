"""Who hands the shards of a bulk job out: processes of this machine, or Ray Data on a cluster."""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from functools import partial
from itertools import cycle, islice
from typing import Any

from scones.bulk.job import Report, Worker
from scones.bulk.rows import Shard
from scones.errors import SconesError, optional_import
from scones.hardware import is_cpu, usable_cores
from scones.text.workers import ordered_map

# This machine.


def by_processes(worker: Worker, shards: Sequence[Shard], workers: int | None) -> Iterator[Report]:
    """Let processes make the shards: one for each GPU or, without any, for each core."""
    devices = _devices(worker.job.opening["device"])
    cores = max(1, usable_cores() // worker.job.threads)
    usual = cores if devices == ["cpu"] else len(devices)
    count = min(workers or usual, len(shards))
    context = multiprocessing.get_context("spawn")
    waiting = context.SimpleQueue()  # each process takes a device from it
    for device in islice(cycle(devices), count):
        waiting.put(device)
    begin = partial(_begin, worker, waiting)
    with closing(ordered_map(Worker.make, shards, begin, count)) as reports:
        yield from reports


def _devices(name: str) -> list[str]:
    """The GPUs of this machine that a device's name stands for, or its CPU."""
    if is_cpu(name):
        return ["cpu"]
    import torch

    several = range(torch.cuda.device_count())
    return [f"cuda:{number}" for number in several] if name in ("auto", "cuda") else [name]


def _begin(worker: Worker, waiting: Any) -> Worker:
    return replace(worker, device=waiting.get())


# Ray.

_USUAL = {
    "RAY_gcs_server_port_wait_time_s": "1",
    "RAY_py_gcs_connect_timeout_s": "5",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
}
"""One attempt to reach a cluster, where Ray by itself tries for many minutes, and says so."""
_ABSENT = "The package ray is not installed; install it with pip install 'scones[ray]'."


class _Actor:
    """A worker inside Ray; a user's mistake is an answer here, not a traceback of some node."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        try:
            answer: Report | Exception = self._worker.make(Shard(**row))
        except (SconesError, OSError) as problem:
            answer = problem
        return {"answer": pickle.dumps(answer)}  # a dataset would take it apart


@contextmanager
def connected_to_ray(address: str | None) -> Iterator[None]:
    """Join the cluster at an address or, without one, start Ray on this machine."""
    for name, value in _USUAL.items():
        os.environ.setdefault(name, value)
    ray = optional_import("ray", _ABSENT)
    here = {"num_cpus": usable_cores(), "include_dashboard": False} if address is None else {}
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level="ERROR", **here)
    except (ConnectionError, RuntimeError, ValueError) as problem:
        raise SconesError(
            f"No Ray cluster answers at {address} ({problem}); look at `ray status` there."
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


def by_ray(worker: Worker, shards: Sequence[Shard], workers: int | None) -> Iterator[Report]:
    """Let actors of Ray Data make the shards: one for each GPU or, without any, for each core.

    The shards are items that this process hands out, not a dataset that tasks read: those would
    wait for ever for a core, since the actors have all of them.
    """
    ray, data = optional_import("ray", _ABSENT), optional_import("ray.data", _ABSENT)
    resources = ray.cluster_resources()
    gpus, cores = (int(resources.get(name, 0)) for name in ("GPU", "CPU"))
    threads = worker.job.threads
    on_gpus = gpus > 0 and worker.job.opening["device"] != "cpu"
    each = {"num_gpus": 1, "num_cpus": 0} if on_gpus else {"num_cpus": threads}
    count = min(workers or (gpus if on_gpus else max(1, cores // threads)), len(shards))
    data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    blocks = min(len(shards), 10_000)  # a block is what an actor is given at once
    items = data.from_items([asdict(shard) for shard in shards], override_num_blocks=blocks)
    pool = data.ActorPoolStrategy(min_size=1, max_size=count, initial_size=count)
    for row in items.map(_Actor, fn_constructor_args=[worker], compute=pool, **each).iter_rows():
        answer = pickle.loads(row["answer"])
        if isinstance(answer, Exception):
            raise answer
        yield answer
