"""Training runs from beginning to end: what they leave on disk, when they end, what they refuse."""

import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from tiny_run import checkpoint, events, make_experiment, small_model, weights, write_store

from scones.errors import SconesError
from scones.files import read_json, sole_use, write_json
from scones.model.folder import ModelFolder
from scones.outputs import output_layer
from scones.outputs.scones import Scones
from scones.outputs.softmax import Softmax
from scones.text.batches import plan_batches
from scones.text.store import TokenStore
from scones.text.subwords import Subwords
from scones.training.data import make_batch
from scones.training.loop import validate
from scones.training.options import TrainOptions
from scones.training.tune import Tuning, tune


def test_a_run_leaves_a_model_a_log_and_checkpoints(run_training, tiny_store, tmp_path):
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

    log = (run / "training" / "log.jsonl").read_text()
    again = run_training(run, {"max_steps": 8, "checkpoint_every": 2, "validate_every": 5})
    assert (again.steps, again.best_bleu) == (result.steps, result.best_bleu)
    assert (run / "training" / "log.jsonl").read_text() == log  # nothing was left to do


def test_the_loop_is_imported_without_what_only_a_gpu_runs():
    program = "import sys, scones.training.loop; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    modules = done.stdout.split()
    assert "scones.model.transformer" in modules
    rooms = ("scones.kernels", "scones.model.gpu", "scones.search.gpu", "scones.training.gpu")
    assert [name for name in modules if name.startswith(rooms)] == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_steps": 5}, ["step 5, within the warm-up of 5 steps"]),
        ({"max_steps": 6}, []),
        ({"max_steps": None, "max_minutes": 0.002, "warmup_steps": 10**6}, ["up of 1,000,000"]),
    ],
)
def test_a_budget_that_ends_in_the_warm_up_is_told_of_once(
    options, said, run_training, tmp_path, capsys
):
    run_training(tmp_path / "run", options, quiet=False)
    told = " ".join(capsys.readouterr().err.split()).split("Training ends near ")[1:]
    assert len(told) == len(said)
    assert all(words in line for words, line in zip(said, told, strict=True))


@pytest.mark.parametrize("average", ["tokens", "sentences"])
def test_accumulated_small_batches_train_like_large_ones(
    average, run_training, tiny_store, tmp_path
):
    tokens = TokenStore.open(tiny_store).split("train")

    def batches(max_tokens):
        lengths = tokens.sources.lengths, tokens.targets.lengths
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
        tensors = checkpoint(tmp_path / name, 1)
        gradients[name] = {key: value for key, value in tensors.items() if "mean/" in key}
    assert losses["many"] == pytest.approx(losses["few"], rel=1e-5)
    assert len(gradients["few"]) > 20
    for key, gradient in gradients["few"].items():
        error = (gradients["many"][key] - gradient).abs().max()
        # The bias of keys shifts all scores alike: its true gradient is 0, and rounding is all.
        assert error <= 1e-4 * gradient.abs().max() + 1e-8, key


def test_patience_ends_a_run_that_gets_no_better(run_training, tmp_path):
    options = {"max_steps": None, "validate_every": 1, "patience": 2, "learning_rate": 1e-12}
    result = run_training(tmp_path / "run", options)
    assert (result.steps, result.best_step) == (3, 1)
    assert result.reason == "no better dev BLEU in 2 validations"


def test_time_ends_a_run_and_cools_it_down(run_training, tmp_path):
    options = {"max_steps": None, "max_minutes": 0.01, "cooldown": 0.5, "warmup_steps": 1}
    result = run_training(tmp_path / "run", options | {"learning_rate": 0.001})
    assert result.reason == "the budget is spent"
    assert 0.6 <= result.seconds < 5
    # The root alone would leave this much; the cool-down takes it nearly to nothing.
    by_root = 0.001 / result.steps**0.5
    assert events(tmp_path / "run")[-1]["learning_rate"] < 0.5 * by_root


