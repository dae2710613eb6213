"""Training runs from beginning to end: what they leave on disk, when they end, what they refuse."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_run import checkpoint, events, small_model, weights

from scones.errors import SconesError
from scones.files import sole_use
from scones.model.folder import ModelFolder
from scones.outputs.scones import Scones
from scones.outputs.softmax import Softmax
from scones.text.batches import plan_batches
from scones.text.store import TokenStore


def test_a_run_leaves_a_model_a_log_and_checkpoints(
    run_training, tiny_store: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    result = run_training(run, {"max_steps": 8, "checkpoint_every": 2, "validate_every": 5})
    assert not (run / "training" / "tensorboard").exists()  # which nobody asked for
    assert (result.reason, result.steps, result.interrupted) == ("the budget is spent", 8, False)
    assert set(events(run)[0]) == {
        "event", "step", "loss", "epoch", "tokens_per_second", "hardware_share", "learning_rate",
        "seconds", "skipped",
    }  # fmt: skip
    assert [event["step"] for event in events(run)] == list(range(1, 9))
    assert [event["step"] for event in events(run, "validate")] == [5, 8]
    assert {"loss", "bleu", "length_ratio", "signature"} < set(events(run, "validate")[0])
    assert events(run)[-1]["loss"] < events(run)[0]["loss"]
    kept = sorted(path.name for path in (run / "training" / "checkpoints").iterdir())
    assert kept == ["step-00000006", "step-00000008"]

    best, last = ModelFolder.load(run), ModelFolder.load(run / "last")
    assert last.facts.steps == 8
    assert best.facts.steps == result.best_step
    assert best.facts.scores["bleu"] == result.best_bleu
    assert best.facts.data_digest == TokenStore.open(tiny_store).digest
    expected = checkpoint(run, 8)
    for name, tensor in last.model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name


def test_the_loop_is_imported_without_what_only_a_gpu_runs() -> None:
    program = "import sys, scones.training.loop; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    modules = done.stdout.split()
    assert "scones.model.transformer" in modules
    rooms = ("scones.kernels", "scones.model.gpu", "scones.search.gpu", "scones.training.gpu")
    assert [name for name in modules if name.startswith(rooms)] == []


def test_a_finished_run_has_nothing_left_to_do(run_training, tmp_path: Path) -> None:
    first = run_training(tmp_path / "run")
    log = (tmp_path / "run" / "training" / "log.jsonl").read_text()
    again = run_training(tmp_path / "run")
    assert (again.steps, again.best_bleu) == (first.steps, first.best_bleu)
    assert (tmp_path / "run" / "training" / "log.jsonl").read_text() == log


@pytest.mark.parametrize("average", ["tokens", "sentences"])
def test_accumulated_small_batches_train_like_large_ones(
    average: str, run_training, tiny_store: Path, tmp_path: Path
) -> None:
    tokens = TokenStore.open(tiny_store).split("train")

    def batches(max_tokens: int) -> int:
        lengths = tokens.source_lengths, tokens.target_lengths
        return len(plan_batches(*lengths, max_tokens, seed=1, epoch=0))

    sizes = {"few": (100_000, batches(100_000)), "many": (60, batches(60))}
    assert sizes["many"][1] > sizes["few"][1] + 10
    losses, gradients = {}, {}
    for name, (max_tokens, accumulate) in sizes.items():
        options = {"max_steps": 1, "max_tokens": max_tokens, "accumulate": accumulate}
        run_training(tmp_path / name, options | {"loss_average": average}, small_model(dropout=0.0))
        (event,) = events(tmp_path / name)
        losses[name] = event["loss"]
        assert event["epoch"] == 1.0
        # After one step LAMB's mean is the gradient, but for a factor.
        moments = load_file(
            tmp_path / name / "training/checkpoints/step-00000001/optimizer.safetensors"
        )
        gradients[name] = {key: value for key, value in moments.items() if "mean/" in key}
    assert losses["many"] == pytest.approx(losses["few"], rel=1e-5)
    assert len(gradients["few"]) > 20
    for key, gradient in gradients["few"].items():
        error = (gradients["many"][key] - gradient).abs().max()
        # The bias of keys shifts all scores alike: its true gradient is 0, and rounding is all.
        assert error <= 1e-4 * gradient.abs().max() + 1e-8, key


def test_patience_ends_a_run_that_gets_no_better(run_training, tmp_path: Path) -> None:
    options = {"max_steps": None, "validate_every": 1, "patience": 2, "learning_rate": 1e-12}
    result = run_training(tmp_path / "run", options)
    assert (result.steps, result.best_step) == (3, 1)
    assert result.reason == "no better dev BLEU in 2 validations"


def test_time_ends_a_run_and_cools_it_down(run_training, tmp_path: Path) -> None:
    options = {"max_steps": None, "max_minutes": 0.01, "cooldown": 0.5, "warmup_steps": 1}
    result = run_training(tmp_path / "run", options | {"learning_rate": 0.001})
    assert result.reason == "the budget is spent"
    assert 0.6 <= result.seconds < 5
    # The root alone would leave this much; the cool-down takes it nearly to nothing.
    by_root = 0.001 / result.steps**0.5
    assert events(tmp_path / "run")[-1]["learning_rate"] < 0.5 * by_root


def test_steps_cool_a_run_down(run_training, tmp_path: Path) -> None:
    run_training(tmp_path / "run", {"max_steps": 5, "cooldown": 0.4, "warmup_steps": 1})
    rates = [event["learning_rate"] for event in events(tmp_path / "run")]
    assert rates == pytest.approx([0.01 / (n**0.5) * min(1, (6 - n) / 2) for n in range(1, 6)])


def test_without_a_development_set_the_newest_model_is_kept(
    run_training, store_without_dev: Path, tmp_path: Path
) -> None:
    result = run_training(tmp_path / "run", store=store_without_dev)
    assert (result.best_bleu, result.best_step) == (None, 4)
    assert ModelFolder.load(tmp_path / "run").facts.steps == 4
    with pytest.raises(SconesError, match=r"no development set for patience to watch.* max_steps"):
        run_training(tmp_path / "other", {"max_steps": None}, store=store_without_dev)


AVERAGED = {"max_steps": 6, "checkpoint_every": 2, "average_last": 3}


def test_the_last_checkpoints_are_averaged(
    run_training, store_without_dev: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    run_training(run, AVERAGED, store=store_without_dev)
    parts = [checkpoint(run, step) for step in (2, 4, 6)]
    for name, tensor in ModelFolder.load(run).model.state_dict().items():
        mean = np.mean([part[name].double().numpy() for part in parts], axis=0)
        np.testing.assert_allclose(tensor.numpy(), mean, rtol=1e-6, err_msg=name)
    for name, tensor in ModelFolder.load(run / "last").model.state_dict().items():
        assert torch.equal(tensor, parts[-1][name]), name


@pytest.mark.parametrize("torn", ["last missing", "last half-written"])
def test_a_run_killed_at_its_very_end_is_brought_to_its_end(
    torn: str, run_training, store_without_dev: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    run_training(run, AVERAGED, store=store_without_dev)
    expected = weights(run), weights(run / "last")
    (run / "model.safetensors").unlink()
    if torn == "last missing":
        shutil.rmtree(run / "last")
    else:
        (run / "last" / "config.json").unlink()
    run_training(run, AVERAGED, store=store_without_dev)
    for before, after in zip(expected, (weights(run), weights(run / "last")), strict=True):
        assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


@pytest.mark.parametrize(
    ("options", "output", "named"),
    [
        ({"learning_rate": 0.5}, None, "train.learning_rate was 0.01 and now is 0.5"),
        ({"seed": 2, "accumulate": 2}, None, "train.accumulate was 1 .*; train.seed was 1 and now"),
        ({}, Scones(alpha=0.7), "output.alpha was 0.5 and now is 0.7"),
        ({}, Softmax(), "output.layer was 'scones' and now is 'softmax'"),
    ],
)
def test_a_changed_option_is_named(
    options, output, named, run_training, store_without_dev: Path, tmp_path: Path
) -> None:
    run_training(tmp_path / "run", {"max_steps": 1})
    before = weights(tmp_path / "run" / "last")
    with pytest.raises(SconesError, match=f"holds another run .*{named}"):
        run_training(tmp_path / "run", {"max_steps": 2, **options}, output=output)
    with pytest.raises(SconesError, match=r"holds another run .*data was"):
        run_training(tmp_path / "run", {"max_steps": 2}, store=store_without_dev)
    after = weights(tmp_path / "run" / "last")
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_run_that_another_process_trains_is_refused(run_training, tmp_path: Path) -> None:
    run_training(tmp_path / "run", {"max_steps": 1})
    refusal = pytest.raises(SconesError, match="Another process is writing to")
    with sole_use(tmp_path / "run" / "training"), refusal:
        run_training(tmp_path / "run", {"max_steps": 2})
    run_training(tmp_path / "run", {"max_steps": 2})


def test_a_folder_that_is_no_run_is_left_alone(run_training, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("dear")
    for place in (tmp_path, tmp_path / "thesis.txt"):
        with pytest.raises(SconesError, match="exists and is not a training run; choose another"):
            run_training(place)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_folder_with_only_a_killed_beginning_is_as_good_as_empty(
    run_training, tmp_path: Path
) -> None:
    (tmp_path / "run" / ".training.writing-1").mkdir(parents=True)
    assert run_training(tmp_path / "run", {"max_steps": 1}).steps == 1


@pytest.fixture
def start(run_training, tmp_path: Path) -> Path:
    """A model to start from."""
    run_training(tmp_path / "start", {"max_steps": 1, "seed": 9})
    return tmp_path / "start" / "last"


def test_weights_to_start_from_count_at_the_beginning_only(
    run_training, start: Path, tmp_path: Path
) -> None:
    options = {"start_from": start, "learning_rate": 1e-30, "max_steps": 1}
    run_training(tmp_path / "run", options)
    before, after = weights(start), weights(tmp_path / "run" / "last")
    for name, tensor in before.items():
        torch.testing.assert_close(after[name], tensor, atol=1e-20, rtol=0)
    shutil.rmtree(start)
    assert run_training(tmp_path / "run", {**options, "max_steps": 2}).steps == 2


def test_what_cannot_be_trained_is_refused_and_leaves_nothing(
    run_training, start: Path, empty_store: Path, tmp_path: Path
) -> None:
    shutil.copytree(start, tmp_path / "other")
    (tmp_path / "other" / "subwords.model").write_bytes(b"other")
    run = tmp_path / "run"
    with pytest.raises(SconesError, match=r"other has another vocabulary than .*--subwords"):
        run_training(run, {"start_from": tmp_path / "other"})
    with pytest.raises(
        SconesError, match="has other sizes: encoder_layers 1 where 2 is asked for, decoder"
    ):
        run_training(run, {"start_from": start}, small_model(layers=2))
    with pytest.raises(SconesError, match="has no training pairs"):
        run_training(run, store=empty_store)
    with pytest.raises(SconesError, match=r"training set .* has a sentence of .* max_tokens is 9"):
        run_training(run, {"max_tokens": 9})
    with pytest.raises(SconesError, match=r"has a sentence of .* but max_length is 8"):
        run_training(run, model=small_model(max_length=8))
    with pytest.raises(SconesError, match="The device 'toaster' is not known"):
        run_training(run, {"device": "toaster"})
    assert not run.exists()


def test_tensorboard_files_are_written_when_asked_for(run_training, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run_training(tmp_path / "run", {"max_steps": 3, "tensorboard": True})
    board = EventAccumulator(str(tmp_path / "run" / "training" / "tensorboard"))
    board.Reload()
    shown = [(scalar.step, scalar.value) for scalar in board.Scalars("train/loss")]
    logged = [(event["step"], event["loss"]) for event in events(tmp_path / "run")]
    assert shown == [(step, pytest.approx(loss)) for step, loss in logged]
    assert board.Scalars("validate/bleu")
