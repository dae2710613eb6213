"""Is this line in the language it should be in?

py3langid answers. Of the identifiers compared in `benchmarks/language_identification.py` (on
German, Finnish, Lithuanian and English) it loses few right lines, also short ones, and lets very
few wrong ones through; others are faster, but it does for millions of pairs, and it brings
its model along in a wheel of pure Python.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING

from scones.errors import SconesError

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier as Py3LangId

_ENOUGH_CHARACTERS = 120  # more tells nothing new and costs time
_ENOUGH_LETTERS = 60  # with fewer the verdict is unsure, and less is asked of a language
_PLAUSIBLE = 0.2  # of the best language's probability; where two are close, both are accepted


class LanguageIdentifier:
    """Tells whether a text is plausibly in a given language; made to be lenient."""

    def __init__(self) -> None:
        self._model = _model()

    def languages(self) -> frozenset[str]:
        """Give the ISO 639-1 codes of the languages it can tell apart."""
        return frozenset(self._model.labels)

    def accepts(self, text: str, language: str) -> bool:
        """Say whether `text` is plausibly in `language`, one of `languages()`.

        A clean line lost costs more than a doubtful line kept, so a language that is not the
        most probable one, but plausible beside it, is accepted too; more easily so the fewer
        letters there are, and always where there are none. Only the first 120 characters count.
        """
        text = text[:_ENOUGH_CHARACTERS]
        best, probability = self._model.classify(text)
        if best == language:
            return True
        letters = sum(map(str.isalpha, text))
        needed = _PLAUSIBLE * min(1.0, letters / _ENOUGH_LETTERS) * probability
        return bool(dict(self._model.rank(text))[language] >= needed)


def check_language(code: str) -> None:
    """Raise a `SconesError` that names near codes if no such language can be identified."""
    known = LanguageIdentifier().languages()
    if code in known:
        return
    near = get_close_matches(code, sorted(known), n=5, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "try for example de, fi, lt or en."
    raise SconesError(
        f"{code!r} is not a language that can be identified; give a two-letter ISO 639-1 code or "
        f"turn the identification off; {hint}"
    )


@cache
def _model() -> Py3LangId:
    import numpy as np
    from py3langid.langid import MODEL_FILE
    from py3langid.langid import LanguageIdentifier as Py3LangId

    model = Py3LangId.from_model_file(MODEL_FILE, norm_probs=True)
    # Its three-letter languages (Ligurian, Venetian, ...) would only compete with common ones.
    model.set_languages([label for label in model.labels if len(label) == 2])
    # A table of float32 in row order, instead of float16 in column order, doubles the speed.
    model.nb_ptc = np.ascontiguousarray(model.nb_ptc, dtype=np.float32)
    return model
