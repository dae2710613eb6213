"""Two machines train as one would: two network namespaces, joined by a cable that can be cut."""

import os
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest
from tiny_run import events, train_command, wait_for_steps

from scones.cli import run as run_command

pytestmark = pytest.mark.slow

PATIENCE = 10
STEADY = {"dropout": 0, "attention_dropout": 0, "learning_rate": 0.006, "warmup_steps": 1000}


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True)


class Node:
    """A namespace with one end of the cable."""

    def __init__(self, rank):
        self.rank, self.address = rank, f"10.213.0.{rank + 1}"
        self.name, self.cable = f"scones-{os.getpid()}-{rank}", f"veth{rank}"

    def start(self, words):
        """One node's part of a torchrun job of two."""
        launcher = ["-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(self.rank)]
        launcher += ["--master-addr", "10.213.0.1", "--master-port", "29411", "-m", "scones"]
        own = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": self.cable}
        return subprocess.Popen(
            ["ip", "netns", "exec", self.name, sys.executable, *launcher, *words],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **own, "SCONES_PATIENCE": str(PATIENCE)},
        )


@pytest.fixture
def nodes():
    two = [Node(0), Node(1)]
    try:
        for node in two:
            ip("netns", "add", node.name)
        ends = [["name", node.cable, "netns", node.name] for node in two]
        ip("link", "add", *ends[0], "type", "veth", "peer", *ends[1])
        for node in two:
            inside = ["-n", node.name]
            ip(*inside, "address", "add", f"{node.address}/24", "dev", node.cable)
            for device in ("lo", node.cable):
                ip(*inside, "link", "set", device, "up")
        yield two
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no network namespaces here")
    finally:
        for node in two:
            ip("netns", "delete", node.name, check=False)


def started(nodes, store, folder, **flags):
    """Train on both: the second has a copy of the store, and never sees the run's folder."""
    copy = folder.parent / "copied-store"
    if not copy.exists():
        shutil.copytree(store, copy)
    words = [
        train_command(place, folder.parent / name, **{**STEADY, **flags})
        for place, name in ((store, folder.name), (copy, "elsewhere"))
    ]
    return [node.start(mine) for node, mine in zip(nodes, words, strict=True)]


def test_two_nodes_have_the_loss_curve_of_one_process(nodes, tiny_store, tmp_path):
    assert run_command(train_command(tiny_store, tmp_path / "one", **STEADY, max_steps=50)) == 0
    for job in started(nodes, tiny_store, tmp_path / "two", max_steps=50):
        _, errors = job.communicate(timeout=200)
        assert job.returncode == 0, errors
    one, two = (events(tmp_path / name) for name in ("one", "two"))
    assert len(one) == len(two) == 50
    differences = [abs(left["loss"] - right["loss"]) for left, right in zip(one, two, strict=True)]
    assert max(differences) < 1e-5
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("how", ["killed", "cut off"])
def test_without_the_second_node_the_first_says_so_and_goes_on_alone(
    how, nodes, tiny_store, tmp_path
):
    run = tmp_path / "run"
    flags = {"max_steps": 100_000, "checkpoint_every": 5}
    jobs = started(nodes, tiny_store, run, **flags)
    wait_for_steps(jobs[0], run, 12)
    began = time.monotonic()
    if how == "killed":
        (worker,) = [
            one
            for one in psutil.Process(jobs[1].pid).children(recursive=True)
            if one.environ().get("RANK") == "1"
        ]
        worker.send_signal(signal.SIGKILL)
    else:
        ip("-n", nodes[1].name, "link", "set", nodes[1].cable, "down")
    said = [job.stderr for job in jobs]
    for line in said[0]:
        if "cannot be reached" in line:
            break
    else:
        pytest.fail("the first node said nothing")
    assert time.monotonic() - began < PATIENCE + 20  # on a busy machine
    assert line.startswith("scones: Another process of this job has ended or cannot be reached")
    for job in jobs:
        job.communicate(timeout=120)
        assert job.returncode != 0
    reached = events(run)[-1]["step"]
    alone = train_command(tiny_store, run, **{**STEADY, **flags, "max_steps": reached + 5})
    assert run_command(alone) == 0
    assert [event["step"] for event in events(run)] == list(range(1, reached + 6))
