"""The paper's analysis of search, for any models: beams of many sizes against exact search.

Everything goes into one folder: what every search gave (see `searched`), all figures as
analysis.json, tables as analysis.md, and plots. Started again, only what is missing is searched.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Literal

import torch

from scones.analysis.tables import model_digest, texts_digest
from scones.errors import SconesError
from scones.evaluation.metrics import check_references
from scones.evaluation.search_errors import BeamRun, ExactOutput, Output, analyze
from scones.files import Provenance, read_json, sole_use, write_file, write_json
from scones.hardware import choose_device
from scones.model.folder import read_facts
from scones.search.engine import SearchOptions
from scones.search.frontier import ExactOptions
from scones.translator import TooLong, Translation, Translator, load
from scones.version import commit

# Searches that were done already, as files: nothing has to be searched twice.
#
#     NAME.beam4.json     the outputs of a beam of 4, written when all are there
#     NAME.exact.jsonl    a line for what the search was made with, then one for every sentence, in
#                         the order in which they were done; it grows (where another commit goes on,
#                         below a line for that), and a line that was cut off when a process was
#                         killed is dropped
#
# What a search was made with (model, text, number format, limits) stands in its file; a file that
# was made with something else is refused.


@dataclass(frozen=True)
class MadeWith:
    """What decides the outcome of a search, and who made it."""

    settings: Mapping[str, Any]
    device: str
    commit: str | None

    def to_json(self) -> dict[str, Any]:
        """Give what stands in a file."""
        return {"settings": dict(self.settings), "device": self.device, "commit": self.commit}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> MadeWith:
        """Read what stands in a file."""
        return cls(value["settings"], value["device"], value["commit"])

    def check(self, path: Path, theirs: MadeWith, complete: bool) -> None:
        """Refuse a file of another search; where a search is done, its device may be any."""
        ours = {**self.settings, "device": self.device}
        found = {**theirs.settings, "device": theirs.device}
        for name in {**ours, **found}:
            if complete and name == "device":
                continue
            if ours.get(name) != found.get(name):
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
        """Give what was kept; None where nothing was."""
        if not self.path.exists():
            return None
        value = read_json(self.path)
        try:
            run = BeamRun([Output(**output) for output in value["outputs"]], value["seconds"])
            theirs = MadeWith.from_json(value["made_with"])
        except (KeyError, TypeError) as problem:
            raise _damaged(self.path, problem) from None
        self.made_with.check(self.path, theirs, complete=True)
        return run, theirs

    def write(self, run: BeamRun) -> None:
        """Keep the outputs."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        value = {"made_with": self.made_with.to_json(), "seconds": run.seconds}
        write_json(self.path, {**value, "outputs": [asdict(output) for output in run.outputs]})


@dataclass(frozen=True)
class ExactFile:
    """The results of exact search for so many sentences, kept one by one."""

    path: Path
    made_with: MadeWith
    sentences: int

    def read(self) -> tuple[dict[int, ExactOutput], list[MadeWith]]:
        """Give what was kept, by the number of the sentence, and all that it was made with."""
        kept = [json.loads(line) for line in self._whole_lines()]
        theirs: list[MadeWith] = []
        found: dict[int, ExactOutput] = {}
        try:
            for line in kept:
                if "made_with" in line or not theirs:
                    theirs.append(MadeWith.from_json(line["made_with"]))
                else:
                    number = line.pop("sentence")
                    found[number] = ExactOutput.from_json(line)
        except (KeyError, TypeError) as problem:
            raise _damaged(self.path, problem) from None
        for one in theirs:
            self.made_with.check(self.path, one, complete=len(found) == self.sentences)
        if not found.keys() <= set(range(self.sentences)):
            raise _damaged(self.path, ValueError("it has a sentence that is not in the text"))
        return found, theirs

    @contextmanager
    def growing(self) -> Iterator[_Writer]:
        """Open the file to append results."""
        lines = self._whole_lines()
        _, theirs = self.read()
        if not theirs or theirs[-1].commit != self.made_with.commit:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lines.append(_line({"made_with": self.made_with.to_json()}))
        write_file(self.path, b"".join(lines))
        with self.path.open("ab") as file:
            yield _Writer(file)

    def _whole_lines(self) -> list[bytes]:
        """Read all lines but a last one that was cut off."""
        if not self.path.exists():
            return []
        lines = self.path.read_bytes().splitlines(keepends=True)
        for number, line in enumerate(lines, start=1):
            try:
                json.loads(line)
            except ValueError as problem:
                if number < len(lines):
                    raise _damaged(self.path, problem, number) from None
                return lines[:-1]
        return lines if not lines or lines[-1].endswith(b"\n") else lines[:-1]


def read_modes(path: Path) -> list[str]:
    """Give what exact search found, in the order of the sentences."""
    lines = map(json.loads, path.read_bytes().splitlines())
    found = {line["sentence"]: line["text"] for line in lines if "sentence" in line}
    return [found[number] for number in sorted(found)]


@dataclass(frozen=True)
class _Writer:
    file: IO[bytes]

    def write(self, sentence: int, output: ExactOutput) -> None:
        """Append a result; it is in the file when this returns."""
        self.file.write(_line({"sentence": sentence, **asdict(output)}))
        self.file.flush()


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def _damaged(path: Path, problem: Exception, line: int | None = None) -> SconesError:
    place = f"{path}, line {line}," if line else f"{path}"
    return SconesError(f"{place} is damaged ({problem}); remove the file to search again.")


