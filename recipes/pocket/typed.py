"""Write sentences as people type them in haste, with the translation as it should be.

    python recipes/pocket/typed.py SOURCES TARGETS OUT_SOURCES OUT_TARGETS

Every second pair gets one thing or several, by lot and the same ones every time: no capitals, no
mark at the end, ä ö ü ß spelled out or without dots, a letter left out, doubled, exchanged with the
next or with its neighbour on the keyboard. The files may be .xz.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from scones.text.reading import read_texts

KEYBOARD = "qwertzuiop", "asdfghjkl", "yxcvbnm"
SPELLED_OUT = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue"})
WITHOUT_DOTS = str.maketrans("äöüÄÖÜ", "aouAOU")


def typed(text: str, dice: random.Random) -> str:
    """Type a sentence in haste."""
    if dice.random() < 0.5:
        text = text.lower()
    if dice.random() < 0.5:
        text = text.rstrip(".!")
    if dice.random() < 0.4:
        text = text.replace("ß", "ss")
        text = text.translate(SPELLED_OUT if dice.random() < 0.7 else WITHOUT_DOTS)
    if dice.random() < 0.4:
        text = mistyped(text, dice)
    return text


def mistyped(text: str, dice: random.Random) -> str:
    """Make a typing error behind the first letter of a word of four letters or more."""
    words = text.split(" ")
    long = [index for index, word in enumerate(words) if len(word) > 3 and word.isalpha()]
    if not long:
        return text
    index = dice.choice(long)
    word = words[index]
    place = dice.randrange(1, len(word) - 1)
    before, letter, after = word[:place], word[place], word[place + 1 :]
    words[index] = dice.choice(
        [
            before + after,
            before + letter + letter + after,
            before + after[0] + letter + after[1:],
            before + after[0] + letter + after[1:],  # the commonest error
            before + neighbour(letter, dice) + after,
        ]
    )
    return " ".join(words)


def neighbour(letter: str, dice: random.Random) -> str:
    """Give a letter beside another on a German keyboard."""
    for row in KEYBOARD:
        if (place := row.find(letter)) >= 0:
            return dice.choice(row[max(0, place - 1) : place] + row[place + 1 : place + 2])
    return letter


def main(sources: str, targets: str, out_sources: str, out_targets: str) -> None:
    """Write what is typed otherwise than it stands there."""
    dice = random.Random(1)
    pairs = zip(read_texts(Path(sources)), read_texts(Path(targets)), strict=True)
    found = [
        (hasty, target)
        for source, target in pairs
        if dice.random() < 0.5 and (hasty := typed(source, dice)) != source
    ]
    for path, side in ((out_sources, 0), (out_targets, 1)):
        text = "".join(f"{pair[side]}\n" for pair in found)
        Path(path).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
