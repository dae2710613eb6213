"""A way to train a tiny model, and a store without a development set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sick import Sick
from tiny_run import make_experiment, write_store

from scones import outputs
from scones.model.config import ModelOptions
from scones.outputs import OutputLayer
from scones.text.subwords import Subwords
from scones.training.checkpoints import TrainResult
from scones.training.loop import train


@pytest.fixture(autouse=True)
def sick_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """An output layer that only these tests know."""
    monkeypatch.setitem(outputs._REGISTERED, Sick.name, Sick)


@pytest.fixture
def run_training(tiny_store: Path) -> Callable[..., TrainResult]:
    """Train a tiny model into a folder, with these options over the usual ones."""

    def run(
        folder: Path,
        options: dict[str, Any] | None = None,
        model: ModelOptions | None = None,
        output: OutputLayer | None = None,
        store: Path = tiny_store,
        quiet: bool = True,
    ) -> TrainResult:
        return train(make_experiment(options, model, output), store, folder, quiet)

    return run


@pytest.fixture(scope="session")
def store_without_dev(
    tea_pairs: list[tuple[str, str]], tiny_subwords: bytes, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("no-dev") / "store"
    write_store(folder, Subwords(tiny_subwords), tea_pairs[:60])
    return folder


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Interpreted kernels over large grains take ten seconds; the small one tests the same."""
    test = "test_a_settled_batch_has_the_same_loss_and_gradients"
    for item in items:
        if item.name.startswith((f"{test}[50-", f"{test}[256-")):
            item.add_marker(pytest.mark.slow)
