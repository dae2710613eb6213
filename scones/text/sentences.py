"""Sentences of a text, for models that were trained on one at a time.

sentencex finds them: it knows the abbreviations of many languages, and where it is not sure it
does not split. Two sentences left together cost little, one that is torn apart is lost; so what it
still tears, in German and English news, is put together again here.
"""

from __future__ import annotations

import re

from scones.errors import optional_import

# "Im 19. Jahrhundert", "das 350. Spiel": sentencex knows the months alone. Nor these titles.
_GOES_ON = re.compile(r"(?:^|\W)(?:\d{1,3}|Ms|St|Fa)\.\s+$")
_LETTER = re.compile(r"\w")


def split_sentences(text: str, language: str) -> list[str]:
    """The sentences of a text, each with the white space around it: joined they are the text.

    A blank text has none.
    """
    if not text.strip():
        return []
    absent = "Telling sentences apart needs sentencex; install it, or give --no-split."
    sentencex = optional_import("sentencex", absent)
    sentences: list[str] = []
    for found in sentencex.segment(language, text):
        if sentences and _belong_together(sentences[-1], found):
            sentences[-1] += found
        else:
            sentences.append(found)
    return sentences


def _belong_together(before: str, after: str) -> bool:
    """Whether two pieces are one sentence that sentencex tore."""
    touching = before[-1].isascii() and not before[-1].isspace() and not after[0].isspace()
    words = _LETTER.search(before) and _LETTER.search(after)  # else it is a quotation mark
    return touching or not words or after[0].islower() or bool(_GOES_ON.search(before))
