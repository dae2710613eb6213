"""The kernels of the output layer, against the rules of `scones.outputs.fused` in float64."""

import pytest
import torch
from kernel_device import DEVICE, make_usable

from scones.kernels import IGNORED, head, streamed
from scones.kernels.head import SconesTurn, SoftmaxTurn
from scones.kernels.streamed import Gold
from scones.outputs import fused
from scones.outputs.fused import SconesRule, SoftmaxRule

ALPHA = 0.3
SIZE, VOCABULARY = 16, 301
LAYERS = ["scones", "softmax"]
SCONES_TURNS = ["scones", "streamed"]
TURNS = [*LAYERS, "streamed"]


def turn_and_rule(layer, smoothing=0.0, sharded=False):
    if layer == "softmax":
        return SoftmaxTurn(smoothing), SoftmaxRule(smoothing)
    return SconesTurn(ALPHA, smoothing), SconesRule(ALPHA, smoothing, sharded)


def plain_gradient(chunk, alpha, smoothing):
    """What `streamed_gradient` does, which needs a GPU and bf16."""
    z = chunk.hidden_nD.double() @ chunk.weight_cD.double().T + chunk.bias_c.double()
    factor = (chunk.targets_n != IGNORED).double().unsqueeze(1)
    if chunk.weights_n is not None:
        factor *= chunk.weights_n.unsqueeze(1)
    gradient = alpha * factor * (torch.sigmoid(z) - smoothing)
    chunk.gradient_nc.copy_(gradient)
    losses = alpha * factor * (torch.nn.functional.softplus(z) - smoothing * z)
    for tile, rows in enumerate(gradient.split(128)):
        chunk.sums_tc[tile] = rows.sum(dim=0)
    return torch.stack([rows.sum() for rows in losses.split(128)] * 2).float() / 2


@pytest.fixture(autouse=True)
def _stand_in(request, monkeypatch):
    """Where a test is of the streamed turn, head takes it, and a stand-in for its kernel."""
    monkeypatch.setattr(streamed, "streamed_gradient", plain_gradient)
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    if parameters.get("layer") == "streamed":
        monkeypatch.setattr(head, "_can_stream", lambda hidden, weight: True)


def draw(rows, vocabulary=VOCABULARY, seed=1):
    """Hidden states, matrix, bias and targets."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, SIZE, generator=generator)
    weight = torch.randn(vocabulary, SIZE, generator=generator)
    bias = torch.randn(vocabulary, generator=generator) - 3
    targets = torch.randint(0, vocabulary, (rows,), generator=generator)
    return tuple(tensor.to(DEVICE) for tensor in (hidden, weight, bias, targets))


def by_logits(logits_NV):
    """Hidden states, matrix and bias that have just these logits."""
    rows, vocabulary = logits_NV.shape
    states = torch.eye(rows, device=DEVICE)
    return states, logits_NV.T.contiguous().to(DEVICE), torch.zeros(vocabulary, device=DEVICE)


def check(inputs, targets, weights, layer, smoothing=0.0, tolerance=1e-05):
    """Compare the loss and the gradients with the rule's, ignored rows left out of it."""
    turn, rule = turn_and_rule(layer, smoothing)
    keep = targets != IGNORED
    loss, gradients = head.loss_and_gradients(*inputs, targets, weights, turn, wanted=True)
    hidden, weight, bias = (tensor.double() for tensor in inputs)
    exact, expected = fused.loss_and_gradients(
        hidden[keep],
        weight,
        bias,
        targets[keep],
        None if weights is None else weights[keep].double(),
        rule,
        wanted=True,
    )
    assert loss.item() == pytest.approx(exact.item(), rel=tolerance)
    states = torch.zeros_like(hidden)
    states[keep] = expected[0]
    for have, want in zip(gradients, (states, *expected[1:]), strict=True):
        assert have.dtype == torch.float32
        assert (have - want).norm() <= tolerance * want.norm()
    assert torch.all(gradients[0][~keep] == 0)


each_layer = pytest.mark.parametrize("layer", LAYERS)
each_turn = pytest.mark.parametrize("layer", TURNS)
each_scones_turn = pytest.mark.parametrize("layer", SCONES_TURNS)


@each_turn
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_kernels_do_what_the_rules_do(layer, smoothing, weighted):
    *inputs, targets = draw(80)
    targets[[0, 67, 79]] = IGNORED
    weights = torch.rand(80, device=DEVICE) if weighted else None
    check(tuple(inputs), targets, weights, layer, smoothing)


