"""Whatever happens while a checkpoint is written or afterwards, the run ends with the same bits."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import save
from tiny_run import assert_same_end, events, make_experiment

from scones.errors import SconesError
from scones.files import file_digest, read_json, write_json
from scones.training.checkpoints import Checkpoints
from scones.training.loop import train


@pytest.mark.slow
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
    assert [case for case in cases if case["again"] != 0] == []
    for kind, code in (("full disk", 2), ("killed", -signal.SIGKILL)):
        codes = [case["code"] for case in cases if case["case"] == kind]
        # Four files written, synced and renamed, then the folder: more than a dozen places.
        assert len(codes) > 15
        assert set(codes) == {code}


def newest(folder: Path) -> Path:
    return max((folder / "training" / "checkpoints").glob("step-*"))


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.fixture(scope="module")
def runs(tiny_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 8 steps, and the same one stopped after 4."""
    folder = tmp_path_factory.mktemp("runs")
    for name, steps in (("straight", 8), ("stopped", 4)):
        experiment = make_experiment({"checkpoint_every": 2, "max_steps": steps})
        train(experiment, tiny_store, folder / name, quiet=True)
    return folder


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("model.safetensors", truncate),
        ("model.safetensors", flip_a_bit),
        ("optimizer.safetensors", flip_a_bit),
        ("optimizer.safetensors", Path.unlink),
        ("optimizer.safetensors", pipe),
        ("state.json", flip_a_bit),
        ("digests.json", truncate),
        ("digests.json", Path.unlink),
        ("digests.json", lambda file: file.write_text("[]")),
    ],
)
def test_a_damaged_newest_checkpoint_is_passed_over(
    name: str, damage: Callable[[Path], None], runs: Path, run_training, tmp_path: Path, capsys
) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs / "stopped", run)
    damage(newest(run) / name)
    run_training(run, {"checkpoint_every": 2, "max_steps": 8}, quiet=False)
    said = capsys.readouterr().err
    assert "step-00000004" in said
    assert "is damaged" in said
    assert "Going on from step 2." in said
    assert_same_end(runs / "straight", run, 8)
    steps = [event["step"] for event in events(run)]
    assert steps == list(range(1, 9))  # the log holds no step twice
    left = {path.name for path in newest(run).parent.iterdir()}
    assert left == {"step-00000006", "step-00000008"}


def forge(run: Path, name: str, content: bytes) -> None:
    """Replace a file of the newest checkpoint and make its digest right."""
    (newest(run) / name).write_bytes(content)
    digests = newest(run) / "digests.json"
    write_json(digests, read_json(digests) | {name: file_digest(newest(run) / name)})


def never(run: Path) -> bytes:
    return json.dumps(read_json(newest(run) / "state.json") | {"seconds": math.nan}).encode()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            lambda run: [flip_a_bit(file) for file in run.rglob("step-*/model.safetensors")],
            r"No checkpoint in .* is whole: .*Remove the run's folder",
        ),
        (lambda run: forge(run, "state.json", b'{"step": 3}'), "is not what this .* at step 4"),
        (lambda run: forge(run, "state.json", never(run)), "is not what this .* at step 4"),
        (lambda run: forge(run, "state.json", b'{"step": ""}'), "'step' must be a whole number"),
        (lambda run: forge(run, "model.safetensors", save({})), "step 4 is of a model of other s"),
        (lambda run: pipe(run / "training" / "log.jsonl"), "is not a regular file"),
        (lambda run: pipe(run / "training" / "run.json"), "is not a regular file"),
    ],
)
def test_a_run_that_cannot_go_on_says_so_and_touches_nothing(
    damage: Callable[[Path], object], said: str, runs: Path, run_training, tmp_path: Path
) -> None:
    run = shutil.copytree(runs / "stopped", tmp_path / "run")
    damage(run)
    before = sorted(run.rglob("*"))
    with pytest.raises(SconesError, match=said):
        run_training(run, {"checkpoint_every": 2, "max_steps": 8})
    assert sorted(run.rglob("*")) == before


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


def test_what_somebody_put_beside_checkpoints_and_into_the_log_is_passed_over(
    runs: Path, run_training, tmp_path: Path
) -> None:
    run = shutil.copytree(runs / "stopped", tmp_path / "run")
    beside = newest(run).parent
    folders = "step-00000060.bak", "step-", "step-x", "step-5", "step-٠٦", ".step", "step-00000009"
    for name in folders:
        (beside / name).mkdir()
        (beside / name / "thesis.txt").touch()
    for name in ("step-00000001", "step-00000006"):
        (beside / name).touch()
    with (run / "training" / "log.jsonl").open("ab") as log:
        log.write(b'{}\n[]\n5\n{"event": "train"}\n{"event": 1, "step": 1}\n\xff\n' + b"[" * 9**5)
    run_training(run, {"checkpoint_every": 2, "max_steps": 8})
    assert_same_end(runs / "straight", run, 8)
    assert [event["step"] for event in events(run)] == list(range(1, 9))
    assert len([*beside.rglob("thesis.txt")]) == len(folders)
    assert {"step-00000001", ".step-00000006.damaged"} < {path.name for path in beside.iterdir()}
    config = read_json(run / "config.json")
    write_json(
        run / "config.json", config | {"scones": config["scones"] | {"scores": {"bleu": ""}}}
    )
    assert run_training(run, {"checkpoint_every": 2, "max_steps": 8}).best_bleu is None
