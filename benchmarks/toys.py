"""Something small for the benchmarks to chew on where only their working is tried (`--toy`)."""

from __future__ import annotations

from pathlib import Path

import torch

from scones.files import new_folder
from scones.model.config import ModelConfig
from scones.model.folder import ModelFacts, ModelFolder
from scones.model.transformer import Transformer
from scones.outputs import output_layer
from scones.text import END, UNKNOWN
from scones.text.creamtea import CreamTea
from scones.text.store import StoreWriter
from scones.text.subwords import Subwords

PAIRS, PIECES, BYTES = 200, 400, 256
MODEL = ModelConfig(
    vocabulary=PIECES,
    encoder_layers=1,
    decoder_layers=1,
    size=32,
    heads=2,
    feed_forward=64,
    dropout=0.1,
    attention_dropout=0.1,
    tied_embeddings=False,  # else a random model says one word for ever
    max_length=64,
)


def toy_pairs() -> tuple[list[str], list[str]]:
    """Give German sentences of the built-in corpus and a translation of each."""
    examples = CreamTea.load().sample(PAIRS, seed=1)
    return [example.source for example in examples], [one.references[0] for one in examples]


def toy_store(folder: Path) -> None:
    """Write a store of those pairs."""
    sources, targets = toy_pairs()
    subwords = _subwords()
    with new_folder(folder) as place, StoreWriter(place, subwords, "de", "en") as writer:
        writer.append("train", subwords.encode(sources), subwords.encode(targets))
        writer.finish()


def toy_model(folder: Path, layer: str) -> None:
    """Write a model folder of random weights whose sentences end sooner or later."""
    torch.manual_seed(1)
    model = Transformer(MODEL)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:  # larger than at the start of training: what it reads matters
                parameter.add_(0.3 * torch.randn_like(parameter))
        model.output_bias[: UNKNOWN + 1 + BYTES] = -30.0  # words alone
        model.output_bias[END] = 6.0
    output = output_layer({"layer": layer}).to_config()
    facts = ModelFacts(output, "de", "en")
    ModelFolder(model.eval(), _subwords().model, facts).save(folder)


def _subwords() -> Subwords:
    sources, targets = toy_pairs()
    return Subwords.train([*sources, *targets], PIECES)