FIRST_BEAM = 4
"""The beam whose results exact search begins with."""
LIMITS = ("max_states", "max_seconds", "sentence_seconds", "max_memory")

Progress = Callable[[str, int, int], None]


def _silent(task: str, done: int, total: int) -> None:
    pass


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
    progress: Progress = _silent
    """Told what is being done, how many of its sentences are, and of how many."""

    def run(self) -> dict[str, Any]:
        """Search what was not searched yet; gives all figures, ready for JSON."""
        check_references(self.sources, self.references)
        for size in self.beam_sizes:
            SearchOptions("beam", size)  # refuses a size that has no meaning
        if self.folder.exists() and not self.folder.is_dir():
            raise SconesError(f"{self.folder} is a file; give a folder to write to.")
        for name, folder in self.models.items():  # a refusal comes before hours of work, not after
            self._system(name, folder).check()
        with sole_use(self.folder):
            return self._figures()

    def _figures(self) -> dict[str, Any]:
        return {
            **Provenance.now(self.device, self.models).to_json(),
            "source_digest": texts_digest(self.sources),
            "reference_digests": [texts_digest(texts) for texts in self.references],
            "sentences": len(self.sources),
            "precision": self.precision,
            "first_beam": FIRST_BEAM,
            "limits": None if self.limits is None else _limits(self.limits),
            "systems": {
                name: self._system(name, folder).run() for name, folder in self.models.items()
            },
        }

    def _system(self, name: str, folder: Path) -> _System:
        if not name or "/" in name or name.startswith("."):
            raise SconesError(
                f"'{name}' cannot be the beginning of a file's name; name the model with "
                f"NAME=FOLDER, for example first={folder}."
            )
        return _System(self, name, folder)


@dataclass(frozen=True)
class _System:
    """One model, which is in memory for as long as this is."""

    plan: Analyzer
    name: str
    folder: Path

    def check(self) -> None:
        """Refuse a model that is not there, and files of other searches."""
        for size in self.plan.beam_sizes:
            self._beam_file(size).read()
        if self.plan.limits is not None:
            self._exact_file.read()

    def run(self) -> dict[str, Any]:
        """Search, and give the figures of this model."""
        made: list[MadeWith] = []
        beams = {}
        for size in sorted(set(self.plan.beam_sizes)):
            beams[size], made_with = self._beam(size)
            made.append(made_with)
        exact = None
        if self.plan.limits is not None:
            exact, all_made_with = self._exact(self.plan.limits)
            made += all_made_with
        return {
            "output": read_facts(self.folder).output,
            "model_digest": self._settings["model"],
            "devices": sorted({one.device for one in made}),
            "commits": sorted({str(one.commit) for one in made}),
            **analyze(beams, exact, self.plan.references).to_json(),
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
        found = translator.translate(sentences, "beam", beam_size=size, too_long=self.plan.too_long)
        seconds = time.perf_counter() - begin
        run = BeamRun([Output(**_output(best)) for best, *_ in found], seconds)
        file.write(run)
        self.plan.progress(task, len(sentences), len(sentences))
        return run, file.made_with

    def _exact(self, limits: ExactOptions) -> tuple[list[ExactOutput], list[MadeWith]]:
        file, task = self._exact_file, f"{self.name}: exact search"
        sentences = self.plan.sources
        found, _ = file.read()
        left = [index for index in range(len(sentences)) if index not in found]
        if left:
            self.plan.progress(task, len(found), len(sentences))
            results = self._translator.exact(
                [sentences[index] for index in left],
                _remaining(limits, found),
                FIRST_BEAM,
                self.plan.too_long,
            )
            with file.growing() as writer:
                for place, result in results:
                    output = ExactOutput(
                        **_output(result.translations[0]), certificate=result.certificate
                    )
                    writer.write(left[place], output)
                    found[left[place]] = output
                    self.plan.progress(task, len(found), len(sentences))
        return [found[index] for index in range(len(sentences))], file.read()[1]

    def _beam_file(self, size: int) -> BeamFile:
        settings = {**self._settings, "beam_size": size}
        return BeamFile(self._path(f"beam{size}.json"), self._made_with(settings))

    @property
    def _exact_file(self) -> ExactFile:
        assert self.plan.limits is not None
        settings = {**self._settings, "first_beam": FIRST_BEAM, **_limits(self.plan.limits)}
        made_with = self._made_with(settings)
        return ExactFile(self._path("exact.jsonl"), made_with, len(self.plan.sources))

    def _path(self, ending: str) -> Path:
        return self.plan.folder / f"{self.name}.{ending}"

    def _made_with(self, settings: dict[str, Any]) -> MadeWith:
        device = choose_device(self.plan.device)
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
        return MadeWith(settings, name, commit())

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
    }


def _limits(options: ExactOptions) -> dict[str, Any]:
    return {name: value for name, value in asdict(options).items() if name in LIMITS}


def _remaining(limits: ExactOptions, found: Mapping[int, ExactOutput]) -> ExactOptions:
    """Take the time that earlier runs spent off the limit for all sentences together."""
    if limits.max_seconds is None:
        return limits
    spent = sum(one.certificate.seconds for one in found.values() if one.certificate is not None)
    return replace(limits, max_seconds=max(limits.max_seconds - spent, 1e-9))
