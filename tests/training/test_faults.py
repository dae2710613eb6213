"""Whatever happens while a checkpoint is written or afterwards, the run ends with the same bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sick import Sick
from test_interruption import assert_same_end
from tiny_run import events, weights

from scones.errors import SconesError
from scones.training.checkpoints import Checkpoints


def test_a_run_broken_off_at_any_point_of_writing_ends_with_the_same_bits(
    tiny_store: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("faults.py"), tiny_store, tmp_path],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "SCONES_COMMIT": "none"},
    )
    assert done.returncode == 0, done.stderr
    cases = [json.loads(line) for line in done.stdout.splitlines()]
    assert [case for case in cases if not case["same"]] == []
    counts = Counter(case["case"] for case in cases)
    assert counts.pop("at a random moment") == 10
    # Four files written, synced and renamed, then the folder: more than a dozen places to break.
    assert len(counts) == 3
    assert min(counts.values()) > 15
    assert {case["code"] for case in cases if case["case"] == "full disk"} == {2}


def newest(folder: Path) -> Path:
    return max((folder / "training" / "checkpoints").glob("step-*"))


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.safetensors", "state.json", "digests.json"]
)
@pytest.mark.parametrize("damage", [truncate, flip_a_bit, Path.unlink])
def test_a_damaged_newest_checkpoint_is_passed_over(
    name: str, damage: Callable[[Path], None], run_training, tmp_path: Path, capsys
) -> None:
    options = {"checkpoint_every": 2}
    run_training(tmp_path / "straight", {**options, "max_steps": 8})
    run_training(tmp_path / "run", {**options, "max_steps": 4})
    damage(newest(tmp_path / "run") / name)
    run_training(tmp_path / "run", {**options, "max_steps": 8}, quiet=False)
    said = capsys.readouterr().err
    assert "step-00000004" in said
    assert "is damaged" in said
    assert "Going on from step 2." in said
    assert_same_end(tmp_path / "straight", tmp_path / "run", 8)
    steps = [event["step"] for event in events(tmp_path / "run")]
    assert steps == list(range(1, 9))  # the log holds no step twice
    left = {path.name for path in newest(tmp_path / "run").parent.iterdir()}
    assert left == {"step-00000006", "step-00000008"}


def test_without_a_whole_checkpoint_a_run_says_so_and_touches_nothing(
    run_training, tmp_path: Path
) -> None:
    run_training(tmp_path / "run", {"checkpoint_every": 2})
    for folder in newest(tmp_path / "run").parent.iterdir():
        flip_a_bit(folder / "model.safetensors")
    before = sorted(newest(tmp_path / "run").parent.rglob("*"))
    with pytest.raises(
        SconesError, match=r"No checkpoint in .* is whole: .*Remove the run's folder"
    ):
        run_training(tmp_path / "run", {"max_steps": 5})
    assert sorted(newest(tmp_path / "run").parent.rglob("*")) == before


def test_a_damaged_checkpoint_is_left_out_of_the_average(run_training, tmp_path: Path) -> None:
    run_training(tmp_path / "run", {"checkpoint_every": 1, "average_last": 3})
    folder = newest(tmp_path / "run").parent
    flip_a_bit(folder / "step-00000003" / "model.safetensors")
    said: list[str] = []
    steps, average = Checkpoints(folder, 3, said.append).average(3)
    assert steps == [2, 4]
    assert len(said) == 1
    assert "step-00000003" in said[0]
    assert "left out of the average" in said[0]
    assert all(tensor.isfinite().all() for tensor in average.values())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_step_that_is_not_finite_is_skipped_and_counted(
    value: float, run_training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sick, "calls", 0)
    monkeypatch.setattr(Sick, "bad", (2, 3, 6))
    monkeypatch.setattr(Sick, "value", value)
    result = run_training(tmp_path / "run", {"max_steps": 7}, output=Sick())
    assert (result.steps, result.skipped) == (7, 3)
    assert [event["step"] for event in events(tmp_path / "run", "skip")] == [2, 3, 6]
    assert [event["skipped"] for event in events(tmp_path / "run")] == [0, 1, 2, 2, 2, 3, 3]
    assert all(tensor.isfinite().all() for tensor in weights(tmp_path / "run").values())


def test_a_skipped_step_leaves_weights_and_optimiser_alone(
    run_training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sick, "calls", 0)
    monkeypatch.setattr(Sick, "bad", (3,))
    for steps in (2, 3):
        run_training(tmp_path / "run", {"max_steps": steps}, output=Sick())
    folder = newest(tmp_path / "run").parent
    before, after = (
        Checkpoints(folder, 2, print)._read(step)  # what is on disk, not what is said of it
        for step in (2, 3)
    )
    for left, right in ((before.weights, after.weights), (before.optimizer, after.optimizer)):
        assert all(torch.equal(tensor, right[name]) for name, tensor in left.items())
    assert after.state["position"] != before.state["position"]


def test_a_loss_that_stays_infinite_ends_the_run_with_an_explanation(
    run_training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sick, "calls", 0)
    monkeypatch.setattr(Sick, "bad", tuple(range(4, 100)))
    with pytest.raises(SconesError, match=r"not finite in 10 steps in a row.*learning_rate"):
        run_training(tmp_path / "run", {"max_steps": 50, "checkpoint_every": 2}, output=Sick())
    assert len(events(tmp_path / "run", "skip")) == 10
    assert newest(tmp_path / "run").name == "step-00000012"
