"""Made-up results of the paper's experiments: one run, a folder of numbers, a whole study.

What a whole report shows is tested with the stored results.
"""

from __future__ import annotations

import lzma
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scones.analysis.tables import texts_digest
from scones.evaluation.metrics import score
from scones.paper.report import writing
from scones.paper.report.document import Document
from scones.paper.report.judging import Claim, Judgement, Material
from scones.paper.report.significance import Marks
from scones.paper.report.study import NEWS, Study
from scones.paper.results import (
    Direction,
    Results,
    RunResult,
    SearchResult,
    SetResult,
    hypothesis_file,
    run_name,
)

DEV = "newstest2018"
ALPHAS = {"scones-0.2": 0.2, "scones-0.5": 0.5, "scones-1.0": 1.0}


def output(system: str) -> dict[str, Any]:
    layer, _, rest = system.partition("-")
    found: dict[str, Any] = {"layer": layer, "label_smoothing": 0.1 if rest == "ls" else 0.0}
    return found if layer == "softmax" else {**found, "alpha": ALPHAS.get(system, 0.5)}


def run_result(
    direction: str, system: str, tests: Mapping[str, SetResult], seed: int = 1
) -> RunResult:
    name = run_name(system, seed, 1)
    recipe = {"file": "a.toml", "model": {"preset": "paper"}, "train": {"max_tokens": 65536}}
    return RunResult(
        name=name,
        system=system,
        direction=direction,
        seed=seed,
        output=output(system),
        training={
            "steps": 12_345,
            "minutes": 23.75,
            "target_tokens": 98_765_432,
            "parameters": 60_556_544,
            "dev_bleu": {"1000": 10.5},
            "recipe": recipe,
        },
        data_digest=f"data-{direction}",
        model_digest=f"model-{name}",
        commit="abc123def456",
        device="toy device",
        versions={"scones": "0.1.0", "torch": "2.11"},
        command=f"scones train <store> runs/{name} --seed {seed}",
        dev=DEV,
        tests=dict(tests),
    )


def search_result(scores: Mapping[str, float], file: str = "file") -> SearchResult:
    signatures = dict.fromkeys(scores, "made:up")
    return SearchResult("scones translate", 1.5, file, dict(scores), signatures, 1.0)


def searched(
    system: str,
    beams: Mapping[int, float],
    exact: float | None = None,
    errors: float = 0.0,
    proved: int = 150,
) -> dict[str, Any]:
    """Make the row of a system in analysis.json: BLEU by beam size, BLEU of exact search."""

    def outputs(bleu: float) -> dict[str, Any]:
        found = {"bleu": bleu, "searched": 200, "length_ratio": 1.0, "empty": 0.0, "signature": ""}
        return {**found, "log_probs": None}

    found = {"share": errors, "compared": proved}
    row = {
        "beams": {str(one): {"outputs": outputs(b), "errors": found} for one, b in beams.items()},
        "exact": None,
        "output": output(system),
        "commits": [],
        "devices": [],
        "model_digest": "",
    }
    if exact is not None:
        row["exact"] = {
            "outputs": outputs(exact),
            "proved": proved,
            "unproved": 1 - proved / 200,
            "empty_log_probs": None,
        }
    return row


def write_analysis(direction: Direction, systems: Mapping[str, dict[str, Any]]) -> None:
    value = {"test": NEWS, "sentences": 200, "limits": None, "systems": systems}
    value |= {"source_digest": "", "reference_digests": [], "precision": "float32"}
    direction.write_json("analysis", value)


