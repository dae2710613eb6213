"""The kernels on a GPU, at the sizes they are made for, against float64 and the plain ways.

What they do in small, `tests/kernels` checks, on whatever device there is.
"""

import random
from itertools import islice

import pytest
import torch
from packed_batches import training_batches

from scones.model.config import ModelConfig
from scones.model.transformer import Transformer
from scones.outputs.fused import fused_cross_entropy, fused_scones_loss
from scones.outputs.scones import Scones
from scones.outputs.softmax import Softmax
from scones.search.beam import beam_search
from scones.search.engine import padded
from scones.search.greedy import greedy_search
from scones.search.searcher import SearchOptions, length_limit
from scones.text import END, PAD
from scones.text.store import TokenStore
from scones.training.data import LossModule as Objective
from scones.training.data import Position
from scones.training.gpu import PackedBatch, Replays
from scones.training.optimizers import finite_step, make_optimizer
from scones.training.options import TrainOptions

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
PRECISIONS = [torch.bfloat16, torch.float32]
each_precision = pytest.mark.parametrize("precision", PRECISIONS, ids=["bf16", "fp32"])
LAYERS = [Scones(), Softmax()]
each_layer = pytest.mark.parametrize("output", LAYERS, ids=lambda output: output.name)


def apart(found, exact):
    """The relative norm of the difference."""
    return float(((found.double() - exact).norm() / exact.norm()).detach())


# The output layer.


def head_inputs(tokens, size, vocabulary, precision):
    hidden = torch.randn(tokens, size, device="cuda")
    weight = torch.randn(vocabulary, size, device="cuda") * size**-0.5
    bias = torch.randn(vocabulary, device="cuda") - 9
    targets = torch.randint(1, vocabulary, (tokens,), device="cuda")
    inputs = [hidden.to(precision), weight.to(precision), bias]
    return [tensor.requires_grad_() for tensor in inputs], targets


@each_precision
@each_layer
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("tokens", "vocabulary"), [(4096, 32_000), (1001, 8191), (500, 256_000)])
def test_the_output_layer_is_near_float64(precision, output, smoothing, tokens, vocabulary):
    torch.manual_seed(tokens)
    inputs, targets = head_inputs(tokens, 512, vocabulary, precision)
    targets[torch.rand(tokens, device="cuda") < 0.1] = PAD
    loss_of = fused_scones_loss if output.name == "scones" else fused_cross_entropy
    loss = loss_of(*inputs, targets, label_smoothing=smoothing)
    loss.backward()
    keep = targets != PAD  # float64 has no kernels: it goes the plain way
    exactly = [tensor.detach().double().requires_grad_() for tensor in inputs]
    exact = loss_of(exactly[0][keep], *exactly[1:], targets[keep], label_smoothing=smoothing)
    exact.backward()
    assert loss.item() == pytest.approx(exact.item(), rel=1e-4)
    for have, want in zip(inputs, exactly, strict=True):
        assert apart(have.grad, want.grad) < (1e-2 if precision == torch.bfloat16 else 1e-4)


@each_layer
def test_weights_count_as_they_should(output):
    torch.manual_seed(1)
    inputs, targets = head_inputs(3000, 512, 32_000, torch.bfloat16)
    weights = torch.rand(3000, device="cuda")
    loss = output.loss(*inputs, targets, weights)
    gradients = torch.autograd.grad(loss, inputs)
    exactly = [tensor.detach().double().requires_grad_() for tensor in inputs]
    exact = output.loss(*exactly, targets, weights.double())
    assert loss.item() == pytest.approx(exact.item(), rel=1e-4)
    for have, want in zip(gradients, torch.autograd.grad(exact, exactly), strict=True):
        assert apart(have, want) < 1e-2


@pytest.fixture
def _streams():
    from scones.kernels import head

    if not head._streams(torch.device("cuda")):
        pytest.skip("needs a GPU of the Hopper generation, and Triton 3.6")


