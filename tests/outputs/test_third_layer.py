"""An output layer of somebody else: softmax with z-loss, made here and registered, end to end."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

import scones
from scones import outputs
from scones.errors import SconesError
from scones.model.config import ModelOptions
from scones.options import option
from scones.outputs import OutputLayer
from scones.outputs.softmax import Softmax
from scones.text import PAD
from scones.training.loop import train
from scones.training.options import Experiment, TrainOptions

SIZES = ModelOptions(preset="tiny", layers=1, size=32, heads=2, feed_forward=64, max_length=64)


@dataclass(frozen=True)
class SoftmaxWithZLoss(OutputLayer):
    """Softmax whose normaliser is kept near 1: the squared log-sum-exp is a part of the loss."""

    name: ClassVar[str] = "softmax-z"
    tuned: ClassVar[str | None] = "z"

    z: float = option(1e-4, "weight of the squared log-sum-exp")

    def initial_bias(self, vocabulary):
        return -math.log(vocabulary)  # the normaliser starts near 1

    def token_losses(self, logits_NV, targets_N):
        norms_N = logits_NV.float().logsumexp(dim=-1)
        losses_N = self.z * norms_N.square() - self.scores_of(logits_NV, targets_N)
        return losses_N.masked_fill(targets_N == PAD, 0.0)

    def log_scores(self, logits_NV):
        return logits_NV.float().log_softmax(dim=-1)


@pytest.fixture(autouse=True, scope="module")
def registered():
    outputs.register(SoftmaxWithZLoss)
    yield
    del outputs._REGISTERED[SoftmaxWithZLoss.name]


@pytest.fixture(scope="module")
def run(tiny_store, tmp_path_factory):
    """A model that was trained for a few steps."""
    folder = tmp_path_factory.mktemp("z") / "run"
    steps = TrainOptions(max_steps=6, max_tokens=512, validate_every=3, device="cpu")
    result = train(Experiment(SIZES, SoftmaxWithZLoss(z=0.01), steps), tiny_store, folder, True)
    assert (result.steps, result.skipped) == (6, 0)
    return folder


def test_it_is_trained_saved_and_translates(run):
    translator = scones.load(run, "cpu", engine="torch")
    assert translator.output == SoftmaxWithZLoss(z=0.01)
    sentences = ["Der Tee ist heiß.", "Noch ein Scone, bitte!"]
    greedy = translator.translate(sentences)
    beam = translator.translate(sentences, "beam", beam_size=3, n_best=2)
    assert len(greedy) == len(beam) == 2
    for (first,), found in zip(greedy, beam, strict=True):
        assert max(first.token_log_probs) < 0
        assert 1 <= len(found) <= 2
        assert max(found[0].token_log_probs) < 0


def test_the_seam_does_the_rest():
    layer, logits_NV = SoftmaxWithZLoss(), torch.randn(5, 9)
    scores_Nk, tokens_Nk = layer.best(logits_NV, 4)
    assert torch.equal(tokens_Nk, logits_NV.topk(4).indices)
    torch.testing.assert_close(scores_Nk, logits_NV.log_softmax(-1).gather(-1, tokens_Nk))
    assert torch.equal(layer.best_token(logits_NV), tokens_Nk[:, 0])
    with pytest.raises(SconesError, match="there are scones, softmax, softmax-z"):
        outputs.output_layer({"layer": "entmax"})


def test_the_folder_tells_of_it(run, tmp_path):
    from scones.model.folder import ModelFolder, read_facts, store_again

    assert read_facts(run).output == {"layer": "softmax-z", "z": 0.01}
    card = (run / "README.md").read_text()
    assert "| output layer | softmax-z (z = 0.01) |" in card
    assert "The logits go through a softmax, as usual." in card
    store_again(run, tmp_path / "small", "int8")
    again = ModelFolder.load(tmp_path / "small")
    assert outputs.output_layer(again.facts.output) == SoftmaxWithZLoss(z=0.01)


def test_ctranslate2_searches_it_as_a_softmax(run, tmp_path):
    from scones.bridges.ctranslate2_export import export
    from scones.model.folder import store_again

    export(run, tmp_path / "export")
    assert "other beam sizes are right too" in (tmp_path / "export" / "README.md").read_text()
    exported = scones.load(tmp_path / "export")
    assert len(exported.translate(["Der Tee ist heiß."], "beam", beam_size=2)) == 1
    # Its scores in int8 come by way of PyTorch, since it says nothing of NumPy.
    store_again(run, tmp_path / "small", "int8")
    ((found,),) = scones.load(tmp_path / "small", "cpu").translate(["Der Tee ist heiß."])
    assert max(found.token_log_probs) < 0


def test_tune_varies_what_it_names(tiny_store, tmp_path):
    from scones.training.tune import tune

    steps = TrainOptions(max_steps=1, max_tokens=256, validate_every=1, device="cpu")
    experiment = Experiment(SIZES, SoftmaxWithZLoss(), steps)
    tune(experiment, tiny_store, tmp_path, [0.1, 0.001], quiet=True)
    written = json.loads((tmp_path / "tune.json").read_text())
    assert [row["z"] for row in written["runs"]] == [0.001, 0.1]
    assert "best_z" in written
    with pytest.raises(SconesError, match="'softmax' has no setting to tune"):
        tune(Experiment(SIZES, Softmax(), steps), tiny_store, tmp_path, [0.1])


def test_only_registered_layers_are_trained_and_no_name_is_taken_twice(tiny_store, tmp_path):
    for name in ("softmax", "softmax-z"):
        with pytest.raises(SconesError, match=f"There is an output layer '{name}' already"):
            outputs.register(type("Other", (Softmax,), {"name": name}))
    outputs.register(SoftmaxWithZLoss)  # again, as a notebook would
    nameless = type("Nameless", (Softmax,), {"name": "nameless"})
    with pytest.raises(SconesError, match="output layer 'nameless' is not known"):
        train(
            Experiment(SIZES, nameless(), TrainOptions(max_steps=1)), tiny_store, tmp_path / "run"
        )
    assert not [*tmp_path.iterdir()]


def test_a_layer_may_not_inherit_what_it_has_changed():
    class Sharper(Softmax):
        name: ClassVar[str] = "sharper"

        def log_scores(self, logits_NV):
            return super().log_scores(5 * logits_NV)

    with pytest.raises(SconesError, match=r"changes log_scores and inherits best from Softmax"):
        outputs.register(Sharper)
