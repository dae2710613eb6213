"""Spoiling translations: a word swapped for another of its list, or a telling word dropped."""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest

from scones.text.creamtea.chance import below, shuffled
from scones.text.creamtea.grammar import Binding, Entry, Grammar, Rule
from scones.text.creamtea.pattern import Slot, spellings

Derivation = tuple[Rule, Binding]


def spoiled(
    grammar: Grammar,
    derivations: Sequence[Derivation],
    references: Collection[str],
    rng: random.Random,
) -> Iterator[str]:
    """Spoiled translations in random order: two swaps, one drop, and so on until both run dry.

    Some may be references by chance (another reading of the sentence); the caller leaves them out.
    """
    swaps = _swapped(grammar, derivations, references, rng)
    drops = _dropped(grammar, derivations, references, rng)
    running = [swaps, swaps, drops]
    while running:
        for source in list(running):
            text = next(source, None)
            if text is None:
                running = [other for other in running if other is not source]
            else:
                yield text


def _swapped(
    grammar: Grammar,
    derivations: Sequence[Derivation],
    references: Collection[str],
    rng: random.Random,
) -> Iterator[str]:
    """Translations of the sentence with one other word in it: fluent, close, and wrong.

    Goes round the slots, so that a slot with many words is not spoiled more often than the rest.
    """
    decks = [
        _other_words(rule, binding, name, rng)
        for rule, binding in derivations
        for name in _telling_slots(grammar, rule)
    ]
    order = list(shuffled(len(decks), rng))
    for choices in zip_longest(*(decks[position] for position in order)):
        for choice in choices:
            if choice is not None:
                rule, binding = choice
                texts = sorted(rule.translations(binding).difference(references))
                if texts:
                    yield texts[below(rng, len(texts))]


def _other_words(
    rule: Rule, binding: Binding, name: str, rng: random.Random
) -> Iterator[Derivation]:
    """The sentence with another entry in one slot, in random order."""
    entries = rule.slots[name]
    for number in shuffled(len(entries), rng):
        entry = entries[number]
        if entry not in binding.values() and not _may_mean(binding[name], entry):
            yield rule, {**binding, name: entry}


def _dropped(
    grammar: Grammar,
    derivations: Sequence[Derivation],
    references: Collection[str],
    rng: random.Random,
) -> Iterator[str]:
    """References without one word that carries meaning, a negation among them.

    The first word stays: without its subject a sentence may still be fair, if terse.
    """
    telling = set(grammar.negations)
    for rule, binding in derivations:
        for name in _telling_slots(grammar, rule):
            if Slot(name).list_name not in grammar.dispensable:
                forms = binding[name].english.values()
                telling.update(wording.split()[-1] for form in forms for wording in form)
    ordered = sorted(references)
    for number in shuffled(len(ordered), rng):
        words = re.findall(r"[\w']+|[^\w\s]", ordered[number])
        places = [place for place in range(1, len(words)) if words[place] in telling]
        if places:
            place = places[below(rng, len(places))]
            yield from spellings(" ".join(words[:place] + words[place + 1 :]), {})


def _may_mean(one: Entry, other: Entry) -> bool:
    """Whether a translator may fairly say one for the other: "she" for "my sister"."""
    return any(
        wording in wordings
        for word, twin in ((one, other), (other, one))
        for wording in word.english["plain"]
        for wordings in twin.english.values()
    )


def _telling_slots(grammar: Grammar, rule: Rule) -> list[str]:
    """The slots where another word is surely another meaning."""
    return [
        name
        for name, entries in rule.slots.items()
        if len(entries) > 1 and Slot(name).list_name not in grammar.alike
    ]