class Made:
    """A folder with just the numbers that verdicts weigh; there are no translations behind it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.marks = Marks()
        self.learned: dict[str, float] | None = None

    def direction(self, name: str) -> Direction:
        return Results(self.folder).direction(name)

    def run(
        self,
        name: str,
        system: str,
        bleu: Mapping[str, float] | float,
        *,
        dev: float = 20.0,
        seed: int = 1,
        chrf: float = 50.0,
    ) -> None:
        """Add a run; a number is BLEU of both searches."""
        if isinstance(bleu, int | float):
            bleu = {"greedy": bleu, "beam4": bleu}
        news = {one: search_result({"bleu": b, "chrf": chrf}) for one, b in bleu.items()}
        tests = {
            NEWS: SetResult("source", "reference", 9, news),
            DEV: SetResult("source", "reference", 9, {"greedy": search_result({"bleu": dev})}),
        }
        self.direction(name).write_run(run_result(name, system, tests, seed))

    def p(self, name: str, run: str, comparison: str, p: float) -> None:
        """Add a bootstrap test."""
        self.marks.known[name, run, NEWS, comparison] = {"p": p, "baseline": "", "signature": ""}

    def corpora(self, name: str, pairs: int) -> None:
        value = {"pairs_kept": pairs, "pairs_read": pairs, "vocabulary": 9, "corpora": []}
        self.direction(name).write_json("corpora", value)

    def judge(self, claim: Claim) -> Judgement:
        return claim.judge(Material(Study(Results(self.folder)), self.marks, self.learned))


# A study of two directions with translations, and the data folder that they were scored with:
# de-en has two seeds and an analysis; en-de has no searches and no msdocs, and says why.

SENTENCES = 40
_WORDS = "the cat dog spoon drinks sees likes warm cold old tea jam cream".split()  # noqa: SIM905
_FILES = {
    "newstest2018": "newstest/newstest2018.de-en",
    "newstest2019": "newstest/newstest2019.{direction}",
    "europarl": "europarl/test.de-en",
    "msdocs": "msdocs/test",
}
_NOISE = {"softmax": 0.3, "scones-0.2": 0.25, "scones-0.5": 0.1}


def make_toys(folder: Path) -> Path:
    """Write results and data."""
    results = Results(folder / "results")
    german, english = results.direction("de-en"), results.direction("en-de")
    for system in _NOISE:
        for seed in (1, 2) if system != "scones-0.2" else (1,):
            _write_run(german, system, seed, [*_FILES])
    write_analysis(german, {one: _analysed(german, one) for one in ("softmax", "scones-0.2")})
    for system in ("softmax", "scones-0.5"):
        _write_run(english, system, 1, ["newstest2018", "newstest2019", "europarl"])
    english.write_json("left_out", {"scones-ls": "no jam", "speed": "no cream"})
    for direction in ("de-en", "en-de"):
        for test, stem in _FILES.items():
            path = f"{stem.format(direction=direction)}.{direction[-2:]}.xz"
            write_lines(folder / "data" / path, texts(direction, test))
    return folder


def texts(direction: str, test: str) -> list[str]:
    """Give the references of a set."""
    chance = random.Random(f"{direction[-2:]} {test} {direction if '2019' in test else ''}")
    return [" ".join(chance.choices(_WORDS, k=12)) + " ." for _ in range(SENTENCES)]


def write_lines(path: Path, lines: list[str]) -> None:
    """Write texts as results keep them, only faster."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress("".join(f"{line}\n" for line in lines).encode(), preset=0))


def _translate(direction: Direction, name: str, test: str, search: str, noise: float) -> Any:
    """Write references with noise as translations; gives their scores and their file."""
    chance = random.Random(f"{name} {search}")
    references = texts(direction.name, test)
    found = [
        " ".join(chance.choice(_WORDS) if chance.random() < noise else w for w in text.split())
        for text in references
    ]
    file = hypothesis_file(name, test, search)
    write_lines(direction.folder / file, found)
    metrics = ("bleu", "chrf", "ter")
    return search_result({one: score(one, found, [references]).value for one in metrics}, file)


def _write_run(direction: Direction, system: str, seed: int, tests: list[str]) -> None:
    name, sets = run_name(system, seed, 1), {}
    for test in tests:
        searches = {
            search: _translate(direction, name, test, search, _NOISE[system] - better)
            for search, better in (("greedy", 0.0), ("beam4", 0.02))
        }
        digest = texts_digest(texts(direction.name, test))
        sets[test] = SetResult("source", digest, SENTENCES, searches)
    direction.write_run(run_result(direction.name, system, sets, seed))


def _analysed(direction: Direction, system: str) -> dict[str, Any]:
    found = {
        one: _translate(direction, system, NEWS, f"analysis.{one}", noise)
        for one, noise in (("beam4", 0.25), ("beam1000", 0.5), ("exact", 0.4))
    }
    bleu = {one: result.scores["bleu"] for one, result in found.items()}
    row = searched(system, {4: bleu["beam4"], 1000: bleu["beam1000"]}, bleu["exact"])
    row["beams"]["4"]["file"] = found["beam4"].file
    row["beams"]["1000"]["file"] = found["beam1000"].file
    row["exact"]["file"] = found["exact"].file
    return row


def document(results: Path) -> Document:
    """Give the report of a results folder."""
    return writing.make_document(Study(Results(results)), Marks(), None, "results")
