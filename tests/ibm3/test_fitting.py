"""Fitting: sil-thot's tables read the right way round, planted parameters found again."""

import math
import sys
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from generative import GenerativeProcess, position_probs
from ibm3_toys import distortions, translation_row, translations

from scones.errors import SconesError
from scones.ibm3.fitting import (
    FIRST_WORD,
    NULL,
    FilePairs,
    StorePairs,
    Tables,
    TrainingPairs,
    estimate,
    fit,
)
from scones.ibm3.options import Cut, FitOptions
from scones.ibm3.parameters import (
    ANY,
    Parameters,
    pack_distortions,
    pack_fertilities,
    pack_translations,
)
from scones.text.store import StoreWriter, TokenStore
from scones.text.subwords import Subwords

pytest.importorskip("thot.alignment")

# The planted language: words that become themselves or, of the kinds c and d, also another; of
# every kind into its own number of words; two words of NULL's, and positions near the diagonal.
SOURCES = [f"{kind}{number}" for kind in "abcd" for number in range(4)]
TARGETS = [*SOURCES, *(f"{name}'" for name in SOURCES), "of", "so"]
FERTILITIES = {"a": [0.0, 1.0, 0.0], "b": [0.4, 0.6, 0.0], "c": [0.1, 0.9, 0.0], "d": [0, 0.5, 0.5]}
PLANTED = Parameters(
    SOURCES,
    TARGETS,
    translations(
        *({x: 1.0} if name[0] in "ab" else {x: 0.7, x + 16: 0.3} for x, name in enumerate(SOURCES)),
        {32: 0.8, 33: 0.2},
    ),
    np.array([FERTILITIES[name[0]] for name in SOURCES], np.float32),
    distortions({(ANY, 1): [[1.0]]}, spread=0.2),
    p1=0.1,
)


@cache
def samples(number):
    """Sources, and what the planted parameters made of them."""
    return drawn(PLANTED, number, longest=8)


def drawn(planted, number, longest):
    rng = np.random.default_rng(1)
    process = GenerativeProcess(planted)
    found = []
    while len(found) < number:
        words = len(planted.source_words)
        source = rng.integers(0, words, rng.integers(3, longest + 1)).tolist()
        sample = process.sample(source, rng)
        if sample.words:
            found.append((source, sample))
    return found


def plant(pairs):
    return [(source, list(sample.words)) for source, sample in samples(pairs)]


@pytest.fixture(scope="module")
def planted():
    """The planted language, fitted."""
    return fit(plant(3000), SOURCES, TARGETS)


def test_planted_parameters_are_found(planted):
    parameters, _ = planted
    for word in range(len(SOURCES) + 1):
        found, due = translation_row(parameters, word), translation_row(PLANTED, word)
        for target in TARGETS:
            assert found.get(target, 0.0) == pytest.approx(due.get(target, 0.0), abs=0.05)
    # Against those of this very corpus, which are up to 0.03 off by chance.
    counts = np.zeros(parameters.fertilities.shape)
    for source, sample in samples(3000):
        for i, word in enumerate(source, start=1):
            counts[word, sample.origins.count(i)] += 1
    due = counts / counts.sum(1, keepdims=True)
    assert parameters.fertilities == pytest.approx(due, abs=0.05)
    assert parameters.p1 == pytest.approx(PLANTED.p1, abs=0.05)
    # The first source word stands at the front of the target, the last one at its end.
    table = parameters.distortions
    assert position_probs(table, 1, 6, 6).argmax() == 0
    assert position_probs(table, 6, 6, 6).argmax() == 5
    assert position_probs(table, 1, 6, 6)[0] > 0.5
    assert 0.05 <= table.spread <= 0.6


