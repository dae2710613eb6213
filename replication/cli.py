"""Reproduce the paper: run its experiments, and write its tables and figures.

A recipe holds the experiments of a direction; results of all directions lie in one folder:

    scones prepare data/de-en --recipe recipes/paper/de-en.toml
    scones paper run recipes/paper/de-en.toml results --store data/de-en \\
        --runs runs/paper --jobs 6
    scones paper report results report      # report/index.html
    scones paper check results --cells 10   # BLEU cells, computed again

In a checkout of the repository `python -m replication` is the same as `scones paper`.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from replication.options import Check, Replicate, Report, Run, Score, Synthetic, Translate
from scones.cli.flags import CommandGroup, answer, check_publishable, table

if TYPE_CHECKING:
    from replication.results import Direction, Json


def run(options: Run) -> None:
    """Train, translate, search and time the systems of a direction.

    In: RECIPE, and STORE, which scones prepare made with it. Out: RESULTS (scores, translations,
    how they were made; scones paper report makes a page of it) and a table of BLEU on standard
    output. What has results is not made again, even when its model is gone; the same command goes
    on where it was stopped, on another machine too. Systems go side by side (--jobs), each at its
    own pace, and one that fails stops no other; speed is measured last, when nothing else runs.

        scones paper run recipes/paper/de-en.toml results --store data/de-en \\
            --runs runs/paper --jobs 6
        scones paper run recipes/paper/de-en.toml results --store data/de-en \\
            --runs runs/paper --system softmax --system scones-0.5 \\
            --seed 2 --seed 3 --until translate
    """
    from replication.directions import Experiments

    experiments = Experiments(options, _say)
    experiments.run()
    _show(experiments.direction, options.as_json)


def translate(options: Translate) -> None:
    """Translate with systems that are trained: a step of scones paper run.

    In: what scones paper run takes, which starts this for every system as a process of its own.
    Out: RESULTS, with the translations of all test sets and their scores.

        scones paper translate recipes/paper/de-en.toml results \\
            --store data/de-en --runs runs/paper --system softmax
        scones paper translate recipes/paper/de-en.toml results \\
            --store data/de-en --runs runs/paper --system softmax --seed 2
    """
    from replication.directions import Experiments

    experiments = Experiments(Run(**vars(options)), _say)
    for one in experiments.wanted:
        experiments.translate(one)
    _show(experiments.direction, options.as_json)


def score(options: Score) -> None:
    """Add the scores that results lack, from their translations.

    In: RECIPE, which names the references, and RESULTS of scones paper run, which leaves out TER:
    it takes half a minute a set, and no model. Out: RESULTS, completed.

        scones paper score recipes/paper/de-en.toml results
        scones paper score recipes/paper/de-en.toml results --metric ter --jobs 2
    """
    from replication.directions import rescore

    _show(rescore(options, _say), options.as_json)


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _show(direction: Direction, as_json: bool) -> None:
    """Print the scores of all runs of a direction: BLEU as a table, everything as JSON."""
    from replication.results import score

    runs = direction.runs()
    found = {
        run["name"]: {
            test: {search: one["scores"] for search, one in about["searches"].items()}
            for test, about in run["tests"].items()
        }
        for run in runs
    }
    columns = dict.fromkeys(
        (test, one) for row in found.values() for test in row for one in row[test]
    )
    bleu = {run["name"]: [score(run, *column) for column in columns] for run in runs}
    rows = [
        [name, *("–" if one is None else f"{one:.2f}" for one in row)] for name, row in bleu.items()
    ]
    answer(as_json, found, table(["", *map(" ".join, columns)], rows))


def report(options: Report) -> None:
    """Write the paper's tables and figures as one page.

    In: stored results. Out: OUT/index.html, which needs no network, OUT/report.md, and every
    figure as an SVG file: the paper's numbers beside ours. What was not run yet says so. Tests of
    significance need references; once made, they are stored beside the results.

        scones paper report docs/results/paper report
        scones paper report docs/results/paper report --data ~/corpora
    """
    from replication.report import write

    written = write(options.results, options.out, options.corpora, options.bleurt)
    for problem in written.problems:
        _say(problem)
    typer.echo(written.files[0])


def check(options: Check) -> None:
    """Compute BLEU cells of the report again, chosen at random.

    In: stored results, and references. Out: every chosen cell with the stored number and the one
    that its translations have now. Where they differ, the exit code is 1.

        scones paper check docs/results/paper --data ~/corpora --cells 10
        scones paper check docs/results/paper --seed 7
    """
    from replication.check import check as check_cells

    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    found = list(check_cells(options.results, options.corpora, options.cells or None, seed))
    facts = [
        {"cell": one.title, "file": str(one.path), "stored": one.cell.value, "again": one.again}
        for one in found
    ]
    rows = [
        [one.title, f"{one.cell.value:.4f}", f"{one.again:.4f}", "the same" if one.same else "NOT"]
        for one in found
    ]
    same = sum(one.same for one in found)
    said = f"{same} of {len(found)} are the same (--seed {seed})."
    shown = table(["BLEU cell", "stored", "again", ""], rows)
    answer(options.as_json, {"seed": seed, "same": same, "cells": facts}, shown, said)
    if same < len(found):
        raise typer.Exit(1)


def replicate(options: Replicate) -> None:
    """Softmax against SCONES over several seeds, α chosen on the dev set.

    In: STORE, made by scones prepare, and a test set. Out: the models under RUNS (those finished
    already are not trained again) and a report, which OUTPUT.md and OUTPUT.json keep. Nothing is
    chosen on the test set: it is used once, when everything is trained.

        scones replicate store runs/multi30k --recipe recipes/multi30k.toml \\
            --source test.de -r test.en --jobs 2
        scones replicate store runs/quick --recipe recipes/multi30k.toml \\
            --source test.de -r test.en --alpha 0.5 --seed 1 --json
    """
    from replication.replicate import Replication, markdown

    stem = options.output or options.folder / "replication"
    check_publishable(stem, "seeds")
    result = Replication(options, _say).run()
    _publish(stem, result, markdown(result), options.as_json)


def synthetic(options: Synthetic) -> None:
    """Train on languages from nearly deterministic to wild, and search.

    In: STORE, an IBM Model 3 of its pieces, and a test set's source text. For each temperature γ a
    language is sampled; softmax and SCONES are trained on it, and translate its test set with a
    beam of 4 and by exact search. Out: a table (also on standard output) and JSON of all that lies
    in OUT, as OUT/synthetic.md and synthetic.json, beside languages, models and searches; a results
    folder with synthetic.json in it gets the paper's figures 8 and 9 from scones paper report. The
    same command goes on where it was stopped; another γ or α can be added. STORE and IBM3 are not
    needed for a language that is sampled already.

        scones synthetic store de-en.ibm3 runs/synthetic --source test.de \\
            --recipe recipes/synthetic.toml --jobs 8
        scones synthetic store de-en.ibm3 runs/quick --source test.de \\
            --recipe recipes/synthetic.toml --temperature 0.1 --temperature 1 \\
            --alpha 0.2 --alpha 1 --pairs 5000 --max-steps 200 \\
            --sentences 20 --max-states 1000
    """
    from replication.synthetic import Experiment, markdown

    check_publishable(options.folder / "synthetic", "temperatures")
    if result := Experiment(options, _say).run():
        _publish(options.folder / "synthetic", result, markdown(result), options.as_json)


def _publish(stem: Path, result: Json, tables: str, as_json: bool) -> None:
    """Write STEM.json and STEM.md, and print one of them."""
    from scones.files import write_file, write_json

    stem.parent.mkdir(parents=True, exist_ok=True)
    write_json(stem.with_suffix(".json"), result)
    write_file(stem.with_suffix(".md"), tables)
    answer(as_json, result, tables)


paper = CommandGroup(
    __doc__,
    {one.__name__: one for one in (run, translate, score, report, check, replicate, synthetic)},
)
