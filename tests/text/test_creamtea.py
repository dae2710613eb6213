"""The built-in corpus as a user meets it: sizes, samples, splits, files."""

import re

import pytest

from scones.errors import SconesError
from scones.text.creamtea import CreamTea, Example, splits
from scones.text.creamtea.grammar import (
    Slot,
    parse_grammar,
    read_grammar,
    slots_of,
    spellings,
    unfold,
)


@pytest.fixture(scope="module")
def tea():
    return CreamTea.load()


@pytest.fixture(scope="module")
def examples(tea):
    return tea.sample(3_000, seed=5)


def test_german_sentences_are_well_formed(tea):
    for source in tea._readings:
        assert re.fullmatch(r"[A-ZÄÖÜ]\w*(,? \w+)*[.?]", source), source


@pytest.mark.parametrize("size", [3_000, pytest.param(0, marks=pytest.mark.slow)])
def test_english_references_are_well_formed(tea, size):
    for example in tea.sample(size or len(tea), seed=5):
        assert list(example.references) == sorted(set(example.references))
        for text in example.references:
            assert re.fullmatch(r"[A-Z][\w']*(,? [\w']+)*[.?]", text), text
            assert not re.search(r"\b[Aa] [aeiou]|\b[Aa]n [^aeiou]", text), text
            assert text.endswith("?") == example.source.endswith("?")


def test_english_subjects_and_verbs_agree(examples):
    plural = r"(I|[Yy]ou|[Ww]e|[Tt]hey|the guests|my parents)"
    single = r"([Hh]e|[Ss]he|Anna|Paul|my sister|the cook)"
    wrong = re.compile(
        rf"\b{plural} (drinks|eats|bakes|buys|likes|does|has|is|wants)\b"
        rf"|\b{single} (drink|eat|bake|buy|like|do|have|are|am|want) (?!not\b)"
        r"|\b(do|does|did|will|to|must|can)(n't)?( not)? (drinks|ate|eats|baked|bought|drank)\b"
    )
    questions = re.compile(r"\b(Do|Does|Did|Will|Would|Why|What|hopes?|after|before)\b")
    checked = [text for one in examples for text in one.references if not questions.search(text)]
    assert len(checked) > 1_000
    assert [text for text in checked if wrong.search(text)] == []


@pytest.mark.parametrize(
    ("source", "translations"),
    [
        ("Das Wasser ist kälter als die Milch.", ["The water is colder than the milk."]),
        ("Sie mag keine Äpfel.", ["She does not like apples.", "She doesn't like apples."]),
        # At the start of a sentence "Sie" with a plural verb is "they" as well as "you".
        ("Sie essen immer Kuchen.", ["They always eat cake.", "You always eat cake."]),
        ("Jeden Tag essen sie Kuchen.", ["Every day they eat cake.", "They eat cake every day."]),
        (
            "Paul nimmt erst Marmelade und dann Sahne.",
            [
                "First Paul takes jam and then cream.",
                "Paul first takes jam and then cream.",
                "Paul takes cream after jam.",
                "Paul takes first jam and then cream.",
                "Paul takes jam first and then cream.",
                "Paul takes jam first, then cream.",
            ],
        ),
    ],
)
def test_all_translations_of_a_sentence(tea, source, translations):
    assert list(tea.translations(source)) == translations


def test_a_sample_is_the_same_on_every_machine(tea):
    # Fixed by hand: a change here changes every corpus that was ever written.
    assert [example.source for example in tea.sample(3, seed=1)] == [
        "Am Sonntag backen die Kinder keine Kekse.",
        "Paul hat versucht, die Eier zu essen.",
        "Weil du traurig bist, isst du Brot.",
    ]


def test_a_sample_is_distinct_and_leaves_out_what_is_excluded(tea, examples):
    sources = [example.source for example in examples]
    assert len(set(sources)) == len(sources)
    assert tea.sample(50, seed=6) != examples[:50]
    rest = tea.sample(500, seed=5, exclude=sources[:400])
    assert [example.source for example in rest] == sources[400:900]


def test_splits_share_no_sentence_and_train_on_valid_translations(tea):
    train, dev, test = splits(800, 60, 70, seed=3)
    sources = [source for source, _ in train] + [one.source for one in dev + test]
    assert (len(train), len(dev), len(test)) == (800, 60, 70)
    assert len(set(sources)) == len(sources)
    assert all(target in tea.translations(source) for source, target in train)
    assert splits(800, 60, 70, seed=3) == (train, dev, test)


# The grammar's notation, its files, and the spoiling of translations.


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


def corpus(lexicon=LEXICON, sentences=SENTENCES):
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
    with pytest.raises(SconesError, match=r"'Heute mag .* Tee\.' is not a sentence"):
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


def choices(rule, pattern):
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
