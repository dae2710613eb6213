"""The paper's experiment with synthetic languages: how ambiguous may one be, and who copes with it?

For every temperature γ of IBM Model 3 a language is sampled; softmax and SCONES with several α are
trained on it and translate its test set with a beam of 4 and by exact search. All of it goes into
one folder, and what is there is not made again:

    gamma-0.5/language/                      the sampled language, there whole or not at all:
        language.json                            what it was sampled with, and how much came of it
        store/                                   training and development set
        test.source.txt, test.target.txt         the test set, without empty translations
    gamma-0.5/softmax/, scones-0.2/, …       models
    gamma-0.5/softmax.search/, …             what their searches gave (see `scones analyze`)
    gamma-0.5/*.log, *.done.json             trainings and searches: what they said, that they ended
    synthetic.json, synthetic.md             figures and a table of all that lies here, whichever
                                             calls made it
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

from replication.options import Synthetic
from replication.plan import EvaluationSet, SearchSettings, Training
from replication.results import Json, page
from replication.runner import (
    Job,
    Say,
    output_of,
    require_alike,
    run_all,
    search_job,
    training_job,
)
from scones.analysis.analyze import read_modes
from scones.analysis.tables import limits_sentence, percent, texts_digest
from scones.errors import SconesError
from scones.evaluation.significance import mark, paired_bootstrap
from scones.files import Provenance, file_digest, new_folder, read_json, write_file, write_json
from scones.ibm3.sampling import check_temperature
from scones.model.folder import read_facts
from scones.outputs import output_layer
from scones.text.reading import read_texts
from scones.text.store import TokenStore

BEAM = 4
_OWN = ("data", "sentences", "output")
"""What searches that stand in one table need not have in common."""
TEST_SEED = 1
"""Added to the seed of a language for the test set: it is no translation seen in training."""


@dataclass(frozen=True)
class Experiment:
    """What is to be sampled, trained and searched, as the command line says it."""

    options: Synthetic
    say: Say

    def run(self) -> Json | None:
        """Do what is not done yet; gives all figures, or None where it ended before the last."""
        options, training = self.options, self._training  # a wrong recipe is refused at once
        for alpha in options.alpha:
            output_layer(output_of(alpha))
        temperatures = dict.fromkeys(options.temperature)
        for temperature in [one for one in temperatures if not self._is_sampled(one)]:
            self.say(f"γ = {temperature}: sampling")
            self._sample(temperature)
        if options.until != "sample":
            each = product(temperatures, (None, *dict.fromkeys(options.alpha)))
            run_all([self._chain(training, *one) for one in each], options.jobs, self.say)
        return self._figures() if options.until == "search" else None

    @cached_property
    def _training(self) -> Training:
        options = self.options
        return Training.load(options.recipe, options.device, max_steps=options.max_steps)

    # Languages: real source sentences, with targets that IBM Model 3 sampled for them.

    def _language(self, temperature: float) -> Path:
        return self.options.folder / f"gamma-{temperature}" / "language"

    def _is_sampled(self, temperature: float) -> bool:
        """Whether a language is there; one that was made with something else is refused."""
        check_temperature(temperature)
        language = self._language(temperature)
        if not language.exists():
            return False
        asked = {"temperature": temperature, **self._made_with}
        require_alike(language, asked, read_json(language / "language.json")["made_with"])
        return True

    @cached_property
    def _sources(self) -> list[str]:
        return read_texts(self.options.source)

    @cached_property
    def _made_with(self) -> Json:
        """What a language is made with; store and model need not be there any more."""
        store, model = self.options.store, self.options.model
        made_with: Json = {"seed": self.options.seed, "pairs": self.options.pairs}
        made_with["test set"] = texts_digest(self._sources)
        if store.exists():
            made_with["store"] = TokenStore.open(store).digest
        if model.exists():
            files = sorted(path for path in model.iterdir() if path.is_file())
            digests = "\n".join(f"{path.name} {file_digest(path)}" for path in files)
            made_with["IBM Model 3"] = hashlib.sha256(digests.encode()).hexdigest()[:16]
        return made_with

    def _sample(self, temperature: float) -> None:
        """Sample training, development and test set at a temperature."""
        from scones.ibm3.parameters import Parameters
        from scones.ibm3.sampling import Sampler, sample_store

        options, parameters = self.options, Parameters.load(self.options.model)
        with new_folder(self._language(temperature)) as new:
            sampler = Sampler(parameters, temperature, options.seed)
            report = sample_store(options.store, sampler, new / "store", pairs=options.pairs)
            sampler = Sampler(parameters, temperature, options.seed + TEST_SEED)
            sampled = sampler.sample_texts(self._sources)
            # Pieces can spell in bytes what a text file cannot hold.
            lines = [" ".join(text.replace("\0", " ").split()) for text in sampled]
            kept = [pair for pair in zip(self._sources, lines, strict=True) if pair[1]]
            if not kept:
                raise SconesError(
                    f"No sentence of the test set has a translation at temperature {temperature}; "
                    "give another test set, or fit the model to more text."
                )
            for side, texts in zip(("source", "target"), zip(*kept, strict=True), strict=True):
                write_file(new / f"test.{side}.txt", "".join(f"{text}\n" for text in texts))
            store = TokenStore.open(new / "store")
            facts = {
                "made_with": {"temperature": temperature, **self._made_with},
                "data_digest": store.digest,
                "training_pairs": len(store.split("train")),
                "test_sentences": len(kept),
                "empty_test_references": len(lines) - len(kept),
                "sampling": report["splits"],
            }
            write_json(new / "language.json", facts)

    # Systems: trained, then searched.

    def _chain(self, training: Training, temperature: float, alpha: float | None) -> Iterator[Job]:
        language, options = self._language(temperature), self.options
        model = language.with_name("softmax" if alpha is None else f"scones-{alpha}")
        name, output = f"γ = {temperature}, {model.name}", output_of(alpha)
        store = language / "store"
        job = training_job(name, training, store, model, output, options.seed)
        yield job
        if options.until == "search":
            there = read_json(language / "language.json")["test_sentences"]
            sentences = min(there, options.sentences or there)
            limits = options.max_states, options.max_memory
            search = SearchSettings("test", sentences, [BEAM], *limits)
            test = EvaluationSet(language / "test.source.txt", language / "test.target.txt")
            made_with = {**(job.made_with or {}), **asdict(search), "output": output}
            made_with |= {"recipe": training.sections, "budget": training.budget}
            yield search_job(name, model, test, search, options.device, made_with)

    def _figures(self) -> Json:
        """All that was searched in the folder, by whichever call, where it was made alike."""
        options, shared, rows = self.options, Json(), Json()
        for place in sorted(options.folder.glob("gamma-*"), key=_temperature):
            found = {}
            for marker in place.glob("*.search.done.json"):
                name = marker.name.removesuffix(".search.done.json")
                analysis = read_json(place / f"{name}.search" / "analysis.json")
                made = {**read_json(marker), "first_beam": analysis.get("first_beam")}
                made |= {"limits": analysis["limits"]}
                shared = shared or {key: made[key] for key in made if key not in _OWN}
                require_alike(marker, shared, made)
                found[name] = analysis["systems"][name]
            if "softmax" in found:
                rows[str(_temperature(place))] = _row(place, found)
        return {
            **Provenance.now(options.device, {"ibm3": options.model}).to_json(),
            "store": str(options.store),
            "recipe": str(options.recipe),
            "settings": {**self._training.sections, "output": self._training.output},
            "max_steps": options.max_steps,
            "seed": options.seed,
            "beam": BEAM,
            "limits": shared["limits"],
            "first_beam": shared["first_beam"],
            "temperatures": rows,
        }


def _temperature(place: Path) -> float:
    return float(place.name.removeprefix("gamma-"))


def _row(place: Path, found: Json) -> Json:
    """The figures of all systems at a temperature: softmax, which the others are compared with."""
    order = sorted(found, key=lambda name: found[name]["output"].get("alpha", 0.0))
    modes = {name: read_modes(place / f"{name}.search" / f"{name}.exact.jsonl") for name in order}
    count = len(modes["softmax"])
    references = read_texts(place / "language" / "test.target.txt")[:count]
    tested = paired_bootstrap("bleu", modes, [references])
    # A mode that is not proved may be as bad as the empty translation: no match, and too short.
    floors = {"": modes["softmax"]}
    for name in order:
        known = zip(modes[name], found[name]["exact"]["proofs"], strict=True)
        floors[name] = [text if proved else "" for text, proved in known]
    worst = paired_bootstrap("bleu", floors, [references])[1:]
    base = found["softmax"]["beams"][str(BEAM)]["outputs"]["bleu"]
    systems = {}
    for name, one, floor in zip(order, tested, worst, strict=True):
        relative = found[name]["exact"]["outputs"]["bleu"] / base if base else None
        training = read_facts(place / name).to_json()
        systems[name] = {**found[name], "training": training, "relative": relative, "p": one.p}
        systems[name]["floor"] = {"bleu": floor.score, "p": floor.p}
    facts = read_json(place / "language" / "language.json")
    return {**facts, "sentences": count, "systems": systems}


def markdown(result: Json) -> str:
    """A table of the figures: a row a language and a system."""
    size = str(result["beam"])
    columns: dict[str, Callable[[Json], str]] = {
        f"BLEU, beam {size}": lambda row: f"{row['beams'][size]['outputs']['bleu']:.2f}",
        "BLEU, exact": lambda row: f"{row['exact']['outputs']['bleu']:.2f}{mark(row['p'] or 1)}",
        "of softmax’s beam": lambda row: percent(row["relative"]),
        "length ratio, exact": lambda row: f"{row['exact']['outputs']['length_ratio']:.3f}",
        "empty, exact": lambda row: percent(row["exact"]["outputs"]["empty"]),
        "not proved": lambda row: percent(row["exact"]["unproved"]),
        "search errors of the beam": lambda row: percent(row["beams"][size]["errors"]["share"]),
    }
    rows = [
        [f"γ = {temperature}, {name}", *(cell(one) for cell in columns.values())]
        for temperature, row in result["temperatures"].items()
        for name, one in row["systems"].items()
    ]
    title = "Synthetic languages: softmax and SCONES at several temperatures of IBM Model 3"
    said = limits_sentence(result["limits"], result["first_beam"])
    return page(title, said, ["language, system", *columns], rows, result)