@pytest.mark.usefixtures("_streams")
@pytest.mark.parametrize("size", [64, 128, 192, 256, 320, 512])
@pytest.mark.parametrize(
    ("tokens", "vocabulary", "smoothing", "weighted"),
    [(1, 2, 0.0, False), (127, 300, 0.1, True), (2049, 8191, 0.0, True), (9000, 5008, 0.1, False)],
)
def test_streamed_gradients_are_near_float64(
    size, tokens, vocabulary, smoothing, weighted, monkeypatch
):
    from scones.kernels import IGNORED, head
    from scones.kernels.head import SconesTurn
    from scones.outputs import fused

    monkeypatch.setattr(head, "_CHUNK", 2**22)
    torch.manual_seed(size)
    inputs, targets = head_inputs(tokens, size, vocabulary, torch.bfloat16)
    hidden, weight, bias = (tensor.detach() for tensor in inputs)
    targets[torch.rand(tokens, device="cuda") < 0.1] += vocabulary  # gold in another shard
    weights = torch.rand(tokens, device="cuda") if weighted else None
    assert head._can_stream(hidden, weight)
    turn, rule = SconesTurn(0.5, smoothing), fused.SconesRule(0.5, smoothing, sharded=True)
    keep = torch.rand(tokens, device="cuda") < 0.9
    loss, found = head.loss_and_gradients(
        hidden, weight, bias, targets.where(keep, IGNORED), weights, turn, wanted=True
    )
    counts = keep.double() if weights is None else keep * weights.double()
    exactly = (tensor.double() for tensor in (hidden, weight, bias))
    exact, wanted = fused.loss_and_gradients(*exactly, targets, counts, rule, wanted=True)
    assert loss.item() == pytest.approx(exact.item(), rel=1e-4)
    for have, want in zip(found, wanted, strict=True):
        assert (have - want).norm() <= 1e-2 * want.norm()


@pytest.mark.usefixtures("_streams")
def test_streamed_gradients_come_out_the_same_from_a_graph():
    torch.manual_seed(2)
    inputs, targets = head_inputs(3000, 512, 8000, torch.bfloat16)

    def gradients():
        loss = fused_scones_loss(*inputs, targets)
        return (loss.detach(), *torch.autograd.grad(loss, inputs))

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):  # compiled before, off the stream that is recorded
        gradients()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = gradients()
    with torch.no_grad():
        inputs[0].copy_(torch.randn_like(inputs[0]))
        targets.copy_(targets.flip(0))
    graph.replay()
    first = [tensor.clone() for tensor in recorded]
    graph.replay()
    for one, two, want in zip(first, recorded, gradients(), strict=True):
        assert torch.equal(one, two)
        assert apart(one, want.double()) < 1e-3


@pytest.mark.parametrize("tokens", [16_384, 65_536])
def test_the_memory_of_the_output_layer(tokens):
    inputs, targets = head_inputs(tokens, 512, 32_000, torch.bfloat16)
    fused_scones_loss(*inputs, targets).backward()  # kernels are compiled and libraries opened
    for tensor in inputs:
        tensor.grad = None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    fused_scones_loss(*inputs, targets).backward()
    beyond = torch.cuda.max_memory_allocated() - before
    gradients = sum(tensor.nbytes for tensor in inputs)
    accumulator = inputs[1].numel() * 4
    assert beyond - gradients - accumulator < 150e6


# Attention.


