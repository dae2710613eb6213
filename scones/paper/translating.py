"""A trained model translates development and test sets: its scores, its training, its facts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scones.analysis.tables import model_digest, texts_digest
from scones.evaluation.metrics import score
from scones.files import Provenance, read_json
from scones.model.folder import read_facts
from scones.paper.plan import EvaluationSet, Plan, Run
from scones.paper.results import (
    Direction,
    RunResult,
    SearchResult,
    SetResult,
    hypothesis_file,
    one_line,
)
from scones.training.log import read_log
from scones.translator import Translator, load

SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"search": "greedy", "scores": False},
    "beam4": {"search": "beam", "beam_size": 4},
}
METRICS = ("bleu", "chrf")
"""Those that take no time; TER takes half a minute a set, and needs no model (see `rescoring`)."""
_WARM_UP = 8


def is_complete(result: RunResult | None, plan: Plan) -> bool:
    """Say whether a run has translated everything that the recipe asks for."""
    return result is not None and all(
        result.search(test, search) is not None for test in plan.sets for search in SEARCHES
    )


@dataclass(frozen=True)
class Translating:
    """One model, and where its results go."""

    plan: Plan
    run: Run
    model: Path
    command: str
    """How it was trained."""
    direction: Direction
    device: str = "auto"
    say: Callable[[str], None] = lambda text: None

    def translate(self) -> RunResult:
        """Translate what has no result by this very model yet; every search is kept at once."""
        digest = model_digest(self.model)
        result = self.direction.run(self.run.name)
        if result is None or result.model_digest != digest:
            result = self._begun(digest)
            self.direction.write_run(result)  # the scores go before the translations they are of
        if is_complete(result, self.plan):
            return result
        translator = load(self.model, self.device, engine="torch")
        parameters = sum(parameter.numel() for parameter in translator.model.parameters())
        result = replace(result, training={**result.training, "parameters": parameters})
        for name, test in self.plan.sets.items():
            missing = [search for search in SEARCHES if result.search(name, search) is None]
            if missing:
                self.say(f"{self.run.name}: {name}")
            for search in missing:
                found = self._search_set(translator, name, test, search)
                result = _with_searches(result, name, found)
                self.direction.write_run(result)
        return result

    def _begun(self, digest: str) -> RunResult:
        """Say all that is known of a model before it translates anything."""
        known = read_facts(self.model)
        made = Provenance.now(self.device)
        return RunResult(
            name=self.run.name,
            system=self.run.system,
            direction=self.plan.direction,
            seed=self.run.seed,
            output=known.output,
            training={**training_facts(self.model), "recipe": self._recipe},
            data_digest=str(known.data_digest),
            model_digest=digest,
            commit=known.commit or made.commit,
            device=made.device,
            versions={"scones": made.scones, "torch": made.torch, "python": made.python},
            command=self.command,
            dev=self.plan.dev,
        )

    @property
    def _recipe(self) -> dict[str, Any]:
        return {"file": self.plan.recipe.name, **self.plan.sections}

    def _search_set(
        self, translator: Translator, name: str, test: EvaluationSet, search: str
    ) -> SetResult:
        """Give what one search gives for a set."""
        sources, references = test.read()
        translator.translate(sources[:_WARM_UP], **SEARCHES[search])
        begin = time.perf_counter()
        found = translator.translate(sources, **SEARCHES[search])
        seconds = time.perf_counter() - begin
        texts = [one_line(best.text) for best, *_ in found]
        file = hypothesis_file(self.run.name, name, search)
        self.direction.write_hypotheses(file, texts)
        result = scored(
            SearchResult(self._command(search, test), seconds, file, {}, {}, 0.0),
            texts,
            references,
            METRICS,
        )
        digests = texts_digest(sources), texts_digest(references)
        return SetResult(*digests, len(sources), {search: result})

    def _command(self, search: str, test: EvaluationSet) -> str:
        """Say how to get one output alone."""
        flags = "--search beam --beam-size 4" if search == "beam4" else "--search greedy"
        read = {".xz": "xzcat", ".gz": "zcat", ".zst": "zstdcat"}.get(test.source.suffix, "cat")
        first = "" if test.sentences is None else f" | head -n {test.sentences}"
        source = f"{read} {self.plan.shown(test.source)}{first}"
        return f"{source} | scones translate {self.model} {flags}"


def _with_searches(result: RunResult, name: str, found: SetResult) -> RunResult:
    """Add searches of a set to those that are there."""
    if name in result.tests:
        found = replace(found, searches={**result.tests[name].searches, **found.searches})
    return replace(result, tests={**result.tests, name: found})


def scored(
    result: SearchResult, texts: Sequence[str], references: Sequence[str], metrics: Sequence[str]
) -> SearchResult:
    """Add scores to a result."""
    for metric in metrics:
        found = score(metric, texts, [references])
        result = replace(
            result,
            scores={**result.scores, metric: found.value},
            signatures={**result.signatures, metric: found.signature},
            length_ratio=found.length_ratio or result.length_ratio,
        )
    return result


def training_facts(model: Path) -> dict[str, Any]:
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
