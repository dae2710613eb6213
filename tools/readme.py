"""What README and docs/results.md say of the paper's experiments, from the results stored here.

    python tools/readme.py           write them
    python tools/readme.py --check   say whether they are current

Nothing between `<!-- results: NAME -->` and `<!-- end -->` is typed by hand. It needs the extra
`replication`.
"""

from __future__ import annotations

import re
import statistics
import sys
import textwrap
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the experiments are no part of the installed package

from replication.claims import contrasts, judge, kept, mark_name, marks  # noqa: E402
from replication.significance import find_tests  # noqa: E402
from replication.table import (  # noqa: E402
    CONVERGED,
    DIRECTIONS,
    LARGE,
    LONGER,
    MAIN,
    NEWS,
    SMALL,
    SOFTMAX,
    Key,
    read_table,
)
from replication.tables import Pivot  # noqa: E402
from scones.analysis.tables import table_lines  # noqa: E402

PAGES = (ROOT / "README.md", ROOT / "docs" / "results.md")
SEARCHES = {"greedy": "greedy", "beam4": "beam 4"}
WIDTH = 112

_MARKED = re.compile(r"(<!-- results: (\w+) -->\n).*?(\n<!-- end -->)", re.DOTALL)


def filled(page: str) -> str:
    """Give the page with all that is marked written anew."""
    table = read_table(ROOT / "docs" / "results" / "paper")
    known = Pivot(table, find_tests(table, [*contrasts(table).values(), *marks(table)], None), {})
    parts = {"paper": paper, "table": bleu, "gains": gains, "longer": longer}
    parts |= {"verdicts": verdicts, "converged": converged}
    return _MARKED.sub(lambda found: found[1] + parts[found[2]](known) + found[3], page)


def paper(known: Pivot) -> str:
    """Give BLEU, and how much of it exact search keeps, with the paper's numbers in brackets."""
    published = tomllib.loads((ROOT / "replication" / "published.toml").read_text())
    rows = []
    for search, shown in SEARCHES.items():
        for system, name in ((SOFTMAX, "softmax"), ("tuned", "SCONES")):
            runs, theirs = known.runs(system, DIRECTIONS), published["bleu"][search][system]
            ours = [_score(known, MAIN, one, run or "", search) for one, run in runs.items()]
            cells = [f"{our} ({their})" for our, their in zip(ours, theirs, strict=True)]
            rows.append([f"{name}, {shown}", *cells])
    for system, name in ((SOFTMAX, "softmax"), (SMALL, "SCONES, α = 0.2")):
        exact, beam = (published["searched"][search][system] for search in ("exact", "beam4"))
        shares = [100 * float(e) / float(b) for e, b in zip(exact, beam, strict=True)]
        ours = [f"{kept(known.table, MAIN, one, system)[0]:.0f}" for one in DIRECTIONS]
        cells = [f"{our} ({their:.0f})" for our, their in zip(ours, shares, strict=True)]
        rows.append([f"exact search keeps, %: {name}", *cells])
    return "\n".join(table_lines(["BLEU", *DIRECTIONS], rows))


def bleu(known: Pivot) -> str:
    """Give BLEU of beams and of exact search, a column a direction."""
    pairs = [Key(MAIN, direction, "", "", "", "pairs_kept") for direction in DIRECTIONS]
    rows = [["training pairs", *(known.cell(key, "{:,.0f}").text for key in pairs)]]
    for search, shown in SEARCHES.items():
        for name, system in (
            ("softmax", SOFTMAX),
            ("softmax with label smoothing", "softmax-ls"),
            ("SCONES", "tuned"),
        ):
            runs = known.runs(system, DIRECTIONS)
            cells = [_score(known, MAIN, one, run or "", search) for one, run in runs.items()]
            rows.append([f"{name}, {shown}", *cells])
    rows.append(["chosen α", *(f"{_alpha(known, MAIN, one):.1f}" for one in DIRECTIONS)])
    rows += _searched(known, MAIN, DIRECTIONS)
    return "\n".join(table_lines(["BLEU", *DIRECTIONS], rows))


def converged(known: Pivot) -> str:
    """Give the same of what is trained to the end."""
    directions = known.table.directions(CONVERGED)
    systems = {"softmax": SOFTMAX, "SCONES, α = 0.2": SMALL, "SCONES, α = 1": LARGE}
    rows = [
        [f"{name}, {shown}", *(_score(known, CONVERGED, one, run, search) for one in directions)]
        for search, shown in SEARCHES.items()
        for name, run in systems.items()
    ]
    rows += _searched(known, CONVERGED, directions)
    return "\n".join(table_lines(["BLEU", *directions], rows))


def _searched(known: Pivot, variant: str, directions: Sequence[str]) -> Iterator[list[str]]:
    """Rows of exact search, beside a beam's of the same sentences."""
    parts = {one: known.table.part(variant, one) for one in directions}
    for name, system in (("softmax", SOFTMAX), ("SCONES, α = 0.2", SMALL)):
        for said, search, metric, shown in (
            ("beam 4, 200 sentences", "beam4", "bleu", "{:.1f}"),
            ("exact search of them", "exact", "bleu", "{:.1f}"),
            ("proved, of 200", "exact", "proved", "{:.0f}"),
        ):
            keys = [Key(variant, one, system, part, search, metric) for one, part in parts.items()]
            yield [f"{name}, {said}", *(known.cell(key, shown).text for key in keys)]


