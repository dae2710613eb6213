"""All stored results as one tidy table: a row a number.

Every table and figure of the report is a selection of it, and tests name its rows. Folders of
results that are not of the recipes themselves are variants: `longer` and `retrained` lie in the
results folder, `converged`, `captions` and `dial` beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from scones.errors import SconesError
from scones.files import read_json
from scones.model.config import ModelOptions

Json = dict[str, Any]

DIRECTIONS = ("de-en", "en-de", "fi-en", "en-fi", "lt-en", "en-lt")
"""The paper's, in its order."""
MAIN, LONGER, RETRAINED, CONVERGED = "main", "longer", "retrained", "converged"
CAPTIONS, DIAL = "captions", "dial"
NEWS = "newstest2019"
SOFTMAX, SMALL, LARGE = "softmax", "scones-0.2", "scones-1.0"
WITH_SCORES = "greedy_with_scores"
_NOT_RUNS = ("corpora", "chosen", "analysis", "speed", "significance", "left_out")


class Key(NamedTuple):
    """What a number is of; no two rows have the same."""

    variant: str
    direction: str
    run: str
    """The system, with "-seed2" behind it for another seed than the recipe's first."""
    set: str
    """The first 200 sentences of a set are called newstest2019:200; "" is the training."""
    search: str
    """greedy, beam4, exact; speed.4 while timed."""
    metric: str


@dataclass(frozen=True)
class Number:
    """A row: a number, what it is of, and where it comes from."""

    variant: str
    direction: str
    run: str = ""
    set: str = ""
    search: str = ""
    metric: str = ""
    value: float = float("nan")
    system: str = ""
    layer: str = ""
    alpha: float | None = None
    label_smoothing: float = 0.0
    seed: int | None = None
    steps: int | None = None
    role: str = ""
    """dev for the set that things are chosen on."""
    sentences: int | None = None
    file: str = ""
    """The translations, else the file that the number stands in, below docs/results."""
    digest: str = ""
    """Of that file, where it holds translations."""
    command: str = ""
    commit: str = ""
    device: str = ""
    model_digest: str = ""
    reference_digest: str = ""
    signature: str = ""

    @property
    def key(self) -> Key:
        return Key(*(getattr(self, name) for name in Key._fields))


