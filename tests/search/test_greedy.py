"""Batches that begin while others are still being written."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import ToyModel

from scones.outputs.scones import Scones
from scones.search.greedy import greedy_search, greedy_stream


class Watched(ToyModel):
    """Remembers how many rows it was ever fed at once."""

    most = 0

    def step(self, state, tokens_N):
        self.most = max(self.most, len(tokens_N))
        return super().step(state, tokens_N)


@settings(max_examples=40)
@given(
    st.integers(0, 10**6),
    st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=5), min_size=1, max_size=6),
    st.integers(0, 12),
)
def test_a_stream_translates_as_sentences_alone(seed, limits, room):
    model = Watched(6, seed)
    numbers = iter(range(100))
    batches = [
        (torch.tensor([[next(numbers)] for _ in batch]), torch.tensor(batch)) for batch in limits
    ]
    found = greedy_stream(model, Scones(), batches, room)
    assert model.most <= max(room, *(len(batch) for batch in limits), 1)
    for (sources, longest), translations in zip(batches, found, strict=True):
        for source, limit, translation in zip(sources, longest, translations, strict=True):
            (alone,) = greedy_search(model, Scones(), source[None], limit[None])
            assert translation == alone


def test_waiting_sentences_take_the_place_of_finished_ones():
    class Endless(Watched):
        steps = 0

        def logits(self, source, prefix):
            return torch.tensor([0.0, -1.0, 1.0])

        def step(self, state, tokens_N):
            self.steps += 1
            return super().step(state, tokens_N)

    model = Endless(3, seed=0)
    limits = [9, 3, 3, 3]  # three short ones pass beside a long one
    batches = [(torch.tensor([[n]]), torch.tensor([limit])) for n, limit in enumerate(limits)]
    found = greedy_stream(model, Scones(), batches, room=2)
    assert [len(one.tokens) for (one,) in found] == limits
    assert (model.steps, model.most) == (9, 2)
