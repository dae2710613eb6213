"""Tables 1 and 2: how large the models are, and what they were trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from scones.model.config import ModelConfig, ModelOptions
from scones.paper.agreement import disagreements
from scones.paper.report import published
from scones.paper.report.document import Cell, Row, Section, Table, nothing, ours, paper
from scones.paper.report.retraining import retrained, trained_longer
from scones.paper.report.rows import softmax
from scones.paper.report.significance import Marks
from scones.paper.report.study import DirectionStudy, Study
from scones.paper.results import RunResult

Json = dict[str, Any]


def setting(study: Study) -> Section:
    """Make the section."""
    return Section(
        "setting",
        "Models and corpora",
        [
            "All systems of a direction have the same sizes, the same training set, the same "
            "optimizer and the same budget; they differ in the output layer alone.",
            *(["But not all do:" + problems] if (problems := _unlike(study)) else []),
        ],
        [_sizes(study), _corpora(study), *_parts(study)],
    )


def _unlike(study: Study) -> str:
    """Say which systems were not trained like the others of their direction."""
    found = [
        f" {direction.place}: {said}."
        for direction in (*study.done, *study.longer)
        for said in disagreements(direction.runs.values())
    ]
    return "".join(found)


def _config(run: RunResult) -> ModelConfig:
    """Give the full sizes of a run's model; that of its vocabulary is not asked for."""
    return ModelOptions(**_section(run, "model")).build(vocabulary=1)


def _section(run: RunResult, name: str) -> Json:
    found: Json = run.training["recipe"].get(name) or {}
    return found


_SIZES: Mapping[str, Callable[[ModelConfig], str]] = {
    "attention dropout": lambda config: f"{config.attention_dropout:g}",
    "attention size": lambda config: f"{config.size:,}",
    "dropout": lambda config: f"{config.dropout:g}",
    "embedding size": lambda config: f"{config.size:,}",
    "feed-forward size": lambda config: f"{config.feed_forward:,}",
    "attention heads": lambda config: f"{config.heads}",
    "layers": lambda config: (
        f"{config.encoder_layers}"
        if config.encoder_layers == config.decoder_layers
        else f"{config.encoder_layers} + {config.decoder_layers}"
    ),
}


def _sizes(study: Study) -> Table:
    directions = list(study.directions.values())
    rows = []
    for name, number in published.SIZES.items():
        cells = [_size(direction, name) for direction in directions]
        rows.append(Row(_size_label(name), [paper(number), *cells]))
    cells = [_vocabulary(direction) for direction in directions]
    rows.append(Row("vocabulary", [paper(published.VOCABULARY), *cells]))
    return Table(
        "table-1",
        "Table 1",
        "Sizes of the Transformer, ours as the softmax runs stored them.",
        ["", "the paper", *study.directions],
        rows,
        notes=[
            f"The paper's count of {published.SIZES['parameters'].text} parameters could not be "
            "reconciled with its own sizes: they give fewer, whether the three matrices of the "
            "vocabulary are one or not. Ours are one."
        ],
    )


def _size_label(name: str) -> str:
    return "batch" if name == "sentences a batch" else name


def _size(direction: DirectionStudy, name: str) -> Cell:
    run = softmax(direction)
    if run is None:
        return direction.not_translated(None)
    origin = direction.run_origin(run)
    if name == "parameters":
        count = run.training.get("parameters")
        return nothing() if count is None else ours(f"{count / 1e6:.0f}M", origin)
    if name == "sentences a batch":
        tokens = _section(run, "train").get("max_tokens")
        return nothing() if tokens is None else ours(f"{tokens:,} tokens", origin)
    return ours(_SIZES[name](_config(run)), origin)


def _vocabulary(direction: DirectionStudy) -> Cell:
    corpora = direction.corpora
    if corpora is None:
        return direction.missing("no corpora.json")
    return ours(f"{corpora['vocabulary']:,}, joint", direction.file_origin("corpora", corpora))


