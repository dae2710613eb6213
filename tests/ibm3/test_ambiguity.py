"""The measures of ambiguity against exact values on toy parameters, and the dial as a whole."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from generative import GenerativeProcess, tempered
from ibm3_toys import DREI, EIN, NOWHERE, SAME, ZWEI, distortions, toy

from scones.errors import SconesError
from scones.ibm3.ambiguity import markdown, measure, measure_over
from scones.ibm3.options import GRID, MeasureOptions
from scones.ibm3.parameters import Parameters, Translations

pytest.importorskip("numba")


def measured(parameters, source, temperature, number=5000):
    sources = np.tile(source, number), np.full(number, len(source))
    return measure(parameters, sources, temperature, MeasureOptions(samples=2))


def bits(probs):
    return -sum(prob * math.log2(prob) for prob in probs if prob)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_entropy_is_that_of_all_choices(temperature):
    """Against the entropy of what was enumerated: three words, of which no two can be mistaken.

    Each source word has fertility 1 at most, so that words and places tell all choices.
    """
    parameters = replace(
        toy(), fertilities=np.array([[0.2, 0.8], [0.4, 0.6], [0, 1], [0, 0], [0, 0]], np.float32)
    )
    exact = GenerativeProcess(parameters, temperature).distribution((EIN, DREI, ZWEI))
    # NULL's number follows from the words; so the whole is the entropy of the outcomes.
    words = sum(prob * len(said) for (said, _), prob in exact.items())
    found = measured(parameters, (EIN, DREI, ZWEI), temperature, number=8000)
    assert found.entropy.total == pytest.approx(bits([*exact.values()]) / words, rel=0.01)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_entropy_of_each_kind_of_choice(temperature):
    found = measured(toy(p1=0.3), (DREI, DREI), temperature)
    words = 2 * 1.3
    row = toy().translations.of(toy().null)[1]
    assert found.entropy.fertilities == 0
    assert found.entropy.words == pytest.approx(
        0.6 * bits(tempered(row, temperature)) / words, 0.03
    )
    assert found.entropy.null == pytest.approx(bits([0.49, 0.42, 0.09]) / words, rel=0.02)
    one = measured(toy(p1=0.0), (DREI, EIN), temperature).entropy.fertilities
    due = bits(tempered(toy().fertilities[EIN], temperature))
    length = 1 + sum(k * p for k, p in enumerate(tempered(toy().fertilities[EIN], temperature)))
    assert one == pytest.approx(due / length, rel=0.02)


def test_places_are_counted_among_vacant_ones_only():
    parameters = replace(toy(p1=0.0), distortions=distortions({(2, 2): [[0.8, 0.2]] * 2}))
    # The second word has no choice left.
    assert measured(parameters, (DREI, DREI), 1.0).entropy.places == pytest.approx(
        bits([0.8, 0.2]) / 2
    )


def test_languages_without_a_choice():
    found = measured(toy(p1=0.0), (SAME, NOWHERE), 1.0)
    assert found.entropy.total == 0
    assert (found.translations, found.self_bleu, found.length_ratio) == (1.0, 0.0, 0.5)
    assert found.counts.never_seen_and_copied == found.counts.never_seen_and_dropped == 10_000
    found = measured(toy(p1=0.0), [DREI] * 5, 1e-9)
    assert found.entropy.total == 0
    assert found.self_bleu == pytest.approx(100)
    assert (found.translations, found.length_ratio, found.reordering) == (1.0, 1.0, 0.0)


def test_different_translations_of_a_word():
    """Of ten samples of a word with two equal translations both are seen nearly always."""
    parameters = replace(toy(p1=0.0), fertilities=np.array([[0, 1]] * 3 + [[0, 0]] * 2, np.float32))
    found = measure(parameters, (np.full(2000, ZWEI), np.ones(2000)), 1.0)
    assert found.translations == pytest.approx(2 - 2**-9, abs=0.01)


FIRST, SECOND, THIRD, ANYWHERE = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1 / 3] * 3


@pytest.mark.parametrize(
    ("rows", "reordering"),
    [([FIRST, SECOND, THIRD], 0.0), ([THIRD, SECOND, FIRST], 1.0), ([ANYWHERE] * 3, 0.5)],
)
def test_reordering(rows, reordering):
    parameters = replace(toy(p1=0.0), distortions=distortions({(3, 3): rows}))
    assert measured(parameters, [DREI] * 3, 1.0).reordering == pytest.approx(reordering, abs=0.02)


def words_of_many_translations(seed=0):
    """Twenty words with peaked rows of all kinds, as real ones are."""
    random = np.random.default_rng(seed)
    size, width = 20, 8
    translations = Translations(
        np.arange(size + 2) * width,
        random.integers(0, 50, (size + 1) * width).astype(np.int32),
        random.dirichlet([0.3] * width, size + 1).astype(np.float32).ravel(),
    )
    block = random.dirichlet([0.3] * 12, 12).astype(np.float32)
    return Parameters(
        [f"s{number}" for number in range(size)],
        [f"t{number}" for number in range(50)],
        translations,
        random.dirichlet([0.4, 2, 0.5, 0.2], size).astype(np.float32),
        distortions({(0, 12): block.tolist()}, spread=0.6),
        p1=0.1,
    )


@pytest.fixture(scope="module")
def dial():
    random = np.random.default_rng(1)
    sources = random.integers(0, 20, 300 * 10), np.full(300, 10)
    options = MeasureOptions(samples=4)
    return measure_over(words_of_many_translations(), sources, [1.0, *GRID], options)


def test_the_dial_turns_everything(dial):
    """Over the paper's grid; the entropy and each part that has a temperature, strictly."""
    assert [row.temperature for row in dial] == list(GRID)
    rising = [
        lambda row: row.entropy.total,
        lambda row: row.entropy.words,
        lambda row: row.entropy.places,
        lambda row: row.entropy.fertilities,
        lambda row: row.translations,
        lambda row: -row.self_bleu,
    ]
    for value in rising:
        values = [value(row) for row in dial]
        assert all(low < high for low, high in pairwise(values)), values


def test_table(dial):
    lines = markdown(dial).splitlines()
    assert len(lines) == 4 + len(GRID)
    assert lines[4].startswith(f"| 0.1 | {dial[0].entropy.total:.3f} |")
    assert {line.count("|") for line in lines[2:]} == {11}


def test_texts_are_measured_too_and_mistakes():
    row = measure(toy(), ["ein zwei drei", "drei same", ""], 1.0, MeasureOptions(samples=2))
    assert row.counts.sentences == 6
    assert row.counts.empty >= 2
    with pytest.raises(SconesError, match="samples must be at least 2, not 1"):
        MeasureOptions(samples=1)
    with pytest.raises(SconesError, match="must be above 0 and finite, not 0"):
        measure_over(toy(), ["ein"], [1.0, 0.0])
    with pytest.raises(SconesError, match="None of the 2 sentences to measure"):
        measure(toy(), ["anders", ""], 1.0)
