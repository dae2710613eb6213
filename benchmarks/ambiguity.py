"""Does a model know where more than one next token is right, and how many?

    SCONES_DATA=... python benchmarks/ambiguity.py runs/compare/scones runs/compare/softmax \\
        --news pocket-en-de --output docs/results/confidence/ambiguity

Cream tea (`make compare` trains the models): all translations of a sentence are known, so that the
right next tokens behind a prefix can be counted; one translation of each sentence is read. Spearman
over all positions, of the predicted and the true number; and over sentences, of the means.

News (newstest2019 en-de, five references): at a position of the first reference the others that
have the same token before it, by difflib's alignment, go on alike or part. How often is a position
where one of them parts held more ambiguous than one where none does (AUC)?
"""

from __future__ import annotations

import random
import sys
from difflib import SequenceMatcher
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from common import facts, flags, number
from confidence import area, data, spearman

import scones
from scones.files import write_file, write_json
from scones.text import END
from scones.text.creamtea import CreamTea
from scones.text.reading import read_texts
from scones.translator import Translator

REFERENCES = ("wmt", "ar", "arp", "wmtp", "ntrex")


def on_tea(translator: Translator, sentences: int) -> dict[str, Any]:
    """Predicted against true numbers of right next tokens."""
    tea, rng = CreamTea.load(), random.Random(3)
    pairs, true = [], []
    # Drawn with a seed of its own: nearly none of them was trained on.
    for example in tea.sample(sentences, seed=77):
        ids = [(*one, END) for one in translator.subwords.encode(list(example.references))]
        chosen = rng.randrange(len(ids))
        gold = ids[chosen]
        pairs.append((example.source, example.references[chosen]))
        true.append(
            [
                len({one[place] for one in ids if one[:place] == gold[:place]})
                for place in range(len(gold))
            ]
        )
    found = [[one.ambiguity for one in several] for several in translator.positions(pairs)]
    predicted, counted = (np.array([one for row in rows for one in row]) for rows in (found, true))
    means = {
        f"said where {count} are right": float(predicted[counted == count].mean())
        for count in (1, 2, 3)
    }
    return {
        "positions": len(counted),
        "Spearman": spearman(predicted, counted),
        "Spearman of sentences": spearman(
            np.array([fmean(row) for row in found]), np.array([fmean(row) for row in true])
        ),
        "rounded, right": float((np.round(predicted) == counted).mean()),
        **means,
    }


def on_news(translator: Translator, limit: int) -> dict[str, Any]:
    """Is a position more ambiguous where references part?"""
    stem = "multiref/newstest2019.en-de"
    sources = read_texts(data(f"{stem}.en.xz"))[:limit]
    sets = [read_texts(data(f"{stem}.{name}.de.xz"))[:limit] for name in REFERENCES]
    read = translator.positions(list(zip(sources, sets[0], strict=True)))
    ambiguities, parted = [], []
    for index, several in enumerate(read):
        first, *others = (
            [*ids, END] for ids in translator.subwords.encode([one[index] for one in sets])
        )
        for place, part in parting(first, others).items():
            ambiguities.append(several[place].ambiguity)
            parted.append(part)
    labels = np.array(parted)
    return {
        "positions": len(labels),
        "share that part": float(labels.mean()),
        "AUC": area(np.array(ambiguities), labels),
    }


def parting(first: list[int], others: list[list[int]]) -> dict[int, bool]:
    """The positions that others share the token before of, and whether one goes on otherwise."""
    found: dict[int, bool] = {}
    for other in others:
        for ours, theirs, size in SequenceMatcher(None, first, other, False).get_matching_blocks():
            for step in range(1, size + 1):
                if ours + step < len(first) and theirs + step < len(other):
                    differs = first[ours + step] != other[theirs + step]
                    found[ours + step] = found.get(ours + step, False) or differs
    return found


def main() -> None:
    """Compare, print, write."""
    parser = flags(__doc__)
    parser.add_argument("tea", nargs="+", help="models of the cream-tea corpus")
    parser.add_argument("--news", default="pocket-en-de", help="a model for English to German")
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--limit", type=int, default=300, help="sentences of news")
    parser.add_argument("--output", type=Path, required=True, help="STEM of STEM.json, STEM.md")
    given = parser.parse_args()
    rows = {
        f"cream tea, {Path(model).name}": on_tea(scones.load(model, "cpu"), given.sentences)
        for model in given.tea
    }
    rows[f"news, {given.news}"] = on_news(scones.load(given.news, "cpu"), given.limit)
    made = facts(torch.device("cpu"))
    lines = ["| | |", "|---|--:|"]
    for name, row in rows.items():
        lines.append(f"| **{name}** | |")
        lines += [
            f"| {what} | {number(value, 3 if isinstance(value, float) else 0)} |"
            for what, value in row.items()
        ]
    text = "\n".join([*lines, "", f"`{made['command']}`, commit {made['commit']}", ""])
    write_json(given.output.with_suffix(".json"), {**made, "results": rows})
    write_file(given.output.with_suffix(".md"), text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
