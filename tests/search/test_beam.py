import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import ToyModel, brute_force, same_ranking

from scones.model.config import ModelConfig
from scones.model.transformer import Transformer
from scones.outputs import OutputLayer
from scones.outputs.scones import Scones
from scones.outputs.softmax import Softmax
from scones.search.beam import beam_search
from scones.search.greedy import greedy_search

LAYERS = [Softmax(), Scones()]
layers = st.sampled_from(LAYERS)


def sources(count: int) -> torch.Tensor:
    return torch.arange(count).unsqueeze(1)


@settings(max_examples=60)
@given(layers, st.integers(0, 10**6), st.integers(2, 4), st.integers(1, 5), st.integers(1, 4))
def test_a_beam_wide_enough_is_brute_force(
    output: OutputLayer, seed: int, vocabulary: int, limit: int, n_best: int
) -> None:
    model = ToyModel(vocabulary, seed)
    width = max(n_best, vocabulary * (vocabulary - 1) ** (limit - 1))
    found = beam_search(
        model, output, sources(2), torch.tensor([limit, limit]), width, n_best=n_best
    )
    for source in (0, 1):
        assert same_ranking(found[source], brute_force(model, output, source, limit), n_best)


@settings(max_examples=30)
@given(layers, st.integers(0, 10**6), st.floats(0.2, 1.5))
def test_the_stopping_rule_is_exact_with_a_length_penalty(
    output: OutputLayer, seed: int, penalty: float
) -> None:
    model = ToyModel(3, seed)
    (found,) = beam_search(
        model, output, sources(1), torch.tensor([5]), 48, n_best=3, length_penalty=penalty
    )
    assert same_ranking(found, brute_force(model, output, 0, 5, penalty), 3)


@settings(max_examples=40)
@given(layers, st.integers(0, 10**6), st.integers(2, 6))
def test_a_beam_of_one_is_greedy(output: OutputLayer, seed: int, vocabulary: int) -> None:
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
def test_neighbours_in_a_batch_do_not_matter(
    output: OutputLayer, seed: int, beam_size: int, limits: list[int]
) -> None:
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


@pytest.mark.parametrize("output", LAYERS, ids=lambda output: output.name)
def test_batched_equals_one_by_one_with_a_transformer(output: OutputLayer) -> None:
    torch.manual_seed(5)
    model = Transformer(ModelConfig(40, 2, 2, 32, 4, 64, 0.0, 0.0)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
        model.output_bias[1] += 5
    lengths = [3, 12, 7, 1, 9, 5, 12]
    batch = torch.zeros(7, 12, dtype=torch.long)
    for row, length in enumerate(lengths):
        batch[row, :length] = torch.randint(2, 40, (length,))
    limits = torch.tensor(lengths) + 8
    greedy = greedy_search(model, output, batch, limits)
    beam = beam_search(model, output, batch, limits, 4, n_best=4)
    finished = 0
    for row, length in enumerate(lengths):
        alone = batch[row : row + 1, :length], limits[row : row + 1]
        assert greedy_search(model, output, *alone)[0].tokens == greedy[row].tokens
        found = beam_search(model, output, *alone, 4, n_best=4)[0]
        assert [h.tokens for h in found] == [h.tokens for h in beam[row]]
        finished += greedy[row].finished
    assert finished > 0


def test_an_output_that_never_ends_is_returned_unfinished() -> None:
    class Endless(ToyModel):
        def logits(self, source: int, prefix: tuple[int, ...]) -> torch.Tensor:
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
