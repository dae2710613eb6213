"""What a log line says of speed: true operations, and only the time of training."""

from types import SimpleNamespace

import pytest
import torch
from tiny_run import events, small_model
from torch.utils.flop_counter import FlopCounterMode

from scones.model.config import ModelConfig
from scones.model.transformer import Transformer
from scones.text.store import TokenStore
from scones.training import log, loop
from scones.training.log import training_flops


@pytest.mark.parametrize("tied", [True, False])
def test_operations_are_counted_as_pytorch_counts_them(tied):
    config = ModelConfig(50, 2, 3, 32, 4, 64, 0.0, 0.0, tied_embeddings=tied, max_length=32)
    model = Transformer(config)
    sentences, source_length, target_length = 3, 9, 6
    source, target = (
        torch.randint(2, 50, (sentences, length)) for length in (source_length, target_length)
    )
    with FlopCounterMode(display=False) as counter:
        model.logits(model(source, target)).square().sum().backward()
    products = {
        operation: flops
        for operation, flops in counter.get_flop_counts()["Global"].items()
        if str(operation) in ("aten.mm", "aten.addmm")
    }
    expected = training_flops(model, source_length / target_length) * sentences * target_length
    assert sum(products.values()) == pytest.approx(expected)


def test_validations_and_checkpoints_are_no_training_time(
    run_training, tiny_store, tmp_path, monkeypatch
):
    now, peak = 1000.0, 1e9

    def slow(real, seconds):
        def stand_in(*arguments, **options):
            nonlocal now
            now += seconds
            return real(*arguments, **options)

        return stand_in

    monkeypatch.setattr(log, "time", SimpleNamespace(perf_counter=lambda: now))
    monkeypatch.setattr(loop, "matrix_rate", lambda device, precision: peak)
    monkeypatch.setattr(loop, "validate", slow(loop.validate, 1000))
    monkeypatch.setattr(loop.Checkpoints, "save", slow(loop.Checkpoints.save, 500))
    monkeypatch.setattr(loop, "finite_step", slow(loop.finite_step, 2))
    options = {"max_steps": 6, "validate_every": 1, "checkpoint_every": 2, "log_every": 3}
    run_training(tmp_path / "run", options)
    first, second = events(tmp_path / "run")
    tokens = TokenStore.open(tiny_store).split("train")
    source, target = (
        int(lengths.sum()) + len(lengths)
        for lengths in (tokens.sources.lengths, tokens.targets.lengths)
    )
    flops = training_flops(Transformer(small_model().build(500)), source / target)
    for event, epochs in ((first, first["epoch"]), (second, second["epoch"] - first["epoch"])):
        # Three steps of two seconds each.
        speed = event["tokens_per_second"]
        assert speed == pytest.approx(epochs * target / 6)
        assert event["hardware_share"] == pytest.approx(speed * flops / peak)


def test_slow_steps_are_logged_by_time(run_training, tmp_path, monkeypatch):
    now, real = 1000.0, loop.finite_step

    def slow(*arguments, **options):
        nonlocal now
        now += 12
        return real(*arguments, **options)

    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(loop, "finite_step", slow)
    run_training(tmp_path / "run", {"max_steps": 10, "log_every": 9})
    # The clock is read before a step is made: 36 s, 72 s, and what was asked for.
    assert [event["step"] for event in events(tmp_path / "run")] == [4, 7, 9]
