"""A packed model says what the model says, and leaves it alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from scones.model.folder import ModelFolder
from scones.model.packing import packed
from scones.outputs.scones import Scones
from scones.search.corpus import SearchOptions, search_corpus

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="PyTorch was built without oneDNN"
)


@pytest.mark.parametrize("name", ["scones", "softmax"])
def test_a_packed_model_gives_the_same_logits(name: str, tiny_models: Path) -> None:
    model = ModelFolder.load(tiny_models / name).model
    source, target = torch.tensor([[5, 6, 7, 1], [8, 9, 1, 0]]), torch.tensor([[0, 4], [0, 11]])
    with torch.inference_mode():
        expected = model.logits(model(source, target))
        fast = packed(model)
        torch.testing.assert_close(fast.logits(fast(source, target)), expected)
    for options in (SearchOptions(), SearchOptions("beam", beam_size=3, n_best=3)):
        plain, found = (
            search_corpus(one, Scones(), [[5, 6, 7], [8], [9, 4]], options) for one in (model, fast)
        )
        for left, right in zip(plain, found, strict=True):
            assert [one.tokens for one in left] == [one.tokens for one in right]
            assert [one.log_prob for one in right] == pytest.approx([one.log_prob for one in left])


def test_the_model_itself_is_as_it_was(tiny_models: Path) -> None:
    model = ModelFolder.load(tiny_models / "scones").model
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    fast = packed(model)
    assert model.head is None
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert fast.embedding.weight is model.embedding.weight  # not a copy


def test_other_number_formats_are_not_packed(tiny_models: Path) -> None:
    model = ModelFolder.load(tiny_models / "scones").model.to(torch.bfloat16)
    assert packed(model) is model