@each_turn
@pytest.mark.parametrize("chunk", [1, 20_000])  # the smallest, and one that divides nothing
@pytest.mark.parametrize("rows", [1, 70])
def test_chunks_change_nothing(layer, chunk, rows, monkeypatch):
    monkeypatch.setattr(head, "_CHUNK", chunk)
    *inputs, targets = draw(rows)
    check(tuple(inputs), targets, None, layer, 0.1)


@each_scones_turn
def test_chunks_of_rows_change_nothing(layer):
    *inputs, targets = draw(300)
    weights = torch.rand(300, device=DEVICE)
    whole, pieces = (
        head.loss_and_gradients(*inputs, targets, weights, turn, True)
        for turn in (SconesTurn(ALPHA, 0.1), SconesTurn(ALPHA, 0.1, most_rows=128))
    )
    torch.testing.assert_close(whole, pieces)


@each_turn
@pytest.mark.parametrize("spare", [False, True])
def test_the_gradient_of_many_states_is_in_their_format(layer, spare, monkeypatch):
    monkeypatch.setattr(head, "_CHUNK", 128 * 64)
    *exactly, targets = draw(140, 100)
    targets[::7] = IGNORED
    turn, _ = turn_and_rule(layer, 0.1)
    turn = turn if layer == "softmax" else SconesTurn(ALPHA, 0.1, most_rows=128)
    hidden, weight = (tensor.bfloat16() for tensor in exactly[:2])
    inputs = (weight, exactly[2], targets, None, turn, True)
    loss, (to_hidden, *others) = head.loss_and_gradients(hidden, *inputs)
    assert to_hidden.dtype == torch.float32
    monkeypatch.setattr(head, "_KEPT", 0)
    before = hidden.clone()
    same_loss, (rounded, *same) = head.loss_and_gradients(hidden, *inputs, spare=spare)
    assert torch.equal(rounded, to_hidden.bfloat16())
    assert torch.equal(same_loss, loss)
    assert all(torch.equal(one, two) for one, two in zip(same, others, strict=True))
    assert torch.equal(hidden, rounded if spare else before)


@pytest.mark.parametrize("vocabulary", [2, 64, 1023, 1025, 4097])
@each_turn
def test_any_vocabulary(layer, vocabulary):
    *inputs, targets = draw(5, vocabulary)
    targets[:2] = torch.tensor([0, vocabulary - 1], device=DEVICE)
    check(tuple(inputs), targets, None, layer, 0.1)


@each_turn
def test_gold_in_every_place(layer):
    *inputs, _ = draw(70, 70)
    check(tuple(inputs), torch.randperm(70, device=DEVICE), None, layer)


@each_turn
def test_frequent_gold_tokens(layer):
    """Many rows of a tile change the sum of one token; which of them does it is no matter."""
    *inputs, _ = draw(300)
    targets = torch.arange(300, device=DEVICE) % 2 * 7
    targets[::5] = IGNORED
    check(tuple(inputs), targets, torch.rand(300, device=DEVICE), layer, 0.1)


def test_one_row_of_a_tile_brings_what_all_change_in_a_sum():
    """If two did, one might overwrite what the other has brought."""
    *inputs, targets = draw(200)
    targets[:] = torch.tensor([7, IGNORED], device=DEVICE).repeat(100)
    gold = Gold.find(*inputs, targets, None, ALPHA, 0.0)
    assert gold.sum_changes_N.nonzero().flatten().tolist() == [0, 128]
    # The change is from α σ(z) to -σ(-z).
    z = gold.slopes_N[::2].neg().logit().neg()
    change = gold.slopes_N[::2] - ALPHA * torch.sigmoid(z)
    assert gold.sum_changes_N.sum().item() == pytest.approx(change.sum().item(), rel=1e-5)


@each_turn
def test_rows_that_lie_apart(layer):
    hidden, weight, bias, targets = draw(90)
    inputs = (
        torch.stack([hidden, hidden], dim=1)[:, 0],
        torch.cat([weight, weight], dim=1)[:, SIZE:],
        torch.stack([bias, bias], dim=1)[:, 1],
    )
    assert not any(tensor.is_contiguous() for tensor in inputs)
    apart, weights = torch.stack([targets, targets + 1], dim=1)[:, 0], torch.rand(180)[::2]
    check(inputs, apart, weights.to(DEVICE), layer)


