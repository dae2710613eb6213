"""A prepacked model says what the model says, whatever steps beside it, and leaves it alone."""

import pytest
import torch

from scones.model.config import ModelConfig
from scones.model.folder import ModelFolder
from scones.model.transformer import PrepackedLinear, Transformer, prepacked
from scones.text import END

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="PyTorch was built without oneDNN"
)

SOURCES = torch.tensor([[5, 6, 7, 1], [8, 9, 1, 0], [4, 1, 0, 0]])


def random_model(max_length, end_bias=0.0):
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
def test_batches_that_step_together_stay_what_they_are_alone():
    model = random_model(max_length=60)
    fast = prepacked(model)
    written = torch.randint(3, 40, (3, 60), generator=torch.Generator().manual_seed(1))
    written[:, 0] = 0
    expected = model.logits(model(SOURCES, written))

    def check(rows, positions):
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
def test_beams_of_batches_that_step_together_are_reordered_each_for_itself():
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


def test_the_model_itself_is_as_it_was(tiny_models):
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
