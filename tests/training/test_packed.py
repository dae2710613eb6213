"""Batches without padding are the padded ones, laid out otherwise."""

from collections import Counter
from itertools import islice

import numpy as np
import pytest
import torch
from kernel_device import DEVICE, make_usable
from packed_batches import training_batches

from scones.kernels import IGNORED
from scones.model.config import ModelConfig
from scones.model.transformer import Transformer
from scones.outputs.scones import Scones
from scones.outputs.softmax import Softmax
from scones.text import END, PAD
from scones.text.store import TokenStore
from scones.training.data import LossModule as Objective
from scones.training.data import Position, make_batch
from scones.training.data import Shard as Share
from scones.training.gpu import make_packed_batch

SOME = np.array([5, 0, 9, 77, 31])


@pytest.fixture(scope="module")
def tokens(tiny_store):
    return TokenStore.open(tiny_store).split("train")


@pytest.fixture
def model():
    config = ModelConfig(500, 1, 1, 32, 2, 32, 0.0, 0.0, max_length=64)
    with torch.random.fork_rng():
        torch.manual_seed(2)
        model = Transformer(config)
    return model.to(DEVICE)


@pytest.fixture
def _usable(monkeypatch):
    make_usable(monkeypatch)


def sentences_of(packed):
    """The sentences of a packed tensor; checks that what is said about them is true."""
    lengths = packed.spans.starts.diff().tolist()
    assert packed.spans.starts[0] == 0
    assert packed.spans.longest == max(lengths)
    assert packed.places_N.tolist() == [place for n in lengths for place in range(n)]
    return [part.tolist() for part in packed.ids_N.split(lengths)]


def pairs_of(batch):
    """The sentence pairs of a batch, as ids without the end of sentence."""
    sources, inputs = sentences_of(batch.source), sentences_of(batch.inputs)
    targets = [part.tolist() for part in batch.targets_N.split([len(one) for one in inputs])]
    assert all(source[-1] == END for source in sources)
    assert all(target[-1] == END for target in targets)
    assert inputs == [[PAD, *target[:-1]] for target in targets]
    return [
        (tuple(source[:-1]), tuple(target[:-1]))
        for source, target in zip(sources, targets, strict=True)
    ]


def pair(tokens, index):
    return tuple(tokens.sources[index].tolist()), tuple(tokens.targets[index].tolist())


def same_facts(left, right):
    """Whether all is the same that does not depend on the layout."""
    weights = (left.weights_N, right.weights_N)
    unweighted = weights == (None, None)
    same = unweighted or torch.equal(*weights)
    facts = ((one.tokens, one.total, one.targets_N.tolist()) for one in (left, right))
    return same and next(facts) == next(facts)


def test_a_packed_batch_holds_its_pairs_one_behind_another(tokens):
    batch = make_packed_batch(tokens, SOME, by_sentence=False)
    assert pairs_of(batch) == [pair(tokens, index) for index in SOME]
    assert batch.source.ids_N.dtype == batch.source.places_N.dtype == torch.long
    assert batch.source.spans.starts.dtype == torch.int32


@pytest.mark.parametrize("by_sentence", [True, False])
@pytest.mark.parametrize("processes", [1, 2, 3, 7])
def test_processes_share_packed_batches_as_they_share_padded_ones(tokens, by_sentence, processes):
    shared = []
    for process in range(processes):
        share = Share(process, processes)
        batch = make_packed_batch(tokens, SOME, by_sentence, share)
        assert same_facts(batch, make_batch(tokens, SOME, by_sentence, share))
        if process < len(SOME):
            shared += pairs_of(batch)
        else:  # one that has nothing to do computes something of no weight
            assert len(pairs_of(batch)) == 1
            assert torch.all(batch.weights_N == 0)
    assert Counter(shared) == Counter(pair(tokens, index) for index in SOME)


def test_the_plan_of_an_epoch_does_not_depend_on_the_layout(tokens):
    layouts = (
        islice(training_batches(tokens, 512, 7, True, Position(0, 3), packed=packed), 9)
        for packed in (True, False)
    )
    for (packed, behind), (padded, expected) in zip(*layouts, strict=True):
        assert behind == expected
        assert same_facts(packed, padded)


def test_a_packed_batch_moves_as_a_whole(tokens):
    batch = make_packed_batch(tokens, SOME, by_sentence=True)
    moved = batch.to(torch.device("meta"))
    tensors = [moved.targets_N, moved.weights_N]
    for side in (moved.source, moved.inputs):
        tensors += [side.ids_N, side.places_N, side.spans.starts]
    assert all(tensor is not None and tensor.is_meta for tensor in tensors)
    assert moved.source.spans.longest == batch.source.spans.longest
    assert moved.total == 5