def gains(known: Pivot) -> str:
    """Count the gains over softmax, without and with label smoothing, and tell of the seeds."""
    better, beyond = _gains(known, SOFTMAX)
    smoothed, smoothed_beyond = _gains(known, "softmax-ls")
    return _paragraph(
        f"SCONES gains in {better} of the 12 comparisons with softmax, {beyond} of them beyond the "
        f"noise, and in {smoothed} of 12 with softmax with label smoothing, {smoothed_beyond} of "
        f"them beyond the noise. Over three seeds greedy search gives {_seeds(known, 'de-en')} "
        f"against softmax's {_seeds(known, 'de-en', SOFTMAX)} (de-en) and "
        f"{_seeds(known, 'lt-en')} against {_seeds(known, 'lt-en', SOFTMAX)} (lt-en; mean ± "
        "standard deviation)."
    )


def longer(known: Pivot) -> str:
    """Tell what three times the steps give."""
    chosen = known.table.tuned(LONGER, "lt-en") or ""
    steps = known.table.runs(LONGER, "lt-en")[SOFTMAX].steps or 0

    def said(direction: str, system: str) -> str:
        return ", ".join(_score(known, LONGER, direction, system, search) for search in SEARCHES)

    return _paragraph(
        f"Finnish and Lithuanian had 4,000 steps, which is not enough. With {steps:,}, softmax and "
        f"SCONES (greedy, beam 4) come to {said('fi-en', SOFTMAX)} and "
        f"{said('fi-en', 'scones-1.0')} in fi-en (α = 1 alone), where the gain grows. In lt-en "
        f"they come to {said('lt-en', SOFTMAX)} and {said('lt-en', chosen)} with the α that the "
        f"development set then chooses, {_alpha(known, LONGER, 'lt-en')}, which is no gain beyond "
        f"the noise; with α = 0.7 as above it is {said('lt-en', 'scones-0.7')}. The other "
        "directions were not trained longer."
    )


def verdicts(known: Pivot) -> str:
    """Tell what became of the paper's claims."""
    found = judge(known.table, known.tests)
    counts = Counter(one.outcome for one in found)
    named = {
        outcome: "; ".join(
            one.about["title"][0].lower() + one.about["title"][1:]
            for one in found
            if one.outcome == outcome
        )
        for outcome in ("not confirmed", "opposite")
    }
    new = [f"claim {one.number}" for one in found if one.is_new]
    return _paragraph(
        f"Of {len(found)} claims of the paper the report finds {counts['confirmed']} confirmed, "
        f"{counts['not confirmed']} not confirmed ({named['not confirmed']}) and "
        f"{counts['opposite']} the opposite ({named['opposite']}). Verdicts are exploratory: the "
        "rules were changed after the first results were seen, and by the old ones four of eleven "
        f"were confirmed; on newer results rests {', '.join(new) or 'none'}. Old and new rules "
        "stand beside each other, with the numbers."
    )


def _gains(known: Pivot, baseline: str) -> tuple[int, int]:
    """Count the comparisons in which SCONES is ahead, and those beyond the noise."""
    better = beyond = 0
    for direction, run in known.runs("tuned", DIRECTIONS).items():
        for search in SEARCHES:
            key = Key(MAIN, direction, run or "", NEWS, search, "bleu")
            test = known.tests[mark_name(key, baseline)]
            better += test.value > 0
            beyond += test.value > 0 and test.p < 0.05
    return better, beyond


def _score(known: Pivot, variant: str, direction: str, run: str, search: str) -> str:
    """Show BLEU with its mark against softmax."""
    return known.cell(Key(variant, direction, run, NEWS, search, "bleu"), baseline=SOFTMAX).text


def _seeds(known: Pivot, direction: str, system: str | None = None) -> str:
    system = system or known.table.tuned(MAIN, direction)
    asked = (system, NEWS, "greedy", "bleu")
    numbers = known.table.of(MAIN, direction)
    scores = [one.value for one in numbers if (one.system, *one.key[3:]) == asked]
    assert len(scores) == 3
    return f"{statistics.fmean(scores):.2f} ± {statistics.stdev(scores):.2f}"


def _alpha(known: Pivot, variant: str, direction: str) -> float:
    return known.table.alphas(variant, direction)[known.table.tuned(variant, direction) or ""]


def _paragraph(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_on_hyphens=False)


def main() -> None:
    """Write the pages, or check them."""
    for path in PAGES:
        page = path.read_text()
        if "--check" not in sys.argv[1:]:
            path.write_text(filled(page))
        elif filled(page) != page:
            sys.exit(f"{path.relative_to(ROOT)} is not current: python tools/readme.py")


if __name__ == "__main__":
    main()
