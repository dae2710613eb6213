"""Does a model prefer a reference to itself with something spoilt? The pairs it wins, by kind.

    python recipes/several/spoil.py MODEL SOURCES REFERENCES [--limit 2000] > won.json

The texts may be .xz. What is spoilt here is text, by rules of its own that know nothing of pieces;
what training is told (`scones.training.labels`) was made by other code. A pair is won if the
reference is the more probable, `log P(z = 1 | x)`, of the two.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from scones.text.reading import read_texts
from scones.translator import Translator, load

WORD = re.compile(r"[^\W\d_][\w'’-]*")
NUMBER = re.compile(r"\d+")
SPELLED = [
    "one two three four five six seven eight nine ten eleven twelve twenty thirty hundred".split(),
    "zwei drei vier fünf sechs sieben acht neun zehn elf zwölf zwanzig dreißig hundert".split(),
]
NEGATED = {
    "is": "is not", "are": "are not", "was": "was not", "were": "were not", "can": "cannot",
    "will": "will not", "has": "has not", "have": "have not", "had": "had not", "do": "do not",
    "could": "could not", "should": "should not", "must": "must not", "would": "would not",
    "ist": "ist nicht", "sind": "sind nicht", "war": "war nicht", "waren": "waren nicht",
    "kann": "kann nicht", "wird": "wird nicht", "hat": "hat nicht", "haben": "haben nicht",
    "ein": "kein", "eine": "keine", "einen": "keinen", "einem": "keinem",
}  # fmt: skip
DENIED = {
    "not": "", "nicht": "", "never": "always", "nie": "immer", "no": "some", "cannot": "can",
    "isn't": "is", "aren't": "are", "wasn't": "was", "weren't": "were", "don't": "do",
    "doesn't": "does", "didn't": "did", "can't": "can", "won't": "will", "couldn't": "could",
    "haven't": "have", "hasn't": "has", "wouldn't": "would", "shouldn't": "should",
    "kein": "ein", "keine": "eine", "keinen": "einen", "keinem": "einem", "nichts": "alles",
}  # fmt: skip

Spoil = Callable[[str, random.Random, Sequence[str]], str | None]
"""Spoils a text, with words of other texts at hand; None where there is nothing to spoil."""


def dropped(text: str, rng: random.Random, others: Sequence[str]) -> str | None:
    """Leave a word out."""
    words = [*WORD.finditer(text)]
    if len(words) < 3:
        return None
    gone = rng.choice(words)
    rest = text[: gone.start()] + text[gone.end() :]
    rest = re.sub(r"\s+([.,;:!?])", r"\1", " ".join(rest.split()))
    # A sentence goes on beginning with a capital letter, so that this alone does not tell.
    return rest[:1].upper() + rest[1:] if gone.start() == 0 else rest


def swapped(text: str, rng: random.Random, others: Sequence[str]) -> str | None:
    """Exchange two neighbours."""
    words = [*WORD.finditer(text)]
    pairs = [
        (one, two)
        for one, two in pairwise(words)
        if text[one.end() : two.start()] == " " and one[0].lower() != two[0].lower()
    ]
    if not pairs:
        return None
    one, two = rng.choice(pairs)
    return f"{text[: one.start()]}{two[0]} {one[0]}{text[two.end() :]}"


def doubled(text: str, rng: random.Random, others: Sequence[str]) -> str | None:
    """Say a word twice."""
    words = [*WORD.finditer(text)]
    if not words:
        return None
    word = rng.choice(words)
    return f"{text[: word.end()]} {word[0]}{text[word.end() :]}"


def inserted(text: str, rng: random.Random, others: Sequence[str]) -> str | None:
    """Put a word of another text in front of one."""
    words = [*WORD.finditer(text)]
    if len(words) < 2:
        return None
    place = rng.choice(words[1:]).start()
    return f"{text[:place]}{rng.choice(others)} {text[place:]}"


def number(text: str, rng: random.Random, others: Sequence[str]) -> str | None:
    """Change a number, in figures or in words."""
    found = [*NUMBER.finditer(text)]
    if found:
        one = rng.choice(found)
        figures = list(one[0])
        place = rng.randrange(len(figures))
        figures[place] = rng.choice([f for f in "123456789" if f != figures[place]])
        return text[: one.start()] + "".join(figures) + text[one.end() :]
    for names in SPELLED:
        spelled = [word for word in WORD.finditer(text) if word[0] in names]
        if spelled:
            one = rng.choice(spelled)
            other = rng.choice([name for name in names if name != one[0]])
            return text[: one.start()] + other + text[one.end() :]
    return None


def negation(text: str, rng: random.Random, others: Sequence[str]) -> str | None:
    """Take a negation out, or put one in."""
    words = [*WORD.finditer(text)]
    for changes in (DENIED, NEGATED):
        if found := [word for word in words if word[0] in changes]:
            one = rng.choice(found)
            changed = text[: one.start()] + changes[one[0]] + text[one.end() :]
            return re.sub(r"\s+([.,;:!?])", r"\1", " ".join(changed.split()))
    return None


KINDS: list[Spoil] = [dropped, swapped, doubled, inserted, number, negation]


def spoilt(references: Sequence[str], seed: int = 5) -> dict[str, list[tuple[int, str]]]:
    """For each kind, the texts that could be spoilt so, by their number."""
    others = [word[0] for text in references for word in WORD.finditer(text)]
    found: dict[str, list[tuple[int, str]]] = {}
    for spoil in KINDS:
        texts = (
            (index, spoil(text, random.Random(f"{seed} {index} {spoil.__name__}"), others))
            for index, text in enumerate(references)
        )
        found[spoil.__name__] = [
            (index, text) for index, text in texts if text and text != references[index]
        ]
    return found


def won(
    translator: Translator, sources: Sequence[str], references: Sequence[str]
) -> dict[str, dict[str, float]]:
    """The share of pairs that the references win, by kind, and how many there were."""
    good = translator.score(list(zip(sources, references, strict=True)))
    result = {}
    for kind, texts in spoilt(references).items():
        bad = translator.score([(sources[index], text) for index, text in texts])
        wins = sum(good[index] > score for (index, _), score in zip(texts, bad, strict=True))
        result[kind] = {"pairs": len(texts), "won": wins / max(1, len(texts))}
    return result


def main() -> None:
    """Print the shares as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("sources", type=Path)
    parser.add_argument("references", type=Path)
    parser.add_argument("--limit", type=int, help="so many lines alone")
    given = parser.parse_args()
    texts = (read_texts(path)[: given.limit] for path in (given.sources, given.references))
    sys.stdout.write(json.dumps(won(load(given.model), *texts), indent=2) + "\n")


if __name__ == "__main__":
    main()