def test_the_hidden_states_are_those_of_padded_batches(tokens, model):
    model.noise.draw(DEVICE)
    padded, packed = (
        make(tokens, SOME, by_sentence=False).to(DEVICE).hidden(model)
        for make in (make_batch, make_packed_batch)
    )
    torch.testing.assert_close(packed, padded, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("_usable")
@pytest.mark.parametrize(
    ("output", "by_sentence"),
    [(Scones(0.5, 0.1), True), (Scones(), False), (Softmax(), False)],
    ids=["scones by sentence", "scones", "softmax"],
)
def test_loss_and_gradients_are_those_of_padded_batches(
    tokens, model, output, by_sentence, monkeypatch
):
    def gradients(batch):
        objective = Objective(model, output, torch.float32)
        names = [name for name, _ in model.named_parameters()]
        loss = objective(batch.to(DEVICE))
        slopes = torch.autograd.grad(loss, list(model.parameters()))
        return loss.detach(), dict(zip(names, slopes, strict=True))

    assert Objective(model, output, torch.float32).packed
    loss, found = gradients(make_packed_batch(tokens, SOME[:3], by_sentence))
    monkeypatch.undo()  # on a CPU, what follows does without any kernel
    expected, wanted = gradients(make_batch(tokens, SOME[:3], by_sentence))
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=0)
    for name, slope in found.items():
        scale = wanted[name].abs().max()
        torch.testing.assert_close(slope, wanted[name], rtol=1e-4, atol=1e-5 * scale, msg=name)


@pytest.mark.usefixtures("_usable")
@pytest.mark.parametrize(("rate", "attention_rate"), [(0.0, 0.5), (0.5, 0.0)])
def test_every_step_drops_other_numbers(tokens, rate, attention_rate):
    config = ModelConfig(500, 1, 1, 32, 2, 32, rate, attention_rate, max_length=64)
    objective = Objective(Transformer(config).to(DEVICE), Scones(), torch.float32)
    batch = make_packed_batch(tokens, SOME[:1], by_sentence=False).to(DEVICE)
    torch.manual_seed(1)
    losses = [objective(batch).item() for _ in range(2)]
    assert losses[0] != losses[1]
    torch.manual_seed(1)
    assert objective(batch).item() == losses[0], "the same seed, the same numbers"
    objective.eval()
    assert objective(batch).item() == objective(batch).item()


@pytest.mark.usefixtures("_usable")
@pytest.mark.parametrize("by_sentence", [True, False])
@pytest.mark.parametrize("grain", [16, 50, 256])
def test_a_settled_batch_has_the_same_loss_and_gradients(tokens, model, by_sentence, grain):
    objective = Objective(model, Scones(0.5, 0.1), torch.float32)
    plain = make_packed_batch(tokens, SOME[:3], by_sentence)
    results = []
    for batch in (plain, plain.settled(grain)):
        loss = objective(batch.to(DEVICE))
        results.append((loss, *torch.autograd.grad(loss, list(model.parameters()))))
    for have, want in zip(*results, strict=True):
        scale = float(want.detach().abs().max())
        torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.parametrize("grain", [8, 64, 100, 1000])
def test_settled_batches_are_filled_up_to_a_grain(tokens, grain):
    plan = training_batches(tokens, 512, 7, True, Position(), packed=True)
    shapes = set()
    for batch, _ in islice(plan, 12):
        settled = batch.settled(grain)
        shapes.add(settled.shape)
        assert (settled.tokens, settled.total) == (batch.tokens, batch.total)
        for side, was in ((settled.source, batch.source), (settled.inputs, batch.inputs)):
            lengths = side.spans.starts.diff()
            real = was.spans.starts.numel() - 1
            assert torch.equal(lengths[:real], was.spans.starts.diff())
            assert torch.equal(side.ids_N[: was.ids_N.numel()], was.ids_N)
            assert side.ids_N.numel() % grain == 0
            assert side.ids_N.numel() == side.places_N.numel() == side.spans.starts[-1]
            assert side.ids_N.numel() - was.ids_N.numel() <= 2 * grain
            assert lengths.max() <= side.spans.longest
        # Where one side of a pair is empty, the other is: there is nothing to attend to.
        sides = (settled.source.spans.starts.diff(), settled.inputs.spans.starts.diff())
        assert torch.equal(sides[0] == 0, sides[1] == 0)
        assert settled.weights_N.numel() == settled.targets_N.numel()
        assert torch.all(settled.targets_N[batch.targets_N.numel() :] == IGNORED)
    assert len(shapes) < 12 or grain == 8


def test_a_batch_takes_in_another_of_its_shape(tokens):
    first, second = (
        make_packed_batch(tokens, indices, by_sentence=False) for indices in (SOME, SOME[::-1])
    )
    own = first.copy()
    assert own.shape == second.shape
    own.fill_from(second)
    assert pairs_of(own) == pairs_of(second)
    assert pairs_of(first) != pairs_of(second)
