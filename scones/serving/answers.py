"""What translations are in the API's JSON."""

from __future__ import annotations

import codecs
import math
import re
import unicodedata
from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from scones.search.lattice import Lattice

if TYPE_CHECKING:
    from scones.search.positions import Position
    from scones.search.translations import ExactTranslations, Translation

Json = dict[str, Any]

_END = "</s>"
_Decoder = codecs.getincrementaldecoder("utf-8")
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def sentence(source: str, found: Translation, positions: Sequence[Position] = ()) -> Json:
    """A translation and, where they are known, its tokens."""
    texts = _texts([one.piece for one in positions])
    return {
        "source": source,
        **_scored(found),
        "ambiguity": fmean(one.ambiguity for one in positions) if positions else None,
        "doubt": fmean(one.doubt for one in positions) if positions else None,
        "finished": found.finished,
        "tokens": [_token(one, text) for one, text in zip(positions, texts, strict=True)],
    }


def _scored(found: Translation) -> Json:
    names = ("text", "log_prob", "probability", "confidence")
    return {name: getattr(found, name) for name in names}


def _token(position: Position, text: str) -> Json:
    return vars(position) | {
        "text": text,
        "probability": math.exp(position.log_prob),
        "alternatives": [
            {"piece": piece, "text": _texts([piece])[0], "probability": probability}
            for piece, probability in position.alternatives
        ],
    }


def _texts(pieces: Sequence[str]) -> list[str]:
    """What each piece adds to the text; of a character in bytes the last byte adds it."""
    texts, decoder = [], _Decoder("replace")
    for number, piece in enumerate(pieces):
        if byte := _BYTE.fullmatch(piece):
            ends = number + 1 == len(pieces) or not _BYTE.fullmatch(pieces[number + 1])
            texts.append(decoder.decode(bytes.fromhex(byte[1]), final=ends))
        else:
            texts.append("" if piece == _END else piece.replace("▁", " "))
    return texts


def alternatives(found: ExactTranslations, most: int) -> Json:
    """What exact search found, at most so many translations of it."""
    known, told, untold = found.certificate, found.translations[:most], found.translations[most:]
    missing = math.exp(known.upper_bound) if known and not known.proved else 0.0
    missing = max([missing, *(one.probability or 0.0 for one in untold[:1])])
    lattice = Lattice.of([one.tokens for one in told])
    return {
        "alternatives": _grouped(told),
        "certificate": {
            "complete": not missing,
            "stopped_by": "memory" if untold else known and known.stopped_by,
            "upper_bound": missing,
            "states": known.states if known else 0,
            "seconds": known.seconds if known else 0.0,
        },
        "lattice": lattice.to_json(),
        "compact": lattice.compact(),
    }


def _grouped(translations: Sequence[Translation]) -> list[Json]:
    """The best of those that differ in punctuation and case alone, with the others below it."""
    groups: dict[str, list[Translation]] = {}
    for one in translations:
        letters = "".join(c for c in one.text if not unicodedata.category(c).startswith("P"))
        groups.setdefault(" ".join(letters.casefold().split()), []).append(one)
    return [
        {
            **_scored(best),
            "variants": [{"text": one.text, "probability": one.probability} for one in others],
        }
        for best, *others in groups.values()
    ]
