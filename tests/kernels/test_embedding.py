"""Embedding, position and dropout in one pass, against each by itself in float64."""

import pytest
import torch
from hashed_dropout import hashed_dropout
from kernel_device import DEVICE

from scones.kernels.embedding import embed


@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize(("tokens", "size"), [(1, 16), (23, 48), (50, 128)])
def test_embeddings_and_the_slopes_of_their_table(tokens, size, rate):
    generator = torch.Generator().manual_seed(tokens)
    table = torch.randn(11, size, generator=generator).to(DEVICE).requires_grad_()
    positions = torch.randn(60, size, generator=generator).to(DEVICE)
    ids = torch.randint(11, (tokens,), generator=generator).to(DEVICE)
    places = torch.arange(tokens, device=DEVICE)
    seed = torch.tensor(-9, dtype=torch.int32, device=DEVICE)
    found = embed(table, positions, ids, places, torch.float32, seed, rate)
    exact = table.detach().double().requires_grad_()
    wanted = exact[ids] * size**0.5 + positions.double()[places]
    if rate:
        wanted = hashed_dropout(wanted, rate, seed)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)
    slopes = torch.randn(tokens, size, generator=generator).to(DEVICE)
    (have,) = torch.autograd.grad(found, table, slopes)
    (want,) = torch.autograd.grad(wanted, exact, slopes.double())
    torch.testing.assert_close(have.double(), want, rtol=1e-4, atol=1e-5)
    short = embed(table, positions, ids, places, torch.bfloat16, seed, rate)
    assert short.dtype == torch.bfloat16
    torch.testing.assert_close(short.float(), found, rtol=8e-3, atol=0)
