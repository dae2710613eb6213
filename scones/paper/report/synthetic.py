"""Figures 8 and 9: synthetic languages from nearly deterministic to wild."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scones.analysis.tables import limits_sentence
from scones.evaluation.significance import mark
from scones.paper.report.document import Cell, Figure, Row, Section, Table, nothing, ours
from scones.paper.report.plots import Curve, curves
from scones.paper.report.study import Study, label_by_name
from scones.paper.synthetic_tables import labels
from scones.paper.synthetic_verdict import verdict_sentences

Json = dict[str, Any]
Value = Callable[[Json], float | None]


def synthetic(study: Study) -> Section:
    """Make the section."""
    result = study.synthetic
    paragraphs = [
        "Real source sentences, with translations sampled from IBM Model 3 at a temperature γ: "
        "the higher, the more ways there are to say the same."
    ]
    if result is not None:
        sentences = verdict_sentences(result["verdict"], labels(result))
        paragraphs += [sentence.replace("**", "") for sentence in sentences]
        paragraphs.append(limits_sentence(result["limits"], result["first_beam"]))
    return Section(
        "synthetic",
        "Synthetic languages",
        paragraphs,
        [
            _figure(study, "8", "BLEU with beam search (4), by temperature.", "BLEU", _beam),
            _figure(
                study,
                "9",
                "BLEU of exact search in per cent of the BLEU that softmax reaches with beam "
                "search at the same temperature.",
                "% of softmax with beam search",
                _relative,
                line=100.0,
            ),
        ],
    )


def _beam(row: Json) -> float | None:
    return float(next(iter(row["beams"].values()))["outputs"]["bleu"])


def _relative(row: Json) -> float | None:
    return None if row["relative"] is None else 100 * float(row["relative"])


def _figure(
    study: Study, number: str, caption: str, axis: str, value: Value, line: float | None = None
) -> Figure:
    title, key = f"Figure {number}", f"figure-{number}"
    result = study.synthetic
    if result is None:
        return Figure(key, title, caption, None, (), "the synthetic languages were not run")
    rows = dict(sorted(result["temperatures"].items(), key=lambda row: float(row[0])))
    found = []
    for system in result["systems"]:
        values = [value(row["systems"][system]) for row in rows.values()]
        known = [float("nan") if one is None else one for one in values]
        found.append(Curve(system, label_by_name(system), [float(one) for one in rows], known))
    ticks = {float(one): one for one in rows}
    panel = {"German to synthetic English": found}
    drawing = curves(panel, "temperature γ of IBM Model 3", axis, ticks=ticks, line=line)
    table = Table(
        f"{key}-numbers",
        axis,
        "† p < .05, ‡ p < .01 against exact search of softmax." if line else "By temperature.",
        ["", *(f"γ = {one}" for one in rows)],
        [
            Row(
                label_by_name(system),
                [_cell(study, one, row, system, value, line) for one, row in rows.items()],
                system=system,
            )
            for system in result["systems"]
        ],
    )
    why = "matplotlib is not installed (scones[plots])"
    return Figure(key, title, caption, drawing, [table], why)


def _cell(
    study: Study,
    temperature: str,
    row: Json,
    system: str,
    value: Value,
    line: float | None,
) -> Cell:
    figures = row["systems"][system]
    number = value(figures)
    if number is None:
        return nothing()
    marked = mark(figures["p"]) if line is not None and figures["p"] is not None else ""
    return ours(f"{number:.1f}{marked}", study.synthetic_origin(temperature, system))
