"""A run on kernels takes its steps as a GPU does; here they are interpreted."""

import pytest
from kernel_device import DEVICE, make_usable
from tiny_run import events, small_model

from scones.training.gpu import GpuSteps


@pytest.mark.skipif(DEVICE.type != "cpu", reason="tests/gpu trains on the device itself")
def test_a_run_on_kernels_trains_without_padding_and_learns_the_same(
    run_training, store_without_dev, tmp_path, monkeypatch
):
    taken = []

    class Watched(GpuSteps):
        def backward(self, batch, divisor):
            taken.append(type(batch).__name__)
            return super().backward(batch, divisor)

    monkeypatch.setattr("scones.training.gpu.GpuSteps", Watched)
    for name in ("padded", "packed"):
        options = {"max_steps": 1, "max_tokens": 48}
        run_training(tmp_path / name, options, small_model(dropout=0), store=store_without_dev)
        make_usable(monkeypatch)
    assert taken == ["PackedBatch"]
    padded, packed = (
        [event["loss"] for event in events(tmp_path / name)] for name in ("padded", "packed")
    )
    assert packed == pytest.approx(padded, rel=1e-4)
