"""Validation: the development set's loss and greedy BLEU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from scones.model.folder import ModelFolder
from scones.outputs import OutputLayer, output_layer
from scones.text.store import TokenStore
from scones.training.data import make_batch
from scones.training.loop import validate


@pytest.mark.parametrize(("layer", "sentences"), [("scones", 7), ("softmax", None)])
def test_the_loss_is_the_mean_over_tokens(
    layer: str, sentences: int | None, tiny_models: Path, tiny_store: Path
) -> None:
    folder = ModelFolder.load(tiny_models / layer)
    store, output = TokenStore.open(tiny_store), output_layer(folder.facts.output)
    model = folder.model.train()
    found = validate(model, output, store, sentences)
    assert found is not None
    assert model.training  # as it was
    expected = mean_loss(folder, output, store, sentences or 20)
    assert found.loss == pytest.approx(expected, rel=1e-5)
    assert 0 <= found.bleu <= 100
    assert found.signature.startswith("nrefs:1|")


def mean_loss(folder: ModelFolder, output: OutputLayer, store: TokenStore, sentences: int) -> float:
    """One sentence at a time, without dropout."""
    model = folder.model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for index in range(sentences):
            batch = make_batch(store.split("dev"), np.array([index]), by_sentence=False)
            logits = model.logits(model(batch.source_BS, batch.inputs_BT))[0]
            total += float(output.token_losses(logits, batch.targets_N).sum())
            count += batch.tokens
    return total / count