@each_precision
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("longest", [30, 64, 250])
def test_attention_is_near_float64(precision, causal, longest):
    from scones.kernels.attention import attend_across, attend_within

    torch.manual_seed(longest)
    heads, size, sentences = 8, 64, 40
    lengths, memory_lengths = (torch.randint(1, longest + 1, (sentences,)) for _ in range(2))
    lengths[0] = memory_lengths[1] = longest
    starts, memory_starts = (
        torch.cat([torch.zeros(1), one.cumsum(0)]).int().cuda() for one in (lengths, memory_lengths)
    )
    rows, memory_rows = int(lengths.sum()), int(memory_lengths.sum())
    projected = torch.randn(rows, 3, heads, size, device="cuda").to(precision).requires_grad_()
    memory = torch.randn(memory_rows, 2, heads, size, device="cuda").to(precision).requires_grad_()
    seed = torch.zeros((), dtype=torch.int32, device="cuda")
    within = attend_within(projected, starts, longest, causal, seed, 0.0)
    queries = projected[:, 0].contiguous()
    long = (longest, longest)
    across = attend_across(queries, memory, (starts, memory_starts), long, seed, 0.0)
    slopes = torch.randn_like(within)
    found = torch.autograd.grad((within + across,), (projected, memory), slopes)

    exactly = [tensor.detach().double().requires_grad_() for tensor in (projected, memory)]
    parts = exactly[0].split(lengths.tolist()), exactly[1].split(memory_lengths.tolist())
    exact_within, exact_across = [], []
    for own, other in zip(*parts, strict=True):
        q, k, v = own.permute(1, 2, 0, 3)
        keys, values = other.permute(1, 2, 0, 3)
        attend = torch.nn.functional.scaled_dot_product_attention
        exact_within.append(attend(q, k, v, is_causal=causal).transpose(0, 1).flatten(1))
        exact_across.append(attend(q, keys, values).transpose(0, 1).flatten(1))
    exact = torch.cat(exact_within) + torch.cat(exact_across)
    wanted = torch.autograd.grad(exact, exactly, slopes.double())
    most = 1e-2 if precision == torch.bfloat16 else 1e-5
    assert apart(within, torch.cat(exact_within)) < most
    assert apart(across, torch.cat(exact_across)) < most
    for have, want in zip(found, wanted, strict=True):
        assert apart(have, want) < most


@each_precision
@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_residual_dropout_and_norm_are_near_float64(precision, rate):
    from hashed_dropout import hashed_dropout

    from scones.kernels.norm import add_and_norm

    torch.manual_seed(6)
    rows, size = 20_001, 512
    x, added = (torch.randn(rows, size, device="cuda") for _ in range(2))
    vectors = [torch.randn(size, device="cuda") for _ in range(3)]
    seed = torch.tensor(12345, dtype=torch.int32, device="cuda")
    rounded = (x.to(precision), added.to(precision))
    inputs = [tensor.requires_grad_() for tensor in (*rounded, *vectors)]
    found = add_and_norm(*inputs, 1e-5, seed, rate)
    exactly = [tensor.detach().double().requires_grad_() for tensor in inputs]
    added = exactly[1] + exactly[2]
    total = exactly[0] + (hashed_dropout(added, rate, seed) if rate else added)
    wanted = (total, torch.nn.functional.layer_norm(total, (size,), *exactly[3:]))
    slopes = [torch.randn(rows, size, device="cuda").to(result.dtype) for result in found]
    gradients = torch.autograd.grad(found, inputs, slopes)
    expected = torch.autograd.grad(wanted, exactly, [slope.double() for slope in slopes])
    most = 1e-2 if precision == torch.bfloat16 else 1e-5
    for have, want in zip((*found, *gradients), (*wanted, *expected), strict=True):
        assert apart(have, want) < most


# Search in slots.