@each_turn
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("largest", [30.0, 80.0])
def test_extreme_logits(layer, smoothing, largest):
    generator = torch.Generator().manual_seed(2)
    logits = (2 * torch.rand(16, VOCABULARY, generator=generator) - 1) * largest
    logits[0] = largest
    logits[1] = -largest
    inputs = by_logits(logits)
    targets = torch.randint(0, VOCABULARY, (16,), generator=generator).to(DEVICE)
    check(inputs, targets, None, layer, smoothing)


@pytest.mark.parametrize(
    ("layer", "logit"),
    [(layer, logit) for layer in TURNS for logit in (-80.0, -20.0, 0.0, 20.0, 80.0)]
    # SCONES has no normaliser, which would round there.
    + [(layer, logit) for layer in SCONES_TURNS for logit in (-1e4, 1e4)],
)
def test_every_single_gradient_keeps_its_digits(layer, logit):
    logits = torch.full((3, 5), logit)
    logits[1, 2] += 1
    inputs, targets = by_logits(logits), torch.tensor([0, 2, 4], device=DEVICE)
    turn, rule = turn_and_rule(layer)
    _, (_, have, _) = head.loss_and_gradients(*inputs, targets, None, turn, True)
    exactly = tuple(tensor.double() for tensor in inputs)
    _, (_, want, _) = fused.loss_and_gradients(*exactly, targets, None, rule, wanted=True)
    torch.testing.assert_close(have.double(), want, rtol=1e-5, atol=1e-30)


