import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import ToyModel, brute_force, same_ranking

from scones.outputs.scones import Scones
from scones.outputs.softmax import Softmax
from scones.search.beam import beam_search
from scones.search.greedy import greedy_search

layers = st.sampled_from([Softmax(), Scones()])


def sources(count):
    return torch.arange(count).unsqueeze(1)


@settings(max_examples=80)
@given(
    layers,
    st.integers(0, 10**6),
    st.integers(2, 4),
    st.integers(1, 5),
    st.integers(1, 4),
    st.one_of(st.just(0.0), st.floats(0.2, 1.5)),  # the stopping rule is exact with a penalty too
)
def test_a_beam_wide_enough_is_brute_force(output, seed, vocabulary, limit, n_best, penalty):
    model = ToyModel(vocabulary, seed)
    width = max(n_best, vocabulary * (vocabulary - 1) ** (limit - 1))
    limits = torch.tensor([limit, limit])
    found = beam_search(model, output, sources(2), limits, width, n_best, penalty)
    for source in (0, 1):
        ranking = brute_force(model, output, source, limit, penalty)
        assert same_ranking(found[source], ranking, n_best)


@settings(max_examples=40)
@given(layers, st.integers(0, 10**6), st.integers(2, 6))
def test_a_beam_of_one_is_greedy(output, seed, vocabulary):
    model = ToyModel(vocabulary, seed)
    limits = torch.tensor([6, 2, 8, 1, 6])
    beam = beam_search(model, output, sources(5), limits, 1)
    greedy = greedy_search(model, output, sources(5), limits)
    for (left,), right in zip(beam, greedy, strict=True):
        assert (left.tokens, left.finished) == (right.tokens, right.finished)
        assert left.log_prob == pytest.approx(right.log_prob, abs=1e-5)
        assert left.token_log_probs == pytest.approx(right.token_log_probs, abs=1e-5)


@settings(max_examples=40)
@given(
    layers,
    st.integers(0, 10**6),
    st.integers(1, 5),
    st.lists(st.integers(1, 9), min_size=6, max_size=6),
)
def test_neighbours_in_a_batch_do_not_matter(output, seed, beam_size, limits):
    model = ToyModel(5, seed)
    together = beam_search(
        model, output, sources(6), torch.tensor(limits), beam_size, n_best=beam_size
    )
    for source, limit in enumerate(limits):
        (alone,) = beam_search(
            model,
            output,
            torch.tensor([[source]]),
            torch.tensor([limit]),
            beam_size,
            n_best=beam_size,
        )
        assert alone == together[source]


def test_an_output_that_never_ends_is_returned_unfinished():
    class Endless(ToyModel):
        def logits(self, source, prefix):
            logits = super().logits(source, prefix)
            logits[1] = -1e9
            return logits

    model = Endless(5, seed=1)
    for found in (
        beam_search(model, Scones(), sources(1), torch.tensor([4]), 3)[0][0],
        greedy_search(model, Scones(), sources(1), torch.tensor([4]))[0],
    ):
        assert not found.finished
        assert len(found.tokens) == len(found.token_log_probs) == 4
        assert found.log_prob == pytest.approx(sum(found.token_log_probs))
