"""From the two TOML files to a `Grammar`; a mistake in them is one sentence with its place."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

from scones.errors import SconesError
from scones.text.creamtea.grammar import (
    Entry,
    Grammar,
    Pattern,
    Rule,
    SentenceType,
    Slot,
    parse,
    rename,
    slots_of,
    unfold,
)

_AGREEMENTS = frozenset({"ich", "du", "er", "wir", "m", "f", "n", "p"})


def read_grammar() -> Grammar:
    """The grammar that comes with the package."""
    folder = resources.files(__package__)
    texts = [(folder / name).read_text("utf-8") for name in ("lexicon.toml", "sentences.toml")]
    return parse_grammar(*texts)


def parse_grammar(lexicon_toml: str, sentences_toml: str) -> Grammar:
    """Read a grammar from the text of its two files."""
    data = _tables("lexicon.toml", lexicon_toml)
    lexicon = _Lexicon(data)
    sentences = _required(_tables("sentences.toml", sentences_toml), "sentence", "sentences.toml")
    misses = _required(data, "near_misses", "lexicon.toml")
    alike, dispensable, negations = (
        frozenset(_required(misses, key, "lexicon.toml, near_misses"))
        for key in ("alike", "dispensable", "negations")
    )
    for name in sorted(alike | dispensable):
        if name not in lexicon.lists:
            raise SconesError(f"lexicon.toml, near_misses: there is no list '{name}'; add it.")
    types = tuple(_sentence_type(table, lexicon) for table in sentences)
    return Grammar(types, alike, dispensable, negations)


class _Lexicon:
    """The lists by name (a small word is a list of one), the pairings and the contractions."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.contractions: Mapping[str, str] = _required(data, "contractions", "lexicon.toml")
        self.pairings = [_pairing(table) for table in data.get("pairings", [])]
        self.lists: dict[str, tuple[Entry, ...]] = {}
        self._raw: Mapping[str, Any] = _required(data, "lists", "lexicon.toml")
        for name in self._raw:
            self._read_list(name, within=())
        for name, forms in _required(data, "words", "lexicon.toml").items():
            place = f"lexicon.toml, word '{name}'"
            if name in self.lists:
                raise SconesError(f"{place}: a list has this name too; rename one of them.")
            english = _english(forms, place)
            self.lists[name] = (
                Entry({key: wordings[0] for key, wordings in english.items()}, english),
            )

    def _read_list(self, name: str, within: tuple[str, ...]) -> tuple[Entry, ...]:
        place = f"lexicon.toml, list '{(within or (name,))[-1]}'"
        if name not in self._raw:
            raise SconesError(f"{place}: there is no list '{name}'; add it or mend the name.")
        if name in within:
            raise SconesError(
                f"{place}: it takes in '{name}', which takes it in; break the circle."
            )
        if name not in self.lists:
            entries: list[Entry] = []
            for item in _required(self._raw, name, "lexicon.toml, lists", list):
                if isinstance(item, str):
                    entries += self._read_list(item, (*within, name))
                else:
                    entries.append(_entry(item, f"lexicon.toml, list '{name}'"))
            self.lists[name] = tuple(entries)
        return self.lists[name]

    def entries(self, slot: Slot, place: str) -> tuple[Entry, ...]:
        """The entries that may stand in a slot."""
        if slot.list_name not in self.lists:
            raise SconesError(f"{place}: there is no list or word '{slot.list_name}'; add it.")
        return self.lists[slot.list_name]

    def paired(self, german: Pattern, english: Sequence[Pattern]) -> Iterator[list[Pattern]]:
        """One copy of the patterns (German first) for every row of the pairing they use."""
        names = {slot.name for slot in slots_of(german)}
        for pairing in self.pairings:
            if names.intersection(pairing[0]):
                for lists in pairing:
                    yield [rename(pattern, lists) for pattern in (german, *english)]
                return
        yield [german, *english]


def _pairing(table: Mapping[str, Any]) -> list[dict[str, str]]:
    """For every row of a pairing: which list stands in which slot."""
    place = "lexicon.toml, pairings"
    slots, rows = (_required(table, key, place, list) for key in ("slots", "rows"))
    if not rows or any(len(row) != len(slots) for row in rows):
        raise SconesError(f"{place}: every row must name {len(slots)} lists, for {slots}; mend it.")
    return [dict(zip(slots, row, strict=True)) for row in rows]


