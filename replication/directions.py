"""The paper's experiments for one direction: train, translate, search, measure speed.

Results go into a results folder (see `results`), models and logs into a folder of runs:

    de-en/softmax/, scones-0.5/, …           models
    de-en/softmax.search/, …                 what their searches gave (see `scones analyze`)
    de-en/*.log, *.done.json                 processes: what they said, that they ended

What has results is not made again, even when the models are gone, so that the work can be done in
several sessions and on several machines. Every system is a chain of processes (see `runner`). Speed
comes last: it is measured when nothing else is running.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from pathlib import Path

from replication.options import Run, Score
from replication.plan import Plan, SearchSettings, Training
from replication.results import Direction, Json, choose
from replication.runner import Job, Say, flag, require_alike, run_all, search_job, training_job
from replication.speed import is_timed, measure_speed
from scones.analysis.analyze import read_modes
from scones.analysis.tables import model_digest, texts_digest
from scones.errors import SconesError
from scones.evaluation.metrics import score
from scones.files import Provenance, read_json
from scones.hardware import usable_cores
from scones.model.folder import read_facts
from scones.text.store import TokenStore
from scones.text.workers import ordered_map
from scones.training.log import read_log
from scones.translator import load

_STAGES = ("train", "translate", "search", "speed")
SEARCHES: dict[str, Json] = {
    "greedy": {"search": "greedy", "scores": False, "end_circles": False},
    "beam4": {"search": "beam", "beam_size": 4, "length_penalty": 0.0, "end_circles": False},
}
METRICS = ("bleu", "chrf")
"""Those that take no time; TER takes half a minute a set, and needs no model (see `rescore`)."""
_WARM_UP = 8
_WITHOUT_EFFECT = ("seed", "log_every", "tensorboard", "device", "threads", "graphs")
"""Keys of [train] that may differ between runs that are compared."""
_OWN = ("commit", "device", "scones", "torch", "python")
"""What each system of analysis.json has for itself: they need not be searched at one time."""
_OF_A_CALL = (*_OWN, "command", "models", "machine", "threads", "systems")


@dataclass(frozen=True)
class Model:
    """A system and a seed: what is trained once."""

    system: str
    seed: int
    name: str
    folder: Path


@dataclass(frozen=True)
class Experiments:
    """What is to be run, as the command line says it."""

    options: Run
    say: Say

    @cached_property
    def plan(self) -> Plan:
        return Plan.load(self.options.recipe, self.options.data)

    @cached_property
    def training(self) -> Training:
        budget = {name: getattr(self.options, name) for name in ("max_steps", "max_minutes")}
        return Training.load(self.options.recipe, self.options.device, **budget)

    @cached_property
    def direction(self) -> Direction:
        """Where the results go."""
        return Direction(self.options.results / self.plan.direction)

    @cached_property
    def wanted(self) -> list[Model]:
        """All trainings that were asked for."""
        self.plan.check_systems(self.options.system)
        seeds = dict.fromkeys(self.options.seed or [self.training.first_seed])
        systems = dict.fromkeys(self.options.system or self.plan.systems)
        return [self._model(*one) for one in product(seeds, systems)]

    def _model(self, seed: int, system: str) -> Model:
        first = seed == self.training.first_seed  # which needs no mention
        name = system if first else f"{system}-seed{seed}"
        return Model(system, seed, name, self.options.runs / self.plan.direction / name)

    def run(self) -> None:
        """Do what is not done yet."""
        self._check()
        self._keep_what_is_known()
        try:
            run_all([self._chain(model) for model in self.wanted], self.options.jobs, self.say)
        finally:
            if chosen := choose(self.direction.runs()):
                self.direction.write("chosen", chosen)
        if self._reaches("speed"):
            self._measure_speed()

    def _chain(self, model: Model) -> Iterator[Job]:
        """What is to be done for a model; what is there is looked at when its turn has come."""
        if self.options.again or self._lacks(model):
            yield self._training(model)
        stale = self.options.again and not self._is_there(model)
        if self._reaches("translate") and (self._lacks(model) or stale):
            yield self._translation(model)
        search = self.plan.search
        if search is not None and self._reaches("search") and self._is_to_search(model, search):
            test, device = self.plan.sets[search.set], self.options.device
            job = search_job(model.name, model.folder, test, search, device)
            yield job
            self._keep_search(model, search, job)

    def _reaches(self, stage: str) -> bool:
        left_out = stage == "search" and self.options.skip_search
        return not left_out and _STAGES.index(stage) <= _STAGES.index(self.options.until)

    def _lacks(self, model: Model) -> bool:
        """Whether a model has not translated everything that the recipe asks for."""
        kept = self.direction.run(model.name)
        return kept is None or any(_missing(kept, test) for test in self.plan.sets)

    def _is_there(self, model: Model) -> bool:
        """Whether the very model is there whose translations are kept."""
        kept, there = self.direction.run(model.name), (model.folder / "config.json").exists()
        return kept is not None and there and model_digest(model.folder) == kept["model_digest"]

    def _can_be(self, done: str, model: Model) -> bool:
        """Whether a model that lacks something is there; said where it is not."""
        if not self._is_there(model):
            self.say(
                f"{model.name} is not {done}: its model is not in {self.options.runs}; --again "
                "trains and translates it again"
            )
        return self._is_there(model)

    # Before hours of work: what would be refused after them.

    def _check(self) -> None:
        texts = {name: test.read() for name, test in self.plan.sets.items()}
        unfinished = any(self._lacks(model) for model in self.wanted)
        if unfinished or self.options.again:
            store = TokenStore.open(self.options.store)
            found = f"{store.source_language}-{store.target_language}"
            require_alike(store.path, {"direction": self.plan.direction}, {"direction": found})
        if unfinished and not self.options.again:
            asked = _settings(store.digest, self.training.sections, self.training.budget)
            for name, both in texts.items():
                asked[f"the text of {name}"] = [*map(texts_digest, both)]
            for run in self.direction.runs():
                require_alike(self.direction.path(run["name"]), asked, settings_of(run))
        search, kept = self.plan.search, self.direction.read("analysis")
        if search is not None and kept is not None and self._reaches("search"):
            sources, references = self.plan.sets[search.set].read(search.sentences)
            memory = None if search.max_memory is None else int(search.max_memory * 1e9)
            limits = {"max_states": search.max_states, "max_memory": memory}
            asked = {"sentences": len(sources), "limits": {**kept["limits"], **limits}}
            asked["source_digest"] = texts_digest(sources)
            asked["reference_digests"] = [texts_digest(references)]
            require_alike(self.direction.path("analysis"), asked, kept)

    def _keep_what_is_known(self) -> None:
        if self.direction.read("corpora") is None and (self.options.store / "report.json").exists():
            report = json.dumps(TokenStore.open(self.options.store).report, ensure_ascii=False)
            corpora = json.loads(self.plan.without_place(report))
            options = ("pieces", "max_pieces", "sample_megabytes", "cleaning", "held_out")
            corpora["options"] = {name: corpora["options"].get(name) for name in options}
            for corpus in corpora["corpora"]:
                corpus.pop("examples", None)  # these are sentences
            self.direction.write("corpora", corpora)
        if (self.direction.read("left_out") or {}) != self.plan.left_out:
            self.direction.write("left_out", dict(self.plan.left_out))

    # Training and translation.

    def _training(self, model: Model) -> Job:
        output = self.plan.systems[model.system]
        return training_job(
            model.name, self.training, self.options.store, model.folder, output, model.seed
        )

    def _translation(self, model: Model) -> Job:
        """A process that calls `translate`."""
        words = ["paper", "translate", str(self.options.recipe), str(self.options.results)]
        given = {name: getattr(self.options, name) for name in ("store", "runs", "device")}
        given |= {"data": self.plan.data, "system": model.system, "seed": model.seed}
        for name, value in {**given, **self.training.budget}.items():
            words += [] if value is None else [flag(name), str(value)]
        log = model.folder.with_name(f"{model.name}.translate.log")
        return Job(f"{model.name}: translation", words, log)

    def translate(self, model: Model) -> None:
        """Translate what this model has not translated; every search is kept at once."""
        if not self._is_there(model):  # the scores go before the translations they are of
            self.direction.write(model.name, self._begun(model))
        kept = self.direction.run(model.name)
        assert kept is not None
        translator = load(model.folder, self.options.device, engine="torch")
        parameters = sum(parameter.numel() for parameter in translator.model.parameters())
        for test in self.plan.sets:
            sources, references = self.plan.sets[test].read()
            for search in _missing(kept, test):
                self.say(f"{model.name}: {test}, {search}")
                translator.translate(sources[:_WARM_UP], **SEARCHES[search])
                begin = time.perf_counter()
                found = translator.translate(sources, **SEARCHES[search])
                seconds = time.perf_counter() - begin
                texts = [best.text for best, *_ in found]
                file = self.direction.keep_texts(model.name, test, search, texts)
                command = self.plan.without_place(Provenance.now().command)
                result = {"command": command, "seconds": seconds}
                result |= {"file": file, **scored(self.direction.texts(file), references, METRICS)}
                about = {
                    "source_digest": texts_digest(sources),
                    "reference_digest": texts_digest(references),
                    "sentences": len(sources),
                    "searches": {},
                }
                with self.direction.changed(model.name) as whole:
                    whole["training"]["parameters"] = parameters
                    whole["tests"].setdefault(test, about)["searches"][search] = result

    def _begun(self, model: Model) -> Json:
        """All that is known of a model before it translates anything."""
        known, made = read_facts(model.folder), Provenance.now(self.options.device)
        recipe = {"file": self.options.recipe.name, **self.training.sections}
        return {
            "name": model.name,
            "system": model.system,
            "direction": self.plan.direction,
            "seed": model.seed,
            "output": known.output,
            "training": {**training_facts(model.folder), "recipe": recipe},
            "data_digest": str(known.data_digest),
            "model_digest": model_digest(model.folder),
            "commit": known.commit or made.commit,
            "device": made.device,
            "versions": {"scones": made.scones, "torch": made.torch, "python": made.python},
            "command": " ".join(["scones", *self._training(model).command]),
            "dev": self.plan.dev,
            "tests": {},
        }

    # Search.

    def _is_to_search(self, model: Model, search: SearchSettings) -> bool:
        """Whether a model lacks searches, and is there to make them."""
        kept = self.direction.run(model.name)
        asked = search.systems or self.plan.systems
        if kept is None or model.system not in asked or model.seed != self.training.first_seed:
            return False
        found = (self.direction.read("analysis") or {"systems": {}})["systems"].get(model.name)
        done = found is not None and found["model_digest"] == kept["model_digest"]
        if done and found["exact"] and {*map(str, search.beams)} <= found["beams"].keys():
            return False
        return self._can_be("searched", model)

    def _keep_search(self, model: Model, search: SearchSettings, job: Job) -> None:
        """Take over what `scones analyze` left in a folder, as one system of analysis.json."""
        found: Json = read_json(job.made / "analysis.json")
        system = found["systems"][model.name]
        keep = partial(self.direction.keep_texts, model.name, search.set)
        for size, row in system["beams"].items():
            outputs = read_json(job.made / f"{model.name}.beam{size}.json")["outputs"]
            row["file"] = keep(f"analysis.beam{size}", [one["text"] for one in outputs])
        modes = read_modes(job.made / f"{model.name}.exact.jsonl")
        system["exact"]["file"] = keep("analysis.exact", modes)
        system["command"] = self.plan.without_place(" ".join(["scones", *job.command]))
        system |= {name: found[name] for name in _OWN}
        shared = {name: value for name, value in found.items() if name not in _OF_A_CALL}
        with self.direction.changed("analysis") as kept:
            require_alike(self.direction.path("analysis"), shared, kept)
            systems = {**kept.pop("systems", {}), model.name: system}
            order = dict.fromkeys([*(one for one in self.plan.systems if one in systems), *systems])
            kept |= {"direction": self.plan.direction, "test": search.set, **shared}
            kept["systems"] = {name: systems[name] for name in order}

    # Speed.

    def _measure_speed(self) -> None:
        """Time the baseline and SCONES with the chosen α, where both were asked for."""
        digests = {run["name"]: run["model_digest"] for run in self.direction.runs()}
        chosen = choose(self.direction.runs())
        if self.plan.speed is None or chosen is None:
            return
        systems = (self.plan.speed.baseline, chosen["system"])
        asked = [self._model(self.training.first_seed, system) for system in systems]
        if not all(model in self.wanted and model.name in digests for model in asked):
            return
        digests = {model.name: digests[model.name] for model in asked}
        timed = is_timed(self.direction.read("speed"), digests, self.plan.speed)
        if not timed and all(self._can_be("timed", model) for model in asked):
            models = {model.name: model.folder for model in asked}
            found = measure_speed(models, self.plan, self.direction, self.options.device, self.say)
            found["command"] = self.plan.without_place(found["command"])
            self.direction.write("speed", found)


# What runs were made with.


def _settings(data: str, sections: Json, budget: Json) -> Json:
    """What all runs of a direction must have in common; `budget` overrules the recipe."""
    train = {**sections.get("train", {}), **budget}
    return {
        "training data": data,
        "[model]": sections.get("model", {}),
        "[train]": {name: value for name, value in train.items() if name not in _WITHOUT_EFFECT},
    }


def settings_of(run: Json) -> Json:
    """The same of a run that is stored, with the texts that it translated."""
    flags = re.findall(r"--(max-steps|max-minutes) (\S+)", run["command"])
    budget = {name.replace("-", "_"): json.loads(value) for name, value in flags}
    settings = _settings(run["data_digest"], run["training"].get("recipe") or {}, budget)
    for name, test in run["tests"].items():
        settings[f"the text of {name}"] = [test["source_digest"], test["reference_digest"]]
    return settings


def training_facts(model: Path) -> Json:
    """Say how long a run was trained, from what lies in its folder."""
    state = read_json(max((model / "training" / "checkpoints").glob("step-*/state.json")))
    events = read_log(model / "training" / "log.jsonl")
    return {
        "steps": state["step"],
        "best_step": read_facts(model).steps,
        "minutes": state["seconds"] / 60,
        "target_tokens": state["tokens"],
        "skipped_steps": state["skipped"],
        "dev_bleu": {str(one["step"]): one["bleu"] for one in events if one["event"] == "validate"},
    }


def _missing(run: Json, test: str) -> list[str]:
    """The searches of a set that a run has not made."""
    found = run["tests"].get(test, {"searches": {}})["searches"]
    return [search for search in SEARCHES if search not in found]


# Scores.


def scored(texts: Sequence[str], references: Sequence[str], metrics: Sequence[str]) -> Json:
    """Scores by metric, their signatures and, where BLEU is among them, the length ratio."""
    found = {metric: score(metric, texts, [references]) for metric in metrics}
    result: Json = {
        "scores": {metric: one.value for metric, one in found.items()},
        "signatures": {metric: one.signature for metric, one in found.items()},
    }
    return result | ({"length_ratio": found["bleu"].length_ratio} if "bleu" in found else {})


def rescore(options: Score, say: Say) -> Direction:
    """Add the scores that stored results lack, of several runs at once."""
    plan = Plan.load(options.recipe, options.data)
    direction = Direction(options.results / plan.direction)
    names = [run["name"] for run in direction.runs()]
    if not names:
        raise SconesError(f"{direction.folder} has no results; scones paper run makes them.")
    work = partial(_rescore_run, plan, direction, options.metric)
    workers = min(options.jobs or usable_cores(), len(names))
    with closing(ordered_map(work, iter(names), _no_tool, workers)) as done:
        for name, number in zip(names, done, strict=True):
            say(f"{name}: {number} more scores")
    return direction


def _rescore_run(
    plan: Plan, direction: Direction, metrics: Sequence[str], _: None, name: str
) -> int:
    run, number = direction.run(name) or {}, 0
    for test, search in product(run["tests"].keys() & plan.sets.keys(), SEARCHES):
        about = run["tests"][test]
        references = plan.sets[test].read()[1]
        asked = {"reference_digest": texts_digest(references)}
        require_alike(direction.path(name), asked, about)
        result = about["searches"].get(search, {"scores": metrics})
        if missing := [metric for metric in metrics if metric not in result["scores"]]:
            found = scored(direction.texts(result["file"]), references, missing)
            with direction.changed(name) as kept:  # which may have got more meanwhile
                for part in ("scores", "signatures"):
                    kept["tests"][test]["searches"][search][part] |= found[part]
            number += len(missing)
    return number


def _no_tool() -> None:
    return None
