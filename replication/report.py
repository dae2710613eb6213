"""The report put together and written: a page, the same as Markdown, figures, and data files.

Behind a summary of two printed pages every table and figure has a page. Where a number comes from
stands in data files: data/cells.csv has the cells of all tables, data/figure-3.csv the points of a
figure.
"""

from __future__ import annotations

import os
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from replication import figures, tables
from replication.claims import Verdict, contrasts, judge, marks
from replication.significance import FILE, References, bleurt, find_tests
from replication.table import CONVERGED, MAIN, NEWS, Key, Table, read_table
from scones.errors import SconesError
from scones.files import versions, write_file

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Page:
    """A table or a figure."""

    key: str
    title: str
    caption: str
    grids: Sequence[tables.Grid] = ()
    drawing: str | None = None
    keys: Sequence[Key] = field(default=(), repr=False)
    """The numbers that the drawing shows."""

    @property
    def inline(self) -> str:
        """The drawing as a part of the page."""
        said = f"{self.title}: {self.caption}"
        return figures.inline(self.drawing, self.key, said) if self.drawing else ""


@dataclass(frozen=True)
class Written:
    """What was written."""

    files: list[Path]
    verdicts: list[Verdict]
    problems: list[str]
    """What is missing: tests that are not stored and could not be made."""


def write(
    results: Path, out: Path, data: Path | None = None, bleurt_checkpoint: Path | None = None
) -> Written:
    """Write the report of a results folder.

    Tests that are not stored yet are made and stored beside the results where `data` holds the
    references.
    """
    table = read_table(results)
    if out.exists() and not out.is_dir():
        raise SconesError(f"{out} is a file; give a folder to write to.")
    references = References(data)
    if bleurt_checkpoint is not None:
        news = [one.key for one in table.numbers if (one.set, one.metric) == (NEWS, "bleu")]
        table = bleurt(table, news, references, bleurt_checkpoint)
    both = (*contrasts(table).values(), *contrasts(table, CONVERGED).values())
    wanted = [*both, *marks(table)]
    tests = find_tests(table, wanted, None if data is None else references)
    problems = list(dict.fromkeys(references.problems))
    if lacking := len(wanted) - len(tests):
        problems.append(
            f"{lacking} of {len(wanted)} tests are not in {results / FILE}; give --data."
        )
    published = tomllib.loads((HERE / "published.toml").read_text())
    pivot, verdicts = tables.Pivot(table, tests, published), judge(table, tests)
    summary, pages = list(_summary(pivot)), list(_pages(pivot))
    said = {
        "published": published,
        "verdicts": verdicts,
        "counts": Counter(one.outcome for one in verdicts),
        # Under the old rules 6a and 6b were one claim.
        "old_counts": Counter(one.about["old_verdict"] for one in verdicts if one.number != "6b"),
        "summary": summary,
        "pages": pages,
        "colours": {figures.css(name): pair for name, pair in figures.COLOURS.items()},
        "css": figures.css,
        "left_out": _left_out(table),
        "fresh": [f"claim {one.number}" for one in verdicts if one.is_new],
        "results": os.path.relpath(results, out),
        "versions": versions(),
        "deviation": _deviation(table),
    }
    files = {
        "index.html": _render("page.html", said, True),
        "report.md": _render("report.md", said, False),
    }
    files |= {f"{one.key}.svg": one.drawing for one in (*summary, *pages) if one.drawing}
    files |= dict(_data(table, [*summary, *pages], verdicts))
    for name, content in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        write_file(out / name, content)
    return Written([out / name for name in files], verdicts, problems)


def _render(name: str, said: dict[str, object], escaped: bool) -> str:
    made = Environment(autoescape=escaped, undefined=StrictUndefined)
    made.loader = FileSystemLoader(HERE / "templates")
    made.trim_blocks = made.lstrip_blocks = made.keep_trailing_newline = True
    return made.get_template(name).render(said)


def _left_out(table: Table) -> list[str]:
    """Say once why something was not run, with all that it holds for."""
    found: dict[str, list[str]] = {}
    for (direction, system), why in table.left_out.items():
        found.setdefault(f"{system}: {why}", []).append(direction)
    return [f"{', '.join(dict.fromkeys(where))}: {what}" for what, where in found.items()]


