"""A way to train a tiny model, and a store without a development set."""

import pytest
from sick import Sick
from tiny_run import make_experiment, write_store

from scones import outputs
from scones.text.subwords import Subwords
from scones.training.loop import train


@pytest.fixture(autouse=True)
def sick_layer(monkeypatch):
    """An output layer that only these tests know."""
    monkeypatch.setitem(outputs._REGISTERED, Sick.name, Sick)


@pytest.fixture
def run_training(tiny_store):
    """Train a tiny model into a folder, with these options over the usual ones."""

    def run(folder, options=None, model=None, output=None, store=tiny_store, quiet=True):
        return train(make_experiment(options, model, output), store, folder, quiet)

    return run


@pytest.fixture(scope="session")
def store_without_dev(tea_pairs, tiny_subwords, tmp_path_factory):
    folder = tmp_path_factory.mktemp("no-dev") / "store"
    write_store(folder, Subwords(tiny_subwords), tea_pairs[:60])
    return folder


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Interpreted kernels over large grains take ten seconds; the small one tests the same."""
    test = "test_a_settled_batch_has_the_same_loss_and_gradients"
    for item in items:
        if item.name.startswith((f"{test}[50-", f"{test}[256-")):
            item.add_marker(pytest.mark.slow)
