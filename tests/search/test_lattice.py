"""Lattices spell what they were made of, and no smaller automaton does."""

from hypothesis import given, settings
from hypothesis import strategies as st

from scones.search.lattice import Lattice

words = st.text("abc", max_size=5)


def ends_after(translations, beginning):
    return frozenset(t[len(beginning) :] for t in translations if t.startswith(beginning))


@settings(max_examples=200)
@given(st.sets(words, min_size=1, max_size=30))
def test_it_spells_exactly_its_translations_with_the_fewest_states(some):
    lattice = Lattice.of([tuple(word) for word in some])
    assert {"".join(pieces) for pieces in lattice} == some
    assert len(list(lattice)) == len(lattice) == len(some)
    # As many states are needed as there are different sets of ends (Myhill and Nerode).
    beginnings = {word[:n] for word in some for n in range(len(word) + 1)}
    assert len(lattice.arcs) == len({ends_after(some, beginning) for beginning in beginnings})


def test_arcs_count_the_translations_that_go_through_them():
    words = ["a x b", "a y b", "c x b", "c y b", "c"]
    found = Lattice.of([word.split() for word in words]).to_json()
    assert found["translations"] == found["segmentations"] == 5
    assert Lattice.of([["a"], ["b"]], merged=3).to_json()["segmentations"] == 5
    through = {(arc["piece"], arc["translations"]) for arc in found["arcs"]}
    assert {("a", 2), ("c", 3)} <= through
    assert sum(arc["translations"] for arc in found["arcs"] if arc["piece"] == "b") == 4
    assert all(arc["from"] < arc["to"] for arc in found["arcs"])


def test_nothing_at_all_and_the_empty_translation():
    assert (len(Lattice.of([])), list(Lattice.of([]))) == (0, [])
    assert list(Lattice.of([()])) == [()]