def _deviation(table: Table) -> float:
    """Give the largest standard deviation of BLEU on the news test over seeds."""
    frame = table.frame
    news = frame[(frame.variant == MAIN) & (frame.set == NEWS) & (frame.metric == "bleu")]
    groups = news.groupby(["direction", "system", "search"]).value
    return float(groups.std()[groups.count() >= 3].max())


def _summary(pivot: tables.Pivot) -> Iterator[Page]:
    drawing, keys = figures.gains(pivot.table, pivot.tests, pivot.published)
    said = "Gain of tuned SCONES over softmax, newstest2019, with 95 % intervals."
    yield Page("gains", "The gain in BLEU", said, (), drawing, keys)
    drawing, keys = figures.modes(pivot.table, pivot.published)
    said = "What exact search keeps of the BLEU of beam 4; the dashed line is claim 6b's 90 %."
    yield Page("modes", "The mode", said, (), drawing, keys)
    said = "BLEU on newstest2019; exact search is of its first 200 sentences (the paper: all)."
    yield Page("numbers", "The paper's numbers and ours", said, [tables.summary(pivot)])


def _pages(pivot: tables.Pivot) -> Iterator[Page]:
    """Give a page for every table and figure, titles and captions from templates/captions.toml."""
    table = pivot.table
    made: dict[str, Sequence[tables.Grid] | figures.Drawn] = {
        "table-1": [tables.table_1(pivot)],
        "table-2": [tables.table_2(pivot)],
        "table-3": tables.table_3(pivot),
        "sets": tables.other_sets(pivot),
        "seeds": tables.seeds(pivot),
        "table-4": tables.table_4(pivot),
        "table-5": [tables.table_5(pivot)],
        "figure-2": figures.speed(table),
        "figure-3": figures.by_beam(table, "bleu", "BLEU"),
        "figure-4": figures.by_beam(table, "length_ratio", "length ratio"),
        "table-6": tables.table_6(pivot),
        "figure-5": figures.exact_search(table),
        "figure-6": figures.log_probs(table),
        "figure-7": figures.by_beam(table, "errors.share", "search errors, %", False, 100.0),
        "table-7": [tables.table_7(pivot)],
        "figure-8": figures.synthetic(table, "beam4"),
        "figure-9": figures.synthetic(table, "exact"),
        "trainings": [tables.trainings(pivot)],
    }
    below = {"figure-9": tables.by_temperature(pivot), "figure-2": tables.timed(pivot)}
    captions = tomllib.loads((HERE / "templates" / "captions.toml").read_text())
    for key, (title, caption) in captions.items():
        found = made[key]
        if isinstance(found, figures.Drawn):
            yield Page(key, title, caption, list(below.get(key, ())), *found)
        else:
            yield Page(key, title, caption, found)


def _data(
    table: Table, pages: Iterable[Page], verdicts: Iterable[Verdict]
) -> Iterator[tuple[str, str]]:
    """Give the data files: every cell and point with the numbers that it is made of."""
    cells = []
    for page in pages:
        for grid in page.grids:
            for row in grid.rows:
                for head, cell in zip(grid.full_heads, row.cells, strict=True):
                    place = {"page": page.key, "table": grid.title, "row": row.label}
                    place |= {"column": head, "shown": cell.text}
                    cells += [{**place, **one} for one in _numbers(table, cell.keys)]
        if page.keys:
            yield f"data/{page.key}.csv", _csv(_numbers(table, page.keys))
    yield "data/cells.csv", _csv(cells)
    judged = [
        {"number": one.number, **one.about, "outcome": one.outcome, "is_new": one.is_new}
        | vars(one.found)
        | {"holm": one.adjusted}
        | {name: beside.shown for name, beside in one.beside.items()}
        for one in verdicts
    ]
    yield "data/verdicts.csv", _csv(judged)


def _numbers(table: Table, keys: Iterable[Key]) -> list[dict[str, object]]:
    """Give the numbers of these keys, with where they come from."""
    found = [number for key in dict.fromkeys(keys) if (number := table.get(key))]
    return [dict(vars(number)) for number in found]


def _csv(rows: Sequence[Mapping[str, object]]) -> str:
    return pd.DataFrame(rows).to_csv(index=False, lineterminator="\n")
