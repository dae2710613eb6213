"""The mode against training: what becomes of exact search's BLEU while a model learns.

    python recipes/modes.py ANALYSES OUT

In: analyses of `recipes/modes.sh`, a folder SYSTEM-STEPS each. Out: modes.json, .md and .svg.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from scones.analysis.figures import new_figure, save
from scones.analysis.tables import table_lines
from scones.files import read_json, write_file, write_json

Row = dict[str, Any]


def row(path: Path) -> Row:
    """The figures of one system after so many steps."""
    system, _, steps = path.parent.name.rpartition("-")
    analysis = read_json(path)
    (found,) = analysis["systems"].values()
    exact, beam = found["exact"], found["beams"]["4"]["outputs"]["bleu"]
    return {
        "system": system,
        "steps": int(steps),
        "sentences": analysis["sentences"],
        "BLEU, beam 4": beam,
        "BLEU, exact": exact["outputs"]["bleu"],
        "kept": exact["outputs"]["bleu"] / beam,
        "proved": exact["proved"],
        "empty modes": exact["empty_modes"],
        "log P, mode": exact["outputs"]["log_probs"]["mean"],
        "log P, empty": exact["empty_log_probs"]["mean"],
        "states, mean": exact["states"]["mean"],
        "commits": found["commits"],
        "model_digest": found["model_digest"],
    }


def draw(rows: list[Row]) -> Any:
    """BLEU of both searches, and what is kept, against the steps."""
    figure, (left, right) = new_figure(2)
    for system in dict.fromkeys(one["system"] for one in rows):
        mine = [one for one in rows if one["system"] == system]
        steps = [one["steps"] for one in mine]
        (line,) = left.plot(steps, [one["BLEU, exact"] for one in mine], "o-", label=system)
        beams = [one["BLEU, beam 4"] for one in mine]
        left.plot(steps, beams, "--", color=line.get_color(), alpha=0.6)
        kept = [100 * one["kept"] for one in mine]
        right.plot([one["log P, mode"] for one in mine], kept, "o-", color=line.get_color())
    left.set(xscale="log", xlabel="steps", ylabel="BLEU (dashed: beam 4; points: exact search)")
    right.set(xlabel="mean log P of the mode", ylabel="BLEU that exact search keeps, %")
    left.legend()
    return figure


def main(analyses: str, out: str) -> None:
    """Write all three files."""
    rows = sorted(map(row, Path(analyses).glob("*/analysis.json")), key=lambda one: one["steps"])
    names = [name for name in rows[0] if name not in ("sentences", "commits", "model_digest")]
    cells = [
        [f"{one[name]:.3g}" if isinstance(one[name], float) else str(one[name]) for name in names]
        for one in sorted(rows, key=lambda one: one["system"])
    ]
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "modes.json", {"command": " ".join(sys.argv), "rows": rows})
    write_file(folder / "modes.md", "\n".join([*table_lines(names, cells), ""]))
    save(folder / "modes.svg", draw, rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