@dataclass(frozen=True)
class Table:
    """The numbers, to select from and to look up."""

    folder: Path
    """The results folder."""
    numbers: tuple[Number, ...]
    left_out: Mapping[tuple[str, str], str]
    """Why something was not run, by direction and system."""

    @cached_property
    def frame(self) -> pd.DataFrame:
        return pd.DataFrame(self.numbers)

    @cached_property
    def _by_key(self) -> dict[Key, Number]:
        return {one.key: one for one in self.numbers}

    @cached_property
    def _by_place(self) -> dict[tuple[str, str], list[Number]]:
        found: dict[tuple[str, str], list[Number]] = {}
        for one in self.numbers:
            found.setdefault((one.variant, one.direction), []).append(one)
        return found

    def of(self, variant: str, direction: str) -> list[Number]:
        """All numbers of a direction."""
        return self._by_place.get((variant, direction), [])

    def get(self, key: Key) -> Number | None:
        """Give a number; None where it was not measured."""
        return self._by_key.get(key)

    def path(self, number: Number) -> Path:
        """Where the translations of a number are."""
        return self.folder.parent / number.file

    def directions(self, variant: str = MAIN, synthetic: bool = False) -> list[str]:
        """The directions that have runs, the paper's first and in its order."""
        found = [direction for where, direction in self._by_place if where == variant]
        known = dict.fromkeys(one for one in (*DIRECTIONS, *found) if one in found)
        return [one for one in known if one.startswith("synthetic") == synthetic]

    def runs(self, variant: str, direction: str) -> dict[str, Number]:
        """Runs by name, softmax first, then by λ and α; each by one of its numbers."""
        found: dict[str, Number] = {}
        for one in self.of(variant, direction):
            if one.run:
                found.setdefault(one.run, one)
        return dict(sorted(found.items(), key=lambda run: _order(run[1])))

    def alphas(self, variant: str, direction: str) -> dict[str, float]:
        """α of the SCONES systems without label smoothing, the smallest first."""
        runs = self.runs(variant, direction).values()
        plain = [one for one in runs if not one.label_smoothing and one.run == one.system]
        return {one.run: one.alpha for one in plain if one.alpha is not None}

    def dev(self, variant: str, direction: str, run: str) -> Number | None:
        """Greedy BLEU on the development set."""
        asked = (run, "dev", "greedy", "bleu")
        found = (
            one
            for one in self.of(variant, direction)
            if asked == (one.run, one.role, one.search, one.metric)
        )
        return next(found, None)

    def tuned(self, variant: str, direction: str) -> str | None:
        """SCONES with the α that has the best greedy BLEU on the development set.

        Of two that are equally good the smaller is taken; None where there is no choice of two.
        """
        alphas = self.alphas(variant, direction)
        scores = {run: found for run in alphas if (found := self.dev(variant, direction, run))}
        if len(scores) < 2:
            return None
        return min(scores, key=lambda run: (-scores[run].value, alphas[run]))

    def part(self, variant: str, direction: str) -> str:
        """Name the first sentences of a test set, which beams and exact search were tried on."""
        sets = (one.set for one in self.of(variant, direction))
        return next((name for name in sets if ":" in name), f"{NEWS}:0")

    def beams(self, variant: str, direction: str, run: str) -> list[int]:
        """The beam sizes of the search analysis."""
        asked, here = (run, self.part(variant, direction), "bleu"), self.of(variant, direction)
        found = [one.search for one in here if (one.run, one.set, one.metric) == asked]
        return sorted(int(search[4:]) for search in found if search.startswith("beam"))


def read_table(folder: Path) -> Table:
    """Read a results folder, and its variants in it and beside it."""
    if not folder.is_dir():
        raise SconesError(f"{folder} is no folder; give the results folder of scones paper run.")
    beside = folder.parent / CONVERGED
    places = {MAIN: folder, LONGER: folder / LONGER, RETRAINED: folder / RETRAINED}
    places |= {CONVERGED: beside, f"{CONVERGED} {LONGER}": beside / LONGER}
    places[CAPTIONS] = folder.parent / CAPTIONS
    numbers: list[Number] = []
    left_out: dict[tuple[str, str], str] = {}
    for variant, place in places.items():
        for direction in sorted(place.iterdir()) if place.is_dir() else []:
            if "-" in direction.name and direction.is_dir():
                at = Number(variant, direction.name)
                numbers += _direction(direction, at, folder.parent)
                for system, why in _json(direction / "left_out.json").items():
                    left_out[direction.name, system] = why
    for variant, place in ((MAIN, folder), (DIAL, folder.parent / DIAL)):
        file = place / "synthetic.json"
        numbers += _reading(file, _synthetic, Number(variant, "", file=f"{place.name}/{file.name}"))
    if not numbers:
        raise SconesError(f"{folder} holds no results; run `scones paper run` first.")
    return Table(folder, tuple(numbers), left_out)


def _json(path: Path) -> Json:
    found: Json = read_json(path) if path.exists() else {}
    return found


def _reading(path: Path, read: Any, *arguments: Any) -> list[Number]:
    """Read what a file holds; where it holds something else, say so in a sentence."""
    found = _json(path)
    try:
        return list(read(found, *arguments)) if found else []
    except (KeyError, TypeError, AttributeError) as problem:
        kind = type(problem).__name__
        raise SconesError(
            f"{path} cannot be read as results ({kind}: {problem}); it is damaged, or of another "
            "version."
        ) from None


def _direction(folder: Path, at: Number, root: Path) -> Iterator[Number]:
    at = replace(at, file=str((folder / "corpora.json").relative_to(root)))
    yield from _reading(folder / "corpora.json", _corpora, at)
    for path in sorted(folder.glob("*.json")):
        if path.stem not in _NOT_RUNS:
            yield from _reading(path, _run, at, path, root)
    yield from _reading(folder / "analysis.json", _analysis, at, folder, root)
    yield from _reading(folder / "speed.json", _speed, at, folder, root)


