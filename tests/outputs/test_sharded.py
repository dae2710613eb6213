"""Two processes with half a vocabulary each have the loss and the gradients of one with all."""

import sys

import pytest
import torch
from torch import distributed, multiprocessing
from torch.utils._python_dispatch import TorchDispatchMode

import scones
from scones.errors import SconesError
from scones.outputs import fused

VOCABULARY, SIZE = 11, 5
BOUNDS = [0, 6, VOCABULARY]  # shards need not be of one size


class Collectives(TorchDispatchMode):
    """Records what is sent between processes, and forbids it while `allowed` is false."""

    allowed = False

    def __init__(self):
        super().__init__()
        self.sent = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if "c10d" in op.namespace:
            assert self.allowed, f"{op} before there is a gradient"
            self.sent.append(op._opname)
        return op(*args, **(kwargs or {}))


def draw_inputs(dtype):
    generator = torch.Generator().manual_seed(3)
    shapes = ((2, 4, SIZE), (VOCABULARY, SIZE), (VOCABULARY,))
    inputs = tuple(
        torch.randn(shape, dtype=dtype, generator=generator).requires_grad_() for shape in shapes
    )
    return inputs, torch.tensor([[3, 10, 5, 0], [6, 1, 0, 0]])


def check_shard(rank, place):
    """What each process does; an assertion that fails here fails the test."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{place}/meeting", rank=rank, world_size=2
    )
    for dtype in (torch.float32, torch.float64):
        for options in ((0.5, 0.0), (0.3, 0.1)):
            check_equal_to_unsharded(rank, dtype, options)
    check_shards_that_overlap()
    distributed.destroy_process_group()


def check_equal_to_unsharded(rank, dtype, options):
    (hidden, weight, bias), targets = draw_inputs(dtype)
    whole = scones.fused_scones_loss(hidden, weight, bias, targets, *options)
    expected = torch.autograd.grad(3 * whole, (hidden, weight, bias))

    mine = slice(BOUNDS[rank], BOUNDS[rank + 1])
    leaves = tuple(tensor.detach()[mine].requires_grad_() for tensor in (weight, bias))
    made = []
    compute = fused.loss_and_gradients
    with Collectives() as collectives, pytest.MonkeyPatch.context() as patch:

        def computed(*inputs, wanted):
            total, gradients = compute(*inputs, wanted=wanted)
            made.append(tuple(gradient.clone() for gradient in gradients))
            collectives.allowed = True
            return total, gradients

        patch.setattr(fused, "loss_and_gradients", computed)
        loss = scones.sharded_scones_loss(hidden, *leaves, targets, mine.start, *options)
        assert collectives.sent == ["allreduce_"]  # the loss
        found = torch.autograd.grad(3 * loss, (hidden, *leaves))
        assert collectives.sent == ["allreduce_"] * 2  # and the gradient of the hidden states

    tolerance = {"rtol": 1e-6, "atol": 1e-6}
    torch.testing.assert_close(loss, whole, **tolerance)
    torch.testing.assert_close(found[0], expected[0], **tolerance)
    ((_, *before),) = made
    scale = 3 / int((targets != 0).sum())
    for gradient, wanted, early in zip(found[1:], expected[1:], before, strict=True):
        torch.testing.assert_close(gradient, wanted[mine], **tolerance)
        # What there was before anything was sent is the gradient already.
        torch.testing.assert_close(scale * early, wanted[mine], **tolerance)
    with torch.no_grad():
        value = scones.sharded_scones_loss(hidden, *leaves, targets, mine.start, *options)
    torch.testing.assert_close(value, whole.detach(), **tolerance)


def check_shards_that_overlap():
    (hidden, weight, bias), targets = draw_inputs(torch.float32)
    assert scones.sharded_scones_loss(hidden, weight, bias, targets, 0).isnan()
    assert scones.sharded_scones_loss(hidden, weight, bias, targets, VOCABULARY).isnan()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="gloo meets in a file here")
def test_two_processes_equal_one_and_send_nothing_before_the_gradient(tmp_path):
    multiprocessing.spawn(check_shard, (str(tmp_path),), nprocs=2)


def test_without_processes_it_says_so():
    (hidden, weight, bias), targets = draw_inputs(torch.float32)
    with pytest.raises(SconesError, match="init_process_group first, or use fused_scones_loss"):
        scones.sharded_scones_loss(hidden, weight, bias, targets, 0)


def test_shards_add_up_without_any_process():
    (hidden, weight, bias), targets = draw_inputs(torch.float64)
    states, golds = hidden.detach().flatten(0, 1)[:3], targets.flatten()[:3]
    rule = fused.SconesRule(0.3, 0.1)
    whole = fused.loss_sum(states, weight, bias, golds, None, rule)
    parts = [
        fused.loss_sum(
            states,
            weight[begin:end],
            bias[begin:end],
            golds - begin,
            None,
            fused.SconesRule(0.3, 0.1, sharded=True),
        )
        for begin, end in zip([0, 2, 3, 7], [2, 3, 7, VOCABULARY], strict=True)
    ]
    torch.testing.assert_close(torch.stack(parts).sum(), whole)
    expected = torch.autograd.grad(whole, (weight, bias))
    found = torch.autograd.grad(torch.stack(parts).sum(), (weight, bias))
    for gradient, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(gradient, wanted)
