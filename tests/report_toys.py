"""Made-up results of two directions, with the data folder that they were scored with.

de-en has three seeds and an analysis; en-de has few systems, no searches and no msdocs; of some of
that it says why. What a whole report shows is tested with the stored results.
"""

from __future__ import annotations

import lzma
import random
from pathlib import Path
from typing import Any

from scones.analysis.tables import texts_digest
from scones.evaluation.metrics import score
from scones.paper.report import writing
from scones.paper.report.document import Document, Row, Table
from scones.paper.report.significance import Marks
from scones.paper.report.study import Study
from scones.paper.results import (
    Direction,
    Results,
    RunResult,
    SearchResult,
    SetResult,
    hypothesis_file,
    run_name,
)

SENTENCES = 40
FIRST = 20
"""Sentences of an analysis."""
_WORDS = {
    "en": tuple("the a cat dog spoon drinks sees likes warm cold old tea jam cream".split()),  # noqa: SIM905
    "de": tuple("die eine Katze Kanne trinkt sieht mag warm kalt alt Tee Rahm und".split()),  # noqa: SIM905
}
_FILES = {
    "newstest2018": "newstest/newstest2018.de-en",
    "newstest2019": "newstest/newstest2019.{direction}",
    "europarl": "europarl/test.de-en",
    "msdocs": "msdocs/test",
}
OUTPUTS: dict[str, dict[str, Any]] = {
    "softmax": {"layer": "softmax", "label_smoothing": 0.0},
    "softmax-ls": {"layer": "softmax", "label_smoothing": 0.1},
    "scones-0.2": {"layer": "scones", "alpha": 0.2, "label_smoothing": 0.0},
    "scones-0.5": {"layer": "scones", "alpha": 0.5, "label_smoothing": 0.0},
    "scones-1.0": {"layer": "scones", "alpha": 1.0, "label_smoothing": 0.0},
    "scones-ls": {"layer": "scones", "alpha": 0.5, "label_smoothing": 0.1},
}
_NOISE = {
    "softmax": 0.3,
    "softmax-ls": 0.28,
    "scones-0.2": 0.25,
    "scones-0.5": 0.1,
    "scones-1.0": 0.2,
    "scones-ls": 0.3,
}


def make_toys(folder: Path) -> Path:
    """Write results and data."""
    make_results(folder / "results")
    make_data(folder / "data")
    return folder


def make_data(folder: Path) -> Path:
    """Write a data folder with the references of all sets."""
    for direction in ("de-en", "en-de"):
        language = direction[-2:]
        for test, stem in _FILES.items():
            path = folder / f"{stem.format(direction=direction)}.{language}.xz"
            write_lines(path, texts(direction, test))
    return folder


def make_results(folder: Path) -> Results:
    """Write results."""
    results = Results(folder)
    german = results.direction("de-en")
    for system in OUTPUTS:
        for seed in (1, 2, 3) if system in ("softmax", "scones-0.5") else (1,):
            german.write_run(_run(german, system, seed, list(_FILES)))
    german.write_json("analysis", _analysis(german))
    english = results.direction("en-de")
    for system in ("softmax", "scones-0.5"):
        english.write_run(_run(english, system, 1, ["newstest2018", "newstest2019", "europarl"]))
    english.write_json("left_out", {"scones-ls": "no jam", "speed": "no cream"})
    return results


def texts(direction: str, test: str) -> list[str]:
    """Give the references of a set."""
    chance = random.Random(f"{direction[-2:]} {test} {direction if '2019' in test else ''}")
    words = _WORDS[direction[-2:]]
    return [" ".join(chance.choices(words, k=12)) + " ." for _ in range(SENTENCES)]


