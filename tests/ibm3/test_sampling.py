"""The sampler against exact enumeration, its RNG, its limits, and the stores it makes."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from generative import GenerativeProcess, position_probs, tempered
from ibm3_toys import (
    DREI,
    EIN,
    NOWHERE,
    SAME,
    ZWEI,
    distortions,
    surprise,
    toy,
    translations,
)

from scones.errors import SconesError
from scones.ibm3.parameters import ANY
from scones.ibm3.sampling import DROPPED, SEEN, Counts, Outcome, Sampler, split_flat
from scones.text.store import flat_sentences

pytest.importorskip("numba")

TEMPERATURES = (0.3, 1.0, 2.0)
LIMIT = 4.0
"""Of a surprise, in deviations: a right sampler stays below, and with these seeds for ever."""
MANY = 50_000
SENTENCE = (EIN, ZWEI)


def sampled(parameters, source, temperature, number=MANY, limit=250, seed=1):
    """Sample a sentence many times; without what could not be translated."""
    sampler = Sampler(parameters, temperature, seed, limit)
    found = sampler.sample(np.tile(source, number), np.full(number, len(source)))
    words, origins = (split_flat(ids, found.lengths) for ids in (found.tokens, found.origins))
    return [(tuple(w), tuple(o)) for w, o in zip(words, origins, strict=True) if w]


def translated(sampler, sources, first_number=0):
    found = sampler.sample(*flat_sentences(sources), first_number)
    return split_flat(found.tokens, found.lengths)


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize(("length", "rows"), [(3, [[0.6, 0.3, 0.1]] * 3), (4, None)])
def test_positions(temperature, length, rows):
    """Words of fertility 1: their order is the permutation that d drew, from a table or not."""
    blocks = {(length, length): rows} if rows else {(9, 9): [[0.0] * 9] * 9}
    parameters = replace(toy(p1=0.0), distortions=distortions(blocks))
    source = [DREI] * length
    found = Counter(sampled(parameters, source, temperature))
    exact = GenerativeProcess(parameters, temperature, length).distribution(source)
    assert len(exact) == math.factorial(length)
    assert surprise(found, exact) < LIMIT
    first = Counter(at.index(1) for _, at in found.elements())
    due = tempered(position_probs(parameters.distortions, 1, length, length), temperature)
    assert surprise(first, dict(enumerate(due))) < LIMIT


SENTENCES = [(EIN, ZWEI), (ZWEI, DREI), (EIN, SAME), (NOWHERE, ZWEI)]


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("source", SENTENCES)
def test_all_outcomes(source, temperature):
    """Of all outcomes of at most four words: a target beyond it must be drawn again.

    That this finds a small mistake is tested below; the plain process passes it too.
    """
    process = GenerativeProcess(toy(), temperature, max_length=4)
    exact = process.distribution(source)
    assert surprise(Counter(sampled(toy(), source, temperature, limit=4)), exact) < LIMIT
    rng = np.random.default_rng(3)
    plain = [process.sample(source, rng) for _ in range(1000)]
    found = Counter((one.words, one.origins) for one in plain if one.words)
    assert surprise(found, exact) < LIMIT


def test_a_slightly_wrong_table_would_be_found_out():
    rows = [{0: 0.57, 1: 0.33, 2: 0.1}, {1: 0.5, 2: 0.5}, {2: 1.0}, {}, {}, {3: 0.7, 0: 0.3}]
    other = replace(toy(), translations=translations(*rows))
    found = Counter(sampled(other, SENTENCE, 1.0, 2 * MANY, limit=4))
    exact = GenerativeProcess(toy(), 1.0, max_length=4).distribution(SENTENCE)
    assert surprise(found, exact) > LIMIT


@pytest.mark.parametrize("temperature", [1e-3, 1e-6, 1e-300])
def test_near_zero_only_the_most_probable_is_chosen(temperature):
    """All follows from the number of NULL's words; at the end even between equal ones."""
    parameters = toy()
    source = (EIN, DREI)
    outcomes = {}
    for words, at in sampled(parameters, source, temperature, number=2000):
        outcomes.setdefault(at.count(0), set()).add((words, at))
    assert outcomes[0] == {((0, 2), (1, 2))}
    assert set(outcomes) == {0, 1, 2}
    # (2, 4): the last place for the first word; the second, of a row never seen, is off the
    # diagonal at either side, or at the first of equal places.
    assert all(len(found) == 1 for found in outcomes.values())
    random = np.random.default_rng(0)
    for _ in range(20):
        one = GenerativeProcess(parameters, temperature).sample(source, random)
        assert {(one.words, one.origins)} == outcomes[one.origins.count(0)]