@pytest.fixture(scope="module")
def model():
    config = ModelConfig(2000, 3, 3, 256, 4, 512, 0.0, 0.0, tied_embeddings=False, max_length=256)
    torch.manual_seed(3)
    model = Transformer(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
        model.output_embedding.weight.mul_(4)  # far apart, so that rounding decides nothing
        model.output_bias[PAD] = -100
        model.output_bias[END] += 12
    return model.cuda()


@pytest.fixture(scope="module")
def sources():
    chance = random.Random(4)
    return [[chance.randrange(3, 2000) for _ in range(chance.randrange(0, 60))] for _ in range(150)]


def check_same(found, wanted):
    """Line by line the same, but for a hundredth where two tokens are equally good in float32."""
    assert len(found) == len(wanted)
    different = 0
    for ours, theirs in zip(found, wanted, strict=True):
        if [one.tokens for one in ours] != [one.tokens for one in theirs]:
            different += 1
            continue
        for one, other in zip(ours, theirs, strict=True):
            assert one.finished == other.finished
            assert one.log_prob == pytest.approx(other.log_prob, rel=1e-4, abs=1e-3)
    assert different <= len(wanted) / 100


def limits_of(model, sources):
    limits = [length_limit(len(source) + 1, model.config.max_length) for source in sources]
    return torch.tensor(limits, device="cuda")


@each_layer
def test_greedy_search_in_slots_is_greedy_search(model, sources, output):
    from scones.search.gpu import slot_searcher

    searcher = slot_searcher(model, output, torch.float32)
    options = SearchOptions(max_tokens=16 * 60)  # 16 slots or so: most sentences wait
    found = searcher.search(sources, options)
    limits = limits_of(model, sources)
    wanted = [[one] for one in greedy_search(model, output, padded(sources, model.device), limits)]
    assert len({len(one.tokens) for (one,) in wanted}) > 10
    check_same(found, wanted)
    assert searcher.search(sources, options) == found, "a graph that was captured serves again"
    check_same(searcher.search(sources[:7], options), wanted[:7])


@each_layer
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_beam_search_in_slots_is_beam_search(model, sources, output, penalty):
    from scones.search.gpu import slot_searcher

    searcher = slot_searcher(model, output, torch.float32)
    options = SearchOptions("beam", 4, 2, penalty, max_tokens=4 * 16 * 60)
    found = searcher.search(sources, options)
    batch, limits = padded(sources, model.device), limits_of(model, sources)
    check_same(found, beam_search(model, output, batch, limits, 4, 2, penalty))
    assert searcher.search(sources, options) == found


def test_in_bf16_the_scores_of_given_tokens_stay_near(model, sources):
    from scones.search.gpu import slot_searcher

    options = SearchOptions()
    exact, short = (
        slot_searcher(model, Scones(), precision).search(sources, options)
        for precision in (torch.float32, torch.bfloat16)
    )
    first = [
        (ours.token_log_probs[0], theirs.token_log_probs[0])
        for (ours,), (theirs,) in zip(short, exact, strict=True)
        if ours.token_log_probs and theirs.token_log_probs and ours.tokens[:1] == theirs.tokens[:1]
    ]
    assert len(first) > 0.8 * len(sources)
    near = [abs(ours - theirs) < 0.1 + 0.05 * abs(theirs) for ours, theirs in first]
    assert sum(near) > 0.98 * len(near)


# Training.


@pytest.fixture(scope="module")
def some_batches(tiny_store):
    """The same thirty batches without padding and with it."""
    tokens = TokenStore.open(tiny_store).split("train")
    device = torch.device("cuda")

    def batches(packed):
        endless = training_batches(tokens, 2048, 1, False, Position(), packed=packed)
        return (batch.to(device) for batch, _ in islice(endless, 30))

    return {packed: list(batches(packed)) for packed in (True, False)}


def losses_of(batches, output, graphs=False):
    """Train from the same weights; gives the mean loss of every step."""
    torch.manual_seed(5)
    config = ModelConfig(500, 2, 2, 128, 2, 256, 0.0, 0.0, max_length=64)
    model = Transformer(config).cuda()
    with torch.no_grad():
        model.output_bias.fill_(output.initial_bias(500))
    optimizer = make_optimizer(model, TrainOptions(learning_rate=0.005))
    objective = Objective(model, output, torch.bfloat16)
    replays = Replays(objective) if graphs else None
    losses = []
    for batch in batches:
        if replays is not None and isinstance(batch, PackedBatch):
            loss = replays.gradient(batch, batch.total) / batch.total
        else:
            loss = objective(batch) / batch.total
            loss.backward()
        losses.append(loss.detach())
        finite_step(optimizer, 0.005, loss.detach(), 0.0)
    return torch.stack(losses).cpu()


@each_layer
def test_repeated_and_packed_training_has_the_losses_of_the_plain_one(some_batches, output):
    padded_losses = losses_of(some_batches[False], output)
    packed_losses = losses_of(some_batches[True], output)
    device = torch.device("cuda")
    settled = [
        batch.to(torch.device("cpu")).settled(256).to(device)
        for batch in some_batches[True]
        if isinstance(batch, PackedBatch)
    ]
    repeated_losses = losses_of(settled, output, graphs=True)
    assert padded_losses[-1] < 0.9 * padded_losses[0]
    torch.testing.assert_close(packed_losses, padded_losses, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(repeated_losses, packed_losses, rtol=2e-2, atol=2e-2)
