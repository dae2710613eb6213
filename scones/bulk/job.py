"""A bulk job: what is done to every row, its plan, its output, and the work on one shard.

    OUTPUT/00000012.jsonl         the rows of a shard with what was added, or .parquet, or .txt
    OUTPUT/_shards/00000012.json  what is known of it; written last, so that it tells what is whole
    OUTPUT/_manifest.json         the inputs, all that decides the output, and where shards begin

The manifest depends on the command's inputs and options alone, and a shard on the manifest: who
makes it, and when, does not matter. `launch` has those who hand shards out.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from scones.bulk.rows import (
    ALTERNATIVES,
    Fault,
    Shard,
    divided,
    file_system,
    is_local,
    read,
    state_of,
)
from scones.errors import SconesError
from scones.files import damaged, replaced, sole_use
from scones.hardware import set_threads
from scones.model.folder import FolderConfig
from scones.search.translations import Translation
from scones.translator import TooLongError, Translator, load

_MANIFEST = "_manifest.json"
_RECORDS = "_shards"

Facts = dict[str, Any]
"""What is known of a row, by the names of the new columns."""


@dataclass(frozen=True)
class Job:
    """What is done to every row."""

    model: str
    opening: dict[str, Any]
    """How `load` opens the model."""
    search: dict[str, Any]
    """How `Translator.translate` searches."""
    limits: dict[str, Any]
    """Of exact search."""
    columns: tuple[str, ...]
    """Where the sentence is, and its translation if it is given and to be scored."""
    prefix: str = ""
    text: bool = False
    """Whether the first new column alone is written, a line each."""
    dedupe: bool = False
    rows: int = 20_000
    """The most that a shard has."""
    threads: int = 1
    """Of a worker; another number makes other batches, and so other last digits."""

    @property
    def added(self) -> dict[str, str]:
        """The new columns and what they hold."""
        if len(self.columns) == 2:
            return {"log_prob": "float64", "tokens": "int32", "error": "string"}
        search = self.search["search"]
        scores = {"log_prob": "float64", "confidence": "float64"}
        added = {"translation": "string"} | (scores if self.search["scores"] else {})
        added["finished"] = "bool"
        if search in ("exact", "all"):
            added["proved"] = "bool"
        if search == "all" or self.search["n_best"] > 1:
            added[ALTERNATIVES] = ALTERNATIVES
        return added | {"error": "string"}

    def decisive(self) -> dict[str, Any]:
        """All that decides the output but the inputs; not where and how fast it is made."""
        config = FolderConfig.read(self.model)
        known = config.digests or {config.weights.name: config.digest_of(config.weights.name)}
        model = hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()
        how = self.opening | self.search | self.limits
        for name in ("device", "verify", "max_tokens"):
            how.pop(name, None)
        what = {"columns": list(self.columns), "prefix": self.prefix, "text": self.text}
        return {"model": model, "rows": self.rows, "threads": self.threads, **what, **how}


# The output: a folder, here or wherever fsspec writes.


@dataclass(frozen=True)
class Report:
    """What is known of a shard that is done."""

    number: int
    rows: int
    searched: int
    """Rows that the model was given: without faults, and with --dedupe without repetitions."""
    failed: list[Any]
    """The row, counted from 0 in the shard, and the reason."""
    size: int
    sha256: str


@dataclass(frozen=True)
class Output:
    """The folder of a job's results."""

    url: str
    suffix: str

    @cached_property
    def place(self) -> tuple[Any, str]:
        """Its file system, and its name there."""
        return file_system(self.url.rstrip("/"))

    @property
    def folder(self) -> Path | None:
        """Itself, if it is on a disk of this machine."""
        return Path(self.place[1]) if is_local(self.place[0]) else None

    def path_of(self, number: int, record: bool = False) -> str:
        return f"{_RECORDS}/{number:08}.json" if record else f"{number:08}.{self.suffix}"

    def write(self, name: str, content: bytes) -> str:
        """Write a file beside, check it and rename it; returns its digest."""
        (system, root), digest = self.place, hashlib.sha256(content).hexdigest()
        path, beside = f"{root}/{name}", f"{root}/{name}.writing"
        system.makedirs(path.rpartition("/")[0], exist_ok=True)
        with ExitStack() as held:
            if self.folder is not None:
                beside = str(held.enter_context(replaced(Path(path))))
            try:
                system.pipe_file(beside, content)
            except OSError as problem:  # which may not say where
                raise OSError(problem.errno, problem.strerror or str(problem), path) from None
            if hashlib.sha256(system.cat_file(beside)).hexdigest() != digest:
                raise damaged(path, "what was written is not what is read")
            if self.folder is None:
                system.mv(beside, path)
        return digest

    def finished(self, numbers: Sequence[int], verify: bool = False) -> list[Report]:
        """The reports of those shards that are there and whole."""
        system, root = self.place
        system.invalidate_cache()
        wanted = [f"{root}/{self.path_of(number, record=True)}" for number in numbers]
        if self.folder is not None:  # a pipe would be waited for
            wanted = [path for path in wanted if system.isfile(path)]
        found = map(_opened, system.cat(wanted, on_error="omit").values() if wanted else ())
        reports = [Report(**facts) for facts in found if facts is not None]
        whole = [report for report in reports if self._is_whole(report, verify)]
        return sorted(whole, key=lambda report: report.number)

    def _is_whole(self, report: Report, verify: bool) -> bool:
        system, root = self.place
        path = f"{root}/{self.path_of(report.number)}"
        if not system.isfile(path) or system.size(path) != report.size:
            return False
        return not verify or hashlib.sha256(system.cat_file(path)).hexdigest() == report.sha256


