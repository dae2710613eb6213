"""The results folder of the paper's experiments: everything that was found, nothing to train on.

    DIRECTION/corpora.json                what `scones prepare` reported, without example sentences
    DIRECTION/RUN.json                    a trained model: how it was made, its scores on every set
    DIRECTION/RUN.SET.SEARCH.txt.xz       its translations, one a line
    DIRECTION/chosen.json                 which α is best on the development set
    DIRECTION/analysis.json               beams of many sizes and exact search (see `analysis`)
    DIRECTION/RUN.SET.analysis.*.txt.xz   the translations behind it, as analysis.json names them
    DIRECTION/speed.json                  speed and BLEU of small beams (see `speed`)
    DIRECTION/RUN.SET.speed.*.txt.xz      the translations behind it, as speed.json names them
    DIRECTION/left_out.json               what is not to be run, and why
    synthetic.json                        what `scones synthetic` found

A direction is named "de-en"; a run has its system's name, with "-seed2" behind it for a seed other
than the recipe's first. Results are small and travel; models, sources and references are not here.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from scones.errors import SconesError
from scones.files import read_json, write_file, write_json
from scones.text.reading import read_texts

Json = dict[str, Any]

RETRAINED, LONGER = "retrained", "longer"
"""Folders of results apart: of second trainings, and of those with more steps than a recipe has."""
_NOT_RUNS = ("corpora", "chosen", "analysis", "speed", "significance", "left_out")
"""Names of other JSON files beside those of the runs."""


@dataclass(frozen=True)
class SearchResult:
    """What one search gave for one set."""

    command: str
    seconds: float | None
    """None where nobody knows."""
    file: str
    """The translations' file, in the folder of the direction."""
    scores: Mapping[str, float]
    """By metric: bleu, chrf, ter."""
    signatures: Mapping[str, str]
    length_ratio: float


@dataclass(frozen=True)
class SetResult:
    """What a run reached on a development or test set."""

    source_digest: str
    reference_digest: str
    sentences: int
    searches: Mapping[str, SearchResult]
    """By name: greedy, beam4."""


