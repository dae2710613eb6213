"""The grammar: entries, rules, and what a rule says in German and in English.

Below it, how a translation is spoiled, and how the two TOML files are read. Everything random here
must come out the same on every machine and in every version of Python, or the corpora that were
written could not be written again.
"""

from __future__ import annotations

import itertools
import math
import random
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise, zip_longest
from typing import Any, TypeVar

T = TypeVar("T")


def below(rng: random.Random, limit: int) -> int:
    """A whole number from 0 to `limit` - 1."""
    # Python promises a fixed sequence only for `Random.random()`, not for `choice` or `shuffle`.
    return int(rng.random() * limit)


def shuffled(size: int, rng: random.Random) -> Iterator[int]:
    """The numbers below `size`, each once, in random order, without a list of that length."""
    # A Fisher-Yates shuffle that remembers only the numbers that have moved: a rule has up to
    # 18,000 sentences, of which a sample takes a few.
    moved: dict[int, int] = {}
    for position in range(size):
        other = position + below(rng, size - position)
        yield moved.get(other, other)
        moved[other] = moved.pop(position, position)


# The notation of the patterns is explained in sentences.toml: `{slot}`, `(a|b)`, `~word`.
_SLOT = re.compile(r"\{(\w+)(?:\.(\w+)|:(\w+))?\}")
_INNERMOST = re.compile(r"\(([^()]*)\)")


@dataclass(frozen=True)
class Slot:
    """A gap for a word, in a named form or in the form that agrees with another slot."""

    name: str
    form: str = "plain"
    partner: str | None = None

    @property
    def list_name(self) -> str:
        """The list to choose from: `{who2}` is a second word of the list `who`."""
        return self.name.rstrip("0123456789")


Pattern = tuple[str | Slot, ...]
"""A flat row of text and slots: alternatives are unfolded when the grammar is read."""


def unfold(text: str) -> list[str]:
    """Every reading of a text with alternatives: "(a|b) c" is "a c" and "b c"."""
    group = _INNERMOST.search(text)
    if group is None:
        return [" ".join(text.split())]
    # Innermost first: what an alternative holds is unfolded before it becomes one of several.
    before, after = text[: group.start()], text[group.end() :]
    readings = (unfold(before + choice + after) for choice in group[1].split("|"))
    return list(dict.fromkeys(reading for some in readings for reading in some))


def parse(text: str) -> Pattern:
    """Split a text without alternatives into literal pieces and slots."""
    pieces: list[str | Slot] = []
    end = 0
    for match in _SLOT.finditer(text):
        pieces += [text[end : match.start()], Slot(match[1], match[2] or "plain", match[3])]
        end = match.end()
    pieces.append(text[end:])
    return tuple(piece for piece in pieces if piece != "")


def slots_of(pattern: Pattern) -> list[Slot]:
    return [piece for piece in pattern if isinstance(piece, Slot)]


def rename(pattern: Pattern, lists: Mapping[str, str]) -> Pattern:
    """The same pattern with the slots of a pairing put in place of its own."""

    def renamed(piece: str | Slot) -> str | Slot:
        if isinstance(piece, str):
            return piece
        partner = piece.partner and lists.get(piece.partner, piece.partner)
        return Slot(lists.get(piece.name, piece.name), piece.form, partner)

    return tuple(renamed(piece) for piece in pattern)


def capitalised(sentence: str) -> str:
    # Not `str.capitalize`, which would write the nouns small.
    return sentence[:1].upper() + sentence[1:]