def _corpora(found: Json, at: Number) -> Iterator[Number]:
    for metric in ("pairs_read", "pairs_kept", "vocabulary"):
        yield replace(at, metric=metric, value=float(found[metric]))


def _run(found: Json, at: Number, path: Path, root: Path) -> Iterator[Number]:
    training = found["training"]
    at = replace(
        _of_output(at, found["output"]),
        run=found["name"],
        system=found["system"],
        seed=found["seed"],
        steps=training["steps"],
        file=str(path.relative_to(root)),
        command=found["command"],
        commit=found["commit"] or "",
        device=found["device"],
        model_digest=found["model_digest"],
    )
    yield from _trained(training, at)
    for test, result in found["tests"].items():
        for search, one in result["searches"].items():
            here = replace(
                _translations(at, path.parent, one, root),
                set=test,
                search=search,
                role="dev" if test == found["dev"] else "test",
                sentences=result["sentences"],
                command=one["command"],
                reference_digest=result["reference_digest"],
            )
            for metric, score in one["scores"].items():
                signature = one["signatures"][metric]
                yield replace(here, metric=metric, value=float(score), signature=signature)
            yield replace(here, metric="length_ratio", value=float(one["length_ratio"]))


def _trained(training: Json, at: Number) -> Iterator[Number]:
    """Give how long a model was trained, and its sizes."""
    recipe = training["recipe"]
    config = ModelOptions(**recipe["model"]).build(vocabulary=1)
    known = {
        "attention dropout": config.attention_dropout,
        "attention size": config.size,
        "dropout": config.dropout,
        "embedding size": config.size,
        "feed-forward size": config.feed_forward,
        "attention heads": config.heads,
        "layers": config.encoder_layers,
        "batch": recipe["train"].get("max_tokens"),
        **{name: training.get(name) for name in ("steps", "minutes", "target_tokens")},
        "parameters": training.get("parameters"),
    }
    for metric, value in known.items():
        if value is not None:
            yield replace(at, metric=metric, value=float(value))


def _analysis(found: Json, at: Number, folder: Path, root: Path) -> Iterator[Number]:
    at = replace(at, set=f"{found['test']}:{found['sentences']}", sentences=found["sentences"])
    for system, row in found["systems"].items():
        here = replace(
            _of_output(at, row["output"]),
            run=system,
            system=system,
            command=row.get("command") or found.get("command") or "",
            commit=", ".join(row["commits"]),
            device=", ".join(row["devices"]),
            model_digest=row["model_digest"],
            reference_digest=found["reference_digests"][0],
        )
        limit = (found["limits"] or {}).get("max_states")
        yield from _searched(row, here, limit, lambda at, one: _translations(at, folder, one, root))


def _searched(row: Json, at: Number, limit: int | None, placed: Any) -> Iterator[Number]:
    """Give what beams and exact search found for a system."""
    for size, one in row["beams"].items():
        here = replace(placed(at, one), search=f"beam{size}")
        yield from _outputs(one["outputs"], here)
        yield replace(here, metric="seconds", value=float(one["seconds"]))
        if (one.get("errors") or {}).get("share") is not None:
            for metric in ("share", "compared"):
                value = float(one["errors"][metric])
                yield replace(here, metric=f"errors.{metric}", value=value)
    exact = row["exact"]
    if exact is None:
        return
    here = replace(placed(at, exact), search="exact")
    yield from _outputs(exact["outputs"], here)
    known = {"proved": exact["proved"], "unproved": exact["unproved"], "max_states": limit}
    known["empty_modes"] = exact["empty_modes"]
    for name in ("states", "seconds"):
        summary = exact[name] or {}
        known |= {name: summary.get("mean"), f"{name}.median": summary.get("median")}
    known |= _summary("empty_log_prob", exact["empty_log_probs"])
    for metric, value in known.items():
        if value is not None:
            yield replace(here, metric=metric, value=float(value))
    for place, proof in enumerate(exact.get("proofs") or ()):
        yield replace(here, metric=f"proof.{place}", value=float(proof))


