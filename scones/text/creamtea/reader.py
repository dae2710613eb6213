"""From the two TOML files to a `Grammar`.

The files come with the package, so nothing is checked here: a test reads them and looks at every
rule (`test_the_grammar_of_the_package_is_sound`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

from scones.text.creamtea.grammar import (
    Entry,
    Grammar,
    Pattern,
    Rule,
    SentenceType,
    parse,
    rename,
    slots_of,
    unfold,
)


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
    alike, dispensable, negations = (
        frozenset(data["near_misses"][key]) for key in ("alike", "dispensable", "negations")
    )
    return Grammar(types, alike, dispensable, negations)


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
    return SentenceType(table["name"], table["weight"], tuple(rules))


def _forms(value: str | dict[str, str]) -> dict[str, str]:
    return {"plain": value} if isinstance(value, str) else value


def _english(forms: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    return {form: tuple(unfold(text)) for form, text in forms.items()}
