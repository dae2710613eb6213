"""Linear layers over rows, against PyTorch's in float64."""

import pytest
import torch
from kernel_device import DEVICE
from torch.nn import functional

from scones.kernels import linear as kernels
from scones.kernels.linear import linear, sum_slopes


def draw(*shape, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(DEVICE)


@pytest.mark.parametrize("way", ["bias", "no bias", "relu"])
@pytest.mark.parametrize(("rows", "columns"), [(1, 8), (16, 128), (50, 130), (333, 24)])
def test_results_and_all_slopes(rows, columns, way):
    inputs = [draw(rows, 8, seed=1), draw(columns, 8, seed=2), draw(columns, seed=3)]
    leaves = [tensor.requires_grad_() for tensor in inputs[: 2 if way == "no bias" else 3]]
    exactly = [tensor.detach().double().requires_grad_() for tensor in leaves]
    bias = None if way == "no bias" else leaves[2]
    found = linear(leaves[0], leaves[1], bias, relu=way == "relu")
    wanted = functional.linear(*exactly)
    if way == "relu":
        wanted = functional.relu(wanted)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-5)
    slope = draw(rows, columns, seed=4)
    gradients = torch.autograd.grad(found, leaves, slope)
    expected = torch.autograd.grad(wanted, exactly, slope.double())
    for have, want in zip(gradients, expected, strict=True):
        torch.testing.assert_close(have.double(), want, rtol=1e-4, atol=2e-5)


def test_few_programs_sum_many_rows(monkeypatch):
    monkeypatch.setattr(kernels, "_PROGRAMS", 3)
    slopes, results = draw(100, 130, seed=5), draw(100, 130, seed=6)
    cut, total = sum_slopes(slopes, results)
    assert torch.equal(cut, slopes * (results > 0))
    torch.testing.assert_close(total, cut.sum(dim=0), rtol=1e-5, atol=1e-5)
    kept, total = sum_slopes(slopes, None)
    assert torch.equal(kept, slopes)
    torch.testing.assert_close(total, slopes.sum(dim=0), rtol=1e-5, atol=1e-5)


def test_autocast_decides_the_number_format_and_weights_keep_theirs():
    x, weight, bias = draw(20, 8, seed=1), draw(12, 8, seed=2), draw(12, seed=3)
    leaves = [tensor.requires_grad_() for tensor in (x, weight, bias)]
    with torch.autocast(DEVICE.type, torch.bfloat16):
        found = linear(*leaves, relu=True)
    assert found.dtype == torch.bfloat16
    gradients = torch.autograd.grad(found.float().sum(), leaves)
    assert [gradient.dtype for gradient in gradients] == [torch.float32] * 3
    wanted = functional.relu(functional.linear(x, weight, bias))
    torch.testing.assert_close(found.float(), wanted, rtol=0.05, atol=0.05)
