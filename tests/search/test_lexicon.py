"""IBM Model 1: source pieces compete for the target pieces that they explain."""

import numpy as np
import pytest

from scones.search import shortlist as lexicon
from scones.search.shortlist import Lexicon, learn_lexicon
from scones.text import END
from scones.text.store import ParallelTokens, Sentences

VOCABULARY = 100
NOTHING = np.zeros(0, np.int64)


def side(sentences):
    offsets = np.cumsum([0, *map(len, sentences)]).astype(np.uint64)
    return Sentences(np.array([i for ids in sentences for i in ids], np.uint16), offsets)


def corpus(count, seed=0):
    """Source piece 10 + i is target piece 50 + i, in any order; 9 and 49 stand in every pair."""
    random = np.random.default_rng(seed)
    chosen = [random.permutation(30)[: random.integers(1, 6)] for _ in range(count)]
    return ParallelTokens(
        side([[9, *(10 + words)] for words in chosen]),
        side([[*(50 + random.permutation(words)), 49] for words in chosen]),
    )


def by_hand(pairs, rounds):
    """Model 1 one sentence after another."""
    sentences = [
        ({*pairs.sources[index].tolist(), END}, {*pairs.targets[index].tolist()})
        for index in range(len(pairs))
    ]
    rates = {(f, e): 1.0 for sources, targets in sentences for f in sources for e in targets}
    for _ in range(rounds):
        explained = dict.fromkeys(rates, 0.0)
        for sources, targets in sentences:
            for e in targets:
                total = sum(rates[f, e] for f in sources)
                for f in sources:
                    explained[f, e] += rates[f, e] / total
        rates = {
            (f, e): count / sum(f in sources for sources, _ in sentences)
            for (f, e), count in explained.items()
        }
    return rates


@pytest.mark.parametrize("chunk", [7, 10_000])
def test_rates_are_those_of_the_plain_algorithm(chunk, monkeypatch):
    monkeypatch.setattr(lexicon, "_CHUNK", chunk)
    pairs = corpus(60)
    learnt = learn_lexicon(pairs, VOCABULARY, NOTHING, 60)
    expected = by_hand(pairs, rounds=3)
    keys = [(int(key) // VOCABULARY, int(key) % VOCABULARY) for key in learnt.keys]
    assert keys == sorted(expected)
    assert learnt.rates.tolist() == pytest.approx([expected[key] for key in keys])


def test_ignored_pieces_are_nobodys_translation():
    learnt = learn_lexicon(corpus(200), VOCABULARY, np.array([49, 51]), 200)
    targets = {int(key) % VOCABULARY for key in learnt.keys}
    assert targets == {*range(50, 80)} - {51}


def test_a_part_of_the_corpus_is_taken_evenly():
    sentences = [[3 + number] for number in range(90)]
    pairs = ParallelTokens(side(sentences), side(sentences))
    learnt = learn_lexicon(pairs, VOCABULARY, NOTHING, 10)
    seen = sorted({int(key) % VOCABULARY for key in learnt.keys})
    assert len(seen) == 10
    assert seen[0] == 3
    assert seen[-1] == 92
    assert max(np.diff(seen)) <= 10


def test_the_best_are_those_with_the_highest_rates():
    known = Lexicon(10, np.array([21, 23, 24, 29, 35]), np.array([0.1, 0.9, 0.3, 0.5, 1.0]))
    assert sorted(known.best(2, 2).tolist()) == [3, 9]
    assert sorted(known.best(2, 9).tolist()) == [1, 3, 4, 9]
    assert known.best(7, 5).tolist() == []  # it never occurs