def test_equal_words_are_chosen_between_unless_frozen():
    counts = Counter(words for words, _ in sampled(toy(p1=0.0), (ZWEI,), 1e-5, number=2000))
    assert surprise(counts, {(1,): 0.5, (2,): 0.5}) < LIMIT
    assert {words for words, _ in sampled(toy(p1=0.0), (ZWEI,), 1e-6, number=2000)} == {(1,)}


def test_places_do_not_underflow_when_the_probable_ones_are_taken():
    """At γ = 0.001 the second word has to choose between places of 1e-4 and 1e-5 of the first."""
    rows = [[0.9, 1e-4, 1e-5]] * 3
    parameters = replace(toy(p1=0.0), distortions=distortions({(3, 3): rows}))
    assert set(sampled(parameters, [DREI] * 3, 1e-3, number=500)) == {((2, 2, 2), (1, 2, 3))}


def test_a_high_temperature_makes_all_that_is_possible_equally_probable():
    counts = Counter(
        words for words, _ in sampled(toy(p1=0.0), (EIN, DREI), 1e300) if len(words) == 2
    )
    due = {(0, 2): 1 / 6, (2, 0): 1 / 6, (1, 2): 1 / 6, (2, 1): 1 / 6, (2, 2): 1 / 3}
    assert surprise(counts, due) < LIMIT
    assert not any(words.count(3) for words in counts)  # t has no such word


class TestNumbers:
    """What a sentence becomes depends on its number and the seed alone."""

    def flat(self, count=3000):
        random = np.random.default_rng(0)
        lengths = random.integers(0, 9, count)
        return random.integers(0, 5, lengths.sum()), lengths

    def test_threads_and_chunks_change_nothing(self, monkeypatch):
        tokens, lengths = self.flat()
        first = Sampler(toy(), 0.7, 11, threads=1).sample(tokens, lengths)
        monkeypatch.setattr("scones.ibm3.sampling._SHARE", 7)
        monkeypatch.setattr("scones.ibm3.sampling.CHUNK", 1000)
        for threads in (1, 2, 5):
            again = Sampler(toy(), 0.7, 11, threads=threads).sample(tokens, lengths)
            for name in ("tokens", "lengths", "origins", "outcomes"):
                assert np.array_equal(getattr(again, name), getattr(first, name))
        other = Sampler(toy(), 0.7, 12).sample(tokens, lengths)
        assert other.tokens.tolist() != first.tokens.tolist()

    def test_neighbours_change_nothing(self):
        tokens, lengths = self.flat(50)
        sampler = Sampler(toy(), 1.0, 5)
        sources = split_flat(tokens, lengths)
        together = translated(sampler, sources, 7)
        for row in (49, 0, 20):
            assert translated(sampler, [sources[row]], 7 + row) == [together[row]]

    def test_the_rng_is_philox(self):
        from scones.ibm3.compiled import new_rng, uniform

        for seed, number in ((0, 0), (5, 7), (2**64 - 1, 2**40 + 3)):
            rng = new_rng(np.uint64(seed), np.uint64(number))
            # NumPy counts up before it rolls, we behind it
            before = number * 2**64 + 2**256 - 1 if number == 0 else number * 2**64 - 1
            peer = np.random.Generator(np.random.Philox(counter=before, key=seed))
            assert [uniform(rng) for _ in range(50)] == peer.random(50).tolist()


