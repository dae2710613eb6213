"""Is what a claim says more than chance? Tests over all directions, kept beside the results.

A `Contrast` is a number made of scores, such as the mean difference of two systems over all
directions. Its test is a stratified paired bootstrap: in every direction the sentences are drawn
anew, the same draw for all systems and searches; the p-value is two-sided.

Tests need references, which results do not hold. So they are made once, where references are, and
kept in tests.json with the digests of the translations that they are about. A test about other
translations does not count.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import comb
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from replication.table import Json, Key, Number, Table
from scones.analysis.tables import texts_digest
from scones.errors import SconesError
from scones.evaluation.metrics import load_learned, sacrebleu_metric
from scones.files import commit, read_json, write_json
from scones.text.reading import read_texts

FILE = "tests.json"
SEED, RESAMPLES = 12345, 10_000
SAME = 1e-4
"""Scores that are nearer than this are the same."""


class Term(NamedTuple):
    """A part of a contrast: a function of scores, and how much it counts."""

    direction: str
    weight: float
    keys: Sequence[Key]
    of: Callable[..., Any]
    """Takes the scores of the keys: numbers, or arrays with a number a draw."""


@dataclass(frozen=True)
class Contrast:
    """A number made of scores, and what it would be if there were nothing to see."""

    name: str
    terms: tuple[Term, ...]
    null: float = 0.0

    @property
    def keys(self) -> list[Key]:
        return list(dict.fromkeys(key for term in self.terms for key in term.keys))

    def value(self, scores: Mapping[Key, Any]) -> Any:
        parts = (one.weight * one.of(*(scores[key] for key in one.keys)) for one in self.terms)
        return sum(parts)


@dataclass(frozen=True)
class BootstrapTest:
    """What is known about a contrast."""

    name: str
    value: float
    low: float
    high: float
    """`low` to `high` holds 95 % of the draws."""
    p: float
    null: float
    files: tuple[str, ...]
    """The translations that it is about."""


# References: from a data folder, or sacreBLEU's own copy of the news test.


@dataclass(frozen=True)
class References:
    """Finds the references of test sets; every set is read once."""

    data: Path | None
    """A folder with the names of docs/data.md; None: sacreBLEU's own sets."""
    problems: list[str] = field(default_factory=list)
    """Why some were not found."""
    _read: dict[Path | str, list[str]] = field(default_factory=dict)

    def of(self, number: Number) -> list[str]:
        """Give the references that a score was made with; refuses others."""
        test, _, _ = number.set.partition(":")
        where = (
            _path(self.data, number.direction, test) if self.data else f"{number.direction} {test}"
        )
        if where not in self._read:
            path = where if isinstance(where, Path) else _of_sacrebleu(number.direction, test)
            self._read[where] = read_texts(path)
        texts = self._read[where][: number.sentences]
        # sacreBLEU's copy may differ in spaces, which BLEU does not see.
        known = number.reference_digest if self.data else ""
        if known and texts_digest(texts) != known:
            raise SconesError(
                f"The first {number.sentences:,} lines of {where} have the digest "
                f"{texts_digest(texts)}, but the results were scored with others, of the digest "
                f"{known}; give the same data folder."
            )
        return texts


def _path(data: Path, direction: str, test: str) -> Path:
    source, target = direction.split("-")
    pairs = (direction, f"{target}-{source}")
    stems = [f"newstest/{test}.{pair}" for pair in pairs]
    stems += [f"{test}/test.{pair}" for pair in pairs] + [f"multi30k/{test}", f"{test}/test"]
    tried = [data / f"{stem}.{target}{end}" for stem in stems for end in (".xz", ".gz", "")]
    for path in tried:
        if path.exists():
            return path
    raise SconesError(
        f"{data} has no references of {test} for {direction}: looked for {tried[0]} and for "
        f"{data / stems[-1]}.{target}.xz among others."
    )


def _of_sacrebleu(direction: str, test: str) -> Path:
    if test != "newstest2019":
        raise SconesError(
            f"sacreBLEU does not know {test}; name a folder that holds its references with --data."
        )
    try:
        from sacrebleu.utils import get_reference_files

        return Path(get_reference_files("wmt19", direction)[0])
    except (Exception, SystemExit) as problem:  # it ends the process where a download is damaged
        raise SconesError(
            f"sacreBLEU's wmt19 is neither in its cache nor to be had from the network "
            f"({problem}); name a folder that holds the references with --data."
        ) from None


# The bootstrap.


def find_tests(
    table: Table, contrasts: Sequence[Contrast], references: References | None
) -> dict[str, BootstrapTest]:
    """Give the tests that are stored, and make and store those that are missing where it can be."""
    path = table.folder / FILE
    stored: Json = read_json(path) if path.exists() else {}
    known = dict(_stored(table, stored))
    missing = [one for one in contrasts if one.name not in known or not _same(table, one, known)]
    if missing and references is not None:
        known |= _bootstrap(table, missing, references)
        _store(table, path, known)
    return {one.name: known[one.name] for one in contrasts if one.name in known}


def _same(table: Table, one: Contrast, known: Mapping[str, BootstrapTest]) -> bool:
    """Whether what is stored is about these numbers, too."""
    found = {key: table.get(key) for key in one.keys}
    scores = {key: number.value for key, number in found.items() if number is not None}
    return abs(float(one.value(scores)) - known[one.name].value) < SAME


