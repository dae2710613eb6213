"""The paper's experiments for one direction: train, translate, search, measure speed.

Results go into a results folder (see `results`), models and logs into a folder of runs:

    de-en/softmax/, scones-0.5/, …           models
    de-en/softmax.search/, …                 what their searches gave (see `analysis`)
    de-en/*.log, *.done.json                 processes: what they said, that they ended

What has results is not made again, even when the models are gone, so that the work can be done in
several sessions and on several machines. Trainings, translations and searches are processes, and
systems go side by side, each at its own pace; with one job at a time, translations need no process
of their own. Speed comes last: it is measured when nothing else is running.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from scones.analysis.tables import model_digest
from scones.errors import SconesError
from scones.outputs import output_layer
from scones.paper.agreement import made_from, origin_of
from scones.paper.jobs import Job, run_all
from scones.paper.plan import Plan, Run
from scones.paper.results import Direction, Json, Results, choose, reading
from scones.paper.searching import Searching
from scones.paper.speed import is_timed, measure_speed
from scones.paper.translating import Translating, is_complete
from scones.text.store import TokenStore

Stage = Literal["train", "translate", "search", "speed"]
STAGES: tuple[Stage, ...] = ("train", "translate", "search", "speed")


@dataclass(frozen=True)
class Budget:
    """Of every training; None: what the recipe says."""

    max_steps: int | None = None
    max_minutes: float | None = None


@dataclass(frozen=True)
class Experiments:
    """What to run, with what, and where the results go."""

    plan: Plan
    results: Path
    store: Path
    runs: Path
    systems: Sequence[str] = ()
    """None: all of the recipe."""
    seeds: Sequence[int] = ()
    """None: the recipe's own."""
    budget: Budget = Budget()
    again: bool = False
    """Train also what has results but no model."""
    jobs: int = 1
    device: str = "auto"
    last: Stage = "speed"
    """The stage to end with."""
    skip_search: bool = False
    """Leave the searches out, whatever the last stage."""
    say: Callable[[str], None] = lambda text: None
    """Told whenever something begins or ends."""

    def run(self) -> None:
        """Do what is not done yet."""
        self._check()
        self._keep_what_is_known()
        chains = [self._jobs_of(run) for run in self.wanted]
        try:
            if self._is_alone:
                self._one_by_one(chains)
            else:
                run_all(chains, self.jobs, self.say)
        finally:
            if chosen := choose(self.direction.runs()):
                self.direction.write_json("chosen", chosen.to_json())
        if self._reaches("speed"):
            self._measure_speed()

    def _one_by_one(self, chains: Iterable[Iterable[Job]]) -> None:
        """Run jobs without a process for translations; a chain that breaks ends alone."""
        failures = []
        for jobs in chains:
            try:
                for job in jobs:
                    run_all([[job]], 1, self.say)
            except SconesError as failure:
                failures.append(failure)
        if failures:
            raise failures[0]

    def _jobs_of(self, run: Run) -> Iterator[Job]:
        """Give what is to be done for a run, one after another."""
        if self.again or self._is_to_translate(run):
            yield self._training(run)
        if self._reaches("translate") and self._is_to_translate(run):
            if self._is_alone:
                self._translate(run)
            else:
                yield self._translation(run)
        if self._reaches("search") and (searching := self._searching) and self._is_to_search(run):
            found = self._place(run, ".search")
            command = searching.command(run, self._place(run), found, self.device)
            yield Job(f"{run.name}: search", command, self._place(run, ".search.log"), None)
            searching.collect(run, found, command)

    @property
    def _is_alone(self) -> bool:
        """Whether one thing is done at a time; translations then need no process of their own."""
        return self.jobs == 1 or len(self.wanted) == 1

    def _reaches(self, stage: Stage) -> bool:
        if stage == "search" and self.skip_search:
            return False
        return STAGES.index(stage) <= STAGES.index(self.last)

    @cached_property
    def direction(self) -> Direction:
        """Where the results go."""
        return Results(self.results).direction(self.plan.direction)

    @cached_property
    def wanted(self) -> list[Run]:
        """All trainings that were asked for."""
        return [
            self.plan.run(system, seed)
            for seed in (self.seeds or [self.plan.first_seed])
            for system in (self.systems or self.plan.systems)
        ]

    def _check(self) -> None:
        """Refuse before hours of work what would be refused after them."""
        if self.jobs < 1:
            raise SconesError(f"jobs must be at least 1, not {self.jobs}.")
        for folder in (self.results, self.runs):
            if folder.exists() and not folder.is_dir():
                raise SconesError(f"{folder} is a file; give a folder to write to.")
        self.plan.check_systems(self.systems)
        for test in self.plan.sets.values():
            test.read()
        if self._unfinished or self.again:
            self.plan.check_store(self._opened_store)
        if self._unfinished and not self.again:
            self._check_agreement()
        if self._searching is not None and self._reaches("search"):
            with reading(self.direction.folder):
                self._searching.check()

    def _check_agreement(self) -> None:
        """Refuse to put runs beside others that were made from something else."""
        asked = made_from(self._opened_store.digest, self.plan.sections, self._budget)
        sets = {name: test.digests() for name, test in self.plan.sets.items()}
        for kept in self.direction.runs():
            found = origin_of(kept)
            other = [name for name in asked if found[name] != asked[name]]
            for name, test in kept.tests.items():
                digests = test.source_digest, test.reference_digest
                if name in sets and sets[name] != digests:
                    other.append(f"the text of {name}")
            if other:
                raise SconesError(
                    f"{self.direction.folder / kept.name}.json was made with other {other[0]} than "
                    "what is asked for now, and would stand beside it; give another RESULTS folder."
                )

    @property
    def _budget(self) -> dict[str, float]:
        return {name: value for name, value in vars(self.budget).items() if value is not None}

    def _keep_what_is_known(self) -> None:
        if self.direction.corpora is None and (self.store / "report.json").exists():
            self.direction.write_json("corpora", corpora_report(self._opened_store, self.plan))
        if self.direction.left_out != self.plan.left_out:
            self.direction.write_json("left_out", dict(self.plan.left_out))

    @cached_property
    def _opened_store(self) -> TokenStore:
        return TokenStore.open(self.store)

    @property
    def _unfinished(self) -> list[Run]:
        """Runs that have not translated everything."""
        return [
            run for run in self.wanted if not is_complete(self.direction.run(run.name), self.plan)
        ]

    # Training

    def _place(self, run: Run, ending: str = "") -> Path:
        return self.runs / self.plan.direction / f"{run.name}{ending}"

    def _training(self, run: Run) -> Job:
        output = self.plan.systems[run.system]
        words = ["train", str(self.store), str(self._place(run)), "--recipe", str(self.plan.recipe)]
        layer = output_layer(output).to_config()
        words += ["--output-layer", layer.pop("layer")]
        for name in layer:
            if name in output:
                words += [f"--{name.replace('_', '-')}", str(output[name])]
        words += ["--seed", str(run.seed), "--device", self.device]
        for name, value in self._budget.items():
            words += [f"--{name.replace('_', '-')}", str(value)]
        made_with: dict[str, Any] = {
            "data": self._opened_store.digest,
            "recipe": {**self.plan.sections, "output": output},
            "seed": run.seed,
            **self._budget,
        }
        log = self._place(run, ".train.log")
        return Job(f"{run.name}: training", words, log, made_with, self._place(run))

    def _model(self, run: Run) -> Path | None:
        """Give the trained model of a run; None where it is not there."""
        return self._place(run) if self.store.exists() and self._training(run).is_done else None

    # Translation

    def _translate(self, run: Run) -> None:
        command = " ".join(["scones", *self._training(run).command])
        place = self._place(run)
        Translating(
            self.plan, run, place, command, self.direction, self.device, self.say
        ).translate()

    def _is_to_translate(self, run: Run) -> bool:
        kept = self.direction.run(run.name)
        if kept is None or not is_complete(kept, self.plan):
            return True
        return self.again and kept.model_digest != self._digest(run)

    def _digest(self, run: Run) -> str | None:
        """Give the digest of the trained model of a run; None where it is not there."""
        model = self._model(run)
        return None if model is None else model_digest(model)

    def _translation(self, run: Run) -> Job:
        """Give the command that does what this object does, for a single run."""
        words = ["paper", "run", str(self.plan.recipe), str(self.results), "--until", "translate"]
        words += ["--store", str(self.store), "--runs", str(self.runs), "--device", self.device]
        words += ["--system", run.system, "--seed", str(run.seed)]
        if self.plan.data is not None:
            words += ["--data", str(self.plan.data)]
        for name, value in self._budget.items():
            words += [f"--{name.replace('_', '-')}", str(value)]
        if self.again:
            words.append("--again")
        return Job(f"{run.name}: translation", words, self._place(run, ".translate.log"), None)

    # Search

    @cached_property
    def _searching(self) -> Searching | None:
        if self.plan.search is None:
            return None
        return Searching(self.plan, self.plan.search, self.direction)

    def _is_to_search(self, run: Run) -> bool:
        """Say whether a run lacks searches that its model, which must be there, can make."""
        assert self._searching is not None
        asked = self._searching.settings.systems or self.plan.systems
        if run.system not in asked or run.seed != self.plan.first_seed:
            return False
        model, kept = self._model(run), self.direction.run(run.name)
        translated = None if kept is None else kept.model_digest
        if self._searching.is_done(run, self._digest(run) if self.again and model else translated):
            return False
        if model is None:
            self.say(_gone(run.name, "searched", self.runs))
        return model is not None

    # Speed

    def _measure_speed(self) -> None:
        settings, chosen = self.plan.speed, choose(self.direction.runs())
        if settings is None or chosen is None:
            return
        runs = [self.plan.run(system) for system in (settings.baseline, chosen.system)]
        if not {run.name for run in runs} <= {run.name for run in self.wanted}:
            return
        models = {run.name: model for run in runs if (model := self._model(run))}
        stored = {one.name: one.model_digest for one in self.direction.runs()}
        digests = {run.name: stored[run.name] for run in runs}
        if self.again:
            digests |= {name: model_digest(model) for name, model in models.items()}
        sources, references = self.plan.sets[settings.set].read(settings.sentences)
        with reading(self.direction.folder):
            if is_timed(self.direction.speed, digests, settings, len(sources)):
                return
        for run in runs:
            if run.name not in models:
                self.say(_gone(run.name, "timed", self.runs))
                return
        found = measure_speed(
            models, sources, references, settings, self.direction, self.device, self.say
        )
        found["command"] = self.plan.without_place(found["command"])
        self.direction.write_json("speed", found)


def corpora_report(store: TokenStore, plan: Plan) -> Json:
    """Give the report of a store without sentences, and without the place of the data."""

    def shown(path: str | None) -> str | None:
        return None if path is None else plan.shown(Path(path))

    report = dict(store.report)
    options = report["options"]
    names = ("pieces", "max_pieces", "sample_megabytes", "cleaning")
    report["options"] = {name: options[name] for name in names if name in options}
    report["options"]["held_out"] = [shown(path) for path in options.get("held_out", [])]
    report["corpora"] = [
        {
            **{name: value for name, value in corpus.items() if name != "examples"},
            "source": shown(corpus["source"]),
            "target": shown(corpus["target"]),
        }
        for corpus in report["corpora"]
    ]
    return report


def _gone(name: str, done: str, runs: Path) -> str:
    return (
        f"{name} is not {done}: its model is not in {runs}; --again trains and translates it again"
    )
