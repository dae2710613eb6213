"""The losses refuse what they cannot mean, in one sentence and without a look at any tensor."""

from functools import partial

import pytest
import torch
from torch import Tensor

import scones
from scones.errors import SconesError

TARGETS = torch.arange(1, 7).reshape(2, 3)
LOGITS = {"logits": torch.linspace(-4, 4, 42).reshape(2, 3, 7), "targets": TARGETS}
STATES = {"hidden": torch.ones(2, 3, 4), "weight": torch.ones(7, 4), "bias": torch.arange(7.0)}
STATES["targets"] = TARGETS
LOSSES = {
    scones.scones_loss: LOGITS,
    scones.fused_scones_loss: STATES,
    scones.fused_cross_entropy: STATES,
    partial(scones.sharded_scones_loss, first_token=0): STATES,
}
MISFITS = [
    ("targets", lambda targets: targets.unsqueeze(-1), r"targets \(2, 3, 1\) must have shapes"),
    ("targets", Tensor.t, r" and targets \(3, 2\) must have shapes \(…, .*\) and \(…\)"),
    ("targets", Tensor.float, "targets must be token ids, whole numbers, not torch.float32"),
    ("targets", Tensor.bool, "targets must be token ids, whole numbers, not torch.bool"),
    ("weight", Tensor.t, r"weight \(4, 7\), bias \(7,\) and .* \(…, D\), \(V, D\), \(V,\) and"),
    ("bias", lambda bias: bias[:1], r"bias \(1,\)"),
    ("logits", Tensor.long, "logits must be floating-point numbers, not torch.int64"),
    ("hidden", lambda hidden: hidden.to("meta"), "hidden is on meta, but targets on cpu"),
]
WHOLE = partial(torch.compile, backend="eager", fullgraph=True)
TRACED = [(WHOLE, scones.scones_loss), *((torch.fx.symbolic_trace, loss) for loss in [*LOSSES][:3])]
each_loss = pytest.mark.parametrize(("loss", "tensors"), LOSSES.items())


@each_loss
@pytest.mark.parametrize(("name", "change", "sentence"), MISFITS)
def test_what_does_not_fit(loss, tensors, name, change, sentence):
    if name in tensors:
        with pytest.raises(SconesError, match=sentence):
            loss(*(tensors | {name: change(tensors[name])}).values())


@each_loss
@pytest.mark.parametrize("value", [-1.0, 1e13, float("nan"), float("inf")])
def test_options_out_of_bounds(loss, tensors, value):
    with pytest.raises(SconesError, match=rf"label_smoothing must be in \[0, 1\), not {value}"):
        loss(*tensors.values(), label_smoothing=value)
    if loss is not scones.fused_cross_entropy:
        with pytest.raises(SconesError, match=f"alpha must be .*, not {value}"):
            loss(*tensors.values(), alpha=value)


def test_no_number_in_a_tensor_is_looked_at():
    logits, targets, alpha = (one.to("meta") for one in (*LOGITS.values(), torch.tensor(0.5)))
    assert scones.scones_loss(logits, targets, alpha).is_meta


@pytest.mark.parametrize(("trace", "loss"), TRACED)
def test_a_traced_loss_computes_and_refuses_the_same(trace, loss):
    first, *others, targets = LOSSES[loss].values()
    traced = trace(lambda first, targets: loss(first, *others, targets))
    for golds in (targets, targets.to(torch.uint8)):  # any whole numbers will do
        assert torch.equal(traced(first, golds), loss(first, *others, targets))
    # In a whole graph PyTorch puts our error into one of its own.
    with pytest.raises((SconesError, RuntimeError), match="must have shapes"):
        traced(first, targets.flatten())