def trainings(study: Study, marks: Marks) -> Section:
    """Make the section that lists every training."""
    blocks = [*trained_longer(study, marks), _trainings(study), retrained(study)]
    return Section("trainings", "Trainings", (), blocks)


def _trainings(study: Study) -> Table:
    """Steps, minutes and tokens of every run."""
    rows = []
    for direction in (*study.done, *study.longer):
        for run in direction.runs.values():
            origin = direction.run_origin(run)
            training = run.training
            cells = [
                ours(str(run.seed), origin),
                _count(training.get("steps"), origin),
                _count(training.get("target_tokens"), origin),
                _minutes(training.get("minutes"), origin),
                _count(training.get("parameters"), origin),
                ours(run.device, origin),
            ]
            rows.append(Row(f"{direction.place}, {run.name}", cells, system=run.system))
    return Table(
        "every-training",
        "Every training",
        "How long the models of these tables were trained; further trainings are those of the "
        "synthetic languages and second ones. The paper trained until convergence, "
        f"{published.STEPS.text} steps.",
        ["", "seed", "steps", "target tokens seen", "minutes", "parameters", "device"],
        rows,
    )


def _count(number: float | None, origin: Any) -> Cell:
    return nothing() if number is None else ours(f"{number:,.0f}", origin)


def _minutes(number: float | None, origin: Any) -> Cell:
    return nothing() if number is None else ours(f"{number:.1f}", origin)


def _corpora(study: Study) -> Table:
    rows = []
    for direction in study.directions.values():
        source, target = direction.name.split("-")
        pair = direction.name if target == "en" else f"{target}-{source}"
        theirs = published.CORPORA.get(pair)
        corpora = direction.corpora
        if corpora is None:
            cells = [direction.missing("not prepared yet")] * 3
        else:
            origin = direction.file_origin("corpora", corpora)
            read, kept = corpora["pairs_read"], corpora["pairs_kept"]
            share = f"{100 * kept / read:.1f} %" if read else "–"
            cells = [ours(text, origin) for text in (f"{read:,}", f"{kept:,}", share)]
        numbers = [paper(number) for number in theirs] if theirs else [paper(None)] * 2
        rows.append(Row(direction.name, [*cells, *numbers]))
    return Table(
        "table-2",
        "Table 2",
        "Training pairs before and after cleaning, ours and the paper's.",
        ["", "read", "kept", "share kept", "unfiltered", "filtered"],
        rows,
        [("ours", 3), ("the paper", 2)],
    )


def _parts(study: Study) -> list[Table]:
    """Say what each corpus gave, once for the two directions of a pair."""
    tables, seen = [], set[frozenset[str]]()
    for direction in study.directions.values():
        pair = frozenset(direction.name.split("-"))
        corpora = direction.corpora
        if corpora is None or pair in seen:
            continue
        seen.add(pair)
        origin = direction.file_origin("corpora", corpora)
        rows = []
        for part in corpora["corpora"]:
            lost = {reason: count for reason, count in part["dropped"].items() if count}
            why = ", ".join(f"{reason} {count:,}" for reason, count in lost.items()) or "–"
            read, kept = f"{part['pairs_read']:,}", f"{part['pairs_kept']:,}"
            numbers = [read, kept, f"{part.get('times', 1)}×", why]
            rows.append(Row(_short_name(part["source"]), [ours(one, origin) for one in numbers]))
        tables.append(
            Table(
                f"table-2-{direction.name}",
                f"Table 2, the corpora of {direction.name}",
                "What every corpus gave, how often its pairs are in the training text, and why "
                "others were dropped.",
                ["", "read", "kept", "in training", "dropped"],
                rows,
            )
        )
    return tables


def _short_name(path: str) -> str:
    """Name a corpus by its folder and file, wherever it lies."""
    return "/".join(PurePath(path).parts[-2:])
