"""The results folder: everything that was found, nothing to train on.

    DIRECTION/corpora.json                what `scones prepare` reported, without example sentences
    DIRECTION/RUN.json                    a trained model: how it was made, its scores on every set
    DIRECTION/RUN.SET.SEARCH.txt.xz       its translations, one a line
    DIRECTION/chosen.json                 which α is best on the development set
    DIRECTION/analysis.json               beams of many sizes and exact search
    DIRECTION/RUN.SET.analysis.*.txt.xz   the translations behind it, as analysis.json names them
    DIRECTION/speed.json                  speed and BLEU of small beams
    DIRECTION/RUN.SET.speed.*.txt.xz      the translations behind it, as speed.json names them
    DIRECTION/left_out.json               what is not to be run, and why
    synthetic.json                        what `scones synthetic` found

A direction is named "de-en"; a run has its system's name, with "-seed2" behind it for a seed other
than the recipe's first. Results are small and travel; models, sources and references are not here.
RUN.json holds:

    name, system, direction, seed
    output          the output layer's settings: layer, alpha (of SCONES), label_smoothing
    training        steps, minutes, target_tokens, parameters, dev_bleu by step, recipe sections
    data_digest, model_digest, commit, device, versions, command (how it was trained)
    dev             the name of the set that things are chosen on; it stands among the tests
    tests           by set: source_digest, reference_digest, sentences, and searches (greedy,
                    beam4), each with command, seconds, file, scores (bleu, chrf, ter), signatures
                    and length_ratio
"""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scones.analysis.tables import table_lines
from scones.errors import SconesError
from scones.files import read_json, sole_use, write_file, write_json
from scones.text.reading import read_texts

Json = dict[str, Any]

_KEYS = ("name", "system", "seed", "output", "training", "data_digest", "model_digest", "tests")


@dataclass(frozen=True)
class Direction:
    """The results of one direction, which may be none yet."""

    folder: Path

    def runs(self) -> list[Json]:
        """All runs: softmax first, then by λ and α, seeds of a system together."""
        files = [path for path in self.folder.glob("*.json") if "tests" in read_json(path)]
        return sorted(filter(None, (self.run(path.stem) for path in files)), key=_order)

    def run(self, name: str) -> Json | None:
        """A run by its name; None where there is none yet."""
        run = self.read(name)
        missing = [key for key in _KEYS if run is not None and key not in run]
        if missing:
            raise SconesError(
                f"{self.path(name)} does not hold the results of a run (there is no "
                f"'{missing[0]}'); remove it to run again."
            )
        return run

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def read(self, name: str) -> Json | None:
        """Any of the JSON files; None where it is not there."""
        value: Json | None = read_json(self.path(name)) if self.path(name).exists() else None
        return value

    def write(self, name: str, value: Json) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.path(name), value)

    @contextmanager
    def changed(self, name: str) -> Iterator[Json]:
        """A JSON file's content, to be changed and kept; meanwhile other processes wait."""
        with sole_use(self.folder, wait=True):
            value = self.read(name) or {}
            yield value
            self.write(name, value)

    def texts(self, file: str) -> list[str]:
        """Translations by the name of their file."""
        return read_texts(self.folder / file)

    def keep_texts(self, run: str, test: str, search: str, texts: Iterable[str]) -> str:
        """Keep translations, one a line; gives the name of their file."""
        # Pieces can spell in bytes what a text file cannot hold.
        lines = [" ".join(text.replace("\0", " ").split("\n")) for text in texts]
        file = f"{run}.{test}.{search}.txt.xz"
        self.folder.mkdir(parents=True, exist_ok=True)
        content = "".join(f"{line}\n" for line in lines).encode()
        write_file(self.folder / file, lzma.compress(content, preset=6))
        return file


def page(
    title: str, said: str, heads: Sequence[str], rows: Sequence[Sequence[str]], by: Json
) -> str:
    """A table as Markdown; `by` says which command of which commit made it."""
    marks = "† p < .05, ‡ p < .01 against softmax and the same search (paired bootstrap)."
    command = f"`{by['command']}`, commit `{by['commit']}`"
    lines = [f"# {title}", "", said, "", *table_lines(heads, rows), "", marks, "", command, ""]
    return "\n".join(lines)


def score(run: Json, test: str, search: str, metric: str = "bleu") -> float | None:
    """A score of a run; None where it is not known."""
    searches = run["tests"].get(test, {"searches": {}})["searches"]
    found: float | None = searches[search]["scores"].get(metric) if search in searches else None
    return found


def choose(runs: Sequence[Json]) -> Json | None:
    """Choose α by greedy BLEU on the development set; gives what stands in chosen.json.

    Among the SCONES runs without label smoothing that have the recipe's first seed. Of two that are
    equally good the smaller is taken; None where no such run was tested yet.
    """
    tested: list[tuple[float, float, str, str]] = []
    for run in runs:
        plain = "alpha" in run["output"] and not run["output"].get("label_smoothing")
        bleu = score(run, run["dev"], "greedy")
        if plain and run["name"] == run["system"] and bleu is not None:
            tested.append((-bleu, float(run["output"]["alpha"]), run["system"], run["dev"]))
    if not tested:
        return None
    _, alpha, system, dev = min(tested)
    known = {system: -bleu for bleu, _, system, _ in tested}
    return {"system": system, "alpha": alpha, "dev": dev, "bleu": known}


def _order(run: Json) -> tuple[Any, ...]:
    alpha, smoothing = run["output"].get("alpha"), run["output"].get("label_smoothing", 0.0)
    return alpha is not None, smoothing > 0, alpha or 0.0, smoothing, run["seed"]