class TestLimits:
    """What the process leaves open has an outcome, and is counted."""

    def test_words_never_seen_and_lengths(self):
        sampler = Sampler(toy(p1=0.0), 1e-9, max_length=3)
        sources = [[DREI] * 3, [DREI] * 4, [], [NOWHERE], [SAME] * 3, [NOWHERE, SAME]]
        found = sampler.sample(np.concatenate(sources), list(map(len, sources)))
        done, long, empty = Outcome.TRANSLATED, Outcome.SOURCE_TOO_LONG, Outcome.EMPTY
        assert found.outcomes.tolist() == [done, long, empty, empty, done, done]
        assert split_flat(found.tokens, found.lengths) == [[2] * 3, [], [], [], [3] * 3, [3]]
        assert sampler.vocabulary.oov_policy.tolist() == [SEEN] * 3 + [3, DROPPED]

    def test_a_target_that_never_fits(self):
        parameters = replace(
            toy(p1=0.0), fertilities=np.array([[0, 0, 1.0]] * 3 + [[0] * 3] * 2, np.float32)
        )
        source = [EIN, ZWEI]
        found = Sampler(parameters, 1.0, max_length=3).sample(np.array(source), np.array([2]))
        assert found.outcomes.tolist() == [Outcome.TARGET_TOO_LONG]
        plain = GenerativeProcess(parameters, 1.0, 3).sample(source, np.random.default_rng(0))
        assert plain.outcome == Outcome.TARGET_TOO_LONG

    def test_null_without_translations_says_nothing(self):
        found = sampled(toy(p1=0.9, null={}), (DREI, DREI), 1.0, number=1000)
        assert {len(words) for words, _ in found} == {2}

    def test_everything_is_counted(self):
        sampler = Sampler(toy(p1=0.0), 1e-9, max_length=3)
        counts = Counts()
        texts = ["drei drei", "drei drei drei drei", "", "nirgends anderswo", "same one drei", "x"]
        found = sampler.sample_texts(texts, 0, counts)
        assert found == ["three three", "", "", "", "same one three", ""]
        assert counts == Counts(
            sentences=6, translated=2, source_too_long=1, target_too_long=0, empty=3,
            source_words=12, never_seen_and_copied=2, never_seen_and_dropped=3, target_words=5,
        )  # fmt: skip
        assert sampler.sample_texts([]) == translated(sampler, []) == []

    @pytest.mark.parametrize("source", [2, 3, 6])
    def test_lengths_that_d_does_not_know(self, source):
        """The row by both lengths, by the target's, and off the diagonal: the arg max of each."""
        blocks = {(2, 2): [[0.1, 0.9], [0.9, 0.1]], (ANY, 3): [[0.1, 0.2, 0.7]] * 2 + [[0, 0, 0]]}
        parameters = replace(toy(p1=0.0), distortions=distortions(blocks))
        (found,) = set(sampled(parameters, [DREI] * source, 1e-9, number=3))
        one = GenerativeProcess(parameters, 1e-9).sample([DREI] * source, np.random.default_rng(0))
        assert found == (one.words, one.origins)
        assert found[1] == {2: (2, 1), 3: (3, 2, 1), 6: (1, 2, 3, 4, 5, 6)}[source]


class TestMistakes:
    """One clear sentence each."""

    @pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan, math.inf])
    def test_no_temperature(self, temperature):
        for make in (Sampler, GenerativeProcess):
            with pytest.raises(SconesError, match=r"must be above 0 and finite, not -?[\dni]"):
                make(toy(), temperature)

    def test_other_numbers(self):
        with pytest.raises(SconesError, match="max_length must be at least 1, not -1"):
            Sampler(toy(), 1.0, max_length=-1)
        with pytest.raises(SconesError, match="word number 7, and the model has 5 source words"):
            translated(Sampler(toy(), 1.0), [[1, 7]])

    def test_no_numba(self, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "numba", None)
        with pytest.raises(SconesError, match=r"needs numba; install scones\[ibm3\]"):
            Sampler(toy(), 1.0)
