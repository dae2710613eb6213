"""The results folder: what is written is read again, and α is chosen by one rule."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_toys import DEV, run_result, search_result

from scones.paper.results import (
    Direction,
    Results,
    RunResult,
    SetResult,
    choose,
    hypothesis_file,
    one_line,
)


def made_up(system: str, bleu: float, seed: int = 1, **changes: Any) -> RunResult:
    search = search_result({"bleu": bleu}, hypothesis_file(system, DEV, "greedy"))
    run = run_result("de-en", system, {DEV: SetResult("s", "r", 3, {"greedy": search})}, seed)
    return replace(run, **changes)


RUNS = [
    made_up("scones-ls", 30.0),
    made_up("scones-1.0", 21.0),
    made_up("scones-0.5", 22.0, seed=2),
    made_up("scones-0.5", 20.0),
    made_up("softmax-ls", 24.0),
    made_up("softmax", 25.0),
]


@pytest.fixture
def direction(tmp_path: Path) -> Direction:
    direction = Results(tmp_path).direction("de-en")
    for run in RUNS:
        direction.write_run(run)
    return direction


def test_runs_come_back_in_order_and_unchanged(direction: Direction) -> None:
    for name in ("corpora", "chosen", "analysis", "speed"):  # these are no runs
        direction.write_json(name, {"made": "up"})
    names = ["softmax", "softmax-ls", "scones-0.5", "scones-0.5-seed2", "scones-1.0", "scones-ls"]
    assert [run.name for run in direction.runs()] == names
    assert sorted(direction.runs(), key=repr) == sorted(RUNS, key=repr)
    assert direction.run("softmax") == RUNS[-1]
    assert direction.run("sconse") is None
    assert direction.speed == {"made": "up"}


def test_the_best_alpha_has_no_smoothing_and_the_first_seed() -> None:
    chosen = choose(RUNS)
    assert chosen is not None
    assert (chosen.system, chosen.alpha, chosen.dev) == ("scones-1.0", 1.0, DEV)
    assert chosen.bleu == {"scones-1.0": 21.0, "scones-0.5": 20.0}
    equal = [made_up(system, 20.0) for system in ("scones-1.0", "scones-0.2")]
    chosen = choose(equal)
    assert chosen is not None
    assert chosen.alpha == 0.2
    assert choose(run for run in RUNS if run.system.startswith("softmax")) is None
    assert choose([replace(equal[0], tests={})]) is None


def test_translations_come_back_line_by_line(direction: Direction) -> None:
    texts = ["", "two\u2028words", one_line("a\nb\0c"), "ünï\r"]
    direction.write_hypotheses("some.txt.xz", texts)
    assert direction.hypotheses("some.txt.xz") == texts == ["", "two\u2028words", "a b c", "ünï\r"]
