"""Results made up for the verdicts: a folder with just the numbers that they weigh."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scones.paper.report.judging import Claim, Judgement, Material
from scones.paper.report.significance import Marks
from scones.paper.report.study import NEWS, Study
from scones.paper.results import Direction, Results, RunResult, SearchResult, SetResult, run_name

DEV = "newstest2018"
ALPHAS = {"scones-0.2": 0.2, "scones-0.5": 0.5, "scones-1.0": 1.0}
Searches = Mapping[str, float]
"""BLEU by search; for short a number is BLEU of both."""


def output(system: str) -> dict[str, Any]:
    layer, _, rest = system.partition("-")
    found: dict[str, Any] = {"layer": layer, "label_smoothing": 0.1 if rest == "ls" else 0.0}
    return found if layer == "softmax" else {**found, "alpha": ALPHAS.get(system, 0.5)}


class Made:
    """A results folder that is filled step by step; there are no translations behind it."""

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
        bleu: Searches | float,
        *,
        dev: float = 20.0,
        seed: int = 1,
        chrf: Searches | float = 50.0,
    ) -> None:
        """Add a run with scores on newstest2019 and on the development set."""
        made = run_name(system, seed, 1)
        metrics = {"bleu": both(bleu), "chrf": both(chrf)}
        tests = {
            NEWS: {
                search: {metric: one[search] for metric, one in metrics.items()}
                for search in ("greedy", "beam4")
            },
            DEV: {"greedy": {"bleu": dev}},
        }
        self.direction(name).write_run(
            RunResult(
                name=made,
                system=system,
                direction=name,
                seed=seed,
                output=output(system),
                training={"recipe": {}},
                data_digest="data",
                model_digest=made,
                commit="abc",
                device="toy",
                versions={},
                command="scones train",
                dev=DEV,
                tests={
                    test: SetResult(
                        "source",
                        "reference",
                        9,
                        {
                            search: SearchResult("scones translate", 1.0, "file", scores, {}, 1.0)
                            for search, scores in searches.items()
                        },
                    )
                    for test, searches in tests.items()
                },
            )
        )

    def p(self, name: str, run: str, comparison: str, p: float) -> None:
        """Add a bootstrap test."""
        self.marks.known[name, run, NEWS, comparison] = {"p": p, "baseline": "", "signature": ""}

    def corpora(self, name: str, pairs: int) -> None:
        value = {"pairs_kept": pairs, "pairs_read": pairs, "vocabulary": 9, "corpora": []}
        self.direction(name).write_json("corpora", value)

    def analysis(self, name: str, systems: Mapping[str, dict[str, Any]]) -> None:
        value = {"test": NEWS, "sentences": 200, "limits": None, "systems": systems}
        value |= {"source_digest": "", "reference_digests": [], "precision": "float32"}
        self.direction(name).write_json("analysis", value)

    def judge(self, claim: Claim) -> Judgement:
        return claim.judge(Material(Study(Results(self.folder)), self.marks, self.learned))


def both(scores: Searches | float) -> Searches:
    return {"greedy": scores, "beam4": scores} if isinstance(scores, int | float) else scores


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
