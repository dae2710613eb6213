"""Shortlists: exact under SCONES, a sentence's own whatever stands beside it."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import scones
from scones.errors import SconesError
from scones.model.config import ModelConfig
from scones.model.transformer import Transformer
from scones.outputs.scones import Scones
from scones.outputs.softmax import Softmax
from scones.search.engine import padded, read_batch, searcher, token_scores
from scones.search.searcher import SearchOptions
from scones.search.shortlist import Shortlist, Shortlisted
from scones.text import END, PAD
from scones.text.store import TokenStore

VOCABULARY = 60
GREEDY = SearchOptions()
BEAM = SearchOptions("beam", beam_size=3, n_best=3)
SEARCHES = pytest.mark.parametrize("options", [GREEDY, BEAM], ids=lambda o: o.search)


@pytest.fixture(scope="module")
def model():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = Transformer(ModelConfig(VOCABULARY, 2, 2, 32, 4, 64, 0.0, 0.0, False)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
            model.output_bias[END] += 2
    return model


@pytest.fixture(scope="module")
def sources():
    random = np.random.default_rng(4)
    return [random.integers(3, VOCABULARY, length).tolist() for length in (3, 9, 1, 6, 9, 4, 12)]


@pytest.fixture(scope="module")
def shortlist():
    """Three random pieces for every piece, four for everybody."""
    random = np.random.default_rng(5)
    lists = [random.choice(np.arange(3, VOCABULARY), 3, replace=False) for _ in range(VOCABULARY)]
    lists[END] = np.array([END, 7, 8, 9, 10])
    return of(lists)


def of(lists):
    offsets = np.cumsum([0, *map(len, lists)])
    return Shortlist(offsets, np.concatenate(lists).astype(np.uint16), "digest")


def own(shortlist, source):
    (allowed_V,) = shortlist.allowed([source])
    return {*np.flatnonzero(allowed_V).tolist()}


def full_scores(model, output, source, tokens):
    """The log-probability of every token of a translation, by the whole model."""
    cpu = torch.device("cpu")
    scores = partial(token_scores, output)
    return read_batch(model, padded([source], cpu), padded([tokens], cpu), scores)[0]


def searched(model, output, sources, options, shortlist=None):
    found = searcher(model, output, shortlist=shortlist, prepack=False)
    return found.search(sources, options)


def test_a_sentence_may_use_the_lists_of_its_pieces():
    lists = [[] for _ in range(8)]
    lists[END], lists[4], lists[5] = [END, 3], [4, 6], [6, 7]
    allowed_BV = of(lists).allowed([[4], [5, 4, 4], []])
    assert [np.flatnonzero(row).tolist() for row in allowed_BV] == [
        [END, 3, 4, 6],
        [END, 3, 4, 6, 7],
        [END, 3],
    ]


@SEARCHES
def test_a_list_of_everything_changes_nothing(model, sources, options):
    lists = [[] for _ in range(VOCABULARY)]
    lists[END] = [*range(VOCABULARY)]
    for output in (Scones(), Softmax()):
        plain = searched(model, output, sources, options)
        assert searched(model, output, sources, options, of(lists)) == plain


@SEARCHES
@pytest.mark.parametrize("pack", [False, True])
def test_scones_scores_are_those_of_the_whole_model(model, sources, shortlist, options, pack):
    # So few tokens make many batches, and prepacked ones are joined while others are at work.
    options = replace(options, max_tokens=24)
    found = searcher(model, Scones(), shortlist=shortlist, prepack=pack).search(sources, options)
    lengths = set()
    for source, several in zip(sources, found, strict=True):
        for one in several:
            assert {*one.tokens} <= own(shortlist, source) - {PAD}
            terms = full_scores(model, Scones(), source, one.tokens)
            assert one.token_log_probs == pytest.approx(terms[: len(one.token_log_probs)], abs=1e-4)
            lengths.add(len(one.tokens))
    assert len(lengths) > 2


def test_softmax_scores_are_shared_among_the_list(model, sources, shortlist):
    found = searched(model, Softmax(), sources, GREEDY, shortlist)
    for source, (one,) in zip(sources, found, strict=True):
        whole = full_scores(model, Softmax(), source, one.tokens)[: len(one.token_log_probs)]
        assert all(ours > theirs for ours, theirs in zip(one.token_log_probs, whole, strict=True))
    # The first step by hand: what all tokens of the list have in sum is 1.
    with torch.inference_mode():
        brief = Shortlisted(model, shortlist)
        logits_1V = brief.step(brief.start(padded(sources[:1], model.device)), torch.tensor([PAD]))
        assert Softmax().log_scores(logits_1V).exp().sum() == pytest.approx(1)
        assert Scones().log_scores(logits_1V).exp().sum() != pytest.approx(1, abs=0.1)


def test_a_beam_wider_than_the_list(model):
    lists = [[] for _ in range(VOCABULARY)]
    lists[END] = [END]
    wide = SearchOptions("beam", beam_size=5, n_best=2)
    ((only,),) = searched(model, Scones(), [[5, 6]], wide, of(lists))
    assert (only.tokens, only.finished) == ((), True)
    assert math.isfinite(only.log_prob)


def test_made_from_a_store(tiny_store, tmp_path):
    store = TokenStore.open(tiny_store)
    made = Shortlist.make(store, per_token=20, frequent=10)
    split = store.split("dev")
    dev = [(split.sources[index], split.targets[index]) for index in range(len(split))]
    coverage = made.coverage(dev)
    assert 0.9 < coverage.tokens < 1
    assert coverage.size < len(store.subwords) / 3
    smaller = Shortlist.make(store, per_token=2, frequent=10).coverage(dev)
    assert smaller.tokens < coverage.tokens
    assert smaller.size < coverage.size
    source = dev[0][0].tolist()
    assert {END, *source} <= own(made, source)  # names are copied; every translation can end

    made.save(tmp_path / "list")
    again = Shortlist.load(tmp_path / "list", store.subwords.model)
    assert again.coverage(dev) == coverage


def test_a_list_is_loaded_or_refused(tiny_model, tiny_store, tmp_path):
    path = tmp_path / "list"

    def refused(said, engine="auto"):
        with pytest.raises(SconesError, match=said):
            scones.load(tiny_model, device="cpu", engine=engine, shortlist=path)

    refused("list does not exist")
    path.write_text("a dictionary")
    refused("list is damaged or is no shortlist")
    of([[], [1], [0]]).save(path)
    refused("was made for another vocabulary")
    Shortlist(np.array([0, 5]), np.array([0, 1], np.uint16), "").save(path)
    refused("list is damaged or is no shortlist")
    store = TokenStore.open(tiny_store)
    Shortlist.make(store, 20, 10).save(path)
    assert scones.load(tiny_model, device="cpu", shortlist=path).translate(["Tee"])
    refused("CTranslate2 takes no shortlist", engine="ctranslate2")
