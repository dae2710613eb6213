"""The README's numbers of the paper's experiments, from the results that are stored here.

    python tools/readme.py           write them
    python tools/readme.py --check   say whether they are current

Nothing between `<!-- results: NAME -->` and `<!-- end -->` is typed by hand.
"""

from __future__ import annotations

import re
import statistics
import sys
import textwrap
from pathlib import Path
from typing import Any

from scones.analysis.tables import table_lines
from scones.evaluation.significance import mark
from scones.paper.results import LONGER, Direction, Results, RunResult, choose

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
RESULTS = Results(ROOT / "docs" / "results" / "paper")
DIRECTIONS = ("de-en", "en-de", "fi-en", "en-fi", "lt-en", "en-lt")
NEWS = "newstest2019"
SEARCHES = {"greedy": "greedy", "beam4": "beam 4"}
WIDTH = 112

_MARKED = re.compile(r"(<!-- results: (\w+) -->\n).*?(\n<!-- end -->)", re.DOTALL)


def filled(page: str) -> str:
    """Give the page with all that is marked written anew."""
    parts = {"table": table, "gains": gains, "longer": longer}
    return _MARKED.sub(lambda found: found[1] + parts[found[2]]() + found[3], page)


def table() -> str:
    """Give BLEU of beams and of exact search, a column a direction."""
    directions = [RESULTS.direction(name) for name in DIRECTIONS]
    rows = [["training pairs", *(f"{_known(one.corpora)['pairs_kept']:,}" for one in directions)]]
    for search, shown in SEARCHES.items():
        for label, system in (
            ("softmax", "softmax"),
            ("softmax with label smoothing", "softmax-ls"),
            ("SCONES", None),
        ):
            cells = [_score(one, system or _chosen(one), search) for one in directions]
            rows.append([f"{label}, {shown}", *cells])
    alphas = [_run(one, _chosen(one)).output["alpha"] for one in directions]
    rows.append(["chosen α", *(f"{alpha:.1f}" for alpha in alphas)])
    for label, system in (("softmax", "softmax"), ("SCONES, α = 0.2", "scones-0.2")):
        found = [_known(one.analysis)["systems"][system] for one in directions]
        beams = [f"{one['beams']['4']['outputs']['bleu']:.1f}" for one in found]
        modes = [f"{one['exact']['outputs']['bleu']:.1f}" for one in found]
        rows.append([f"{label}, beam 4, 200 sentences", *beams])
        rows.append([f"{label}, exact search of them", *modes])
        rows.append([f"{label}, proved, of 200", *(str(one["exact"]["proved"]) for one in found)])
    return "\n".join(table_lines(["BLEU", *DIRECTIONS], rows))


def gains() -> str:
    """Count the gains over softmax, without and with label smoothing, and tell of the seeds."""
    better, beyond = _gains("softmax")
    smoothed, smoothed_beyond = _gains("softmax-ls")
    return _paragraph(
        f"SCONES gains in {better} of the 12 comparisons with softmax, {beyond} of them beyond the "
        f"noise, and in {smoothed} of 12 with softmax with label smoothing, {smoothed_beyond} of "
        f"them beyond the noise. Over three seeds greedy search gives {_seeds('de-en')} against "
        f"softmax's {_seeds('de-en', 'softmax')} (de-en) and {_seeds('lt-en')} against "
        f"{_seeds('lt-en', 'softmax')} (lt-en; mean ± standard deviation)."
    )


def longer() -> str:
    """Tell what three times the steps give."""
    fi_en, lt_en = (RESULTS.apart(LONGER).direction(name) for name in ("fi-en", "lt-en"))
    steps = {_run(one, "softmax").training["steps"] for one in (fi_en, lt_en)}
    chosen = _chosen(lt_en)

    def said(direction: Direction, system: str) -> str:
        return ", ".join(_score(direction, system, search) for search in SEARCHES)

    return _paragraph(
        f"Finnish and Lithuanian had 4,000 steps, which is not enough. With {max(steps):,}, "
        f"softmax and SCONES (greedy, beam 4) come to {said(fi_en, 'softmax')} and "
        f"{said(fi_en, 'scones-1.0')} in fi-en (α = 1 alone), where the gain grows. In lt-en they "
        f"come to {said(lt_en, 'softmax')} and {said(lt_en, chosen)} with the α that the "
        f"development set then chooses, {_run(lt_en, chosen).output['alpha']}, which is no gain "
        f"beyond the noise; with α = 0.7 as above it is {said(lt_en, 'scones-0.7')}. The other "
        "directions were not trained longer."
    )


def _gains(baseline: str) -> tuple[int, int]:
    """Count the comparisons in which SCONES is ahead, and those beyond the noise."""
    better = beyond = 0
    for direction in map(RESULTS.direction, DIRECTIONS):
        run, other = _run(direction, _chosen(direction)), _run(direction, baseline)
        for search in SEARCHES:
            # Tests against softmax with the same search are kept by the search alone.
            kind = search if baseline == "softmax" else f"{search} against {baseline} {search}"
            ahead = (run.score(NEWS, search) or 0.0) > (other.score(NEWS, search) or 0.0)
            better += ahead
            beyond += ahead and _p(direction, run.name, kind) < 0.05
    return better, beyond


def _score(direction: Direction, system: str, search: str) -> str:
    """Show BLEU with its mark against softmax."""
    shown = f"{_run(direction, system).score(NEWS, search):.1f}"
    return shown if system == "softmax" else shown + mark(_p(direction, system, search))


def _seeds(direction: str, system: str | None = None) -> str:
    known = RESULTS.direction(direction)
    system = system or _chosen(known)
    scores = [run.score(NEWS, "greedy") or 0.0 for run in known.runs() if run.system == system]
    assert len(scores) == 3
    return f"{statistics.fmean(scores):.2f} ± {statistics.stdev(scores):.2f}"


def _p(direction: Direction, run: str, kind: str) -> float:
    return float(_known(direction.read_json("significance"))[NEWS][kind][run]["p"])


def _chosen(direction: Direction) -> str:
    return str(_known(choose(direction.runs())).system)


def _run(direction: Direction, name: str) -> RunResult:
    found: RunResult = _known(direction.run(name))
    return found


def _known(value: Any) -> Any:
    """Stop where a result is not stored."""
    assert value is not None
    return value


def _paragraph(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_on_hyphens=False)


def main() -> None:
    """Write the README, or check it."""
    page = README.read_text()
    if "--check" in sys.argv[1:]:
        sys.exit(0 if filled(page) == page else "README.md is not current: python tools/readme.py")
    README.write_text(filled(page))


if __name__ == "__main__":
    main()
