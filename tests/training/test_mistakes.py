"""What `scones mine` finds, and that training is told of it."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from scones.errors import SconesError
from scones.model.folder import ModelFolder
from scones.text import END
from scones.training.data import make_batch
from scones.training.labels import Mistakes
from scones.training.loop import train
from scones.training.mistakes import mine
from tests.training.test_told import make_store, told
from tests.training.test_told import subwords as subwords  # the fixture
from tests.training.tiny_run import make_experiment

LEAST = 0.02


@pytest.fixture
def store(tmp_path, subwords):
    return make_store(tmp_path / "store", subwords)


@pytest.fixture
def model(store, tmp_path):
    train(make_experiment({"max_steps": 30}), store.path, tmp_path / "run", quiet=True)
    return tmp_path / "run" / "last"


def test_mistakes_are_probable_and_in_no_reference(store, model, tmp_path):
    counts = mine(store, model, tmp_path / "mined", LEAST, 2, "cpu")
    digest, (pairs, places, tokens) = Mistakes.read(tmp_path / "mined")
    assert digest == store.digest
    assert counts == {"pairs": 3, "mistakes": len(pairs)}  # one source has three references
    net = ModelFolder.load(model).model.eval()
    tokens_of = store.split("train")
    held = {int(token) for pair in (0, 1, 2) for token in tokens_of.targets[pair]}
    wanted = set()
    for pair in (0, 1, 2):
        batch = make_batch(tokens_of, np.array([pair]), by_sentence=False)
        with torch.no_grad():
            logits_NV = functional.linear(batch.hidden(net), net.output_weight, net.output_bias)
        likely = (functional.logsigmoid(logits_NV) >= math.log(LEAST)).nonzero().tolist()
        wanted |= {(pair, place, one) for place, one in likely if one > END and one not in held}
    found = {*zip(pairs.tolist(), places.tolist(), tokens.tolist(), strict=True)}
    assert found == wanted
    assert found
    # And training is told: each of them at its place.
    labels = told(store, [0, 1, 2, 5], negatives=2.0, mistakes=tmp_path / "mined")
    for pair, place, token in found:
        assert (place, token, 2.0) in labels[pair]


def test_a_file_for_another_store_is_refused(store, model, tmp_path, subwords):
    mine(store, model, tmp_path / "mined", LEAST, 2, "cpu")
    other = make_store(tmp_path / "other", subwords, grouped=False)
    with pytest.raises(SconesError, match="made for another store"):
        told(other, [0], negatives=2.0, mistakes=tmp_path / "mined")
    with pytest.raises(SconesError, match="group-sources"):
        mine(other, model, tmp_path / "again", LEAST, 2, "cpu")
