"""Searches that were done already, as files: nothing has to be searched twice.

    NAME.beam4.json     the outputs of a beam of 4, written when all are there
    NAME.exact.jsonl    a line for what the search was made with, then one for every sentence, in
                        the order in which they were done; it grows (where another commit goes on,
                        below a line for that), and a line that was cut off when a process was
                        killed is dropped

What a search was made with (model, text, number format, limits) stands in its file; a file that was
made with something else is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from scones.errors import SconesError
from scones.evaluation.analysis import BeamRun, ExactOutput, Output
from scones.files import read_json, write_file, write_json


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
