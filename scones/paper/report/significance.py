"""Bootstrap tests of every system against softmax, kept beside the results.

They need references, which results do not hold. So they are computed once, where references are,
and kept as DIRECTION/significance.json with the digests of the translations that they are about; a
test about other translations does not count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from scones.errors import SconesError
from scones.evaluation.significance import mark, paired_bootstrap
from scones.paper.report.references import References
from scones.paper.report.study import SEARCHES, SOFTMAX, TESTS, DirectionStudy, Study
from scones.paper.results import RunResult

FILE = "significance"
SAME = 1e-4
"""Scores that are nearer than this are the same."""

Json = dict[str, Any]
Key = tuple[str, ...]
"""Direction, run, test, search."""


@dataclass
class Marks:
    """What is known about differences from softmax."""

    known: dict[Key, Json] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """Why tests could not be made."""

    def mark(self, *key: str) -> str:
        """Give †, ‡ or nothing; the key is direction, run, test and search."""
        found = self.known.get(key)
        return "" if found is None else mark(found["p"])

    def about(self, *key: str) -> str:
        """Say the p-value."""
        found = self.known.get(key)
        return "" if found is None else f"p = {found['p']:.3f} against {found['baseline']}"

    @property
    def sentence(self) -> str:
        """Say what the marks stand on."""
        if self.known:
            first = next(iter(self.known.values()))
            said = f"Marks come from {len(self.known):,} paired bootstrap tests of BLEU "
            said += f"(`{first['signature']}`)."
        else:
            said = "There are no marks of significance: no bootstrap tests are stored."
        if self.problems:
            said += f" Tests are missing where there were no references: {self.problems[0]}"
        return said


def find_marks(study: Study, references: References) -> Marks:
    """Read the tests that were made before, and make those that are missing, if it can be done."""
    marks = Marks()
    for direction in study.done:
        stored = direction.direction.read_json(FILE) or {}
        made = 0
        for test, search in product(TESTS, SEARCHES):
            for runs in _groups(direction, test, search):
                found = _stored(stored, direction, test, search, runs)
                if found is None:
                    texts = _references(references, direction, test, runs[0], marks)
                    if texts is None:
                        continue
                    found = _compute(direction, texts, test, search, runs)
                    stored.setdefault(test, {}).setdefault(search, {}).update(found)
                    made += 1
                for name, about in found.items():
                    marks.known[direction.name, name, test, search] = about
        if made:
            direction.direction.write_json(FILE, stored)
    return marks


def _references(
    references: References, direction: DirectionStudy, test: str, run: RunResult, marks: Marks
) -> list[str] | None:
    """Give references, or note why there are none: a report can do without."""
    try:
        return references.of(direction.name, test, run.tests[test])
    except SconesError as problem:
        marks.problems.append(str(problem))
        return None


def _groups(direction: DirectionStudy, test: str, search: str) -> Iterator[list[RunResult]]:
    """Give runs of one seed that can be compared, softmax first."""
    translated = [run for run in direction.runs.values() if run.search(test, search)]
    for baseline in translated:
        if baseline.system == SOFTMAX:
            others = [run for run in translated if run.seed == baseline.seed]
            others = [run for run in others if run.system != SOFTMAX]
            if others:
                yield [baseline, *others]


def _stored(
    stored: Json, direction: DirectionStudy, test: str, search: str, runs: list[RunResult]
) -> dict[str, Json] | None:
    """Give what was kept about these translations; None where something is missing or other."""
    kept = stored.get(test, {}).get(search, {})
    digests = [_file_digest(direction, run, test, search) for run in runs]
    found = {}
    for run, digest in zip(runs[1:], digests[1:], strict=True):
        about = kept.get(run.name)
        if (
            about is None
            or about["hypotheses"] != digest
            or about["baseline_hypotheses"] != digests[0]
        ):
            return None
        found[run.name] = about
    return found


def _compute(
    direction: DirectionStudy, texts: list[str], test: str, search: str, runs: list[RunResult]
) -> dict[str, Json]:
    systems = {}
    for run in runs:
        result = run.search(test, search)
        assert result is not None
        systems[run.name] = direction.direction.hypotheses(result.file)
    results = paired_bootstrap("bleu", systems, [texts])
    for run, found in zip(runs, results, strict=True):
        stored = run.score(test, search)
        if stored is None or abs(found.score - stored) > SAME:
            raise SconesError(
                f"The translations of {direction.name} {run.name}, {test}, {search} have BLEU "
                f"{found.score:.4f}, but {stored} is stored for them; translate them again."
            )
    digests = [_file_digest(direction, run, test, search) for run in runs]
    return {
        run.name: {
            "baseline": runs[0].name,
            "p": found.p,
            "low": found.low,
            "high": found.high,
            "signature": found.signature,
            "hypotheses": digest,
            "baseline_hypotheses": digests[0],
        }
        for run, found, digest in zip(runs[1:], results[1:], digests[1:], strict=True)
    }


def _file_digest(direction: DirectionStudy, run: RunResult, test: str, search: str) -> str:
    result = run.search(test, search)
    assert result is not None
    path = direction.direction.folder / result.file
    if not path.exists():
        raise SconesError(f"{path} does not exist, but {run.name}.json names it.")
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
