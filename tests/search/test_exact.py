"""Exact search against brute force: modes, n best, all above a threshold, and certificates."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import ToyModel, brute_force, same_ranking

from scones.outputs.scones import Scones
from scones.outputs.softmax import Softmax
from scones.search.beam import beam_search
from scones.search.exact import exact_search
from scones.search.frontier import ExactOptions, Stack, Tree

layers = st.sampled_from([Softmax(), Scones()])
toys = st.builds(
    lambda vocabulary, seed, ties: (TiedModel if ties else ToyModel)(vocabulary, seed),
    st.integers(2, 6),
    st.integers(0, 10**6),
    st.booleans(),
)


class TiedModel(ToyModel):
    """Logits are whole numbers, so that many translations score the same."""

    def logits(self, source, prefix):
        return super().logits(source, prefix).round()


class ToyExpander:
    """A table as exact search sees it; knows the prefix in every row, and that paths are right."""

    device = torch.device("cpu")
    precision = torch.float32
    bytes_a_row = 1000

    def __init__(self, model):
        self.model = model
        self.vocabulary = model.vocabulary
        self.expanded = []
        self.most_rows = 0

    def open(self, sources, rows):
        self.sources = [source[0] for source in sources]
        self.prefixes = [None] * rows
        self.most_rows = max(self.most_rows, rows)

    def expand(self, tokens_R, paths_RT, depths_R, sentences_R):
        logits = []
        for token, path, depth, sentence in zip(
            *(column.tolist() for column in (tokens_R, paths_RT, depths_R, sentences_R)),
            strict=True,
        ):
            before = () if depth == 0 else self.prefixes[path[depth - 1]]
            assert len(before) == depth
            prefix = (*before, token)
            self.prefixes[path[depth]] = prefix
            source = self.sources[sentence]
            self.expanded.append((source, prefix[1:]))
            logits.append(self.model.logits(source, prefix[1:]))
        return torch.stack(logits)


def run(model, output, count, limit, options, beam=2, spelling=tuple):
    """Search `count` sentences of a toy model."""
    expander = ToyExpander(model)
    beam = max(beam, options.n_best)
    width = min(beam, model.vocabulary**limit)
    source = torch.arange(count).unsqueeze(1)
    first = beam_search(
        model, output, source, torch.full((count,), limit), width, min(options.n_best, width)
    )
    sources, limits = [[n] for n in range(count)], [limit] * count
    found = dict(exact_search(expander, output, sources, limits, first, options, spelling=spelling))
    assert sorted(found) == list(range(count))
    return [found[n] for n in range(count)], expander


@settings(max_examples=150)
@given(layers, toys, st.integers(1, 6), st.integers(1, 5), st.integers(1, 64))
def test_the_n_best_of_brute_force(output, model, limit, n_best, width):
    results, _ = run(model, output, 2, limit, ExactOptions(n_best, width=width))
    for source, result in enumerate(results):
        ranking = brute_force(model, output, source, limit)
        assert same_ranking(result.hypotheses, ranking, n_best)


def spelled(tokens):
    return "".join(["", "", "a", "b", "ab", "aa"][token] for token in tokens)


@settings(max_examples=150)
@given(layers, toys, st.integers(1, 5), st.integers(1, 8), st.integers(1, 64))
def test_the_n_best_texts_of_brute_force_where_several_tokens_spell_one(
    output, model, limit, n_best, width
):
    options = ExactOptions(n_best, width=width)
    results, _ = run(model, output, 2, limit, options, spelling=spelled)
    for source, result in enumerate(results):
        ranking, best = brute_force(model, output, source, limit), dict[str, float]()
        for tokens, score in ranking:
            best.setdefault(spelled(tokens), score)
        found = dict[str, float | None]()
        for one in result.hypotheses:
            found.setdefault(spelled(one.tokens), one.log_prob)
        # Ties may trade places: each has its own best score, and the scores are the n best.
        assert found == pytest.approx({text: best[text] for text in found}, abs=1e-5)
        assert [*found.values()] == pytest.approx([*best.values()][:n_best], abs=1e-5)
        last = result.hypotheses[-1].log_prob
        above = {tokens for tokens, score in ranking if score > last + 1e-5}
        assert above <= {one.tokens for one in result.hypotheses}
        if result.certificate.proved and limit < 4:
            longer = brute_force(model, output, source, limit + 1)
            assert all(score <= last + 1e-5 for t, score in longer if spelled(t) not in found)


@settings(max_examples=60)
@given(layers, toys, st.integers(1, 6), st.integers(1, 50))
def test_the_mode_and_its_proof(output, model, limit, width):
    results, expander = run(model, output, 3, limit, ExactOptions(width=width))
    for source, result in enumerate(results):
        ranking = brute_force(model, output, source, limit)
        certificate, (_, best) = result.certificate, ranking[0]
        assert same_ranking(result.hypotheses, ranking, 1)
        assert certificate.upper_bound >= best - 1e-6
        assert certificate.empty_log_prob == pytest.approx(dict(ranking)[()], abs=1e-5)
        assert certificate.states == sum(one == source for one, _ in expander.expanded)
        # What the length limit cut is not known to be worse.
        longer = brute_force(model, output, source, limit + 1)[0][1] if limit < 4 else best
        if certificate.proved:
            assert certificate.stopped_by is None
            assert certificate.upper_bound == pytest.approx(best, abs=1e-5)
            assert longer <= best + 1e-5
        else:
            assert certificate.stopped_by == "length"
            # In the arithmetic of the search: brute force may round a tie to the other side.
            assert certificate.upper_bound > result.hypotheses[0].log_prob
        assert certificate.beam_log_prob is None or certificate.search_error == (
            best > certificate.beam_log_prob + certificate.tolerance
        )


@settings(max_examples=80)
@given(layers, toys, st.integers(1, 6), st.floats(0.001, 1.0), st.integers(1, 40))
def test_all_above_a_threshold(output, model, limit, threshold, width):
    options = ExactOptions(threshold=threshold, width=width)
    results, _ = run(model, output, 2, limit, options)
    for source, result in enumerate(results):
        found = {h.tokens: h.log_prob for h in result.hypotheses}
        for tokens, score in brute_force(model, output, source, limit):
            if abs(score - math.log(threshold)) > 1e-5:
                assert (tokens in found) == (score > math.log(threshold))
        scores = [h.log_prob for h in result.hypotheses]
        assert scores == sorted(scores, reverse=True)


@settings(max_examples=120)
@given(layers, toys, st.integers(1, 30), st.integers(1, 8), st.integers(1, 3))
def test_a_limit_of_states_is_kept_and_the_bound_is_one(output, model, states, width, n_best):
    limit = 4
    options = ExactOptions(n_best, max_states=states, width=width)
    results, _ = run(model, output, 3, limit, options, beam=1)
    for source, result in enumerate(results):
        ranking = brute_force(model, output, source, limit)
        certificate = result.certificate
        assert certificate.states <= states
        assert certificate.upper_bound >= ranking[0][1] - 1e-6
        if certificate.proved:
            assert same_ranking(result.hypotheses, ranking, n_best)
        elif certificate.stopped_by == "states":
            assert certificate.states == states


@settings(max_examples=40)
@given(layers, toys, st.integers(20_000, 60_000))
def test_little_memory_changes_nothing_or_is_told(output, model, memory):
    results, expander = run(model, output, 4, 5, ExactOptions(max_memory=memory), beam=1)
    row = expander.bytes_a_row + Tree.bytes_a_row(5)
    assert expander.most_rows * row <= max(memory // 4, 6 * row)
    for source, result in enumerate(results):
        ranking = brute_force(model, output, source, 5)
        assert result.certificate.upper_bound >= ranking[0][1] - 1e-6
        if result.certificate.proved:
            assert same_ranking(result.hypotheses, ranking, 1)
        else:
            assert result.certificate.stopped_by in ("memory", "length")


def test_no_time_at_all_gives_what_beam_search_found():
    model, output = ToyModel(5, 3), Scones()
    (result,), expander = run(model, output, 1, 5, ExactOptions(max_seconds=1e-9))
    assert expander.expanded == []
    assert not result.certificate.proved
    assert result.certificate.stopped_by == "time"
    assert result.certificate.upper_bound == 0.0
    assert result.hypotheses[0].log_prob == result.certificate.beam_log_prob


def test_no_prefix_is_expanded_twice_nor_one_that_cannot_win():
    model, output = ToyModel(6, 11), Softmax()
    (result,), expander = run(model, output, 1, 5, ExactOptions(width=1), beam=6)
    assert len(expander.expanded) == len(set(expander.expanded))
    beam = result.certificate.beam_log_prob
    for _, prefix in expander.expanded:
        score = sum(
            float(output.log_scores(model.logits(0, prefix[:n]).unsqueeze(0))[0, token])
            for n, token in enumerate(prefix)
        )
        assert score >= beam - 2e-4


def test_what_a_stopped_sentence_leaves_costs_no_rounds(monkeypatch):
    taken = []
    take = Stack.pop

    def counted(stack, count):
        taken.append(count)
        return take(stack, count)

    monkeypatch.setattr(Stack, "pop", counted)
    options = ExactOptions(threshold=1e-9, max_states=8, width=2)
    results, expander = run(ToyModel(6, 5), Scones(), 8, 5, options)
    assert all(result.certificate.stopped_by == "states" for result in results)
    assert len(expander.expanded) == 64
    # Every sentence leaves some thirty prefixes, which would be fifteen rounds.
    assert len(taken) < 64
