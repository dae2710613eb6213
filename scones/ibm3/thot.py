"""What sil-thot estimated: its saved tables, read into ours.

sil-thot numbers words itself, from 3 on: 0 is NULL, 1 and 2 belong to no word. Its files hold
records without a header, little-endian, of logarithms of expected counts: that of an entry, and
that of all entries with the same condition, so that their difference is a log-probability.

What its functions of single probabilities add on top, a floor of 1e-7 and guesses for words that it
has never seen, is not taken over: it would be noise, which a high temperature makes loud.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scones.errors import SconesError

NULL = 0
FIRST_WORD = 3

_COUNTS = [("entry", "<f4"), ("all", "<f4")]
_TRANSLATION = np.dtype([("source", "<u4"), ("target", "<u4"), *_COUNTS])
_FERTILITY = np.dtype([("source", "<u4"), ("fertility", "<u4"), *_COUNTS])
_DISTORTION = np.dtype([("place", "<u4", 4), *_COUNTS])  # i, l (0 for any), m, j

# Of the millions of pairs of words that occur together, almost all are as good as impossible.
_NOTHING = 1e-9
_RECORDS_AT_ONCE = 1 << 22

Records = NDArray[Any]


def import_thot() -> Any:
    """Give sil-thot's module of alignment models."""
    try:
        from thot import alignment
    except ImportError:
        raise SconesError("Fitting IBM Model 3 needs sil-thot; install scones[ibm3].") from None
    return alignment


class Tables:
    """The entries of all tables of a model of sil-thot, by sil-thot's numbers of words."""

    def __init__(self, model: Any) -> None:
        """Let a fitted `Ibm3AlignmentModel` save itself, and read that."""
        with TemporaryDirectory(prefix="scones-ibm3-") as folder:
            prefix = Path(folder) / "model"
            if not model.print(str(prefix)):
                raise SconesError(
                    f"sil-thot could not save its tables in {folder}; make room there, or name "
                    "another folder with the environment variable TMPDIR."
                )
            self.translations, self.translation_probs = _read(prefix, "ibm_lexnd", _TRANSLATION)
            self.fertilities, self.fertility_probs = _read(prefix, "fertnd", _FERTILITY)
            distortions, self.distortion_probs = _read(prefix, "distnd", _DISTORTION)
            self.distortions: NDArray[np.uint32] = distortions["place"]
            self.p1 = float(prefix.with_suffix(".p1").read_text())


def _read(prefix: Path, ending: str, kind: np.dtype[Any]) -> tuple[Records, NDArray[np.float64]]:
    """Read the records that have a probability at all, a part of the file at a time."""
    records, probs = [np.zeros(0, kind)], [np.zeros(0)]
    with prefix.with_suffix(f".{ending}").open("rb") as file:
        while len(part := np.fromfile(file, kind, _RECORDS_AT_ONCE)):
            prob = np.exp(part["entry"].astype(np.float64) - part["all"])
            kept = prob > _NOTHING
            records.append(part[kept])
            probs.append(prob[kept])
    return np.concatenate(records), np.concatenate(probs)
