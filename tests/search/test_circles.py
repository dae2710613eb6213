"""Where translations begin to run in circles (`scones.search.searcher.circles_begin`)."""

import random
from itertools import count, product

import pytest

from scones.search.searcher import circles_begin

PIECES = ["▁a", "b", ","]


def by_trying(pieces, first):
    """The same, from the words of its description."""
    for end in range(first, len(pieces)):
        for period in range(1, end + 1):
            block, begin = pieces[end - period : end], end - period
            turns = next(turns for turns in count(3) if turns * period >= 8)
            circling = pieces[begin : begin + turns * period] == block * turns
            again = sum(piece in pieces[end : end + at] for at, piece in enumerate(pieces[end:]))
            if circling and again >= (len(pieces) - end) / 2:
                outside = [at for at in range(period) if block[at] != "b"]
                return end + min(outside, default=0)
    return None


def test_circles_are_those_that_trying_finds():
    dice, found = random.Random(3), set()
    every = [list(one) for size in range(10) for one in product(PIECES, repeat=size)]
    for _ in range(2_000):
        words = [f"▁{number}" for number in range(9)] + PIECES
        block = dice.choices(words, k=dice.randint(1, 6))
        before, after = (dice.choices(words, k=dice.randint(0, 12)) for _ in "ab")
        every.append(before + block * dice.randint(1, 9) + after)
    for pieces in every:
        for first in {1, dice.randint(1, 5)}:
            end = circles_begin(pieces, first)
            assert end == by_trying(pieces, first)
            assert end is None or first <= end < len(pieces)
            found.add(end)
    assert len(found) > 10


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("▁na " * 30, "▁na"),
        ("▁I ▁am ▁not " * 5, "▁I ▁am ▁not"),
        ("▁so ▁it ▁goes ▁on ▁and " + "▁on ▁and " * 9, "▁so ▁it ▁goes ▁on ▁and"),
        ("▁no ! " * 9 + "▁no , ▁no , ▁no ! ▁no", "▁no !"),  # they drift
        ("▁tre e ! ▁tr " + "e ! ▁tr " * 8, "▁tre e ! ▁tr e"),  # not within the word
        ("▁" + " <0xE2> <0x80> <0x94>" * 8, "▁ <0xE2> <0x80> <0x94>"),
        ("▁well . . . . . . ▁yes ▁no ▁no", None),
        ("▁no ▁no ▁no ▁no", None),
        ("▁1 0 0 0 0 0 0 0 0 0 0 " + " ".join(f"▁{n}" for n in range(40)), None),  # it goes on
        ("", None),
    ],
)
def test_one_way_round_is_kept(text, kept):
    pieces = text.split()
    end = circles_begin(pieces)
    assert (None if end is None else " ".join(pieces[:end])) == kept