def test_steps_cool_a_run_down(run_training, tmp_path):
    run_training(tmp_path / "run", {"max_steps": 5, "cooldown": 0.4, "warmup_steps": 1})
    rates = [event["learning_rate"] for event in events(tmp_path / "run")]
    assert rates == pytest.approx([0.01 / (n**0.5) * min(1, (6 - n) / 2) for n in range(1, 6)])


def test_without_a_development_set_the_newest_model_is_kept(
    run_training, store_without_dev, tmp_path
):
    result = run_training(tmp_path / "run", store=store_without_dev)
    assert (result.best_bleu, result.best_step) == (None, 4)
    assert ModelFolder.load(tmp_path / "run").facts.steps == 4
    with pytest.raises(SconesError, match=r"no development set for patience to watch.* max_steps"):
        run_training(tmp_path / "other", {"max_steps": None}, store=store_without_dev)


def test_the_last_checkpoints_are_averaged_even_if_the_run_is_killed_at_its_very_end(
    run_training, store_without_dev, tmp_path
):
    run, options = tmp_path / "run", {"max_steps": 6, "checkpoint_every": 2, "average_last": 3}
    for torn in ((), ("model.safetensors", "last"), ("model.safetensors", "last/config.json")):
        for name in torn:
            path = run / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        run_training(run, options, store=store_without_dev)
        parts = [checkpoint(run, step) for step in (2, 4, 6)]
        for name, tensor in ModelFolder.load(run).model.state_dict().items():
            mean = np.mean([part[name].double().numpy() for part in parts], axis=0)
            np.testing.assert_allclose(tensor.numpy(), mean, rtol=1e-6, err_msg=name)
        for name, tensor in ModelFolder.load(run / "last").model.state_dict().items():
            assert torch.equal(tensor, parts[-1][name]), name


def test_a_changed_option_is_named(run_training, store_without_dev, tmp_path):
    run = tmp_path / "run"
    run_training(run, {"max_steps": 1})
    before = weights(run / "last")
    for options, changed, named in (
        ({"learning_rate": 0.5}, {}, "train.learning_rate was 0.01 and now is 0.5"),
        ({"seed": 2, "accumulate": 2}, {}, "train.accumulate was 1 .*; train.seed was 1 and now"),
        ({}, {"output": Scones(alpha=0.7)}, "output.alpha was 0.5 and now is 0.7"),
        ({}, {"output": Softmax()}, "output.layer was 'scones' and now is 'softmax'"),
        ({}, {"store": store_without_dev}, "data was"),
    ):
        with pytest.raises(SconesError, match=f"holds another run .*{named}"):
            run_training(run, {"max_steps": 2, **options}, **changed)
    after = weights(run / "last")
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_run_that_another_process_trains_is_refused(run_training, tmp_path):
    run_training(tmp_path / "run", {"max_steps": 1})
    refusal = pytest.raises(SconesError, match="Another process is writing to")
    with sole_use(tmp_path / "run" / "training"), refusal:
        run_training(tmp_path / "run", {"max_steps": 2})
    run_training(tmp_path / "run", {"max_steps": 2})


def test_weights_to_start_from_count_at_the_beginning_only(run_training, tmp_path):
    run_training(tmp_path / "start", {"max_steps": 1, "seed": 9})
    start, run = tmp_path / "start" / "last", tmp_path / "run"
    other = shutil.copytree(start, tmp_path / "other")
    (other / "subwords.model").write_bytes(b"other")
    config = read_json(other / "config.json")
    del config["scones"]["digests"], config["scones"]["vocabulary_digest"]
    write_json(other / "config.json", config)
    with pytest.raises(SconesError, match=r"other has another vocabulary than .*--like \S+other"):
        run_training(run, {"start_from": other})
    with pytest.raises(SconesError, match="has other sizes: encoder_layers 1 where 2 is asked for"):
        run_training(run, {"start_from": start}, small_model(layers=2))
    assert not run.exists()
    options = {"start_from": start, "learning_rate": 1e-30, "max_steps": 1}
    run_training(run, options)
    shutil.rmtree(run / "last")
    (checkpoint := run / "training" / "checkpoints" / "step-00000001").rename(f"{checkpoint}.bak")
    run_training(run, options)  # from the beginning
    after = weights(run / "last")
    for name, tensor in weights(start).items():
        torch.testing.assert_close(after[name], tensor, atol=1e-20, rtol=0)
    shutil.rmtree(start)
    assert run_training(run, {**options, "max_steps": 2}).steps == 2


