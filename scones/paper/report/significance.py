"""Bootstrap tests, kept beside the results: every system against softmax with the same search.

Further ones are made on the paper's test set: SCONES against softmax with label smoothing, SCONES
with greedy search against softmax with beam search, and SCONES with label smoothing against the
same α without. On the development set the chosen α is tested against every other.

They need references, which results do not hold. So they are computed once, where references are,
and kept as DIRECTION/significance.json with the digests of the translations that they are about; a
test about other translations does not count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from scones.errors import SconesError
from scones.evaluation.significance import mark, paired_bootstrap
from scones.paper.report.references import References
from scones.paper.report.study import NEWS, SEARCHES, SOFTMAX, TESTS, DirectionStudy, Study
from scones.paper.results import RunResult

FILE = "significance"
SAME = 1e-4
"""Scores that are nearer than this are the same."""

Json = dict[str, Any]
Key = tuple[str, ...]
"""The place of the direction, run, test, and what `comparison` names."""


class Side(NamedTuple):
    """A run and a search: one side of a comparison."""

    run: RunResult
    search: str


def comparison(first: Side, baseline: Side) -> str:
    """Name a comparison: that with softmax by the same search has the name of the search."""
    if baseline.run.system == SOFTMAX and first.search == baseline.search:
        return first.search
    return f"{first.search} against {baseline.run.name} {baseline.search}"


@dataclass
class Marks:
    """What is known about differences, most of them from softmax with the same search."""

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
    for direction in (*study.done, *study.longer):
        stored = direction.direction.read_json(FILE) or {}
        made = 0
        for test, sides in _contests(direction):
            found = _stored(stored, direction, test, sides)
            if found is None:
                texts = _references(references, direction, test, sides[0].run, marks)
                if texts is None:
                    continue
                found = _compute(direction, texts, test, sides)
                for side in sides[1:]:
                    name = comparison(side, sides[0])
                    kept = stored.setdefault(test, {}).setdefault(name, {})
                    kept[side.run.name] = found[side.run.name]
                made += 1
            for side in sides[1:]:
                key = direction.place, side.run.name, test, comparison(side, sides[0])
                marks.known[key] = found[side.run.name]
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


def _contests(direction: DirectionStudy) -> Iterator[tuple[str, list[Side]]]:
    """Give what is compared on which set, the baseline first."""
    for test in TESTS:
        yield from ((test, sides) for sides in _contests_on(direction, test))
    if direction.choice is not None and direction.tuned is not None:
        dev, chosen = direction.choice.dev, Side(direction.tuned, "greedy")
        for run in direction.systems.values():
            other = run.alpha is not None and not run.label_smoothing and run is not chosen.run
            if other and run.search(dev, "greedy"):
                yield dev, [Side(run, "greedy"), chosen]


def _contests_on(direction: DirectionStudy, test: str) -> Iterator[list[Side]]:
    """Give what is compared on a test set, runs of one seed each time."""
    for seed in dict.fromkeys(run.seed for run in direction.runs.values()):
        runs = {run.system: run for run in direction.runs.values() if run.seed == seed}
        baseline = runs.get(SOFTMAX)
        others = [run for run in runs.values() if run.system != SOFTMAX]
        contests: list[list[Side]] = []
        if baseline is not None:
            for search in SEARCHES:
                contests.append([Side(run, search) for run in (baseline, *others)])
        plain = [run for run in others if run.alpha is not None and not run.label_smoothing]
        if baseline is not None and test == NEWS:
            greedy = [Side(run, "greedy") for run in plain]
            contests.append([Side(baseline, "beam4"), *greedy])
        for run in others if test == NEWS else ():
            if run.alpha is None:  # softmax with label smoothing
                for search in SEARCHES:
                    contests.append([Side(one, search) for one in (run, *plain)])
        for run in others if test == NEWS else ():
            twin = plain_twin(runs.values(), run)
            if twin is not None:
                contests += [[Side(twin, search), Side(run, search)] for search in SEARCHES]
        for sides in contests:
            known = [side for side in sides if side.run.search(test, side.search)]
            if len(known) > 1 and known[0] is sides[0]:
                yield known


def plain_twin(runs: Iterable[RunResult], run: RunResult) -> RunResult | None:
    """Give the run with the α of a smoothed SCONES run, and no label smoothing."""
    if run.alpha is None or not run.label_smoothing:
        return None
    same = (one for one in runs if one.alpha == run.alpha and not one.label_smoothing)
    return next(same, None)


def _stored(
    stored: Json, direction: DirectionStudy, test: str, sides: list[Side]
) -> dict[str, Json] | None:
    """Give what was kept about these translations; None where something is missing or other."""
    baseline, *others = sides
    digests = [_file_digest(direction, side, test) for side in sides]
    found = {}
    for side, digest in zip(others, digests[1:], strict=True):
        kept = stored.get(test, {}).get(comparison(side, baseline), {})
        about = kept.get(side.run.name)
        if (
            about is None
            or about["hypotheses"] != digest
            or about["baseline_hypotheses"] != digests[0]
        ):
            return None
        found[side.run.name] = about
    return found


def _compute(
    direction: DirectionStudy, texts: list[str], test: str, sides: list[Side]
) -> dict[str, Json]:
    systems = {}
    for side in sides:
        result = side.run.search(test, side.search)
        assert result is not None
        systems[side.run.name] = direction.direction.hypotheses(result.file)
    results = paired_bootstrap("bleu", systems, [texts])
    for side, found in zip(sides, results, strict=True):
        stored = side.run.score(test, side.search)
        if stored is None or abs(found.score - stored) > SAME:
            raise SconesError(
                f"The translations of {direction.name} {side.run.name}, {test}, {side.search} "
                f"have BLEU {found.score:.4f}, but {stored} is stored for them; translate them "
                "again."
            )
    digests = [_file_digest(direction, side, test) for side in sides]
    return {
        side.run.name: {
            "baseline": sides[0].run.name,
            "p": found.p,
            "low": found.low,
            "high": found.high,
            "signature": found.signature,
            "hypotheses": digest,
            "baseline_hypotheses": digests[0],
        }
        for side, found, digest in zip(sides[1:], results[1:], digests[1:], strict=True)
    }


def _file_digest(direction: DirectionStudy, side: Side, test: str) -> str:
    result = side.run.search(test, side.search)
    assert result is not None
    path = direction.direction.folder / result.file
    if not path.exists():
        raise SconesError(f"{path} does not exist, but {side.run.name}.json names it.")
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
