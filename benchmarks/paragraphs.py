"""What does a paragraph gain from being translated in sentences?

    python benchmarks/paragraphs.py

Lines of a test set are joined into paragraphs of three to eight, with blank lines between them, and
`scones translate` translates the file whole, in sentences, and as the lines were before they were
joined, which no splitter can know. BLEU counts paragraphs; blank lines have to stay where they are.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from scones.evaluation.metrics import bleu
from scones.text.reading import read_texts

NEWS = Path(os.environ.get("SCONES_DATA", "data")) / "newstest" / "newstest2018.de-en"


def paragraphs(lines: Sequence[str], seed: int = 1) -> list[list[str]]:
    """Lines in groups of three to eight, each followed by one blank group, or by two."""
    choose, groups, taken = random.Random(seed), [], 0
    while taken < len(lines):
        size = choose.randint(3, 8)
        groups += [list(lines[taken : taken + size]), *[[]] * choose.randint(1, 2)]
        taken += size
    return groups


def translated(model: str, texts: Sequence[str], *flags: str) -> tuple[list[str], float]:
    """What the command gives for these lines, and the seconds that it takes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "text")
        path.write_text("".join(f"{text}\n" for text in texts))
        begin = time.perf_counter()
        command = [sys.executable, "-m", "scones", "translate", model, str(path), *flags]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        return done.stdout.decode().removesuffix("\n").split("\n"), time.perf_counter() - begin


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="pocket-de-en")
    parser.add_argument("--source", type=Path, default=Path(f"{NEWS}.de.xz"))
    parser.add_argument("--reference", type=Path, default=Path(f"{NEWS}.en.xz"))
    parser.add_argument("--search", nargs="+", default=["greedy", "beam"])
    options = parser.parse_args()
    groups = paragraphs(read_texts(options.source))
    wanted = [" ".join(group) for group in paragraphs(read_texts(options.reference))]
    joined = [" ".join(group) for group in groups]
    print(f"{options.model}: {sum(map(bool, joined)):,} paragraphs, {len(joined):,} lines\n")
    print("| search | text | BLEU | length ratio | seconds | blank lines |")
    print("|---|---|---:|---:|---:|---|")
    for search in options.search:
        ways = {"whole paragraphs": ["--no-split"], "in sentences": []}
        found = {
            way: translated(options.model, joined, "--search", search, *flags)
            for way, flags in ways.items()
        }
        flat = [line for group in groups for line in group]
        lines, took = translated(options.model, flat, "--search", search, "--no-split")
        one = iter(lines)
        found["as they were"] = [" ".join(next(one) for _ in group) for group in groups], took
        for way, (texts, took) in found.items():
            kept = [not text for text in texts] == [not text for text in joined]
            score = bleu(texts, [wanted])
            print(
                f"| {search} | {way} | {score.value:.2f} | {score.length_ratio:.3f} | {took:.1f} "
                f"| {'as in the input' if kept else 'changed'} |"
            )
    print(f"\n{score.signature}")


if __name__ == "__main__":
    main()