def _outputs(found: Json, at: Number) -> Iterator[Number]:
    known = {metric: found[metric] for metric in ("length_ratio", "empty")}
    known |= _summary("log_prob", found["log_probs"])
    yield replace(at, metric="bleu", value=float(found["bleu"]), signature=found["signature"])
    for metric, value in known.items():
        if value is not None:
            yield replace(at, metric=metric, value=float(value))


def _summary(name: str, found: Json | None) -> dict[str, float]:
    return {} if found is None else {name: found["mean"], f"{name}.deviation": found["deviation"]}


def _speed(found: Json, at: Number, folder: Path, root: Path) -> Iterator[Number]:
    at = replace(
        at,
        set=f"{found['test']}:{found['sentences']}",
        sentences=found["sentences"],
        command=found["command"],
        commit=found["commit"] or "",
        device=found["device"],
    )
    for system, row in found["systems"].items():
        here = replace(_of_output(at, row["output"]), run=system, system=system)
        here = replace(here, model_digest=row["model_digest"])
        for search, one in {**row["beams"], WITH_SCORES: row[WITH_SCORES]}.items():
            timed = replace(_translations(here, folder, one, root), search=f"speed.{search}")
            yield replace(timed, metric="bleu", value=one["bleu"], signature=one["signature"])
            speed = float(one["sentences_per_second"])
            yield replace(timed, metric="sentences_per_second", value=speed)
            for turn, seconds in enumerate(one["times"]):
                yield replace(timed, metric=f"seconds.{turn}", value=float(seconds))


def _synthetic(found: Json, at: Number) -> Iterator[Number]:
    """Give the synthetic languages, each a direction; their translations are not kept."""
    limit = found["limits"]["max_states"]
    for temperature, row in found["temperatures"].items():
        at = replace(at, direction=f"synthetic-{temperature}", set=f"synthetic:{row['sentences']}")
        for system, one in row["systems"].items():
            here = replace(
                _of_output(at, one["output"]),
                run=system,
                system=system,
                seed=found["seed"],
                steps=one["training"]["steps"],
                sentences=row["sentences"],
                command=found["command"],
                commit=", ".join(one["commits"]),
                device=", ".join(one["devices"]),
                model_digest=one["model_digest"],
            )
            yield from _searched(one, here, limit, lambda at, _: at)
            floor = one.get("floor", {})
            known = {"p": one["p"], "floor": floor.get("bleu"), "floor.p": floor.get("p")}
            for metric, value in known.items():
                if value is not None:
                    yield replace(here, search="exact", metric=metric, value=float(value))


def _of_output(at: Number, output: Json) -> Number:
    alpha, smoothing = output.get("alpha"), float(output.get("label_smoothing") or 0.0)
    return replace(at, layer=output["layer"], alpha=alpha, label_smoothing=smoothing)


def _translations(at: Number, folder: Path, found: Json, root: Path) -> Number:
    """Name the file of the translations, which must be there."""
    if "file" not in found:
        return replace(at, file=str((folder / "analysis.json").relative_to(root)))
    path = folder / found["file"]
    if not path.exists():
        raise SconesError(f"{path} does not exist, but the results name it.")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return replace(at, file=str(path.relative_to(root)), digest=digest)


def _order(one: Number) -> tuple[Any, ...]:
    plain = one.alpha is not None, one.label_smoothing > 0, one.alpha or 0.0
    return *plain, one.label_smoothing, one.seed or 0, one.run


def label(one: Number) -> str:
    """Name an output layer for readers."""
    settings = [] if one.alpha is None else [f"α = {one.alpha:g}"]
    if one.label_smoothing:
        settings.append(f"λ = {one.label_smoothing:g}")
    name = "SCONES" if one.layer == "scones" else "Softmax"
    return f"{name} ({', '.join(settings)})" if settings else name
