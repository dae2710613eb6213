"""Are the alternatives that a model lists acceptable? A list to judge blind, and the shares.

    python recipes/several/alternatives.py draw OLD NEW SOURCES FOLDER [--count 200] [--threshold T]
    python recipes/several/alternatives.py share FOLDER

`draw` lets two models list what they find right (search="all", threshold .05 unless it is given;
`own` is each model's default) for every tenth line of SOURCES, draws as many of either that are not
that model's first answer, and shuffles them. It says how many sentences get nothing at all.
FOLDER has verdicts.tsv (set, line, output; fill in a fourth column) and key.json, not to be opened
before.

The rule: 1 if a careful translator could have written it for this source alone, taken as a whole
sentence: nothing left out, nothing added, grammatical, what is ambiguous in the source resolved
in any way that it allows. Anything else is 0, whatever is wrong and however little.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import defaultdict
from pathlib import Path

from scones.text.reading import read_texts
from scones.translator import load

STEP = 10
THRESHOLD = "0.05"


def main() -> None:
    """Do what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="what", required=True)
    drawing = commands.add_parser("draw")
    for name in ("old", "new"):
        drawing.add_argument(name)
    drawing.add_argument("sources", type=Path)
    drawing.add_argument("folder", type=Path)
    drawing.add_argument("--count", type=int, default=200)
    drawing.add_argument("--threshold", default=THRESHOLD)
    commands.add_parser("share").add_argument("folder", type=Path)
    given = parser.parse_args()
    if given.what == "draw":
        draw(given)
    else:
        share(given.folder)


def draw(given: argparse.Namespace) -> None:
    """Write the list, and apart from it whose each is."""
    texts = read_texts(given.sources)
    numbers = range(0, len(texts), STEP)
    sources = [texts[number] for number in numbers]
    owners: dict[tuple[int, str], list[str]] = defaultdict(list)
    rng = random.Random(7)
    threshold = None if given.threshold == "own" else float(given.threshold)
    for name in ("old", "new"):
        found = load(getattr(given, name)).translate(
            sources, search="all", threshold=threshold, n_best=20, max_states=20_000
        )
        others = [
            (number + 1, translation.text)
            for number, translations in zip(numbers, found, strict=True)
            for translation in translations[1:]
        ]
        for place in rng.sample(others, min(given.count // 2, len(others))):
            owners[place].append(name)
        nothing = sum(not translations for translations in found) / len(found)
        sys.stderr.write(f"{name}: {len(others)} alternatives; {nothing:.0%} get no translation\n")
    places = list(owners)
    rng.shuffle(places)
    given.folder.mkdir(parents=True, exist_ok=True)
    test = given.sources.name.removesuffix(".xz")
    lines = (f"{given.sources.parent.name}/{test}\t{number}\t{text}\n" for number, text in places)
    (given.folder / "verdicts.tsv").write_text("".join(lines), encoding="utf-8")
    key = json.dumps([owners[place] for place in places])
    (given.folder / "key.json").write_text(key + "\n", encoding="utf-8")


def share(folder: Path) -> None:
    """Print the share of either that was judged acceptable."""
    verdicts: dict[str, list[int]] = defaultdict(list)
    lines = (folder / "verdicts.tsv").read_text(encoding="utf-8").split("\n")[:-1]
    key = json.loads((folder / "key.json").read_text(encoding="utf-8"))
    for line, owners in zip(lines, key, strict=True):
        for owner in owners:
            verdicts[owner].append(int(line.split("\t")[3]))
    for owner, values in verdicts.items():
        sys.stdout.write(
            f"{owner}: {sum(values)} of {len(values)}, {sum(values) / len(values):.0%}\n"
        )


if __name__ == "__main__":
    main()
