"""The numbers that the paper printed, as it printed them, with the place where they stand.

Stahlberg & Kumar, "Jam or Cream First? Modeling Ambiguity in Neural Machine Translation with
SCONES", NAACL 2022. They are typed from its tables and its text and stand beside ours in the
report; nothing is computed from them but what a row of the report says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

DIRECTIONS: Final = ("de-en", "en-de", "fi-en", "en-fi", "lt-en", "en-lt")
TITLE: Final = "Jam or Cream First? Modeling Ambiguity in Neural Machine Translation with SCONES"
ADDRESS: Final = "https://aclanthology.org/2022.naacl-main.365/"


@dataclass(frozen=True)
class Published:
    """A number of the paper."""

    text: str
    """As it is printed, with its mark of significance."""
    place: str


ByDirection = Mapping[str, Published]


def _row(place: str, *texts: str) -> ByDirection:
    return {
        direction: Published(text, place) for direction, text in zip(DIRECTIONS, texts, strict=True)
    }


SIZES: Final[Mapping[str, Published]] = {
    name: Published(text, "table 1")
    for name, text in {
        "attention dropout": "0.1",
        "attention size": "512",
        "dropout": "0.1",
        "embedding size": "512",
        "feed-forward size": "2,048",
        "attention heads": "8",
        "layers": "6",
        "sentences a batch": "256",
        "parameters": "121M",
    }.items()
}
VOCABULARY: Final = Published("32K, joint", "section 3")
STEPS: Final = Published("100K to 700K", "section 3")

CORPORA: Final[Mapping[str, tuple[Published, Published]]] = {
    pair: (Published(unfiltered, "table 2"), Published(filtered, "table 2"))
    for pair, unfiltered, filtered in (
        ("de-en", "39M", "33M"),
        ("fi-en", "6.6M", "5.5M"),
        ("lt-en", "2.3M", "2.0M"),
    )
}
"""Training pairs before and after cleaning."""

SOFTMAX, TUNED, GAIN = "softmax", "tuned SCONES", "gain"

BLEU: Final[Mapping[str, Mapping[str, ByDirection]]] = {
    "greedy": {
        SOFTMAX: _row("table 3", "38.8", "38.7", "26.9", "18.5", "26.3", "11.5"),
        TUNED: _row("table 3", "39.9", "39.1", "27.6", "19.5", "27.7", "12.5"),
        GAIN: _row("table 3", "+2.7‡", "+1.2", "+2.8†", "+5.4‡", "+5.3‡", "+8.5‡"),
    },
    "beam4": {
        SOFTMAX: _row("table 3", "39.6", "39.4", "27.7", "19.0", "26.9", "12.0"),
        TUNED: _row("table 3", "40.3", "39.8", "28.4", "20.0", "28.9", "12.6"),
        GAIN: _row("table 3", "+1.7†", "+0.9", "+2.7†", "+5.5‡", "+7.4‡", "+5.7"),
    },
}
"""By search, on newstest2019; gains in per cent."""

BLEURT: Final[Mapping[str, Mapping[str, ByDirection]]] = {
    "greedy": {
        SOFTMAX: _row("table 4", "70.44", "68.08", "68.93", "66.16", "68.52", "56.68"),
        TUNED: _row("table 4", "70.69", "67.55", "69.28", "67.32", "68.96", "58.68"),
    },
    "beam4": {
        SOFTMAX: _row("table 4", "70.78", "68.48", "69.56", "66.44", "69.20", "57.61"),
        TUNED: _row("table 4", "70.88", "67.99", "69.72", "67.91", "69.95", "59.48"),
    },
}

ALPHA: Final = _row("table 5", "0.5", "0.5", "0.7", "1.0", "0.7", "0.9")

SEARCHED: Final[Mapping[str, Mapping[str, ByDirection]]] = {
    "beam4": {
        "softmax": BLEU["beam4"][SOFTMAX],
        "scones-0.2": _row("table 6", "39.3", "38.9", "27.7", "19.6", "27.9", "12.7"),
    },
    "exact": {
        "softmax": _row("table 6", "23.7", "15.6", "16.7", "10.1", "14.2", "7.1"),
        "scones-0.2": _row("table 6", "39.1", "37.2", "26.7", "18.7", "25.6", "12.1"),
    },
}
"""BLEU of beam search and exact search, all sentences of newstest2019."""

SOFTMAX_BEAM_SPEED: Final = Published("2.76", "section 4.2")
SCONES_GREEDY_SPEED: Final = Published("10.64", "section 4.2")
SPEED_UP: Final = Published("3.9×", "section 4.2")
SPEED_DEVICE: Final = "NVIDIA Quadro P1000, batches of 4"

SOFTMAX_SEARCH_ERRORS: Final = Published("around 20 %", "section 4.4")
"""Of softmax, even with very large beams."""

MAX_STATES: Final = 1_000_000
UNFINISHED: Final[Mapping[str, Mapping[str, Published]]] = {
    language: {system: Published(f"{share} %", "table 7") for system, share in shares.items()}
    for language, shares in {
        "de-en": {"scones-0.2": "1.45", "scones-0.5": "0.90", "scones-0.7": "0.05"},
        "en-de": {"scones-0.2": "4.01"},
        "fi-en": {"scones-0.2": "1.30"},
        "en-fi": {"softmax": "0.10", "scones-0.2": "3.20"},
        "lt-en": {"softmax": "0.20", "scones-0.2": "5.20"},
        "en-lt": {"softmax": "0.10", "scones-0.2": "5.31"},
        "synthetic-0.1": {
            "softmax": "1.05",
            "scones-0.2": "0.55",
            "scones-0.5": "1.10",
            "scones-1.0": "1.25",
        },
        "synthetic-0.2": {
            "softmax": "1.00",
            "scones-0.2": "5.10",
            "scones-0.5": "7.65",
            "scones-1.0": "2.65",
        },
        "synthetic-0.3": {
            "softmax": "0.10",
            "scones-0.2": "12.6",
            "scones-0.5": "17.3",
            "scones-1.0": "1.80",
        },
        "synthetic-0.5": {"scones-0.2": "25.0", "scones-0.5": "25.2"},
        "synthetic-0.7": {"scones-0.2": "25.9", "scones-0.5": "20.3"},
    }.items()
}
"""Sentences for which exact search ended at the limit; runs that are not listed had none."""
