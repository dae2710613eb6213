"""`scones paper`: the commands that reproduce the paper, put together."""

from __future__ import annotations

from scones.cli.flags import CommandGroup
from scones.cli.paper_check import check
from scones.cli.paper_report import report
from scones.cli.paper_run import run, score

_HELP = """\
Reproduce the paper: run its experiments, and write its tables and figures.

A recipe holds the experiments of a direction; results of all directions lie in one folder:

    scones prepare data/de-en --recipe recipes/paper/de-en.toml
    scones paper run recipes/paper/de-en.toml results --store data/de-en \\
        --runs runs/paper --jobs 6
    scones paper report results report      # report/index.html
    scones paper check results --cells 10   # BLEU cells, computed again
"""

paper = CommandGroup(_HELP, {"run": run, "score": score, "report": report, "check": check})
