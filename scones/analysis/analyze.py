"""The paper's analysis of search, for any models: beams of many sizes against exact search.

Everything goes into one folder: what every search gave, all figures as analysis.json, tables as
analysis.md, and plots. Started again, only what is missing is searched:

    NAME.beam4.json     the outputs of a beam of 4, written when all are there
    NAME.exact.jsonl    a line for what the search was made with, then one for every sentence, in
                        the order in which they were done; where another commit goes on, its
                        results stand below a line for that

What a search was made with (model, text, number format, limits) stands in its file; a file that was
made with something else is refused.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import torch

from scones.analysis.tables import model_digest, texts_digest
from scones.errors import SconesError
from scones.evaluation.metrics import check_references
from scones.evaluation.search_errors import BeamRun, ExactOutput, Output, analyze
from scones.files import (
    Provenance,
    commit,
    damaged,
    read_json,
    regular,
    sole_use,
    write_file,
    write_json,
)
from scones.hardware import choose_device
from scones.model.folder import read_facts
from scones.options import from_section
from scones.search.frontier import ExactOptions
from scones.search.searcher import SearchOptions
from scones.search.translations import Translation
from scones.translator import TooLong, Translator, load

FIRST_BEAM = 4
"""The beam whose results exact search begins with."""
_damaged = partial(damaged, remedy="remove the file to search again")
LIMITS = ("max_states", "max_seconds", "sentence_seconds", "max_memory")


@dataclass(frozen=True)
class Analyzer:
    """What to search, with which models, and where the results go."""

    models: Mapping[str, Path]
    sources: Sequence[str]
    references: Sequence[Sequence[str]]
    folder: Path
    beam_sizes: Sequence[int]
    limits: ExactOptions | None
    """Those of exact search; None: no exact search."""
    device: str = "auto"
    precision: Literal["float32", "bf16"] = "float32"
    too_long: TooLong = "error"
    progress: Callable[[str, int, int], None] = lambda task, done, total: None
    """Called with what is being done, how many of its sentences are done, and of how many."""

    def run(self) -> dict[str, Any]:
        """Search what was not searched yet and return all figures, ready for JSON."""
        check_references(self.sources, self.references)
        for size in self.beam_sizes:
            SearchOptions("beam", size)  # refuses a size that has no meaning
        if self.folder.exists() and not self.folder.is_dir():
            raise SconesError(f"{self.folder} is a file; give a folder to write to.")
        for name, folder in self.models.items():
            # A refusal comes before hours of work, not after.
            _System(self, name, folder).check()
        with sole_use(self.folder):
            return {
                **Provenance.now(self.device, self.models).to_json(),
                "source_digest": texts_digest(self.sources),
                "reference_digests": [texts_digest(texts) for texts in self.references],
                "sentences": len(self.sources),
                "precision": self.precision,
                "first_beam": FIRST_BEAM,
                "limits": None if self.limits is None else _limits(self.limits),
                # One after the other: a system is made anew here so that only one model at a time
                # is in memory.
                "systems": {
                    name: _System(self, name, folder).run() for name, folder in self.models.items()
                },
            }


@dataclass(frozen=True)
class _System:
    """One model, which is in memory for as long as this is."""

    plan: Analyzer
    name: str
    folder: Path

    def check(self) -> None:
        """Refuse a name that makes no file, a model that is not there, files of other searches."""
        if not self.name or "/" in self.name or self.name.startswith("."):
            raise SconesError(
                f"'{self.name}' cannot be the beginning of a file's name; name the model with "
                f"NAME=FOLDER, for example first={self.folder}."
            )
        for size in self.plan.beam_sizes:
            self._beam_file(size).read()
        if self.plan.limits is not None:
            self._exact_file(self.plan.limits).read()

    def run(self) -> dict[str, Any]:
        made: list[MadeWith] = []
        beams = {}
        for size in sorted(set(self.plan.beam_sizes)):
            beams[size], made_with = self._beam(size)
            made.append(made_with)
        exact = None
        if self.plan.limits is not None:
            exact, all_made_with = self._exact(self.plan.limits, [*beams.values()])
            made += all_made_with
        return {
            "output": read_facts(self.folder).output,
            "model_digest": self._settings["model"],
            "devices": sorted({one.device for one in made}),
            "commits": sorted({str(one.commit) for one in made}),
            **asdict(analyze(beams, exact, self.plan.references)),
        }

    def _beam(self, size: int) -> tuple[BeamRun, MadeWith]:
        file, task = self._beam_file(size), f"{self.name}: beam {size:,}"
        kept = file.read()
        if kept is not None:
            return kept
        sentences = self.plan.sources
        self.plan.progress(task, 0, len(sentences))
        translator = self._translator  # loading it is not timed
        begin = time.perf_counter()
        found = translator.translate(
            sentences,
            "beam",
            beam_size=size,
            length_penalty=0.0,  # it is the model's own ranking that is analysed
            end_circles=False,  # and its own circles
            too_long=self.plan.too_long,
        )
        seconds = time.perf_counter() - begin
        run = BeamRun([Output(**_output(best)) for best, *_ in found], seconds)
        file.write(run)
        self.plan.progress(task, len(sentences), len(sentences))
        return run, file.made_with

    def _exact(
        self, limits: ExactOptions, beams: Sequence[BeamRun]
    ) -> tuple[list[ExactOutput], list[MadeWith]]:
        """Search exactly, from the best that any beam found: what is best found is no worse."""
        file, task = self._exact_file(limits), f"{self.name}: exact search"
        sentences = self.plan.sources
        found, _ = file.read()
        left = [index for index in range(len(sentences)) if index not in found]
        if left:
            self.plan.progress(task, len(found), len(sentences))
            texts = [sentences[index] for index in left]
            known = [[beam.outputs[index] for beam in beams] for index in left]
            results = self._translator.exact(
                texts, _remaining(limits, found), FIRST_BEAM, self.plan.too_long, known=known
            )
            file.begin()
            for index, result in results:
                best = _output(result.translations[0])
                output = ExactOutput(**best, certificate=result.certificate)
                file.append(left[index], output)
                found[left[index]] = output
                self.plan.progress(task, len(found), len(sentences))
        return [found[index] for index in range(len(sentences))], file.read()[1]

    def _beam_file(self, size: int) -> BeamFile:
        return BeamFile(self._path(f"beam{size}.json"), self._made_with({"beam_size": size}))

    def _exact_file(self, limits: ExactOptions) -> ExactFile:
        made_with = self._made_with({"first_beam": FIRST_BEAM, **_limits(limits)})
        return ExactFile(self._path("exact.jsonl"), made_with, len(self.plan.sources))

    def _path(self, ending: str) -> Path:
        return self.plan.folder / f"{self.name}.{ending}"

    def _made_with(self, settings: dict[str, Any]) -> MadeWith:
        device = choose_device(self.plan.device)
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
        return MadeWith({**self._settings, **settings}, name, commit())

    @cached_property
    def _settings(self) -> dict[str, Any]:
        """What decides the outcome of every search."""
        return {
            "model": model_digest(self.folder),
            "source text": texts_digest(self.plan.sources),
            "precision": self.plan.precision,
            "too_long": self.plan.too_long,
        }

    @cached_property
    def _translator(self) -> Translator:
        return load(self.folder, self.plan.device, self.plan.precision, engine="torch")


def _output(found: Translation) -> dict[str, Any]:
    return {
        "text": found.text,
        "log_prob": found.log_prob,
        "empty": not found.tokens,
        "finished": found.finished,
        "tokens": list(found.tokens),
    }


def _limits(options: ExactOptions) -> dict[str, Any]:
    return {name: value for name, value in asdict(options).items() if name in LIMITS}


def _remaining(limits: ExactOptions, found: Mapping[int, ExactOutput]) -> ExactOptions:
    """Take the time that earlier runs spent off the limit for all sentences together."""
    if limits.max_seconds is None:
        return limits
    spent = sum(one.certificate.seconds for one in found.values() if one.certificate is not None)
    # Never 0, which is no limit that exact search takes: what is left then gets no time.
    return replace(limits, max_seconds=max(limits.max_seconds - spent, 1e-9))


@dataclass(frozen=True)
class MadeWith:
    """What decides the outcome of a search, and who made it; so it stands in the files."""

    settings: dict[str, Any]
    device: str
    commit: str | None

    def check(self, path: Path, theirs: MadeWith, complete: bool) -> None:
        """Refuse a file of another search; where a search is done, its device may be any."""
        ours = {**self.settings, "device": self.device}
        found = {**theirs.settings, "device": theirs.device}
        for name in {**ours, **found}:
            matters = name != "device" or not complete
            if matters and ours.get(name) != found.get(name):
                raise SconesError(
                    f"{path} was made with {name} {_shown(found.get(name))}, not "
                    f"{_shown(ours.get(name))}; give the same again, choose another folder, or "
                    "remove the file."
                )


def _shown(value: Any) -> str:
    return "unlimited" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


@dataclass(frozen=True)
class BeamFile:
    """The outputs of one beam."""

    path: Path
    made_with: MadeWith

    def read(self) -> tuple[BeamRun, MadeWith] | None:
        """What was kept; None where nothing was."""
        if not self.path.exists():
            return None
        value, origin = read_json(self.path), f"{self.path} is damaged"
        try:
            outputs = [from_section(Output, output, origin) for output in value["outputs"]]
            theirs = from_section(MadeWith, value["made_with"], origin)
            run = BeamRun(outputs, float(value["seconds"]))
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise _damaged(self.path, problem) from None
        self.made_with.check(self.path, theirs, complete=True)
        return run, theirs

    def write(self, run: BeamRun) -> None:
        value = {"made_with": asdict(self.made_with), "seconds": run.seconds}
        write_json(self.path, {**value, "outputs": [asdict(output) for output in run.outputs]})


@dataclass(frozen=True)
class ExactFile:
    """The results of exact search for so many sentences, kept one by one as they are found."""

    path: Path
    made_with: MadeWith
    sentences: int

    def read(self) -> tuple[dict[int, ExactOutput], list[MadeWith]]:
        """What was kept, by the number of the sentence, and all that it was made with."""
        origin = f"{self.path} is damaged"
        theirs: list[MadeWith] = []
        found: dict[int, ExactOutput] = {}
        try:
            for line in map(json.loads, self._whole_lines()):
                if "made_with" in line or not theirs:
                    theirs.append(from_section(MadeWith, line["made_with"], origin))
                else:
                    number = line.pop("sentence")
                    found[number] = from_section(ExactOutput, line, origin)
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise _damaged(self.path, problem) from None
        for one in theirs:
            self.made_with.check(self.path, one, complete=len(found) == self.sentences)
        if not found.keys() <= set(range(self.sentences)):
            raise _damaged(self.path, "it has a sentence that is not in the text")
        return found, theirs

    def begin(self) -> None:
        """Make the file ready to be appended to."""
        lines = self._whole_lines()
        _, theirs = self.read()
        if not theirs or theirs[-1].commit != self.made_with.commit:
            lines.append(_line({"made_with": asdict(self.made_with)}))
        # Written anew before it grows: half a line that a killed process left would otherwise be
        # joined to the next result.
        write_file(self.path, b"".join(lines))

    def append(self, sentence: int, output: ExactOutput) -> None:
        """Add a result, which is in the file when the call returns."""
        with self.path.open("ab") as file:
            file.write(_line({"sentence": sentence, **asdict(output)}))

    def _whole_lines(self) -> list[bytes]:
        """All lines but a last one that was cut off when a process was killed."""
        if not self.path.exists():
            return []
        content = regular(self.path).read_bytes()
        return content[: content.rfind(b"\n") + 1].splitlines(keepends=True)


def read_modes(path: Path) -> list[str]:
    """What exact search found, in the order of the sentences."""
    lines = map(json.loads, path.read_bytes().splitlines())
    found = {line["sentence"]: line["text"] for line in lines if "sentence" in line}
    return [found[number] for number in sorted(found)]


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"
