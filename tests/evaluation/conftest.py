"""A small made-up test set, and systems that spoil it more or less."""

import random

import pytest

_TEXT = (
    "the old baker sells warm bread and the young farmer never sees a cold river near his boat ."
)
_WORDS = _TEXT.split()


@pytest.fixture(scope="session")
def references():
    draw = random.Random(7)
    return [" ".join(draw.choices(_WORDS, k=draw.randint(4, 14))) for _ in range(120)]


@pytest.fixture(scope="session")
def spoil(references):
    """Give a system's output: each reference word is replaced with the chance `share`."""

    def outputs(share, seed):
        draw = random.Random(seed)
        return [
            " ".join(
                draw.choice(_WORDS) if draw.random() < share else word for word in line.split()
            )
            for line in references
        ]

    return outputs