def log_likelihood(parameters, source, target):
    """Brown's formula, summed over all alignments."""
    m, p1 = len(target), parameters.p1
    origins = np.indices((len(source) + 1,) * m).reshape(m, -1).T
    null = [math.comb(m - k, k) * p1**k * (1 - p1) ** (m - 2 * k) for k in range(m + 1)]
    probs = np.array(null)[(origins == 0).sum(1)]
    for i, x in enumerate([parameters.null, *source]):
        row = translation_row(parameters, x)
        links = np.array([row.get(parameters.target_words[y], 0.0) for y in target])
        if i:
            links *= position_probs(parameters.distortions, i, len(source), m)
            n = [math.factorial(phi) * p for phi, p in enumerate(parameters.fertilities[x])]
            probs *= np.array(n + [0.0] * m)[(origins == i).sum(1)]
        probs *= np.where(origins == i, links, 1.0).prod(1)
    return math.log(probs.sum())


@pytest.mark.parametrize(("words", "fertility", "gain"), [(2, 0.0, 0.12), (8, 0.9, 0.0)])
def test_words_go_to_null_where_the_model_prefers_it_to_the_truth(words, fertility, gain):
    """Nine in ten are doubled: of two words NULL guesses the second one well, of eight badly."""
    planted = Parameters(
        SOURCES[:words],
        TARGETS[: words + 1],
        translations(*({x: 1.0} for x in range(words + 1))),
        np.array([[0, 0.1, 0.9]] * words, np.float32),
        PLANTED.distortions,
        p1=0.01,
    )
    corpus = drawn(planted, 600, longest=3)
    pairs = [(source, list(sample.words)) for source, sample in corpus]
    found, _ = fit(pairs, planted.source_words, planted.target_words, FitOptions(ibm3=20))
    # The truth has d of the true alignments: the planted one is of positions that are vacant.
    places = [(i, ANY, len(y.words), j) for _, y in corpus for j, i in enumerate(y.origins, 1) if i]
    entries, counts = np.unique(places, axis=0, return_counts=True)
    truth = replace(planted, distortions=pack_distortions(entries, counts))
    gained = sum(log_likelihood(found, *pair) - log_likelihood(truth, *pair) for pair in pairs)
    assert gained / sum(len(y) for _, y in pairs) == pytest.approx(gain, abs=0.02)
    assert found.fertilities[:, 2].min() == pytest.approx(fertility, abs=0.05)


def test_log_probability_rises_within_each_model(planted):
    _, report = planted
    stages = {stage.name: stage.log_probs for stage in report.stages}
    assert {name: len(values) for name, values in stages.items()} == {
        "read": 0, "IBM 1": 5, "HMM": 5, "IBM 3": 5, "tables": 0,
    }  # fmt: skip
    for values in stages.values():
        assert all(later >= earlier - 1e-3 for earlier, later in pairwise(values))
    assert stages["IBM 1"][-1] > stages["IBM 1"][0] + 0.1


def trained(**options):
    """A small IBM 3 of sil-thot itself."""
    given = FitOptions(**{"ibm1": 3, "hmm": 3, "ibm3": 3} | options)
    return estimate(TrainingPairs(plant(300), len(SOURCES), len(TARGETS), given), given)


@pytest.mark.parametrize("lengths", ["target", "both"])
@pytest.mark.parametrize("middle", [{}, {"hmm": 0, "ibm2": 3}])
def test_tables_are_those_of_sil_thot(lengths, middle):
    """Every entry of t, n and d as sil-thot's own functions give it: nothing is exchanged."""
    model = trained(distortions=lengths, **middle)
    tables = Tables(model)
    t = np.zeros((model.src_vocab_size, model.trg_vocab_size))
    t[tables.translations["source"], tables.translations["target"]] = tables.translation_probs
    n = np.zeros((model.src_vocab_size, 10))
    n[tables.fertilities["source"], tables.fertilities["fertility"]] = tables.fertility_probs
    for source in (NULL, *range(FIRST_WORD, model.src_vocab_size)):
        for target in range(FIRST_WORD, model.trg_vocab_size):
            if t[source, target] > 0:
                prob = model.translation_prob(source, target)
                assert t[source, target] == pytest.approx(prob, abs=1e-5)
        for fertility in range(10) if source else ():
            prob = model.fertility_prob(source, fertility)
            assert n[source, fertility] == pytest.approx(prob, abs=1e-5)
    assert t.sum(1)[FIRST_WORD:] == pytest.approx(np.ones(len(SOURCES)), abs=1e-4)
    real = tables.distortions[:, 0] > 0
    packed = pack_distortions(tables.distortions[real], tables.distortion_probs[real])
    assert (len(packed.begins) == ANY + 1) == (lengths == "target")
    for (i, source, target, j), prob in zip(
        tables.distortions[real].tolist(), tables.distortion_probs[real], strict=True
    ):
        length = source or 7  # any does: it is not asked for
        assert model.distortion_prob(i, length, target, j) == pytest.approx(prob, abs=1e-5)
        assert position_probs(packed, i, length, target)[j - 1] == pytest.approx(prob, abs=1e-5)


