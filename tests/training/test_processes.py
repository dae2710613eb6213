"""Several processes train as one would, and a lost one ends them all."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tiny_run import checkpoint, events, train_command, wait_for_steps

from scones.cli import run as run_command

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def command(store, folder, **flags):
    # Slow to move: what two processes round otherwise than one must not grow.
    usual = {"dropout": 0, "attention_dropout": 0, "learning_rate": 0.006, "warmup_steps": 1000}
    return train_command(store, folder, **{**usual, **flags})


def by_two(*words):
    done = subprocess.run([*TORCHRUN, *words], capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize(
    ("steps", "flags"),
    [
        (5, {"accumulate": 2, "loss_average": "sentences"}),
        pytest.param(50, {}, marks=pytest.mark.slow),
    ],
)
def test_two_processes_have_the_loss_curve_of_one(steps, flags, tiny_store, tmp_path):
    flags = {**flags, "max_steps": steps}
    assert run_command(command(tiny_store, tmp_path / "one", **flags)) == 0
    done = by_two("-m", "scones", *command(tiny_store, tmp_path / "two", **flags))
    assert done.stderr.count(f"{steps} steps in") == 1  # only one speaks
    one, two = (events(tmp_path / name) for name in ("one", "two"))
    assert len(one) == len(two) == steps
    for left, right in zip(one, two, strict=True):
        assert right["loss"] == pytest.approx(left["loss"], abs=1e-5)
        assert right["epoch"] == left["epoch"]


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_process_ends_all_and_one_goes_on_alone(lost, tiny_store, tmp_path):
    flags = {"max_steps": 400, "checkpoint_every": 5, "dropout": 0.1}
    words = command(tiny_store, tmp_path / "run", **flags)
    launcher = subprocess.Popen(
        [*TORCHRUN, "-m", "scones", *words], stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    wait_for_steps(launcher, tmp_path / "run", 8)
    workers = psutil.Process(launcher.pid).children(recursive=True)
    (victim,) = (worker for worker in workers if worker.environ().get("RANK") == str(lost))
    victim.send_signal(signal.SIGKILL)
    _, errors = launcher.communicate(timeout=60)
    assert launcher.returncode != 0
    assert "Another process of this job has ended" in errors
    assert not any(worker.is_running() for worker in workers)
    reached = events(tmp_path / "run")[-1]["step"]
    assert 8 <= reached < 400
    assert run_command(command(tiny_store, tmp_path / "run", **{**flags, "max_steps": 420})) == 0
    assert [event["step"] for event in events(tmp_path / "run")] == list(range(1, 421))


@pytest.mark.slow
def test_two_processes_skip_together_what_only_one_found_sick(tiny_store, tmp_path):
    done = by_two(Path(__file__).with_name("sick.py"), tiny_store, tmp_path / "run")
    ends = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(end["rank"] for end in ends) == [0, 1]
    assert ends[0]["weights"] == ends[1]["weights"]
    assert {(end["steps"], end["skipped"]) for end in ends} == {(5, 2)}
    assert [event["step"] for event in events(tmp_path / "run", "skip")] == [2, 4]
    assert all(tensor.isfinite().all() for tensor in checkpoint(tmp_path / "run", 5).values())
