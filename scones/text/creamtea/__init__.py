"""Cream tea: the built-in German–English corpus, written by a small grammar.

The grammar (`lexicon.toml`, `sentences.toml`) knows every valid translation of every sentence it
can say, so that a model's answers can be judged right or wrong, and counted.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from scones.errors import SconesError
from scones.files import new_folder, write_file, write_json
from scones.text.creamtea.grammar import (
    Binding,
    Grammar,
    Rule,
    Spoiling,
    below,
    read_grammar,
    shuffled,
)

__all__ = ["CreamTea", "Example", "splits", "write_corpus"]


@dataclass(frozen=True)
class Example:
    """A German sentence with all its English translations, sorted."""

    source: str
    references: tuple[str, ...]


class CreamTea:
    """The grammar as a corpus: look a sentence up, draw sentences, spoil translations."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar

    @classmethod
    @cache
    def load(cls) -> CreamTea:
        """The corpus that comes with the package; read once, then shared."""
        return cls(read_grammar())

    def __len__(self) -> int:
        """The number of distinct German sentences."""
        return len(self._readings)

    def translations(self, source: str) -> tuple[str, ...]:
        """All valid translations of a sentence, over all its readings, sorted."""
        readings = self._derive(source)
        return tuple(
            sorted({text for rule, bound in readings for text in rule.translations(bound)})
        )

    def sample(self, count: int, seed: int, exclude: Collection[str] = ()) -> list[Example]:
        """Draw distinct sentences: first a sentence type by its weight, then the words."""
        rng = random.Random(seed)
        sources = self._draw(rng)
        seen = set(exclude)
        examples: list[Example] = []
        while len(examples) < count:
            source = next(sources, None)
            if source is None:
                raise SconesError(
                    f"The cream-tea corpus has only {len(examples)} sentences to give, "
                    f"not {count}; ask for fewer."
                )
            if source not in seen:
                seen.add(source)
                examples.append(Example(source, self.translations(source)))
        return examples

    def near_misses(self, example: Example, count: int, seed: int) -> list[str]:
        """Wrong translations that look right: one word swapped or dropped, none a reference.

        Sorted; fewer than `count` where a sentence does not allow that many.
        """
        rng = random.Random(seed)
        valid = {*example.references, *self.translations(example.source)}
        spoiling = Spoiling(self._grammar, self._derive(example.source), valid, rng)
        misses: set[str] = set()
        for text in spoiling.texts():
            if len(misses) == count:
                break
            if text not in valid:
                misses.add(text)
        return sorted(misses)

    @cached_property
    def _readings(self) -> dict[str, list[tuple[Rule, int]]]:
        """Every sentence with its readings: rule and number. An ambiguous one has several."""
        readings: dict[str, list[tuple[Rule, int]]] = {}
        for kind in self._grammar.types:
            for rule in kind.rules:
                for number, source in rule.numbered_sources():
                    readings.setdefault(source, []).append((rule, number))
        return readings

    def _derive(self, source: str) -> list[tuple[Rule, Binding]]:
        if source not in self._readings:
            raise SconesError(
                f"'{source}' is not a sentence of the cream-tea grammar; "
                "give one that it can say, letter by letter."
            )
        # Every reading binds: `numbered_sources` gives no number that does not.
        return [(rule, rule.binding(number) or {}) for rule, number in self._readings[source]]

    def _draw(self, rng: random.Random) -> Iterator[str]:
        """Every sentence in random order, once per reading."""
        # First a type, by its weight, then one of its rules, then the words: were sentences drawn
        # from one heap, the few types with many slots would be nearly all of the corpus.
        decks = [[_deck(rule, rng) for rule in kind.rules] for kind in self._grammar.types]
        weights = [kind.weight for kind in self._grammar.types]
        tickets = [kind for kind, weight in enumerate(weights) for _ in range(weight)]
        while tickets:
            kind = tickets[below(rng, len(tickets))]
            rules = decks[kind]
            deck = rules[below(rng, len(rules))]
            source = next(deck, None)
            if source is not None:
                yield source
                continue
            rules.remove(deck)
            if not rules:
                tickets = [ticket for ticket in tickets if ticket != kind]


def splits(
    train: int, dev: int, test: int, seed: int
) -> tuple[list[tuple[str, str]], list[Example], list[Example]]:
    """Training pairs (one random reference each), development and test examples.

    No German sentence stands twice, in one part or in two.
    """
    examples = CreamTea.load().sample(train + dev + test, seed)
    rng = random.Random(seed)
    pairs = [(example.source, _pick(example, rng)) for example in examples[dev + test :]]
    return pairs, examples[:dev], examples[dev : dev + test]


def write_corpus(folder: Path, train: int, dev: int, test: int, seed: int) -> None:
    """Write a new folder: train, dev and test as .de and .en, dev and test also as .json.

    The .en files hold one random reference per sentence, as real corpora do; the .json files hold
    all references and eight near misses.
    """
    pairs, dev_examples, test_examples = splits(train, dev, test, seed)
    with new_folder(folder) as hidden:
        _write_pairs(hidden, "train", pairs)
        for name, examples in (("dev", dev_examples), ("test", test_examples)):
            rng = random.Random(seed)
            _write_pairs(hidden, name, [(one.source, _pick(one, rng)) for one in examples])
            write_json(hidden / f"{name}.json", [_as_json(one, seed) for one in examples])


def _as_json(example: Example, seed: int) -> dict[str, object]:
    return {
        "source": example.source,
        "references": list(example.references),
        "near_misses": CreamTea.load().near_misses(example, 8, seed),
    }


def _write_pairs(folder: Path, name: str, pairs: list[tuple[str, str]]) -> None:
    for side, language in enumerate(("de", "en")):
        write_file(folder / f"{name}.{language}", "".join(f"{pair[side]}\n" for pair in pairs))


def _pick(example: Example, rng: random.Random) -> str:
    return example.references[below(rng, len(example.references))]


def _deck(rule: Rule, rng: random.Random) -> Iterator[str]:
    """The sentences of a rule, each once, in random order."""
    for number in shuffled(rule.size, rng):
        if (bound := rule.binding(number)) is not None:
            yield rule.source(bound)