def test_ibm2_instead_of_the_hmm_and_what_is_kept_of_it(tmp_path):
    options = FitOptions(hmm=0, ibm2=4, ibm3=3, distortions="both")
    parameters, report = fit(plant(800), SOURCES, TARGETS, options)
    assert [stage.name for stage in report.stages] == ["read", "IBM 1", "IBM 2", "IBM 3", "tables"]
    assert translation_row(parameters, SOURCES.index("a1"))["a1"] > 0.9
    assert (parameters.distortions.begins[ANY] == -1).all()
    parameters.save(tmp_path / "model")
    facts = Parameters.load(tmp_path / "model").facts
    assert (facts["options"]["ibm3"], facts["pairs"]) == (3, 800)
    assert facts["stages"] == report.to_json()["stages"]


def test_empty_and_long_pairs_are_left_out_and_counted():
    corpus = [*plant(50), ([], [1]), ([1], []), ([1] * 9, [1]), ([1], [1] * 30)]
    _, report = fit(corpus, SOURCES, TARGETS, FitOptions(max_length=8, ibm3=1))
    long = sum(max(len(source), len(target)) > 8 for source, target in corpus)
    assert report.left_out == {"empty": 2, "too long": long}
    assert report.pairs == len(corpus) - 2 - long
    with pytest.raises(SconesError, match=r"no pair .*: 1 are empty, 0 are too long\.$"):
        fit([([], [])], SOURCES, TARGETS)


def test_long_sentences_are_fitted_to_but_not_measured():
    """Their probabilities are below what sil-thot's numbers can hold."""
    corpus = [([number % 4] * 60, [number % 4] * 60) for number in range(8)]
    parameters, report = fit(corpus, SOURCES, TARGETS, FitOptions(ibm3=1))
    assert [stage.log_probs for stage in report.stages] == [[]] * 5
    assert translation_row(parameters, 2)[TARGETS[2]] > 0.9


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"ibm2": 5}, "hmm is 5 and ibm2 is 5; one of them must be 0 and the other at least 1."),
    ],
)  # fmt: skip
def test_options_that_make_no_sense(wrong, sentence):
    with pytest.raises(SconesError) as problem:
        FitOptions(**wrong)
    assert str(problem.value) == sentence


def test_without_sil_thot_or_room_for_its_tables(monkeypatch):
    class Full:
        def print(self, prefix):
            return False

    with pytest.raises(SconesError, match=r"could not save its tables in .*; make room there"):
        Tables(Full())
    monkeypatch.setitem(sys.modules, "thot.alignment", None)
    with pytest.raises(SconesError, match=r"needs sil-thot; install scones\[ibm3\]"):
        fit(plant(5), SOURCES, TARGETS)


def test_frequent_words_are_shown():
    corpus = [([0, 1, 2], [0, 1, 2]), ([1, 2], [1, 2]), ([2], [2]), ([3, 2], [3, 2])] * 10
    words = ["Haus", "den", "ab", "1234"]
    parameters, report = fit(corpus, words, ["house", "the", "off", "1234"])
    shown = parameters.frequent_words(report.source_counts, 20, best=1)
    # Neither a word of two letters nor a number; the more frequent first.
    assert [(word, best[0][0]) for word, best in shown] == [("den", "the"), ("Haus", "house")]
    assert len(parameters.frequent_words(report.source_counts, 1)) == 1


