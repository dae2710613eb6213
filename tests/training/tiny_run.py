"""A model so small that training it for a few steps takes a blink."""

import json
import time

import torch
from safetensors.torch import load_file

from scones.files import new_folder
from scones.model.config import ModelOptions
from scones.outputs.scones import Scones
from scones.text.store import StoreWriter
from scones.training.options import Experiment, TrainOptions

OPTIONS = {
    "max_steps": 4,
    "max_tokens": 1024,
    "learning_rate": 0.01,
    "warmup_steps": 5,
    "validate_every": 1000,
    "dev_sentences": 2,
    "log_every": 1,
    "device": "cpu",
    "precision": "float32",
    "threads": 1,
}


def small_model(layers=1, dropout=0.1, max_length=64):
    return ModelOptions(
        preset="tiny",
        layers=layers,
        size=32,
        heads=2,
        feed_forward=64,
        dropout=dropout,
        attention_dropout=dropout,
        max_length=max_length,
    )


def make_experiment(options=None, model=None, output=None):
    """An experiment with these options over the usual ones."""
    training = TrainOptions(**{**OPTIONS, **(options or {})})
    return Experiment(model or small_model(), output or Scones(), training)


def train_command(store, folder, **flags):
    """`scones train` of such a model, with these flags over the usual ones."""
    usual = {"layers": 1, "size": 32, "heads": 2, "feed_forward": 64, "max_tokens": 512}
    given = {"preset": "tiny", **OPTIONS, **usual, "checkpoint_every": 1000, **flags}
    words = [
        word
        for name, value in given.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    return ["train", str(store), str(folder), *words]


def events(folder, kind="train"):
    """What log.jsonl says about one kind of event."""
    lines = (folder / "training" / "log.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def wait_for_steps(process, folder, steps):
    """Wait until a run in another process has logged so many steps."""
    log, deadline = folder / "training" / "log.jsonl", time.monotonic() + 120
    while not log.exists() or len(log.read_bytes().splitlines()) < steps:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.002)


def checkpoint(folder, step):
    """All tensors of a checkpoint: weights, optimiser, random state."""
    place = folder / "training" / "checkpoints" / f"step-{step:08}"
    return load_file(place / "model.safetensors") | load_file(place / "optimizer.safetensors")


def weights(folder):
    """The weights of a model folder."""
    return load_file(folder / "model.safetensors")


def write_store(folder, subwords, pairs):
    with new_folder(folder) as hidden, StoreWriter(hidden, subwords, "de", "en") as writer:
        sides = ([pair[side] for pair in pairs] for side in (0, 1))
        writer.append("train", *(subwords.encode(texts) for texts in sides))
        writer.finish()


def assert_same_end(left, right, step):
    """Weights, optimiser and random state, bit for bit."""
    expected, found = checkpoint(left, step), checkpoint(right, step)
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name