def test_what_cannot_be_trained_is_refused_and_leaves_nothing(
    run_training, tiny_subwords, tmp_path
):
    write_store(tmp_path / "empty", Subwords(tiny_subwords), [])
    for options, others, said in (
        ({}, {"store": tmp_path / "empty"}, "has no training pairs"),
        ({"max_tokens": 9}, {}, r"training set .* has a sentence of .* max_tokens is 9"),
        ({}, {"model": small_model(max_length=8)}, "has a sentence of .* but max_length is 8"),
        ({"device": "toaster"}, {}, "The device 'toaster' is not known"),
    ):
        with pytest.raises(SconesError, match=said):
            run_training(tmp_path / "run", options, **others)
    assert not (tmp_path / "run").exists()


def test_tensorboard_files_are_written_when_asked_for(run_training, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run_training(tmp_path / "run", {"max_steps": 3, "tensorboard": True})
    board = EventAccumulator(str(tmp_path / "run" / "training" / "tensorboard"))
    board.Reload()
    shown = [(scalar.step, scalar.value) for scalar in board.Scalars("train/loss")]
    logged = [(event["step"], event["loss"]) for event in events(tmp_path / "run")]
    assert shown == [(step, pytest.approx(loss)) for step, loss in logged]
    assert board.Scalars("validate/bleu")


def test_something_must_end_the_run():
    with pytest.raises(SconesError, match="one of max_steps, max_minutes and patience must say"):
        TrainOptions(patience=0)
    with pytest.raises(SconesError, match=r"beta2 must be in .*; cooldown needs max_steps or"):
        TrainOptions(cooldown=0.3, beta2=1.0)
    assert TrainOptions(patience=0, max_minutes=1.0).has_budget


@pytest.mark.parametrize(("layer", "sentences"), [("scones", 7), ("softmax", None)])
def test_the_loss_of_a_validation_is_the_mean_over_tokens(
    layer, sentences, tiny_models, tiny_store
):
    folder = ModelFolder.load(tiny_models / layer)
    store, output = TokenStore.open(tiny_store), output_layer(folder.facts.output)
    model = folder.model.train()
    found = validate(model, output, store, sentences)
    assert model.training  # as it was
    total, count = 0.0, 0
    model.eval()
    with torch.no_grad():
        for index in range(sentences or 20):  # one by one
            batch = make_batch(store.split("dev"), np.array([index]), by_sentence=False)
            logits = model.logits(model(batch.source_BS, batch.inputs_BT))[0]
            total += float(output.token_losses(logits, batch.targets_N).sum())
            count += batch.tokens
    assert found.loss == pytest.approx(total / count, rel=1e-5)
    assert 0 <= found.bleu <= 100
    assert found.signature.startswith("nrefs:1|")


def test_tune_chooses_the_smallest_of_the_best_and_needs_a_development_set(
    store_without_dev, tmp_path
):
    assert Tuning({0.9: 3.0, 0.2: 3.0, 0.1: 2.0}, {}, "alpha").best == 0.2
    nothing = Tuning({0.9: 0.0, 0.2: 0.0}, {0.9: "a", 0.2: "b"}, "alpha")
    assert nothing.best is None
    assert [row[-1] for row in nothing.table()[1]] == ["", ""]
    with pytest.raises(SconesError, match="has no development set to choose α on"):
        tune(make_experiment(), store_without_dev, tmp_path / "sweep", [0.5])
    assert not (tmp_path / "sweep").exists()
