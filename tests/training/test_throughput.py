"""What a log line says of speed: true operations, and only the time of training."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tiny_run import events, small_model
from torch.utils.flop_counter import FlopCounterMode

from scones.model.config import ModelConfig
from scones.model.transformer import Transformer
from scones.text.store import TokenStore
from scones.training import log, loop
from scones.training.checkpoints import RunState
from scones.training.log import Throughput, training_flops


@pytest.mark.parametrize("tied", [True, False])
def test_operations_are_counted_as_pytorch_counts_them(tied: bool) -> None:
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


class Clock:
    """A clock that goes only when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(log, "time", SimpleNamespace(perf_counter=clock.perf_counter))
    return clock


def test_a_pause_does_not_count(clock: Clock, tiny_store: Path) -> None:
    tokens = TokenStore.open(tiny_store).split("train")
    model = Transformer(small_model().build(500))
    peak = 1e9
    reader = Throughput(tokens, model, peak, tokens_before=50)
    reader.count(4.0)
    reader.count(2.0)
    clock.now += 3
    with reader.paused():
        clock.now += 100
    clock.now += 1
    values = reader.read(RunState(step=2, tokens=850, seconds=104.0))
    assert (values["loss"], values["tokens_per_second"]) == (3.0, 200.0)
    ratio = (tokens.source_lengths.sum() + len(tokens.source_lengths)) / (
        tokens.target_lengths.sum() + len(tokens.target_lengths)
    )
    assert values["hardware_share"] == pytest.approx(200 * training_flops(model, ratio) / peak)
    clock.now += 2
    assert reader.read(RunState(step=3, tokens=950))["tokens_per_second"] == 50.0


def test_validations_and_checkpoints_are_no_training_time(
    run_training, clock: Clock, tiny_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(real, seconds: float):
        def stand_in(*arguments, **options):
            clock.now += seconds
            return real(*arguments, **options)

        return stand_in

    monkeypatch.setattr(loop, "validate", slow(loop.validate, 1000))
    monkeypatch.setattr(loop.Checkpoints, "save", slow(loop.Checkpoints.save, 500))
    monkeypatch.setattr(loop, "finite_step", slow(loop.finite_step, 2))
    options = {"max_steps": 6, "validate_every": 1, "checkpoint_every": 2, "log_every": 3}
    run_training(tmp_path / "run", options)
    first, second = events(tmp_path / "run")
    lengths = TokenStore.open(tiny_store).split("train").target_lengths
    epoch = int(lengths.sum()) + len(lengths)
    for event, epochs in ((first, first["epoch"]), (second, second["epoch"] - first["epoch"])):
        # Three steps of two seconds each.
        assert event["tokens_per_second"] == pytest.approx(epochs * epoch / 6)
