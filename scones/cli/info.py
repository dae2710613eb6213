"""`scones info`: what a model folder, a training run or a store holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scones.cli import printable
from scones.cli.flags import JsonFlag, VerifyFlag, answer
from scones.errors import SconesError
from scones.files import read_json
from scones.options import argument

_FEW = 5
"""Of a list, which a table shows whole."""


@dataclass(frozen=True, kw_only=True)
class Info(VerifyFlag, JsonFlag):
    """What `scones info` takes."""

    folder: Path = argument("A model folder or a pocket model's name, a run or a store.", "MODEL")


def info(options: Info) -> None:
    """Show what a model, a training run or a store is.

    In: the folder of a model, also of one that is still being trained, or what scones prepare
    made. Out: languages, sizes, output layer, data and commit it comes from, scores, files; of a
    run also where it stands. A model's weights are read, so that a damaged one is refused.

        scones info runs/de-en
        scones info pocket-de-en
        scones info store --json
    """
    from rich.filesize import decimal

    facts = _facts(options.folder, options.verify)
    sizes = {name: decimal(count) for name, count in facts["files"].items()}
    rows = list(_rows(facts | {"files": sizes, "total_bytes": decimal(facts["total_bytes"])}))
    width = min(40, max(len(name) for name, _ in rows)) + 2
    lines = [printable(f"{name:{width}}{value}").rstrip() for name, value in rows]
    answer(options.as_json, facts, *lines)


def _facts(folder: Path, verify: bool) -> dict[str, Any]:
    from scones.model.folder import find_model

    folder = find_model(folder)
    is_run = (folder / "training" / "run.json").is_file()
    if (folder / "store.json").is_file():
        facts = _store(folder, verify)
    elif is_run and not (folder / "config.json").exists():
        facts = _begun(folder)
    else:
        facts = _model(folder, verify)
    if is_run:
        facts["training"] = _training(folder)
    paths = [path for path in sorted(folder.iterdir()) if path.is_file()]
    facts["files"] = {path.name: path.stat().st_size for path in paths if path.name[0] != "."}
    facts["total_bytes"] = sum(facts["files"].values())
    return facts


def _model(folder: Path, verify: bool) -> dict[str, Any]:
    from scones.bridges.marian import MarianFolder, is_marian
    from scones.model.folder import FolderConfig
    from scones.translator import load

    theirs = is_marian(folder)
    config = MarianFolder.open(folder).config if theirs else FolderConfig.read(folder)
    ours = config.facts.to_json(config.storage)
    model = load(folder, "cpu", verify=verify).model  # the only way to say that it is whole
    told = ("format", "source_language", "target_language", "model", "limits")
    return {
        "kind": "Marian model" if theirs else "export" if config.facts.is_export else "model",
        "languages": _languages(ours),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        **asdict(model.config),
        **{name: value for name, value in ours.items() if name not in told},
    }


def _languages(facts: dict[str, Any]) -> str:
    return f"{facts.get('source_language')} → {facts.get('target_language')}"


def _begun(folder: Path) -> dict[str, Any]:
    """Describe a run that has not saved a model yet by what it was asked for."""
    asked = read_json(folder / "training" / "run.json")
    try:
        return {
            "kind": "training run without a model so far",
            **{name: value for name, value in asked["model"].items() if value is not None},
            "output": asked["output"],
            "seed": asked["train"]["seed"],
            "data_digest": asked["data"],
        }
    except (KeyError, TypeError, AttributeError):
        raise SconesError(f"{folder}/training/run.json is damaged: an entry is missing.") from None


def _training(folder: Path) -> dict[str, Any]:
    """Say where a run stands, from its log: the last step and the best validation."""
    from scones.model.folder import read_facts
    from scones.training.log import read_log

    events = list(read_log(folder / "training" / "log.jsonl"))
    steps = [event for event in events if event["event"] == "train"]
    validations = [event for event in events if isinstance(event.get("bleu"), int | float)]
    step = max((event["step"] for event in events), default=0)
    last = folder / "last"
    made = read_facts(last).steps if last.is_dir() else None
    facts: dict[str, Any] = {"ended": isinstance(made, int) and made >= step, "step": step}
    if skipped := sum(event["event"] == "skip" for event in events):
        facts["skipped_steps"] = skipped
    if steps:
        names = ("loss", "epoch", "tokens_per_second", "learning_rate", "seconds")
        facts |= {name: steps[-1].get(name) for name in names}
    if validations:
        best = max(validations, key=lambda event: event["bleu"])
        facts |= {"validations": len(validations), "last_dev_bleu": validations[-1]["bleu"]}
        facts |= {"best_dev_bleu": best["bleu"], "best_step": best["step"]}
    return facts


def _store(folder: Path, verify: bool) -> dict[str, Any]:
    from scones.text.store import TokenStore

    store = TokenStore.open(folder, verify)  # refuses a damaged one
    written = read_json(folder / "store.json")
    report = store.report if (folder / "report.json").is_file() else {}
    return {
        "kind": "store",
        "languages": _languages(written),
        "vocabulary": len(store.subwords),
        "vocabulary_digest": store.subwords.digest,
        "data_digest": store.digest,
        **{name: report[name] for name in ("pairs_read", "pairs_kept") if name in report},
        **written["splits"],
    }


def _rows(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Give the rows of the table; what has parts of its own gets a heading."""
    for name, value in facts.items():
        if isinstance(value, dict):
            yield _title(name), ""
            yield from ((f"  {part}", shown) for part, shown in _rows(value))
        else:
            yield _title(name), _shown(name, value)


def _title(name: str) -> str:
    return name if "." in name else name.replace("_", " ")  # a file's name is its own


def _shown(name: str, value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "unknown", True: "yes", False: "no"}[value]
    if isinstance(value, list) and len(value) > _FEW:
        return f"{len(value)} numbers (--json shows them)"
    if isinstance(value, float):
        return f"{value:,.4g}"
    if isinstance(value, int) and name != "seed":
        return f"{value:,}"
    return str(value)[:16] if re.fullmatch("[0-9a-f]{64}", str(value)) else str(value)
