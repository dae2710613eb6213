"""Which language a text is in, by its function words alone: at once, and only where it is clear.

What cleans corpora (`scones.text.cleaning`) knows a hundred languages, and takes half a second to
load; that is longer than a sentence takes to be translated.
"""

from __future__ import annotations

import re
from typing import Final

NAMES: Final = {"de": "German", "en": "English"}

# Words that the other language hardly has, in small letters: no "was" or "hat"; nor "von", which
# stands in names.
_FUNCTION_WORDS: Final = {
    "de": (
        "aber auch auf aus bei bin das dass dem den der des die dir du ein eine einem einen einer "
        "es für haben habe ich ihr im ist kein keine mein mich mir mit nach nicht nur oder sein "
        "sich sie sind über und uns wenn werden wie wird wir zu zum zur"
    ),
    "en": (
        "a and are at be but by can could did do for from had has have he his i if is it its my no "
        "of on she that the their there they this to we were what which with would you your"
    ),
}
_CHARACTERS = 4000  # more tells nothing new
_CLEAR = 3  # different words of one language …
_TIMES = 4  # … and so many times as many as of the right one: names and quotations are not enough


def other_language(text: str, language: str) -> str | None:
    """The language that a text is clearly in where `language` is expected, if there is one."""
    words = set(re.findall(r"\w+", text[:_CHARACTERS].lower()))
    counts = {code: len(words & {*known.split()}) for code, known in _FUNCTION_WORDS.items()}
    expected = counts.pop(language, None)
    if expected is None:
        return None
    found = max(counts, key=lambda code: counts[code])
    return found if counts[found] >= max(_CLEAR, _TIMES * expected) else None
