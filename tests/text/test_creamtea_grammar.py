"""The grammar's notation, its files, and the spoiling of translations."""

from __future__ import annotations

import pytest

from scones.errors import SconesError
from scones.text.creamtea import CreamTea, Example
from scones.text.creamtea.grammar import (
    Pattern,
    Rule,
    Slot,
    parse_grammar,
    read_grammar,
    slots_of,
    spellings,
    unfold,
)

LEXICON = """
[lists]
who = [{ de = "sie", en = "she", agrees = "er" }, { de = "sie", en = "they", agrees = "wir" }]
drink = [{ de = "Tee", en = "tea" }, { de = "Saft", en = "(apple |)juice" }]
bun = [{ de = "Kuchen", en = "cake" }]
food = ["drink", "bun"]

[words]
mag = { er = "mag", wir = "mögen" }
mochte = { er = "mochte", wir = "mochten" }
does = { er = "does", plain = "do" }

[contractions]
"does not" = "doesn't"
"do not" = "don't"

[near_misses]
alike = []
dispensable = []
negations = ["not"]
"""
SENTENCES = """
[[sentence]]
name = "not liking"
weight = 1
de = ["heute {mag:who} {who} nicht gern {food}."]
en = ["{who} {does:who} ~not like {food} today."]
"""


def corpus(lexicon: str = LEXICON, sentences: str = SENTENCES) -> CreamTea:
    return CreamTea(parse_grammar(lexicon, sentences))


def test_alternatives_unfold_from_the_inside():
    assert unfold("a (b|c (d|e)|) f") == ["a b f", "a c d f", "a f", "a c e f"]


def test_one_of_two_leaning_neighbours_leans():
    known = {"she is": "she's", "is not": "isn't"}
    assert list(spellings("today she ~is ~not eating a apple .", known)) == [
        "Today she's not eating an apple.",
        "Today she isn't eating an apple.",
        "Today she is not eating an apple.",
    ]
    assert list(spellings("~is Anna ~is here?", known)) == ["Is Anna is here?"]


def test_a_small_grammar_says_all_it_can():
    tea = corpus()
    assert len(tea) == 6
    assert tea.translations("Heute mögen sie nicht gern Saft.") == (
        "They do not like apple juice today.",
        "They do not like juice today.",
        "They don't like apple juice today.",
        "They don't like juice today.",
    )


def test_no_entry_stands_twice_in_a_sentence():
    twice = SENTENCES.replace("{food}", "{food} und {food2}", 1).replace(
        "{food} today", "{food} and {food2}"
    )
    tea = corpus(sentences=twice)
    assert len(tea) == 2 * 3 * 2
    with pytest.raises(SconesError):
        tea.translations("Heute mag sie nicht gern Tee und Tee.")


def test_asking_for_more_than_there_is():
    tea = corpus()
    assert len(tea.sample(5, seed=1, exclude=["Heute mag sie nicht gern Tee."])) == 5
    with pytest.raises(SconesError, match="only 5 sentences to give, not 6"):
        tea.sample(6, seed=1, exclude=["Heute mag sie nicht gern Tee."])


def test_pairings_keep_words_together():
    lexicon = LEXICON + '[[pairings]]\nslots = ["thing"]\nrows = [["drink"], ["bun"]]\n'
    tea = corpus(lexicon, SENTENCES.replace("{food}", "{thing}"))
    assert len(tea) == 6


def choices(rule: Rule, pattern: Pattern) -> set[str]:
    """The slots of a pattern where something is chosen (small words only agree)."""
    return {slot.name for slot in slots_of(pattern) if len(rule.slots[slot.name]) > 1}


def test_the_grammar_of_the_package_is_sound():
    """What is broken shows when sentences are made; this is what would pass unseen."""
    grammar = read_grammar()
    rules = [rule for kind in grammar.types for rule in kind.rules]
    lists = {Slot(name).list_name for rule in rules for name in rule.slots}
    assert grammar.alike | grammar.dispensable <= lists
    for rule in rules:
        for pattern in (rule.german, *rule.english):
            assert choices(rule, pattern) == choices(rule, rule.german)
            for slot in slots_of(pattern):
                german = pattern is rule.german
                entries = rule.slots[slot.name]
                tables = [entry.german if german else entry.english for entry in entries]
                # A form that no entry has is a slip of the pen, which the plain one would hide.
                assert slot.partner is not None or any(slot.form in table for table in tables)


def test_near_misses_of_a_small_grammar():
    tea = corpus()
    source = "Heute mag sie nicht gern Kuchen."
    example = Example(source, tea.translations(source))
    misses = tea.near_misses(example, 100, seed=1)
    assert "She does like cake today." in misses
    assert "She doesn't like today." in misses
    assert {"They", "tea", "juice"} <= {word for miss in misses for word in miss.split()}
    assert not set(misses) & set(example.references)


def test_near_misses_are_never_valid_and_depend_on_the_seed_alone():
    tea = CreamTea.load()
    for example in tea.sample(100, seed=11):
        misses = tea.near_misses(example, 8, seed=4)
        assert misses == sorted(set(misses))
        assert 4 <= len(misses) <= 8
        assert not set(misses) & set(tea.translations(example.source))
        assert misses == tea.near_misses(example, 8, seed=4)
    # "She" may well be Anna, so it is no mistake to say so.
    source = "Anna isst immer Kuchen."
    misses = tea.near_misses(Example(source, tea.translations(source)), 100, seed=1)
    assert "He always eats cake." in misses
    assert "She always eats cake." not in misses