def spellings(text: str, contractions: Mapping[str, str]) -> Iterator[str]:
    """Every way to write an English text in which some words may lean (`~is`) on their neighbour.

    Settles punctuation, the article "an" and the capital as well.
    """
    words = re.sub(r"\s+([.,?!])", r"\1", text).split()
    for row in _contracted(words, contractions):
        sentence = " ".join(row)
        yield capitalised(re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", sentence))


def _contracted(words: list[str], contractions: Mapping[str, str]) -> Iterator[list[str]]:
    """Walk the words from the left; where a pair may be contracted, go both ways."""
    for number, (left, right) in enumerate(pairwise(words)):
        pair = f"{left.removeprefix('~')} {right.removeprefix('~')}"
        if right.startswith("~") and pair in contractions:
            head = [word.removeprefix("~") for word in words[:number]]
            # The contracted pair is one finished word: its right neighbour must stand alone.
            tails = words[number + 2 :]
            settled = [word.removeprefix("~") for word in tails[:1]] + tails[1:]
            for tail in _contracted(settled, contractions):
                yield [*head, contractions[pair], *tail]
            for tail in _contracted([right.removeprefix("~"), *tails], contractions):
                yield [*head, left.removeprefix("~"), *tail]
            return
    yield [word.removeprefix("~") for word in words]


@dataclass(frozen=True, eq=False)
class Entry:
    """A word in both languages; each form of its English may have several wordings."""

    german: Mapping[str, str]
    english: Mapping[str, tuple[str, ...]]
    agrees: str | None = None


Binding = Mapping[str, Entry]
"""Which entry stands in which slot."""


@dataclass(frozen=True)
class Rule:
    """One German pattern and all the English patterns that translate it.

    The rule's readings are numbered: a number below `size` chooses an entry for every slot.
    """

    german: Pattern
    english: tuple[Pattern, ...]
    slots: Mapping[str, tuple[Entry, ...]]
    contractions: Mapping[str, str]

    @property
    def size(self) -> int:
        """How many numbers there are; some bind nothing (see `binding`)."""
        return math.prod(len(entries) for entries in self.slots.values())

    def binding(self, number: int) -> Binding | None:
        """The entries that a number stands for; None where one entry would stand twice."""
        chosen = {}
        for name, entries in reversed(list(self.slots.items())):
            number, position = divmod(number, len(entries))
            chosen[name] = entries[position]
        return chosen if len(set(chosen.values())) == len(chosen) else None

    def numbered_sources(self) -> Iterator[tuple[int, str]]:
        """Every number that binds, with its German sentence."""
        for number, entries in enumerate(itertools.product(*self.slots.values())):
            if len(set(entries)) == len(entries):
                yield number, self.source(dict(zip(self.slots, entries, strict=True)))

    def source(self, binding: Binding) -> str:
        words = (
            piece if isinstance(piece, str) else _form(piece, binding[piece.name].german, binding)
            for piece in self.german
        )
        return capitalised("".join(words))

    def translations(self, binding: Binding) -> set[str]:
        """Every English sentence that translates the German one under this binding."""
        return {
            sentence
            for pattern in self.english
            for pieces in itertools.product(*(_wordings(piece, binding) for piece in pattern))
            for sentence in spellings("".join(pieces), self.contractions)
        }


@dataclass(frozen=True)
class SentenceType:
    """Rules that are drawn together, with one weight."""

    weight: int
    rules: tuple[Rule, ...]


@dataclass(frozen=True)
class Grammar:
    """All sentence types, and what is needed to spoil a translation."""

    types: tuple[SentenceType, ...]
    alike: frozenset[str]
    """Lists whose members are too alike for a swap to be surely wrong."""
    dispensable: frozenset[str]
    """Lists whose words may be dropped and leave a fair translation."""
    negations: frozenset[str]
    """English words without which a sentence says the contrary."""


def _form(slot: Slot, forms: Mapping[str, T], binding: Binding) -> T:
    """Of the forms of a word, the one for a slot."""
    wanted = slot.form if slot.partner is None else binding[slot.partner].agrees
    return forms.get(wanted or "plain") or forms["plain"]


def _wordings(piece: str | Slot, binding: Binding) -> tuple[str, ...]:
    if isinstance(piece, str):
        return (piece,)
    return _form(piece, binding[piece.name].english, binding)


Derivation = tuple[Rule, Binding]
"""A reading of a sentence."""


@dataclass(frozen=True)
class Spoiling:
    """How the translations of a sentence are spoiled, given all its readings and references."""

    grammar: Grammar
    derivations: Sequence[Derivation]
    references: Collection[str]
    rng: random.Random

    def texts(self) -> Iterator[str]:
        """Spoiled translations in random order: two swaps, one drop, until both run dry.

        Some may be references by chance (another reading of the sentence); the caller leaves them
        out.
        """
        swaps = self._swapped()
        return _in_turns(swaps, swaps, self._dropped())

    def _swapped(self) -> Iterator[str]:
        """Translations of the sentence with one other word in it: fluent, close, and wrong.

        Goes round the slots, so that a slot with many words is not spoiled more often than the
        rest.
        """
        decks = [
            self._other_words(rule, binding, name)
            for rule, binding in self.derivations
            for name in self._telling_slots(rule)
        ]
        order = list(shuffled(len(decks), self.rng))
        for rule, binding in _in_turns(*(decks[position] for position in order)):
            texts = sorted(rule.translations(binding).difference(self.references))
            if texts:
                yield texts[below(self.rng, len(texts))]

    def _other_words(self, rule: Rule, binding: Binding, name: str) -> Iterator[Derivation]:
        """The sentence with another entry in one slot, in random order."""
        entries = rule.slots[name]
        for number in shuffled(len(entries), self.rng):
            entry = entries[number]
            if entry not in binding.values() and not _may_mean(binding[name], entry):
                yield rule, {**binding, name: entry}

    def _dropped(self) -> Iterator[str]:
        """References without one word that carries meaning, a negation among them.

        The first word stays: without its subject a sentence may still be fair, if terse.
        """
        telling = set(self.grammar.negations)
        for rule, binding in self.derivations:
            for name in self._telling_slots(rule):
                if Slot(name).list_name not in self.grammar.dispensable:
                    forms = binding[name].english.values()
                    telling.update(wording.split()[-1] for form in forms for wording in form)
        ordered = sorted(self.references)
        for number in shuffled(len(ordered), self.rng):
            words = re.findall(r"[\w']+|[^\w\s]", ordered[number])
            positions = [i for i in range(1, len(words)) if words[i] in telling]
            if positions:
                dropped = positions[below(self.rng, len(positions))]
                yield from spellings(" ".join(words[:dropped] + words[dropped + 1 :]), {})

    def _telling_slots(self, rule: Rule) -> list[str]:
        """The slots where another word is surely another meaning."""
        return [
            name
            for name, entries in rule.slots.items()
            if len(entries) > 1 and Slot(name).list_name not in self.grammar.alike
        ]


def _in_turns(*sources: Iterator[T]) -> Iterator[T]:
    """What several iterators give, one of each at a time, until all run dry."""
    for row in zip_longest(*sources):
        yield from (item for item in row if item is not None)


def _may_mean(one: Entry, other: Entry) -> bool:
    """Whether a translator may fairly say one for the other: "she" for "my sister"."""
    return any(
        wording in wordings
        for word, twin in ((one, other), (other, one))
        for wording in word.english["plain"]
        for wordings in twin.english.values()
    )


# From the two TOML files to a `Grammar`. They come with the package, so nothing is checked here: a
# test reads them and looks at every rule (`test_the_grammar_of_the_package_is_sound`).


def read_grammar() -> Grammar:
    """The grammar that comes with the package."""
    folder = resources.files(__package__)
    texts = [(folder / name).read_text("utf-8") for name in ("lexicon.toml", "sentences.toml")]
    return parse_grammar(*texts)


def parse_grammar(lexicon_toml: str, sentences_toml: str) -> Grammar:
    """Read a grammar from the text of its two files; `lexicon.toml` explains the notation."""
    data = tomllib.loads(lexicon_toml)
    lexicon = _Lexicon(data)
    sentences = tomllib.loads(sentences_toml)["sentence"]
    types = tuple(_sentence_type(table, lexicon) for table in sentences)
    near_misses = {name: frozenset(words) for name, words in data["near_misses"].items()}
    return Grammar(types, **near_misses)


class _Lexicon:
    """The lists by name (a small word is a list of one), the pairings and the contractions."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.contractions: Mapping[str, str] = data["contractions"]
        self.pairings = [
            [dict(zip(pairing["slots"], row, strict=True)) for row in pairing["rows"]]
            for pairing in data.get("pairings", [])
        ]
        self._raw: Mapping[str, Any] = data["lists"]
        self.lists: dict[str, tuple[Entry, ...]] = {}
        for name in self._raw:
            self._read_list(name)
        for name, forms in data["words"].items():
            # Small words are written once and serve both languages: a pattern names its own.
            english = _english(forms)
            german = {form: wordings[0] for form, wordings in english.items()}
            self.lists[name] = (Entry(german, english),)

    def _read_list(self, name: str) -> tuple[Entry, ...]:
        # A string in a list takes in another list, whose entries are shared, not copied: an
        # entry is known by its identity, so that it does not stand twice in a sentence.
        if name not in self.lists:
            entries: list[Entry] = []
            for item in self._raw[name]:
                if isinstance(item, str):
                    entries += self._read_list(item)
                else:
                    german, english = _forms(item["de"]), _english(_forms(item["en"]))
                    entries.append(Entry(german, english, item.get("agrees")))
            self.lists[name] = tuple(entries)
        return self.lists[name]

    def paired(self, german: Pattern, english: Sequence[Pattern]) -> Iterator[list[Pattern]]:
        """One copy of the patterns (German first) for every row of the pairing they use."""
        names = {slot.name for slot in slots_of(german)}
        for pairing in self.pairings:
            if names.intersection(pairing[0]):
                for lists in pairing:
                    yield [rename(pattern, lists) for pattern in (german, *english)]
                return
        yield [german, *english]


def _sentence_type(table: Mapping[str, Any], lexicon: _Lexicon) -> SentenceType:
    german, english = (
        [parse(reading) for text in table[side] for reading in unfold(text)]
        for side in ("de", "en")
    )
    rules = []
    for pattern in german:
        for source, *targets in lexicon.paired(pattern, english):
            slots = {
                slot.name: lexicon.lists[slot.list_name]
                for one in (source, *targets)
                for slot in slots_of(one)
            }
            rules.append(Rule(source, tuple(targets), slots, lexicon.contractions))
    return SentenceType(table["weight"], tuple(rules))


def _forms(value: str | dict[str, str]) -> dict[str, str]:
    return {"plain": value} if isinstance(value, str) else value


def _english(forms: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    return {form: tuple(unfold(text)) for form, text in forms.items()}