@dataclass(frozen=True)
class RunResult:
    """A trained model: how it was made, and what it reached."""

    name: str
    system: str
    direction: str
    seed: int
    output: Json
    """The output layer's settings: layer, alpha (of SCONES), label_smoothing."""
    training: Json
    """steps, minutes, target_tokens, parameters, dev_bleu by step, recipe sections."""
    data_digest: str
    model_digest: str
    commit: str | None
    device: str
    versions: Json
    """Of scones, torch and python."""
    command: str
    """How it was trained."""
    dev: str
    """The name of the set that things are chosen on; it stands among the tests."""
    tests: Mapping[str, SetResult] = field(default_factory=dict)

    @property
    def alpha(self) -> float | None:
        """α of SCONES; None for softmax."""
        return self.output.get("alpha")

    @property
    def label_smoothing(self) -> float:
        """λ."""
        return float(self.output.get("label_smoothing", 0.0))

    def search(self, test: str, search: str) -> SearchResult | None:
        """Give what a search gave for a set; None where it was not run."""
        found = self.tests.get(test)
        return None if found is None else found.searches.get(search)

    def score(self, test: str, search: str, metric: str = "bleu") -> float | None:
        """Give a score; None where it is not known."""
        found = self.search(test, search)
        return None if found is None else found.scores.get(metric)

    def to_json(self) -> Json:
        """Give what stands in RUN.json."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Json) -> RunResult:
        """Read what stands in RUN.json."""
        tests = {
            name: SetResult(
                **{
                    **test,
                    "searches": {
                        search: SearchResult(**found) for search, found in test["searches"].items()
                    },
                }
            )
            for name, test in value["tests"].items()
        }
        return cls(**{**value, "tests": tests})


@dataclass(frozen=True)
class Choice:
    """The best α by greedy BLEU on the development set."""

    system: str
    alpha: float
    dev: str
    bleu: Mapping[str, float]
    """Of all systems that were chosen from."""

    def to_json(self) -> Json:
        """Give what stands in chosen.json."""
        return asdict(self)


def choose(runs: Iterable[RunResult]) -> Choice | None:
    """Choose α among the SCONES runs without label smoothing that have the recipe's first seed.

    Of two that are equally good the smaller is taken; None where no such run was tested yet.
    """
    bleu: dict[str, float] = {}
    asked: dict[str, RunResult] = {}
    for run in runs:
        found = run.score(run.dev, "greedy")
        plain = run.alpha is not None and not run.label_smoothing and run.name == run.system
        if plain and found is not None:
            bleu[run.system], asked[run.system] = found, run
    if not asked:
        return None
    best = min(asked.values(), key=lambda run: (-bleu[run.system], run.alpha))
    return Choice(best.system, float(best.alpha or 0.0), best.dev, bleu)


@dataclass(frozen=True)
class Direction:
    """The results of one direction."""

    folder: Path

    @property
    def name(self) -> str:
        """Such as "de-en"."""
        return self.folder.name

    def runs(self) -> list[RunResult]:
        """Give all runs: softmax first, then by α and λ, seeds of a system together."""
        paths = self.folder.glob("*.json")
        runs = [self._read(path) for path in paths if path.stem not in _NOT_RUNS]
        return sorted(runs, key=_order)

    def run(self, name: str) -> RunResult | None:
        """Give a run by its name; None where there is none yet."""
        path = self.folder / f"{name}.json"
        return self._read(path) if path.exists() else None

    def write_run(self, run: RunResult) -> None:
        """Keep a run."""
        self.write_json(run.name, run.to_json())

    def hypotheses(self, file: str) -> list[str]:
        """Read translations by the name of their file."""
        return read_texts(self.folder / file)

    def write_hypotheses(self, file: str, texts: Sequence[str]) -> None:
        """Keep translations, which must be single lines (see `one_line`)."""
        self.folder.mkdir(parents=True, exist_ok=True)
        content = "".join(f"{text}\n" for text in texts).encode()
        write_file(self.folder / file, lzma.compress(content, preset=6))

    def read_json(self, name: str) -> Json | None:
        """Read corpora, chosen, analysis, speed or another file; None where it is not there."""
        path = self.folder / f"{name}.json"
        value: Json | None = read_json(path) if path.exists() else None
        return value

    def write_json(self, name: str, value: Json) -> None:
        """Keep one of them."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.folder / f"{name}.json", value)

    @property
    def corpora(self) -> Json | None:
        """What `scones prepare` reported."""
        return self.read_json("corpora")

    @property
    def analysis(self) -> Json | None:
        """Beams of many sizes and exact search; each has a "file" with its translations."""
        return self.read_json("analysis")

    @property
    def speed(self) -> Json | None:
        """Speed and BLEU of small beams."""
        return self.read_json("speed")

    @property
    def left_out(self) -> Json:
        """Why a system or a measurement is not to be run, by its name."""
        return self.read_json("left_out") or {}

    def _read(self, path: Path) -> RunResult:
        value = read_json(path)
        try:
            return RunResult.from_json(value)
        except (KeyError, TypeError, AttributeError) as problem:
            raise SconesError(
                f"{path} does not hold the results of a run ({problem}); remove it to run again."
            ) from None


@dataclass(frozen=True)
class Results:
    """A results folder."""

    folder: Path

    def directions(self) -> list[Direction]:
        """Give the directions that have results, by name."""
        folders = sorted(self.folder.iterdir()) if self.folder.is_dir() else []
        return [Direction(folder) for folder in folders if any(folder.glob("*.json"))]

    def direction(self, name: str) -> Direction:
        """Give a direction, which may have no results yet."""
        return Direction(self.folder / name)

    def apart(self, name: str) -> Results:
        """Give results that are not of the recipes themselves: RETRAINED or LONGER."""
        return Results(self.folder / name)

    @property
    def synthetic(self) -> Json | None:
        """What `scones synthetic` found; None where it was not run."""
        path = self.folder / "synthetic.json"
        value: Json | None = read_json(path) if path.exists() else None
        return value


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Say in one sentence what files with a wrong value somewhere lead to."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as problem:
        kind = type(problem).__name__
        raise SconesError(
            f"{folder} holds a file that cannot be read as results ({kind}: {problem}); it is "
            "damaged, or of another version."
        ) from problem


def run_name(system: str, seed: int, first_seed: int) -> str:
    """Name a run: the recipe's first seed needs no mention."""
    return system if seed == first_seed else f"{system}-seed{seed}"


def hypothesis_file(run: str, test: str, search: str) -> str:
    """Name a file of translations.

    `search` is greedy or beam4 for a whole set, analysis.beam4, analysis.exact, speed.4 and so on
    for its first sentences.
    """
    return f"{run}.{test}.{search}.txt.xz"


def one_line(text: str) -> str:
    """Take out what pieces can spell in bytes and a text file cannot hold."""
    return " ".join(text.replace("\0", " ").split("\n"))


def _order(run: RunResult) -> tuple[Any, ...]:
    scones = run.alpha is not None
    return scones, run.label_smoothing > 0, run.alpha or 0.0, run.label_smoothing, run.seed