def write_lines(path: Path, lines: list[str]) -> None:
    """Write texts as results keep them, only faster."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress("".join(f"{line}\n" for line in lines).encode(), preset=0))


def _noisy(direction: str, test: str, noise: float, seed: object) -> list[str]:
    chance = random.Random(str(seed))
    words = _WORDS[direction[-2:]]
    return [
        " ".join(chance.choice(words) if chance.random() < noise else word for word in text.split())
        for text in texts(direction, test)
    ]


def _run(direction: Direction, system: str, seed: int, tests: list[str]) -> RunResult:
    name = run_name(system, seed, 1)
    return RunResult(
        name=name,
        system=system,
        direction=direction.name,
        seed=seed,
        output=OUTPUTS[system],
        training={
            "steps": 12_345 + seed,
            "minutes": 23.75,
            "target_tokens": 98_765_432,
            "parameters": 60_556_544,
            "dev_bleu": {"1000": 10.5},
            "recipe": {
                "file": "a.toml",
                "model": {"preset": "paper"},
                "train": {"max_tokens": 65536},
            },
        },
        data_digest=f"data-{direction.name}",
        model_digest=f"model-{name}",
        commit="abc123def456",
        device="toy device",
        versions={"scones": "0.1.0", "torch": "2.11"},
        command=f"scones train <store> runs/{name} --seed {seed}",
        dev="newstest2018",
        tests={test: _set(direction, name, system, seed, test) for test in tests},
    )


def _set(direction: Direction, run: str, system: str, seed: int, test: str) -> SetResult:
    searches = {}
    references = texts(direction.name, test)
    for search, better in (("greedy", 0.0), ("beam4", 0.02)):
        found = _noisy(direction.name, test, _NOISE[system] - better, f"{system} {seed} {search}")
        file = hypothesis_file(run, test, search)
        write_lines(direction.folder / file, found)
        scores = {metric: score(metric, found, [references]) for metric in ("bleu", "chrf", "ter")}
        searches[search] = SearchResult(
            f"scones translate runs/{run} --search {search}",
            1.5,
            file,
            {metric: one.value for metric, one in scores.items()},
            {metric: one.signature for metric, one in scores.items()},
            1.0,
        )
    return SetResult("source", texts_digest(references), SENTENCES, searches)


def _outputs(direction: Direction, system: str, search: str, noise: float) -> dict[str, Any]:
    found = _noisy(direction.name, "newstest2019", noise, f"{system} {search}")[:FIRST]
    file = hypothesis_file(system, "newstest2019", f"analysis.{search}")
    write_lines(direction.folder / file, found)
    bleu = score("bleu", found, [texts(direction.name, "newstest2019")[:FIRST]])
    summary = {"count": FIRST, "mean": -12.34, "deviation": 3.21, "median": -11.0, "largest": -1.0}
    outputs = {"bleu": bleu.value, "length_ratio": bleu.length_ratio, "signature": bleu.signature}
    return {
        "outputs": {**outputs, "searched": FIRST, "empty": 0.05, "cut": 0, "log_probs": summary},
        "file": file,
    }


def _analysis(direction: Direction) -> dict[str, Any]:
    systems = {}
    for system in ("softmax", "scones-0.2"):
        beams = {}
        for size, noise in ((4, 0.25), (1000, 0.5)):
            errors = {"compared": 18, "share": 0.4567 / size, "above": 0}
            found = _outputs(direction, system, f"beam{size}", noise)
            beams[str(size)] = {**found, "seconds": 1.0, "errors": errors}
        exact = _outputs(direction, system, "exact", 0.8 if system == "softmax" else 0.2)
        summary = {
            "count": FIRST,
            "mean": -15.5,
            "deviation": 1.1,
            "median": -15.0,
            "largest": -9.0,
        }
        exact |= {"proved": 18, "unproved": 0.1, "stopped_by": {"states": 2}, "empty_modes": 0.25}
        exact |= {"empty_log_probs": summary, "states": summary, "seconds": summary}
        systems[system] = {
            "output": OUTPUTS[system],
            "model_digest": f"model-{system}",
            "devices": ["toy device"],
            "commits": ["abc123def456"],
            "command": f"scones analyze {system}",
            "beams": beams,
            "exact": exact,
        }
    return {
        "direction": direction.name,
        "test": "newstest2019",
        "source_digest": "source",
        "reference_digests": ["reference"],
        "sentences": FIRST,
        "precision": "float32",
        "first_beam": 4,
        "limits": {
            "max_states": 123_456,
            "max_seconds": None,
            "sentence_seconds": None,
            "max_memory": None,
        },
        "systems": systems,
    }


def document(results: Path, marks: Marks | None = None) -> Document:
    """Give the report of a results folder."""
    return writing.make_document(Study(Results(results)), marks or Marks(), None, "results")


def table(found: Document, key: str) -> Table:
    """Find a table."""
    return next(one for one in found.tables() if one.key == key)


def row(found: Table, label: str) -> Row:
    """Find a row."""
    return next(one for one in found.rows if one.label == label)