class TestPacking:
    """Entries to rows."""

    def test_threshold_and_best_and_what_they_take(self):
        sources = np.array([2, 0, 0, 0, 2, 0])
        targets = np.array([4, 1, 2, 3, 1, 0])
        probs = np.array([0.25, 0.5, 0.3, 0.15, 0.75, 0.05])
        table, lost = pack_translations(sources, targets, probs, 3, Cut(threshold=0.1, best=2))
        assert table.begins.tolist() == [0, 2, 2, 4]
        assert table.words.tolist() == [1, 2, 1, 4]
        assert table.probs == pytest.approx([0.625, 0.375, 0.75, 0.25])
        assert lost == pytest.approx([0.2, 0, 0])

        # The best word stays, however improbable.
        table, _ = pack_translations(
            np.zeros(4, int), np.arange(4), np.full(4, 0.25), 1, Cut(threshold=0.5)
        )
        assert table.words.tolist() == [0]
        assert table.probs.tolist() == [1.0]

    def test_fertilities(self):
        table, lost = pack_fertilities(
            np.array([1, 1, 1]), np.array([0, 2, 5]), np.array([0.3, 0.695, 0.005]), 2, Cut(0.01)
        )
        assert table.shape == (2, 3)
        assert table[1] == pytest.approx([0.3 / 0.995, 0, 0.695 / 0.995])
        assert not table[0].any()
        assert lost == pytest.approx([0, 0.005])

    def test_spread_is_that_of_the_rows(self):
        """Rows that fall off by a factor give this factor back."""
        places = np.arange(1, 200)
        entries = np.stack([np.full(199, 1), np.zeros(199), np.full(199, 199), places], axis=1)
        for factor in (0.3, 0.6, 0.9):
            table = pack_distortions(entries, factor ** np.abs(places - 100.0))
            assert table.spread == pytest.approx(factor, abs=0.01)


class TestCorpus:
    """Pairs from a store or from files."""

    def test_files_split_at_spaces(self, tmp_path):
        (tmp_path / "a").write_text("der Hund\nder Kater \n\n")
        (tmp_path / "b").write_text("the dog\nthe  cat\nx\n")
        pairs = FilePairs(tmp_path / "a", tmp_path / "b")
        assert pairs.source_words == ["der", "Hund", "Kater"]
        assert pairs.target_words == ["the", "dog", "cat", "x"]
        assert list(pairs) == [([0, 1], [0, 1]), ([0, 2], [0, 2]), ([], [3])]
        assert pairs.subwords is None

    def test_some_of_the_pairs_from_all_over(self, tmp_path):
        for name in "ab":
            (tmp_path / name).write_text("".join(f"{number}\n" for number in range(100)))
        pairs = list(FilePairs(tmp_path / "a", tmp_path / "b", limit=7))
        assert len(pairs) == 7
        gaps = {later[0][0] - earlier[0][0] for earlier, later in pairwise(pairs)}
        assert gaps <= {14, 15}

    def test_a_store_and_its_files_say_the_same(self, tmp_path):
        sources = [f"das Haus {number} ist rot" for number in range(60)]
        targets = [f"the house {number} is red" for number in range(60)]
        subwords = Subwords.train(sources + targets, 300)
        (tmp_path / "store").mkdir()
        with StoreWriter(tmp_path / "store", subwords, "de", "en") as writer:
            writer.append("train", subwords.encode(sources), subwords.encode(targets))
            writer.finish()
        (tmp_path / "a").write_text("".join(f"{text}\n" for text in sources))
        (tmp_path / "b").write_text("".join(f"{text}\n" for text in targets))
        stored = StorePairs(TokenStore.open(tmp_path / "store"), limit=20)
        filed = FilePairs(tmp_path / "a", tmp_path / "b", subwords, limit=20)
        assert [(list(x), list(y)) for x, y in stored] == list(filed)
        assert len(list(stored)) == 20
        assert stored.source_words == filed.target_words == stored.target_words
