"""Scores that need no model, computed from stored translations and the references."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

from scones.analysis.tables import texts_digest
from scones.errors import SconesError
from scones.paper.plan import Plan
from scones.paper.results import Direction, SearchResult
from scones.paper.translating import scored
from scones.text.workers import ordered_map


@dataclass(frozen=True)
class _Task:
    """Translations that lack scores."""

    run: str
    test: str
    search: str
    result: SearchResult
    texts: list[str]
    references: list[str]
    metrics: list[str]


def rescore(
    plan: Plan,
    direction: Direction,
    metrics: list[str],
    workers: int,
    say: Callable[[str], None] = lambda text: None,
) -> int:
    """Add the scores by `metrics` that stored results lack; gives their number.

    Results are kept one by one, so that what was computed before a stop is not computed again.
    """
    tasks = list(_tasks(plan, direction, metrics))
    with closing(ordered_map(_score, iter(tasks), _no_tool, min(workers, len(tasks) or 1))) as done:
        for task, found in zip(tasks, done, strict=True):
            _keep(direction, task, found)
            say(f"{task.run}: {task.test}, {task.search}")
    return sum(len(task.metrics) for task in tasks)


def _tasks(plan: Plan, direction: Direction, metrics: list[str]) -> Iterator[_Task]:
    for run in direction.runs():
        for name, test in run.tests.items():
            if name not in plan.sets:
                continue
            _, references = plan.sets[name].read()
            if texts_digest(references) != test.reference_digest:
                raise SconesError(
                    f"{plan.sets[name].reference} is not the reference that {run.name} was scored "
                    f"with (digest {test.reference_digest}); give the data folder of that time."
                )
            for search, result in test.searches.items():
                if missing := [metric for metric in metrics if metric not in result.scores]:
                    texts = direction.hypotheses(result.file)
                    yield _Task(run.name, name, search, result, texts, references, missing)


def _no_tool() -> None:
    return None


def _score(_: None, task: _Task) -> SearchResult:
    return scored(task.result, task.texts, task.references, task.metrics)


def _keep(direction: Direction, task: _Task, found: SearchResult) -> None:
    run = direction.run(task.run)
    if run is None or run.search(task.test, task.search) != task.result:
        return  # removed, or translated by another model, in the meantime
    test = run.tests[task.test]
    test = replace(test, searches={**test.searches, task.search: found})
    direction.write_run(replace(run, tests={**run.tests, task.test: test}))
