"""A run stopped at any moment goes on to the numbers it would have had."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
from tiny_run import assert_same_end, checkpoint, events, train_command, wait_for_steps

from scones.cli import run as run_command

STEPS = 24
FLAGS = {"max_steps": STEPS, "validate_every": 15, "checkpoint_every": 4}


@pytest.mark.parametrize(
    "options",
    [{}, {"optimizer": "adamw", "learning_rate": 0.001}, {"accumulate": 3}, {"max_tokens": 200}],
    ids=["lamb", "adamw", "accumulate", "small batches"],
)
def test_stopped_and_resumed_is_as_if_never_stopped(options, run_training, tmp_path):
    run_training(tmp_path / "straight", {**options, "max_steps": 6})
    for steps in (2, 3, 6):
        run_training(tmp_path / "resumed", {**options, "max_steps": steps})
    assert_same_end(tmp_path / "straight", tmp_path / "resumed", 6)
    straight, resumed = (
        [(event["step"], event["loss"]) for event in events(tmp_path / name)]
        for name in ("straight", "resumed")
    )
    assert resumed == straight


def test_what_a_killed_process_was_writing_is_cleared_away(run_training, tmp_path):
    (tmp_path / "run" / ".training.writing-1").mkdir(parents=True)  # as good as empty
    run_training(tmp_path / "run", {"max_steps": 1})
    checkpoints = tmp_path / "run" / "training" / "checkpoints"
    (checkpoints / ".step-00000002.writing-1").mkdir()
    run_training(tmp_path / "run", {"max_steps": 2})
    assert {path.name for path in checkpoints.iterdir()} == {"step-00000001", "step-00000002"}


@pytest.fixture(scope="module")
def straight(tiny_store, tmp_path_factory):
    """The same run, never stopped."""
    folder = tmp_path_factory.mktemp("straight") / "run"
    assert run_command(train_command(tiny_store, folder, **FLAGS)) == 0
    return folder


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_a_run_stopped_by_a_signal_ends_as_if_never_stopped(
    number, expected, straight, tiny_store, tmp_path
):
    run = tmp_path / "run"
    command = train_command(tiny_store, run, **FLAGS)
    process = subprocess.Popen(
        [sys.executable, "-m", "scones", *command],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    wait_for_steps(process, run, random.randint(1, STEPS // 2))
    time.sleep(random.random() / 50)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == expected
    if number == signal.SIGINT:
        assert errors.endswith("(interrupted; the same command goes on).\n")
        assert "Traceback" not in errors
        done = events(run)[-1]["step"]
        assert done < STEPS
        assert checkpoint(run, done)
    assert run_command(command) == 0
    # Not a step was lost or made twice.
    assert [event["step"] for event in events(run)] == list(range(1, STEPS + 1))
    assert_same_end(straight, run, STEPS)
