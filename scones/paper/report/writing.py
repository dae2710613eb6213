"""The report put together and written: index.html, report.md, and a file for every figure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from scones.errors import SconesError
from scones.files import versions, write_file
from scones.paper.report import published
from scones.paper.report.document import NOT_RUN, Document, Figure
from scones.paper.report.html import page
from scones.paper.report.markdown import markdown
from scones.paper.report.quality import quality
from scones.paper.report.references import References
from scones.paper.report.rows import ROWS
from scones.paper.report.searching import searching
from scones.paper.report.setting import setting, trainings
from scones.paper.report.significance import Marks, find_marks
from scones.paper.report.speed import speed
from scones.paper.report.study import NEWS, SEARCHES, Study
from scones.paper.report.synthetic import synthetic
from scones.paper.report.verdicts import verdicts
from scones.paper.results import Results, reading


@dataclass(frozen=True)
class Report:
    """What was written."""

    files: list[Path]
    marks: Marks
    missing: int
    """Cells that are not run yet."""


def write_report(
    results: Path, out: Path, data: Path | None = None, bleurt: Path | None = None
) -> Report:
    """Write the report of a results folder; references are looked for in `data`.

    Bootstrap tests that are not stored yet are stored beside the results, where references are.
    """
    study = Study(Results(results))
    study.check()
    if out.exists() and not out.is_dir():
        raise SconesError(f"{out} is a file; give a folder to write to.")
    references = References(data)
    with reading(results):
        marks = find_marks(study, references)
        learned = None if bleurt is None else bleurt_scores(study, references, bleurt)
        document = make_document(study, marks, learned, os.path.relpath(results, out))
        files = {"index.html": page(document), "report.md": markdown(document)}
    out.mkdir(parents=True, exist_ok=True)
    for section in document.sections:
        for block in section.blocks:
            if isinstance(block, Figure) and block.drawing is not None:
                files[f"{block.key}.svg"] = block.drawing
    for name, content in files.items():
        write_file(out / name, content)
    cells = (cell for table in document.tables() for row in table.rows for cell in row.cells)
    missing = sum(cell.kind == "missing" for cell in cells)
    return Report([out / name for name in files], marks, missing)


def make_document(
    study: Study, marks: Marks, learned: Mapping[str, float] | None, results: str
) -> Document:
    """Put the sections together; `results` is the way from the report to the results folder."""
    return Document(
        "Jam or cream first? The paper's tables and figures, ours beside them",
        [
            f"A replication of Stahlberg & Kumar, “{published.TITLE}”, NAACL 2022 "
            f"({published.ADDRESS}): one sigmoid a token instead of a softmax.",
            "Numbers of the paper stand in italics in rows or columns of their own. All other "
            "numbers are ours; each is a link to the command, commit, seed, data and translations "
            f"that it comes from. What was not run yet says “{NOT_RUN}”.",
            f"Written by {versions()}.",
        ],
        [
            verdicts(study, marks, learned),
            setting(study),
            quality(study, marks, learned),
            speed(study),
            searching(study),
            synthetic(study),
            trainings(study, marks),
        ],
        results,
    )


def bleurt_scores(study: Study, references: References, checkpoint: Path) -> dict[str, float]:
    """Score what table 4 shows by BLEURT; gives scores by the key of their origin."""
    from scones.evaluation.metrics import load_learned

    metric = load_learned("bleurt", checkpoint)
    scores = {}
    for direction in study.done:
        for kind in ROWS.values():
            run = kind.pick(direction)
            for search in SEARCHES:
                found = None if run is None else run.search(NEWS, search)
                if run is None or found is None:
                    continue
                try:
                    texts = references.of(direction.name, NEWS, run.tests[NEWS])
                except SconesError:  # the table says that there are none
                    continue
                hypotheses = direction.direction.hypotheses(found.file)
                origin = direction.origin(run, NEWS, search)
                scores[origin.key] = fmean(metric.sentence_scores(hypotheses, [texts]))
    return scores
