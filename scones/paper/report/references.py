"""Where references come from: a data folder given by path, or sacreBLEU's own test sets.

Results hold none. In a data folder the texts of a test set have the names of its README:
`newstest/newstest2019.de-en.en.xz`, `europarl/test.de-en.en.xz`, `msdocs/test.en.xz`. sacreBLEU
knows newstest2019 alone, in its cache or where there is a network.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from scones.analysis.tables import texts_digest
from scones.errors import SconesError
from scones.paper.results import SetResult
from scones.text.reading import read_texts

SACREBLEU_SETS = {"newstest2019": "wmt19"}
_NETWORK_SECONDS = 20.0


@dataclass(frozen=True)
class References:
    """Finds the references of test sets; every set is read once."""

    data: Path | None = None
    """A data folder; None: sacreBLEU's own sets."""
    _read: dict[tuple[str, str], list[str] | SconesError] = field(default_factory=dict)

    def of(self, direction: str, test: str, result: SetResult) -> list[str]:
        """Give the references that a result was scored with; refuses others."""
        key = (direction, test)
        if key not in self._read:
            try:
                self._read[key] = self._find(direction, test)
            except SconesError as problem:
                self._read[key] = problem
        found = self._read[key]
        if isinstance(found, SconesError):
            raise found
        if self.data is not None:
            found = found[: result.sentences]  # a recipe may take a set's first sentences alone
        if len(found) != result.sentences:
            raise SconesError(
                f"The references of {direction} {test} have {len(found):,} lines, but "
                f"{result.sentences:,} sentences were translated; give the same data folder."
            )
        # sacreBLEU's copy may differ in spaces, which BLEU does not see, so only its size counts.
        if self.data is not None and texts_digest(found) != result.reference_digest:
            raise SconesError(
                f"The references of {direction} {test} in {self.data} have the digest "
                f"{texts_digest(found)}, but the results were scored with others, of the digest "
                f"{result.reference_digest}; give the same data folder."
            )
        return found

    def _find(self, direction: str, test: str) -> list[str]:
        if self.data is not None:
            return read_texts(_path(self.data, direction, test))
        return _from_sacrebleu(direction, test)


def _path(data: Path, direction: str, test: str) -> Path:
    source, target = direction.split("-")
    stems = [f"newstest/{test}.{pair}" for pair in (direction, f"{target}-{source}")]
    stems += [f"{test}/test.{pair}" for pair in (direction, f"{target}-{source}")]
    stems += [f"{test}/test"]
    tried = [data / f"{stem}.{target}{end}" for stem in stems for end in (".xz", ".gz", "")]
    for path in tried:
        if path.exists():
            return path
    raise SconesError(
        f"{data} has no references of {test} for {direction}: looked for {tried[0]} and for "
        f"{data / stems[-1]}.{target}.xz among others."
    )


def _from_sacrebleu(direction: str, test: str) -> list[str]:
    if test not in SACREBLEU_SETS:
        raise SconesError(
            f"sacreBLEU does not know {test}; name a folder that holds its references with --data."
        )
    name = SACREBLEU_SETS[test]
    try:
        with _patience():
            from sacrebleu.utils import get_reference_files

            path, *_ = get_reference_files(name, direction)
    except (Exception, SystemExit) as problem:  # it ends the process where a download is damaged
        raise SconesError(
            f"sacreBLEU's {name} is neither in its cache nor to be had from the network "
            f"({problem}); name a folder that holds the references with --data."
        ) from None
    return read_texts(Path(path))


@contextlib.contextmanager
def _patience() -> Iterator[None]:
    """Wait for a network so long and no longer."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_NETWORK_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
