"""A prepacked model says what the model says, whatever steps beside it, and leaves it alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from scones.model.config import ModelConfig
from scones.model.folder import ModelFolder
from scones.model.transformer import PrepackedLinear, Transformer, prepacked
from scones.outputs.scones import Scones
from scones.search.engine import SearchOptions, search_corpus, searcher
from scones.text import END

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="PyTorch was built without oneDNN"
)

SOURCES = torch.tensor([[5, 6, 7, 1], [8, 9, 1, 0], [4, 1, 0, 0]])


def random_model(max_length: int, end_bias: float = 0.0) -> Transformer:
    """A model of two layers, so that one layer's cache cannot pass for the other's."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        config = ModelConfig(40, 2, 2, 32, 4, 64, 0.1, 0.1, False, max_length)
        model = Transformer(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
            model.output_bias[END] += end_bias
    return model


@torch.inference_mode()
def test_a_prepacked_model_gives_the_same_logits(tiny_model: Path) -> None:
    model = ModelFolder.load(tiny_model).model
    source, target = torch.tensor([[5, 6, 7, 1], [8, 9, 1, 0]]), torch.tensor([[0, 4], [0, 11]])
    fast = prepacked(model)
    torch.testing.assert_close(
        fast.logits(fast(source, target)), model.logits(model(source, target))
    )


@torch.inference_mode()
def test_batches_that_step_together_stay_what_they_are_alone() -> None:
    model = random_model(max_length=60)
    fast = prepacked(model)
    written = torch.randint(3, 40, (3, 60), generator=torch.Generator().manual_seed(1))
    written[:, 0] = 0
    expected = model.logits(model(SOURCES, written))

    def check(rows: list[int], positions: list[int]) -> None:
        """Feed the state the next token of these rows, each at its own position."""
        logits = fast.step(state, written[rows, positions])
        torch.testing.assert_close(logits, expected[rows, positions], rtol=1e-4, atol=1e-4)

    state = fast.start(SOURCES[:2])
    for position in range(40):  # past the first size of the cache
        check([0, 1], [position, position])
    state.join(fast.start(SOURCES[2:, :2]))
    check([0, 1, 2], [40, 40, 0])
    state.keep(torch.tensor([1, 2]))  # of the first batch one leaves, of the second none
    for position in range(12):  # past the room that is left when rows are copied
        check([1, 2], [41 + position, 1 + position])
    state.keep(torch.tensor([1]))  # a batch leaves altogether
    check([2], [13])


@torch.inference_mode()
def test_beams_of_batches_that_step_together_are_reordered_each_for_itself() -> None:
    model = random_model(max_length=60)
    fast = prepacked(model)
    state = fast.start(SOURCES[:1], 2)
    fast.step(state, torch.tensor([0, 0]))
    state.join(fast.start(SOURCES[1:2], 2))
    fast.step(state, torch.tensor([7, 8, 0, 0]))
    state.reorder(torch.tensor([1, 0, 3, 3]))
    logits = fast.step(state, torch.tensor([9, 10, 11, 12]))
    for row, (source, ids) in enumerate([(0, [8, 9]), (0, [7, 10]), (1, [11]), (1, [12])]):
        hidden = model(SOURCES[source : source + 1], torch.tensor([[0, *ids]]))
        torch.testing.assert_close(logits[row], model.logits(hidden)[0, -1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", [SearchOptions(), SearchOptions("beam", beam_size=3, n_best=3)])
def test_a_corpus_in_many_small_batches_is_translated_as_in_one(options: SearchOptions) -> None:
    model = random_model(max_length=24, end_bias=2.0)
    random = torch.Generator().manual_seed(2)
    lengths = torch.randint(1, 12, (40,), generator=random).tolist()
    sources = [torch.randint(3, 40, (n,), generator=random).tolist() for n in lengths]
    expected = search_corpus(model, Scones(), sources, options)
    # They end at many places, and some only at the last position that the model has.
    assert len({len(best.tokens) for best, *_ in expected}) > 3
    assert sum(best.finished for best, *_ in expected) > 5
    for max_tokens in (1, 30, 100, 8192):
        found = searcher(model, Scones()).search(sources, replace(options, max_tokens=max_tokens))
        for left, right in zip(expected, found, strict=True):
            for one, other in zip(left, right, strict=True):
                assert (one.tokens, one.finished) == (other.tokens, other.finished)
                assert other.token_log_probs == pytest.approx(one.token_log_probs, abs=1e-4)


def test_the_model_itself_is_as_it_was(tiny_models: Path) -> None:
    model = ModelFolder.load(tiny_models / "scones").model
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    fast = prepacked(model)
    assert isinstance(fast.decoder[0].cross.query, PrepackedLinear)
    assert model.head is None
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert fast.embedding.weight is model.embedding.weight  # not a copy
    low = model.to(torch.bfloat16)
    assert prepacked(low) is low  # float32 alone
