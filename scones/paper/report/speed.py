"""Figure 2: BLEU against speed for small beams, and where the speed comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scones.paper.report import published
from scones.paper.report.document import (
    MINUS,
    Cell,
    Figure,
    Origin,
    Row,
    Section,
    Table,
    nothing,
    ours,
    paper,
    said_once,
)
from scones.paper.report.plots import Curve, curves
from scones.paper.report.study import SOFTMAX, DirectionStudy, Study, absent, label

Json = dict[str, Any]
WITH_SCORES = "greedy_with_scores"


def speed(study: Study) -> Section:
    """Make the section."""
    measured = [one for one in study.directions.values() if one.speed is not None]
    panels = {one.name: _curves(one.speed or {}) for one in measured}
    drawing = curves(panels, "sentences a second", "BLEU")
    why = "matplotlib is not installed (scones[plots])" if measured else "speed was not measured"
    figure = Figure(
        "figure-2",
        "Figure 2",
        "BLEU against speed for softmax and tuned SCONES; the numbers at the points are beam "
        f"sizes, 1 is greedy search.{absent([one.name for one in measured])}",
        drawing,
        [_points(one) for one in measured],
        why,
    )
    return Section(
        "speed",
        "Speed",
        [
            f"The paper replaced beam search (4) of softmax by greedy search of SCONES: "
            f"{published.SOFTMAX_BEAM_SPEED.text} to {published.SCONES_GREEDY_SPEED.text} "
            f"sentences a second, {published.SPEED_UP.text} ({published.SPEED_DEVICE}).",
            *said_once((one.name, _how(one)) for one in measured),
        ],
        [figure, _shares(study), *([_batches(measured)] if _more_batches(measured) else [])],
    )


def _how(direction: DirectionStudy) -> str:
    found = direction.speed or {}
    return (
        f"the first {found['sentences']:,} sentences of {found['test']}, batches of "
        f"{found['batch']}, the median of {found['repeats']} runs in turns, {found['device']}, "
        f"{found['precision']}."
    )


def _curves(found: Json) -> list[Curve]:
    panels = []
    for system, row in found["systems"].items():
        beams = sorted(row["beams"].items(), key=lambda beam: int(beam[0]))
        panels.append(
            Curve(
                system,
                label(row["output"]),
                [figures["sentences_per_second"] for _, figures in beams],
                [figures["bleu"] for _, figures in beams],
                [size for size, _ in beams],
            )
        )
    return panels


def _points(direction: DirectionStudy) -> Table:
    found = direction.speed or {}
    sizes = sorted({size for row in found["systems"].values() for size in row["beams"]}, key=int)
    rows = []
    for system, row in found["systems"].items():
        searches = [row["beams"].get(size) for size in sizes] + [row.get(WITH_SCORES)]
        for title, key, shown in (
            ("sentences/s", "sentences_per_second", "{:,.1f}"),
            ("BLEU", "bleu", "{:.1f}"),
        ):
            cells = [
                nothing() if one is None else ours(shown.format(one[key]), _origin(direction, one))
                for one in searches
            ]
            rows.append(Row(f"{label(row['output'])}: {title}", cells, system=system))
    heads = ["", *("greedy" if size == "1" else f"beam {size}" for size in sizes)]
    heads.append("greedy with scores")
    return Table(f"figure-2-{direction.name}", direction.name, "Speed and BLEU.", heads, rows)


def _origin(direction: DirectionStudy, figures: Json) -> Origin:
    found = direction.speed or {}
    times = ", ".join(f"{seconds:.3f}" for seconds in figures["times"])
    facts = {"seconds of all runs": times, "BLEU": figures["signature"]}
    origin = direction.file_origin("speed", found, facts)
    name = figures["file"].removesuffix(".txt.xz")
    file = f"{direction.name}/{figures['file']}"
    return Origin(f"{origin.key}.{name}", f"{origin.title}, {name}", origin.facts, file)


def ratio(direction: DirectionStudy, over: tuple[str, str], under: tuple[str, str]) -> Cell:
    """Show the speed of one (kind, search) over that of another; kinds are softmax and SCONES."""
    found = direction.speed
    if found is None:
        return direction.not_timed()
    first, second = (timed(found, *one) for one in (over, under))
    if first is None or second is None:
        return direction.missing("this search was not measured")
    number = first["sentences_per_second"] / second["sentences_per_second"]
    return ours(f"{number:.2f}×", _origin(direction, first))


def _more_batches(measured: Sequence[DirectionStudy]) -> list[int]:
    """Give the sizes of all batches that were timed besides the first of a direction."""
    rows = [row for one in measured for row in (one.speed or {})["systems"].values()]
    return sorted({int(size) for row in rows for size in row["beams"]["1"].get("more_batches", {})})


def _batches(measured: Sequence[DirectionStudy]) -> Table:
    """Show what becomes of the speed-up when more sentences are handed over at a time."""
    first = {int((one.speed or {})["batch"]) for one in measured}
    sizes = sorted(first.union(_more_batches(measured)))
    questions = {
        "SCONES greedy over softmax beam 4": SPEED_UP,
        "the beam alone: softmax greedy over softmax beam 4": ((SOFTMAX, "1"), (SOFTMAX, "4")),
    }
    rows = [
        Row(f"{one.name}: {title}", [_batch_ratio(one, *sides, size) for size in sizes])
        for one in measured
        for title, sides in questions.items()
    ]
    return Table(
        "speed-batches",
        "The speed-up by the size of the batch",
        "Ratios of sentences a second, by the number of sentences that are handed over at a time.",
        ["", *(f"batch {size}" for size in sizes)],
        rows,
    )


def _batch_ratio(
    direction: DirectionStudy, over: tuple[str, str], under: tuple[str, str], batch: int
) -> Cell:
    found = direction.speed or {}
    if batch == found["batch"]:
        return ratio(direction, over, under)
    sides = [timed(found, *one) for one in (over, under)]
    first, second = ((one or {}).get("more_batches", {}).get(str(batch)) for one in sides)
    if first is None or second is None or sides[0] is None:
        return direction.missing(f"batches of {batch}: not timed")
    number = first["sentences_per_second"] / second["sentences_per_second"]
    return ours(f"{number:.2f}×", _origin(direction, {**sides[0], "times": first["times"]}))


def timed(found: Json, kind: str, search: str) -> Json | None:
    """Give what speed.json has about a search of softmax or of SCONES; None if nothing."""
    for row in found["systems"].values():
        if (row["output"]["layer"] == SOFTMAX) == (kind == SOFTMAX):
            figures: Json | None = row.get(search) or row["beams"].get(search)
            return figures
    return None


def _difference(direction: DirectionStudy) -> Cell:
    """Show BLEU of SCONES greedy over that of softmax with a beam of 4, where speed was taken."""
    found = direction.speed
    first = None if found is None else timed(found, "scones", "1")
    second = None if found is None else timed(found, SOFTMAX, "4")
    if first is None or second is None:
        return direction.not_timed()
    return ours(
        f"{first['bleu'] - second['bleu']:+.1f}".replace("-", MINUS), _origin(direction, first)
    )


SCONES = "scones"
SPEED_UP = ((SCONES, "1"), (SOFTMAX, "4"))
"""SCONES with greedy search over softmax with beam search."""


def _shares(study: Study) -> Table:
    """Say how much of the speed-up is the beam, and how much the missing normalisation."""
    directions = list(study.directions.values())
    questions = {
        "SCONES greedy over softmax beam 4": SPEED_UP,
        "of which the beam: softmax greedy over softmax beam 4": ((SOFTMAX, "1"), (SOFTMAX, "4")),
        "of which the output layer: SCONES greedy over softmax greedy": (
            (SCONES, "1"),
            (SOFTMAX, "1"),
        ),
        "normalisation, greedy with scores: SCONES over softmax": (
            (SCONES, WITH_SCORES),
            (SOFTMAX, WITH_SCORES),
        ),
        "normalisation, beam 4: SCONES over softmax": ((SCONES, "4"), (SOFTMAX, "4")),
    }
    rows = []
    for title, (over, under) in questions.items():
        rows.append(Row(title, [ratio(one, over, under) for one in directions]))
        if (over, under) == SPEED_UP:
            numbers = [paper(published.SPEED_UP)] * len(directions)
            rows.append(Row("the paper, not by direction", numbers, "paper"))
            bleu = [_difference(one) for one in directions]
            rows.append(Row("BLEU, SCONES greedy minus softmax beam 4", bleu))
    return Table(
        "speed-shares",
        "What the speed-up is made of",
        "Ratios of sentences a second. Greedy search needs no probabilities, so that the output "
        "layers differ there only in the translations they give; with scores, and with a beam, "
        "softmax has to normalise over the vocabulary and SCONES has not.",
        ["", *study.directions],
        rows,
    )