def _sealed(facts: dict[str, Any]) -> bytes:
    """A JSON object that also tells its own digest."""
    return json.dumps(facts | {"sealed": _digest(facts)}, ensure_ascii=False).encode()


def _opened(content: bytes) -> dict[str, Any] | None:
    """What was sealed, or None if it is not as it was."""
    with suppress(ValueError, TypeError, AttributeError, KeyError, RecursionError):
        facts = json.loads(content)
        if facts.pop("sealed") == _digest(facts):
            return facts
    return None


def _digest(facts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


# The plan.


def plan(job: Job, inputs: Sequence[str], output: Output) -> list[Shard]:
    """The shards of a job, from its manifest or, the first time, by looking through the inputs."""
    files = {url: state_of(url) for url in inputs}
    decisive = job.decisive()
    with ExitStack() as held:
        if output.folder is not None:  # of several that start together one counts the rows
            held.enter_context(sole_use(output.folder, wait=True))
        system, root = output.place
        system.invalidate_cache()
        if system.isfile(f"{root}/{_MANIFEST}"):
            manifest = _opened(system.cat_file(f"{root}/{_MANIFEST}"))
            if manifest is None:
                raise damaged(f"{output.url}/{_MANIFEST}", "it is not as it was written")
            _check_same(manifest, decisive, files, output.url)
        elif system.exists(root) and system.ls(root):
            raise SconesError(f"{output.url} holds something else; choose another folder.")
        else:
            added = [job.prefix + name for name in job.added]
            starts = [divided(url, job.columns, added, job.rows) for url in files]
            manifest = {"job": decisive, "inputs": files, "shards": starts}
            output.write(_MANIFEST, _sealed(manifest))
    divisions = zip(files, manifest["shards"], strict=True)
    shards = [(url, start, rows) for url, starts in divisions for start, rows in starts]
    return [Shard(number, *shard) for number, shard in enumerate(shards)]


def _check_same(
    manifest: dict[str, Any], decisive: dict[str, Any], files: dict[str, Any], place: str
) -> None:
    """Refuse an output that was begun with other options or other inputs."""
    pairs = [("inputs", list(manifest["inputs"]), list(files))]
    pairs += [(f"the state of {url}", manifest["inputs"].get(url), files[url]) for url in files]
    pairs += [(name, manifest["job"].get(name), decisive[name]) for name in decisive]
    for name, before, now in pairs:
        if before != now:
            raise SconesError(
                f"{place} belongs to another job, with {name.replace('_', ' ')} {before} instead "
                f"of {now}; choose another folder, or go on with what it was begun with."
            )


def share_of(share: str) -> tuple[int, int]:
    """The part that is meant, and of how many: 3 and 50 for "3/50"."""
    part, _, parts = share.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise SconesError(f"--shard {share} is no part; give one such as 3/50, from 1/50 to 50/50.")
    return int(part), int(parts)


# The work.


@dataclass(frozen=True)
class Worker:
    """Makes shards, one after another, with a model of its own."""

    job: Job
    output: Output
    device: str | None = None
    """Where that model is, if the job does not say it well enough."""

    @cached_property
    def _translator(self) -> Translator:
        set_threads(self.job.threads)
        opening = self.job.opening | ({"device": self.device} if self.device else {})
        return load(self.job.model, **opening)

    def make(self, shard: Shard) -> Report:
        """Write a shard, unless it is there: who made it may have died before it could tell."""
        made = partial(self.output.finished, [shard.number], self.job.opening["verify"])
        for report in made():
            return report
        rows = read(shard, self.job.columns)
        wanted = [texts for texts in rows.texts if not isinstance(texts, Fault)]
        different = list(dict.fromkeys(wanted)) if self.job.dedupe else wanted
        with _quietly():
            answers = self._answers(different)
        if self.job.dedupe:
            known = dict(zip(different, answers, strict=True))
            answers = [known[texts] for texts in wanted]
        rest = iter(answers)
        facts = [
            {"error": texts.reason} if isinstance(texts, Fault) else next(rest)
            for texts in rows.texts
        ]
        added = {
            self.job.prefix + name: (kind, [one.get(name) for one in facts])
            for name, kind in self.job.added.items()
        }
        content = _text(added) if self.job.text else rows.rendered(added)
        for report in made():  # somebody else began it too
            return report
        digest = self.output.write(self.output.path_of(shard.number), content)
        failed = [(row, one["error"]) for row, one in enumerate(facts) if "error" in one]
        report = Report(shard.number, len(facts), len(different), failed, len(content), digest)
        self.output.write(self.output.path_of(shard.number, record=True), _sealed(asdict(report)))
        return report

    def _answers(self, given: Sequence[tuple[str, ...]]) -> list[Facts]:
        """The new columns of rows; of one that is too long the reason alone."""
        try:
            return self._by_model(given) if given else []
        except TooLongError as mistake:  # it says all of them, but sources before targets
            long = set(mistake.numbers)
        numbered = list(enumerate(given, 1))
        rest = iter(self._answers([one for number, one in numbered if number not in long]))
        too_long = {"error": "is longer than the model takes"}
        return [too_long if number in long else next(rest) for number, _ in numbered]

    def _by_model(self, given: Sequence[tuple[str, ...]]) -> list[Facts]:
        if len(self.job.columns) == 2:
            terms = self._translator.score_tokens(given, self.job.search["max_tokens"])  # type: ignore[arg-type]
            return [{"log_prob": math.fsum(one), "tokens": len(one)} for one in terms]
        sentences = [sentence for (sentence,) in given]
        confidence = self.job.search["scores"] and self._translator.calibration is not None
        if self.job.search["search"] not in ("exact", "all"):
            translated = self._translator.translate(
                sentences, **self.job.search, confidence=confidence
            )
            return [_facts(found) for found in translated]
        from scones.search.frontier import ExactOptions

        options = ExactOptions(**self.job.limits)
        if self.job.search["search"] == "all" and options.threshold is None:
            options = replace(options, threshold=self._translator.likely)
        beam, too_long = self.job.search["beam_size"], self.job.search["too_long"]
        exact = dict(
            self._translator.exact(sentences, options, beam, too_long, confidence=confidence)
        )
        return [
            _facts(one.translations) | {"proved": one.certificate and one.certificate.proved}
            for _, one in sorted(exact.items())
        ]


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep back what the model warns of a row, which is in the output."""
    logger = logging.getLogger("scones")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _facts(found: Sequence[Translation]) -> Facts:
    if not found:  # nothing was probable enough
        return {ALTERNATIVES: []}
    best, *_ = several = [
        {"text": one.text, "log_prob": one.log_prob, "confidence": one.confidence} for one in found
    ]
    facts = {"translation": best["text"], "finished": found[0].finished, ALTERNATIVES: several}
    return best | facts


def _text(added: dict[str, tuple[str, list[Any]]]) -> bytes:
    """Lines of the first new column; a line end in a translation would make two of one."""
    _, values = next(iter(added.values()))
    shown = ("" if value is None else str(value).replace("\n", " ") for value in values)
    return "".join(f"{value}\n" for value in shown).encode()