def _sentence_type(table: Mapping[str, Any], lexicon: _Lexicon) -> SentenceType:
    name = _required(table, "name", "sentences.toml")
    place = f"sentences.toml, '{name}'"
    _check_keys(table, ("name", "weight", "de", "en"), place)
    weight = _required(table, "weight", place)
    if not isinstance(weight, int) or weight < 1:
        raise SconesError(f"{place}: the weight is {weight!r}; give a whole number from 1.")
    german, english = (
        [
            parse(reading, place)
            for text in _required(table, side, place, list)
            for reading in unfold(text, place)
        ]
        for side in ("de", "en")
    )
    rules = (
        _rule(source, targets, lexicon, place)
        for pattern in german
        for source, *targets in lexicon.paired(pattern, english)
    )
    return SentenceType(name, weight, tuple(rules))


def _rule(german: Pattern, english: list[Pattern], lexicon: _Lexicon, place: str) -> Rule:
    slots: dict[str, tuple[Entry, ...]] = {}
    for pattern in (german, *english):
        for slot in slots_of(pattern):
            slots[slot.name] = lexicon.entries(slot, place)
    chosen = _choices(german, slots)
    for pattern in english:
        if _choices(pattern, slots) != chosen:
            odd = ", ".join(sorted(_choices(pattern, slots) ^ chosen))
            raise SconesError(
                f"{place}: the German and the English differ in {odd}; use it in both."
            )
    _check_forms(german, slots, place, german=True)
    for pattern in english:
        _check_forms(pattern, slots, place, german=False)
    return Rule(german, tuple(english), slots, lexicon.contractions)


def _choices(pattern: Pattern, slots: Mapping[str, tuple[Entry, ...]]) -> set[str]:
    """The slots of a pattern where something is chosen (small words only agree)."""
    return {slot.name for slot in slots_of(pattern) if len(slots[slot.name]) > 1}


def _check_forms(
    pattern: Pattern, slots: Mapping[str, tuple[Entry, ...]], place: str, *, german: bool
) -> None:
    """Every form a pattern asks for must exist, or fall back on the plain one."""
    for slot in slots_of(pattern):
        tables = [entry.german if german else entry.english for entry in slots[slot.name]]
        if slot.partner is not None:
            wanted = _agreements(slot.name, slot.partner, slots, place)
        elif any(slot.form in table for table in tables):
            wanted = [slot.form]
        else:
            raise SconesError(
                f"{place}: no entry of '{slot.name}' has the form '{slot.form}'; "
                "add it in lexicon.toml or mend the name."
            )
        for form in wanted:
            if not all(form in table or "plain" in table for table in tables):
                raise SconesError(
                    f"{place}: '{slot.name}' lacks the form '{form}'; add it in lexicon.toml."
                )


def _agreements(
    name: str, partner: str, slots: Mapping[str, tuple[Entry, ...]], place: str
) -> list[str]:
    """The forms that the entries of a partner may ask for."""
    if partner not in slots:
        raise SconesError(
            f"{place}: '{name}' agrees with '{partner}', which is not there; "
            "name a slot of the same sentence."
        )
    found = {entry.agrees for entry in slots[partner]}
    if None in found:
        raise SconesError(
            f"{place}: '{name}' agrees with '{partner}', where an entry has no 'agrees'; "
            "add it in lexicon.toml."
        )
    return sorted(form for form in found if form is not None)


def _entry(item: Mapping[str, Any], place: str) -> Entry:
    _check_keys(item, ("de", "en", "agrees"), place)
    agrees = item.get("agrees")
    if agrees is not None and agrees not in _AGREEMENTS:
        known = ", ".join(sorted(_AGREEMENTS))
        raise SconesError(f"{place}: agrees is '{agrees}'; choose one of {known}.")
    german, english = (_forms(_required(item, side, place), place) for side in ("de", "en"))
    return Entry(german, _english(english, place), agrees)


def _forms(value: str | dict[str, str], place: str) -> dict[str, str]:
    forms = {"plain": value} if isinstance(value, str) else value
    _required(forms, "plain", place, str)
    return forms


def _english(forms: Mapping[str, str], place: str) -> dict[str, tuple[str, ...]]:
    return {form: tuple(unfold(text, place)) for form, text in forms.items()}


def _tables(name: str, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise SconesError(f"{name} is not valid TOML ({problem}); mend that place.") from None


def _check_keys(table: Mapping[str, Any], known: Sequence[str], place: str) -> None:
    for key in table:
        if key not in known:
            raise SconesError(f"{place}: unknown key '{key}'; use {', '.join(known)}.")


def _required(table: Mapping[str, Any], key: str, place: str, kind: type = object) -> Any:
    if key not in table:
        raise SconesError(f"{place}: '{key}' is missing; add it.")
    if not isinstance(table[key], kind):
        raise SconesError(f"{place}: '{key}' is {table[key]!r}; make it a {kind.__name__}.")
    return table[key]
