"""A run stopped at any moment goes on to the numbers it would have had."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tiny_run import checkpoint, events, train_command

from scones.cli import run as run_command

STEPS = 40


def assert_same_end(left: Path, right: Path, step: int) -> None:
    """Weights, optimiser and random state, bit for bit."""
    expected, found = checkpoint(left, step), checkpoint(right, step)
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name


@pytest.mark.parametrize(
    "options",
    [{}, {"optimizer": "adamw", "learning_rate": 0.001}, {"accumulate": 3}, {"max_tokens": 200}],
    ids=["lamb", "adamw", "accumulate", "small batches"],
)
def test_stopped_and_resumed_is_as_if_never_stopped(options, run_training, tmp_path: Path) -> None:
    run_training(tmp_path / "straight", {**options, "max_steps": 6})
    for steps in (2, 3, 6):
        run_training(tmp_path / "resumed", {**options, "max_steps": steps})
    assert_same_end(tmp_path / "straight", tmp_path / "resumed", 6)
    straight, resumed = (
        [(event["step"], event["loss"]) for event in events(tmp_path / name)]
        for name in ("straight", "resumed")
    )
    assert resumed == straight


def test_what_a_killed_process_was_writing_is_cleared_away(run_training, tmp_path: Path) -> None:
    run_training(tmp_path / "run", {"max_steps": 1})
    checkpoints = tmp_path / "run" / "training" / "checkpoints"
    (checkpoints / ".step-00000002.writing-1").mkdir()
    run_training(tmp_path / "run", {"max_steps": 2})
    assert {path.name for path in checkpoints.iterdir()} == {"step-00000001", "step-00000002"}


def command(store: Path, folder: Path) -> list[str]:
    return train_command(
        store, folder, max_steps=STEPS, warmup_steps=5, validate_every=25, checkpoint_every=4
    )


@pytest.fixture(scope="module")
def straight(tiny_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, never stopped."""
    folder = tmp_path_factory.mktemp("straight") / "run"
    assert run_command(command(tiny_store, folder)) == 0
    return folder


def start_and_signal(store: Path, folder: Path, number: int) -> tuple[int, str]:
    """Start a run in another process, send it a signal at a random step; exit code and stderr."""
    process = subprocess.Popen(
        [sys.executable, "-m", "scones", *command(store, folder)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    log, wanted = folder / "training" / "log.jsonl", random.randint(1, STEPS // 2)
    deadline = time.monotonic() + 60
    while not log.exists() or len(log.read_bytes().splitlines()) < wanted:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.002)
    time.sleep(random.random() / 50)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


def test_a_killed_run_ends_as_if_never_killed(
    straight: Path, tiny_store: Path, tmp_path: Path
) -> None:
    code, _ = start_and_signal(tiny_store, tmp_path / "run", signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert run_command(command(tiny_store, tmp_path / "run")) == 0
    assert_same_end(straight, tmp_path / "run", STEPS)


def test_control_c_leaves_a_checkpoint_and_says_how_to_go_on(
    straight: Path, tiny_store: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    code, errors = start_and_signal(tiny_store, run, signal.SIGINT)
    assert code == 130
    assert errors.endswith("(interrupted; the same command goes on).\n")
    assert "Traceback" not in errors
    done = events(run)[-1]["step"]
    assert done < STEPS
    assert checkpoint(run, done)
    assert run_command(command(tiny_store, run)) == 0
    # Not a step was lost or made twice.
    assert [event["step"] for event in events(run)] == list(range(1, STEPS + 1))
    assert_same_end(straight, run, STEPS)
