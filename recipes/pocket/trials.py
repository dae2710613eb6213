"""Short trainings of equal length that say what a longer one should be, and how it came out.

    python recipes/pocket/trials.py run OUT PAIR.TRIAL [--steps 1000] [--start-from MODEL]
    python recipes/pocket/trials.py score OUT NAME=MODEL …    a model as it is
    python recipes/pocket/trials.py table OUT

A run goes on from a shipped model, or from one that grow.py made of it, as recipes/pocket/PAIR.toml
says but for what its trial says, and is stored small and judged in that form: BLEU of greedy search
on development sets, and matches with recipes/pocket/sets. "sum" decides: tatoeba/dev, newstest2018,
half of europarl/dev and msdocs/dev, and the matches in percent.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import everyday

from scones.evaluation.metrics import bleu
from scones.text.reading import read_texts
from scones.translator import load

PAIRS = ("de-en", "en-de")
TRIALS = {
    "rows": [],
    "references": ["--references", "all"],
    "negatives": ["--references", "all", "--negatives", "1"],
    "omissions": ["--references", "all", "--omissions", "10"],
    "12 layers": ["--encoder-layers", "12"],
    "16 layers": ["--encoder-layers", "16"],
    "wide": ["--feed-forward", "2048"],
    "12 layers wide": ["--encoder-layers", "12", "--feed-forward", "1536"],
}
GROWN = ("--encoder-layers", "--feed-forward")
WEIGHTS = {
    "tatoeba/dev": ("tatoeba/dev.de-en", 1.0),
    "newstest2018": ("newstest/newstest2018.de-en", 1.0),
    "europarl/dev": ("europarl/dev.de-en", 0.5),
    "msdocs/dev": ("msdocs/dev", 0.5),
}


def main() -> None:
    """Do what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=["run", "score", "table"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--start-from", type=Path)
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    if given.what == "table":
        table(given.folder)
    for name in given.names:
        if given.what == "run":
            run(given, name)
        else:
            title, _, model = name.partition("=")
            score(given.folder, title, Path(model), given.device)


def run(given: argparse.Namespace, name: str) -> None:
    """Train, store small, judge."""
    pair, _, trial = name.partition(".")
    place = given.folder / "runs" / name.replace(" ", "-")
    place.parent.mkdir(parents=True, exist_ok=True)
    start = given.start_from or Path("scones/pocket") / f"pocket-{pair}"
    flags = TRIALS[trial]
    if flags[:1] and flags[0] in GROWN:
        grown = Path(f"{place}.start")
        subprocess.run(
            [sys.executable, "recipes/pocket/grow.py", str(start), str(grown), *flags], check=True
        )
        start = grown
    words = ["train", f"data/pocket-{pair}", str(place), "--start-from", str(start)]
    words += ["--recipe", f"recipes/pocket/{pair}.toml", "--max-steps", str(given.steps)]
    words += ["--validate-every", str(10**6), "--checkpoint-every", str(10**6)]
    scones(*words, "--device", given.device, *flags)
    scones("export", str(place / "last"), f"{place}.int8", "--to", "pocket", "--overwrite")
    score(given.folder, name, Path(f"{place}.int8"), given.device)


def scones(*words: str) -> None:
    """Run a command."""
    subprocess.run([sys.executable, "-m", "scones", *words], check=True)


def score(folder: Path, name: str, model: Path, device: str) -> None:
    """Judge a model on the development sets and by the sets of our own."""
    translator = load(model, device)
    source, target = translator.source_language, translator.target_language
    found = {}
    for title, (stem, _) in WEIGHTS.items():
        place = Path(os.environ["SCONES_DATA"]) / stem
        texts, references = (
            read_texts(place.with_name(f"{place.name}.{side}.xz")) for side in (source, target)
        )
        answers = [translations[0].text for translations in translator.translate(texts)]
        found[title] = bleu(answers, [references]).value
    right = asked = 0
    for path in everyday.set_files(f"{source}-{target}").values():
        blocks = everyday.read_blocks(path)
        answers = translator.translate([block.lines[source][0] for block in blocks])
        right += sum(
            block.matches(one[0].text, target) for block, one in zip(blocks, answers, strict=True)
        )
        asked += len(blocks)
    found["matches, %"] = 100 * right / asked
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(found) + "\n", encoding="utf-8")
    sys.stdout.write(f"{name}: {total(found):.1f} {found}\n")


def total(found: dict[str, float]) -> float:
    """The sum that decides, of one direction."""
    return sum(found[title] * WEIGHTS.get(title, ("", 1.0))[1] for title in found)


def table(folder: Path) -> None:
    """Print what there is, a line a trial, both directions beside each other."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for path in sorted(folder.glob("*.json")):
        pair, _, trial = path.stem.partition(".")
        found.setdefault(trial, {})[pair] = json.loads(path.read_text(encoding="utf-8"))
    titles = [*WEIGHTS, "matches, %"]
    rows = [f"| trial, {' / '.join(PAIRS)} | {' | '.join(titles)} | sum |"]
    rows.append(f"|---|{'---:|' * (len(titles) + 1)}")
    for trial, pairs in found.items():
        cells = [
            " / ".join(f"{pairs[pair][title]:.1f}" if pair in pairs else "–" for pair in PAIRS)
            for title in titles
        ]
        sums = " / ".join(f"{total(pairs[pair]):.1f}" if pair in pairs else "–" for pair in PAIRS)
        rows.append(f"| {trial} | {' | '.join(cells)} | {sums} |")
    sys.stdout.write("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
