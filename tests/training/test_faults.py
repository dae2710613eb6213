"""Whatever happens while a checkpoint is written or afterwards, the run ends with the same bits."""

import json
import math
import os
import shutil
from pathlib import Path

import pytest
from safetensors.torch import save
from tiny_run import assert_same_end, events, make_experiment

from scones.errors import SconesError
from scones.files import file_digest, read_json, write_json
from scones.training.checkpoints import Checkpoints
from scones.training.loop import train
from tests.damage import flip_a_bit, truncate


@pytest.mark.slow
def test_a_run_killed_at_any_point_of_writing_ends_with_the_same_bits(
    run_training, tmp_path, monkeypatch
):
    """One run whose disk is copied before every step of writing a checkpoint: as kills leave it."""
    options = {"checkpoint_every": 1, "average_last": 2, "validate_every": 3, "dev_sentences": 1}
    straight, copies = tmp_path / "straight", []

    def copying(real):
        def stand_in(*arguments, **others):
            paths = [str(part) for part in arguments if isinstance(part, str | Path)]
            if real is fsync:
                paths = [str(Path(f"/proc/self/fd/{arguments[0]}").readlink())]
            if any(path.startswith(f"{straight}/") and "step-00000002" in path for path in paths):
                copies.append(shutil.copytree(straight, tmp_path / f"killed-{len(copies)}"))
            return real(*arguments, **others)

        return stand_in

    fsync = os.fsync
    with monkeypatch.context() as patched:
        for name in ("fsync", "rename", "replace", "mkdir", "rmdir"):
            patched.setattr(os, name, copying(getattr(os, name)))
        run_training(straight, options)
    # Four files written, synced and renamed, then the folder: more than a dozen places.
    assert len(copies) > 12
    for copy in copies:
        run_training(copy, options)
        assert_same_end(straight, copy, 4)
        for name in ("model.safetensors", "last/model.safetensors"):
            assert (straight / name).read_bytes() == (copy / name).read_bytes(), name


def newest(folder):
    return max((folder / "training" / "checkpoints").glob("step-*"))


def pipe(file):
    file.unlink()
    os.mkfifo(file)


@pytest.fixture(scope="module")
def runs(tiny_store, tmp_path_factory):
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
    name, damage, runs, run_training, tmp_path, capsys
):
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


def forge(run, name, content):
    """Replace a file of the newest checkpoint and make its digest right."""
    (newest(run) / name).write_bytes(content)
    digests = newest(run) / "digests.json"
    write_json(digests, read_json(digests) | {name: file_digest(newest(run) / name)})


def never(run):
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
    damage, said, runs, run_training, tmp_path
):
    run = shutil.copytree(runs / "stopped", tmp_path / "run")
    damage(run)
    before = sorted(run.rglob("*"))
    with pytest.raises(SconesError, match=said):
        run_training(run, {"checkpoint_every": 2, "max_steps": 8})
    assert sorted(run.rglob("*")) == before


def test_a_damaged_checkpoint_is_left_out_of_the_average(run_training, tmp_path):
    run_training(tmp_path / "run", {"checkpoint_every": 1, "average_last": 3})
    folder = newest(tmp_path / "run").parent
    flip_a_bit(folder / "step-00000003" / "model.safetensors")
    said = []
    steps, average = Checkpoints(folder, 3, said.append).average(3)
    assert steps == [2, 4]
    assert len(said) == 1
    assert "step-00000003" in said[0]
    assert "left out of the average" in said[0]
    assert all(tensor.isfinite().all() for tensor in average.values())


def test_what_somebody_put_beside_checkpoints_and_into_the_log_is_passed_over(
    runs, run_training, tmp_path
):
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
