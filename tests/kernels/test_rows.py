"""Passes before and after the output layer, against PyTorch's operations."""

import pytest
import torch
from kernel_device import DEVICE

from scones.kernels import IGNORED
from scones.kernels.head import scaled, without_ignored


@pytest.mark.parametrize(("rows", "size"), [(0, 8), (1, 8), (7, 48), (20, 512)])
def test_ignored_rows_become_zeros_even_where_they_are_not_numbers(rows, size):
    generator = torch.Generator().manual_seed(rows)
    hidden = torch.randn(rows, 2 * size, generator=generator).to(DEVICE)[:, :size]
    targets = torch.randint(4, (rows,), generator=generator).to(DEVICE)
    ignored = targets == 0
    hidden[ignored] = float("nan")
    kept, kept_targets = without_ignored(hidden, targets, 0)
    assert torch.equal(kept, torch.where(ignored.unsqueeze(1), 0.0, hidden))
    assert torch.equal(kept_targets, torch.where(ignored, IGNORED, targets))


@pytest.mark.parametrize("shape", [(0,), (5,), (70, 130)])
def test_numbers_are_scaled_into_another_format(shape):
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    factor = torch.tensor(0.25, device=DEVICE)
    assert torch.equal(scaled(numbers, factor, torch.float32), numbers * 0.25)
    short = scaled(numbers, factor, torch.bfloat16)
    assert short.dtype == torch.bfloat16
    torch.testing.assert_close(short.float(), numbers * 0.25, rtol=8e-3, atol=0)
