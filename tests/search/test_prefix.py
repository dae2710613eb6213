"""Translations that begin as was asked, against brute force and in all four searches."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_exact import ToyExpander, layers, toys
from toy import ToyModel, brute_force, same_ranking

import scones
from scones.errors import SconesError
from scones.outputs.scones import Scones
from scones.search.beam import beam_search
from scones.search.exact import exact_search
from scones.search.frontier import ExactOptions
from scones.search.greedy import greedy_search
from scones.search.prefix import Prefix
from scones.text import END
from scones.text.subwords import Subwords

LIMIT, VOCABULARY = 4, 5


@st.composite
def prefixes(draw):
    """What may stand at up to three positions, the last of which may be an end."""
    path = draw(st.lists(st.sampled_from([0, 2, 3, 4]), min_size=1, max_size=3))
    more = st.sets(st.sampled_from([0, 2, 3, 4]), max_size=2)
    allowed = [tuple({token} | draw(more)) for token in path]
    if draw(st.booleans()):
        allowed.append((END, *draw(more)))
    return Prefix(tuple(path), tuple(allowed))


def begins_with(prefix, tokens):
    """Whether a whole translation, given without its end, takes nothing that is not allowed."""
    whole = (*tokens, END)
    steps = ((prefix.after(whole[:depth]), whole[depth]) for depth in range(len(whole)))
    return all(allowed is None or token in allowed for allowed, token in steps)


def ranking_of(model, output, source, prefix):
    ranking = brute_force(model, output, source, LIMIT)
    return [one for one in ranking if prefix is None or begins_with(prefix, one[0])]


fixed = st.lists(st.none() | prefixes(), min_size=2, max_size=2)
models = toys.filter(lambda model: model.vocabulary == VOCABULARY) | st.builds(
    ToyModel, st.just(VOCABULARY), st.integers(0, 10**6)
)
SOURCES, LIMITS = torch.arange(2).unsqueeze(1), torch.full((2,), LIMIT)


@settings(max_examples=15)
@given(layers, models, fixed, st.integers(1, 4), st.integers(1, 40), st.floats(0.001, 0.5))
def test_beam_exact_and_all_find_what_brute_force_finds(
    output, model, fixed, n_best, width, threshold
):
    whole = beam_search(model, output, SOURCES, LIMITS, 4**LIMIT, n_best, prefixes=fixed)
    small = beam_search(model, output, SOURCES, LIMITS, 4, min(n_best, 4), prefixes=fixed)
    exactly, above = (
        dict(
            exact_search(
                ToyExpander(model), output, [[0], [1]], [LIMIT] * 2, small, options, prefixes=fixed
            )
        )
        for options in (
            ExactOptions(n_best, width=width),
            ExactOptions(threshold=threshold, width=width),
        )
    )
    for source, prefix in enumerate(fixed):
        ranking = ranking_of(model, output, source, prefix)
        assert same_ranking(whole[source], ranking, n_best)
        assert same_ranking(exactly[source].hypotheses, ranking, n_best)
        assert exactly[source].certificate.upper_bound >= ranking[0][1] - 1e-5
        found = {one.tokens for one in above[source].hypotheses}
        assert found <= {tokens for tokens, _ in ranking}
        for tokens, score in ranking:
            if abs(score - math.log(threshold)) > 1e-5:
                assert (tokens in found) == (score > math.log(threshold))


@settings(max_examples=30)
@given(layers, models, fixed)
def test_greedy_search_takes_the_best_token_allowed(output, model, fixed):
    found = greedy_search(model, output, SOURCES, LIMITS, prefixes=fixed)
    for source, prefix in enumerate(fixed):
        tokens, score = [], 0.0
        while END not in tokens and len(tokens) < LIMIT:
            logits = model.logits(source, tuple(tokens))
            allowed = (prefix and prefix.after(tokens)) or range(VOCABULARY)
            tokens.append(max(allowed, key=lambda token: float(logits[token])))
            score += float(output.log_scores(logits.unsqueeze(0))[0, tokens[-1]])
        assert found[source].log_prob == pytest.approx(score, abs=1e-4)


@pytest.mark.parametrize("layer", ["scones", "softmax"])
@pytest.mark.parametrize("search", ["greedy", "beam", "exact", "all"])
def test_translations_begin_with_the_prefix(tiny_models, tea_pairs, layer, search):
    translator = scones.load(tiny_models / layer, "cpu")
    sources = [source for source, _ in tea_pairs[:4]]
    given = ["Some ", "The sm", "", ("▁The",)]
    found = translator.translate(sources, search, prefix=given, threshold=1e-4, max_states=50)
    starts = ["Some", "The sm", "", "The"]
    for several, start in zip(found, starts, strict=True):
        for one in several:
            assert one.text.startswith(start)
            if one.log_prob is not None:
                assert one.log_prob == pytest.approx(math.fsum(one.token_log_probs), abs=1e-4)
    assert search == "all" or all(found)
    free = translator.translate(sources[2:3], search, threshold=1e-4, max_states=50)
    assert [one.text for one in found[2]] == [one.text for one in free[0]]


def test_what_a_text_asks_for(tiny_subwords):
    subwords = Subwords(tiny_subwords)
    pieces = subwords.pieces()

    def allowed(text):
        prefix = Prefix.of(text, subwords)
        return [{pieces[token] for token in some} for some in prefix.allowed]

    first, second, *_ = allowed("The T")
    assert first == {"▁The"}
    assert second == {piece for piece in pieces if piece.startswith("▁T")} | {"▁"}
    assert allowed("The ")[1] == {"</s>"} | {piece for piece in pieces if piece[0] == "▁"}
    assert allowed(("▁The",)) == [{"▁The"}]
    assert Prefix.of(" ", subwords) is None


@pytest.mark.parametrize(
    ("prefix", "said"),
    [
        ([("▁The", "no such piece")], "no piece for"),
        ([("</s>",)], "no piece for"),
        (["The", "A"], "2 prefixes for 1 sentences"),
        ("The " * 60, "shorten it"),
    ],
)
def test_a_prefix_that_makes_no_sense_is_refused(tiny_model, prefix, said):
    with pytest.raises(SconesError, match=said):
        scones.load(tiny_model, "cpu").translate(["Tee."], prefix=prefix)


def test_an_impossible_prefix_is_proved_to_be_so():
    model, prefix = ToyModel(VOCABULARY, 1), Prefix((2, 3), ((2,), (3,)))
    first = beam_search(model, Scones(), SOURCES, LIMITS, 2, prefixes=[prefix] * 2)
    options = ExactOptions(threshold=0.999)
    found = exact_search(
        ToyExpander(model), Scones(), [[0], [1]], [LIMIT] * 2, first, options, prefixes=[prefix] * 2
    )
    assert all(not one.hypotheses and one.certificate.proved for _, one in found)