@each_turn
def test_a_bias_that_rules_tokens_out(layer):
    hidden, weight, bias, targets = draw(20)
    bias[::3] = -1e4
    targets.copy_(targets // 3 * 3 + 1).clamp_(max=VOCABULARY - 2)
    check((hidden, weight, bias), targets, None, layer)


@pytest.mark.parametrize(("rows", "weighted"), [(64, False), (200, False), (130, True)])
def test_the_product_of_many_rows_does_not_overflow(rows, weighted):
    """Every 1 + e is 2 where logits are 0: the product of 128 rows is no float32 any more."""
    zeros = torch.zeros(rows, SIZE, device=DEVICE)
    weight = torch.ones(70, SIZE, device=DEVICE)
    targets = torch.zeros(rows, dtype=torch.long, device=DEVICE)
    weights = torch.full((rows,), 0.5, device=DEVICE) if weighted else None
    inputs = (zeros, weight, torch.zeros(70, device=DEVICE))
    loss, _ = head.loss_and_gradients(*inputs, targets, weights, SconesTurn(ALPHA, 0.0), True)
    one = torch.log(torch.tensor(2.0)).item() * (1 + 69 * ALPHA)
    assert loss.item() == pytest.approx(rows * one * (0.5 if weighted else 1), rel=1e-5)


def test_small_losses_of_many_rows_add_up():
    """1 + e is 1 in float32 below 1e-8, but the logarithm of many is not 0."""
    logits = torch.full((4, VOCABULARY), -19.0)
    inputs, targets = by_logits(logits), torch.tensor([IGNORED, 3, IGNORED, 300], device=DEVICE)
    loss, _ = head.loss_and_gradients(*inputs, targets, None, SconesTurn(ALPHA, 0.0), False)
    small = torch.nn.functional.softplus(torch.tensor(-19.0, dtype=torch.float64)).item()
    expected = 2 * (small + 19 + ALPHA * 300 * small)
    assert loss.item() - 38 == pytest.approx(expected - 38, abs=4e-6)  # 38's last digit
    rest = head.loss_and_gradients(*inputs, targets - 1000, None, SconesTurn(ALPHA, 0.0), False)[0]
    assert rest.item() == pytest.approx(4 * ALPHA * VOCABULARY * small, rel=1e-5)


@each_turn
def test_only_the_loss(layer):
    *inputs, targets = draw(40)
    turn, _ = turn_and_rule(layer, 0.1)
    loss, nothing = head.loss_and_gradients(*inputs, targets, None, turn, wanted=False)
    assert nothing == ()
    assert torch.equal(loss, head.loss_and_gradients(*inputs, targets, None, turn, wanted=True)[0])


@each_turn
def test_rows_that_do_not_count_alone(layer):
    *inputs, targets = draw(3)
    turn, _ = turn_and_rule(layer)
    targets.fill_(IGNORED)
    loss, gradients = head.loss_and_gradients(*inputs, targets, None, turn, wanted=True)
    assert loss.item() == 0
    assert all(torch.all(gradient == 0) for gradient in gradients)


@each_turn
def test_no_rows_at_all(layer):
    *inputs, targets = draw(0)
    turn, _ = turn_and_rule(layer)
    loss, gradients = head.loss_and_gradients(*inputs, targets, None, turn, wanted=True)
    assert loss.item() == 0
    assert [gradient.shape for gradient in gradients] == [tensor.shape for tensor in inputs]
    assert all(torch.all(gradient == 0) for gradient in gradients)


@each_scones_turn
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
def test_shards_of_the_vocabulary_add_up(layer, smoothing, weighted):
    """A shard sees targets below and above its own tokens, which are nobody's gold there."""
    hidden, weight, bias, targets = draw(70)
    weights = torch.rand(70, device=DEVICE) if weighted else None
    turn, rule = turn_and_rule(layer, smoothing)
    parts = []
    for first, last in ((0, 100), (100, 228), (228, 301)):
        parts.append(
            head.loss_and_gradients(
                hidden, weight[first:last], bias[first:last], targets - first, weights, turn, True
            )
        )
    exactly = tuple(tensor.double() for tensor in (hidden, weight, bias))
    exact_weights = None if weights is None else weights.double()
    exact, want = fused.loss_and_gradients(*exactly, targets, exact_weights, rule, wanted=True)
    assert sum(loss.item() for loss, _ in parts) == pytest.approx(exact.item(), rel=1e-5)
    to_hidden = torch.stack([gradients[0] for _, gradients in parts]).sum(dim=0)
    to_weight, to_bias = (torch.cat([gradients[i] for _, gradients in parts]) for i in (1, 2))
    for have, slope in zip((to_hidden, to_weight, to_bias), want, strict=True):
        assert (have - slope).norm() < 1e-5 * slope.norm()


# Streaming is for some GPUs and inputs.


@pytest.fixture
def _hopper(monkeypatch):
    monkeypatch.setattr(head, "_streams", lambda device: True)


def bf16(*shape):
    return torch.zeros(shape, dtype=torch.bfloat16, device=DEVICE)


@pytest.mark.usefixtures("_hopper")
@pytest.mark.parametrize(
    ("hidden", "weight", "can"),
    [
        (bf16(5, 64), bf16(7, 64), True),
        (bf16(5, 320), bf16(7, 320), True),
        (bf16(0, 512), bf16(7, 512), True),
        (bf16(10, 512)[::2], bf16(7, 520)[:, 8:], True),
        (bf16(5, 32), bf16(7, 32), False),
        (bf16(5, 100), bf16(7, 100), False),
        (bf16(5, 576), bf16(7, 576), False),
        (bf16(5, 64).float(), bf16(7, 64).float(), False),
        (bf16(64, 5).T, bf16(7, 64), False),
        (bf16(5, 64), bf16(7, 65)[:, :64], False),
        (bf16(5, 64), bf16(7, 72)[:, 1:65], False),
    ],
)
def test_which_inputs_can_be_streamed(hidden, weight, can):
    assert head._can_stream(hidden, weight) == can


@pytest.mark.parametrize(
    ("capability", "hip", "version", "streams"),
    [
        ((9, 0), None, "3.6.0", True),
        ((8, 0), None, "3.6.0", False),
        ((10, 0), None, "3.6.0", False),
        ((9, 4), "6.2", "3.6.0", False),
        ((9, 0), None, "3.5.1", False),
        ((9, 0), None, "3.60.0", False),
    ],
)
def test_which_devices_stream(capability, hip, version, streams, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(head.triton, "__version__", version)
    assert head._streams(torch.device("cuda")) == streams
    assert not head._streams(torch.device("cpu"))


@pytest.mark.usefixtures("_hopper")
def test_what_can_be_streamed_is(monkeypatch):
    chunks = []

    def gradient(chunk, alpha, smoothing):
        chunks.append(chunk)
        return plain_gradient(chunk, alpha, smoothing)

    monkeypatch.setattr(streamed, "streamed_gradient", gradient)
    monkeypatch.setattr(head, "_CHUNK", 256 * 128)
    hidden, weight, bias, targets = draw(130)
    wide = [tensor.repeat(1, 4).bfloat16() for tensor in (hidden, weight)]
    targets[::9] = IGNORED
    check((*wide, bias), targets, None, "scones", 0.1, tolerance=1e-2)
    assert [chunk.first_token for chunk in chunks] == [0, 128, 256]
    turn = SoftmaxTurn(0.1)
    assert head._fastest(turn, *wide, bias, targets, None) is turn


@pytest.mark.parametrize("row_tiles", [1, 2, 33, 45, 64])
@pytest.mark.parametrize("columns", [1, 129, 1000, 8000])
def test_columns_are_divided_among_all_multiprocessors(row_tiles, columns):
    parts = streamed._column_parts(row_tiles, columns, 132)
    tiles = -(-columns // 128)
    assert 1 <= parts <= tiles
    longest = -(-tiles // parts) * -(-row_tiles * parts // 132)
    ideal = row_tiles * tiles / 132
    assert longest <= max(1, 1.3 * ideal + 2)


# By the front door: `scones.outputs.fused` takes the kernels where they are usable.


@pytest.fixture
def _usable(monkeypatch):
    make_usable(monkeypatch)


@pytest.mark.usefixtures("_usable")
@each_layer
@pytest.mark.parametrize("ignore_index", [0, -100])
def test_the_fused_losses_take_the_kernels(layer, ignore_index, monkeypatch):
    *inputs, targets = draw(12)
    targets[4:6] = ignore_index
    loss_of = fused.fused_scones_loss if layer == "scones" else fused.fused_cross_entropy
    exactly = [tensor.double().cpu().requires_grad_() for tensor in inputs]
    inputs = [tensor.requires_grad_() for tensor in inputs]
    with monkeypatch.context() as patch:
        patch.delattr(fused, "_by_chunks")
        loss = loss_of(*inputs, targets, ignore_index=ignore_index)
    gradients = torch.autograd.grad(3 * loss, inputs)
    monkeypatch.undo()
    exact = loss_of(*exactly, targets.cpu(), ignore_index=ignore_index)
    assert loss.item() == pytest.approx(exact.item(), rel=1e-5)
    expected = torch.autograd.grad(3 * exact, exactly)
    for have, want in zip(gradients, expected, strict=True):
        torch.testing.assert_close(have.double().cpu(), want, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("_usable")
@each_layer
def test_gradients_of_many_states_are_near_float64(layer, monkeypatch):
    """They are rounded twice: when they are added up, and when they are scaled."""
    monkeypatch.setattr(head, "_KEPT", 0)
    monkeypatch.setattr(head, "_CHUNK", 128 * 64)
    *inputs, targets = draw(90, 100)
    targets[::9] = 0
    inputs = [inputs[0].bfloat16(), inputs[1].bfloat16(), inputs[2]]
    exactly = [tensor.double().cpu().requires_grad_() for tensor in inputs]
    inputs = [tensor.requires_grad_() for tensor in inputs]
    before = inputs[0].detach().clone()
    loss_of = fused.fused_scones_loss if layer == "scones" else fused.fused_cross_entropy
    gradients = torch.autograd.grad(loss_of(*inputs, targets), inputs)
    expected = torch.autograd.grad(loss_of(*exactly, targets.cpu()), exactly)
    assert torch.equal(inputs[0], before)
    for tensor, have, want in zip(inputs, gradients, expected, strict=True):
        assert have.dtype == tensor.dtype
        assert (have.double().cpu() - want).norm() <= 1e-2 * want.norm()


@pytest.mark.usefixtures("_usable")
@pytest.mark.filterwarnings("ignore:invalid value encountered")
@each_layer
@pytest.mark.parametrize("filling", [float("nan"), float("inf")])
def test_what_stands_under_padding_passes_nowhere(layer, filling):
    *inputs, targets = draw(3)
    inputs[0][1], targets[1] = filling, 0
    inputs = [tensor.requires_grad_() for tensor in inputs]
    loss_of = fused.fused_scones_loss if layer == "scones" else fused.fused_cross_entropy
    loss = loss_of(*inputs, targets)
    gradients = torch.autograd.grad(loss, inputs)
    assert torch.isfinite(loss)
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    assert torch.all(gradients[0][1] == 0)


@pytest.mark.usefixtures("_usable")
@each_layer
def test_float64_has_no_kernels_and_is_computed_all_the_same(layer):
    *inputs, targets = draw(4)
    targets[2] = 0
    loss_of = fused.fused_scones_loss if layer == "scones" else fused.fused_cross_entropy
    exact = loss_of(*(tensor.double() for tensor in inputs), targets)
    assert exact.dtype == torch.float64
    assert exact.item() == pytest.approx(loss_of(*inputs, targets).item(), rel=1e-5)


def test_a_cpu_is_left_to_the_plain_way():
    from scones.hardware import usable

    assert not usable(torch.device("cpu"))