def _stored(table: Table, found: Json) -> Iterator[tuple[str, BootstrapTest]]:
    """Give the stored tests whose translations are those of today."""
    today = {one.file: one.digest for one in table.numbers if one.digest}
    digests = found.get("hypotheses", {})
    for name, one in found.get("tests", {}).items():
        if all(today.get(file) == digests.get(file) for file in one["files"]):
            yield name, BootstrapTest(name=name, **{**one, "files": tuple(one["files"])})


def _store(table: Table, path: Path, known: Mapping[str, BootstrapTest]) -> None:
    today = {one.file: one.digest for one in table.numbers if one.digest}
    files = sorted({file for one in known.values() for file in one.files})
    tests = {
        name: {key: value for key, value in vars(one).items() if key != "name"}
        for name, one in known.items()
    }
    write_json(
        path,
        {
            "command": "python -m replication report RESULTS OUT --data DATA",
            "commit": commit(),
            "seed": SEED,
            "resamples": RESAMPLES,
            "test": "stratified paired bootstrap over sentences, two-sided, 95 % intervals",
            "tests": tests,
            "hypotheses": {file: today[file] for file in files},
        },
    )


def _bootstrap(
    table: Table, contrasts: Iterable[Contrast], references: References
) -> dict[str, BootstrapTest]:
    resampled: dict[Key, np.ndarray] = {}
    draws: dict[tuple[str, int], np.ndarray] = {}
    made = {}
    for one in contrasts:
        numbers = {key: table.get(key) for key in one.keys}
        try:
            truths = {key: references.of(number) for key, number in numbers.items() if number}
        except SconesError as problem:
            references.problems.append(str(problem))
            continue
        for key, number in numbers.items():
            if key not in resampled and number is not None:
                resampled[key] = _scores(table, number, truths[key], draws)
        values = one.value({key: resampled[key] for key in one.keys})
        files = tuple(sorted({number.file for number in numbers.values() if number is not None}))
        made[one.name] = _test(one, np.asarray(values), files)
    return made


def _scores(
    table: Table, number: Number, truth: list[str], draws: dict[tuple[str, int], np.ndarray]
) -> np.ndarray:
    """Give the score of translations, and behind it that of every draw of their sentences."""
    texts = read_texts(table.path(number))
    scorer = sacrebleu_metric(number.metric, [truth])
    statistics_NK = np.asarray(scorer._extract_corpus_statistics(texts, None), dtype=np.float32)
    draw = (number.direction, len(texts))
    if draw not in draws:
        draws[draw] = _draws(*draw)
    sums_RK = np.vstack([statistics_NK.sum(axis=0), draws[draw] @ statistics_NK])
    score = scorer._compute_score_from_stats
    found = np.array([score(list(sums)).score for sums in sums_RK.tolist()])
    if abs(found[0] - number.value) > SAME:
        raise SconesError(
            f"{number.file} has {number.metric} {found[0]:.4f}, but {number.value:.4f} is stored "
            "for it; translate again."
        )
    return found


def _draws(direction: str, sentences: int) -> np.ndarray:
    """Say how often every sentence comes in every draw; the same for all systems of a direction."""
    random = np.random.default_rng([SEED, *direction.encode()])
    counts_RN = np.empty((RESAMPLES, sentences), dtype=np.float32)
    for row in counts_RN:
        row[:] = np.bincount(random.integers(0, sentences, sentences), minlength=sentences)
    return counts_RN


def _test(one: Contrast, values: np.ndarray, files: tuple[str, ...]) -> BootstrapTest:
    value, drawn = float(values[0]), values[1:]
    low, high = (float(end) for end in np.quantile(drawn, (0.025, 0.975)))
    side = min(int((drawn <= one.null).sum()), int((drawn >= one.null).sum()))
    p = min(1.0, 2 * (side + 1) / (len(drawn) + 1))
    return BootstrapTest(one.name, value, low, high, p, one.null, files)


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """Correct p-values for their number (Holm, 1979)."""
    adjusted, largest = {}, 0.0
    for place, name in enumerate(sorted(p, key=p.__getitem__)):
        largest = max(largest, min(1.0, (len(p) - place) * p[name]))
        adjusted[name] = largest
    return adjusted


def mcnemar(first: int, second: int) -> float:
    """Exact two-sided test of pairs that differ: so many in favour of one, so many of the other."""
    pairs = first + second
    tail = sum(comb(pairs, count) for count in range(min(first, second) + 1))
    return min(1.0, 2 * tail / 2**pairs)


def bleurt(table: Table, keys: Iterable[Key], references: References, checkpoint: Path) -> Table:
    """Add BLEURT of what these keys are of, in per cent."""
    metric = load_learned("bleurt", checkpoint)
    more = []
    for key in keys:
        number = table.get(key)
        if number is None:
            continue
        with contextlib.suppress(SconesError):  # the table says that there is none
            texts = read_texts(table.path(number))
            scores = metric.sentence_scores(texts, [references.of(number)])
            more.append(replace(number, metric="bleurt", value=100 * float(np.mean(scores))))
    return replace(table, numbers=(*table.numbers, *more))
