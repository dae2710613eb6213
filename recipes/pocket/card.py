"""What the card of a pocket model tells: data, licences, scores and limits, as JSON.

    python recipes/pocket/card.py REPORT SCORES NAME > card.json

REPORT is what `scones prepare` reported. SCORES is a folder with the translations of test sets and
what `scones evaluate --json` says of them: SET.SEARCH.txt and SET.SEARCH.json, as
recipes/pocket/ship.sh leaves them there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

LICENCES = {
    "europarl": "none stated; proceedings of the European Parliament",
    "msdocs": "CC-BY-4.0",
    "tatoeba": "CC-BY 2.0 FR",
    "libreoffice": "MPL-2.0 / LGPL",
    "phrases/tatoeba": "CC-BY 2.0",
    "phrases/phrasebook": "CC0, a part CC-BY-SA",
    "phrases/food": "ODbL",
    "phrases/town": "ISC",
    "dictionary": "GPL-2+ (Ding)",
    "games": "GPL-2+ / GPL-3+, small parts LGPL-2.1+ and CC-BY-SA-3.0",
    "wesnoth": "GPL-2+",
    "cldr/places": "CC-BY-4.0, GPL-2+",
    "cldr": "Unicode-3.0",
    "everyday": "Apache-2.0 (our own)",
    "typed": "CC-BY 2.0 FR and CC-BY 2.0 (Tatoeba), with slips of the keyboard made by us",
    "newstest": "WMT test sets of 2008 to 2015, research use",
}
"""Of a corpus or of the folder that holds it."""

LIMITS = [
    "It is small. It knows parliament speeches, product documentation, short everyday sentences "
    "and some news; literature, slang, verse and rare names come out worse, or wrong.",
    "Missing umlauts, names, tags and placeholders, and sentences of 60 words or more often go "
    "wrong; docs/results/pocket.md of the repository counts how often.",
    "It translates a sentence at a time and knows nothing of the one before: split text into "
    "sentences, and look at pronouns, formal and informal address.",
    "Check names, numbers, dates and negations wherever they matter. Do not rely on it in "
    "medicine, law or safety.",
    "It repeats what its training text takes for granted, for example about gender and "
    "professions.",
    "A probability says how sure the model is that a sentence is a translation, not how good a "
    "reader would find it. Several translations can be probable at once; that is the point.",
]

SEARCHES = {"greedy": "BLEU, greedy", "beam": "BLEU, beam 4"}


def main(report: Path, scores: Path, name: str) -> None:
    """Print the card's facts."""
    tests, signature = tests_of(scores)
    card = {
        "name": name,
        "licence": "code Apache-2.0; weights CC-BY-SA-4.0",
        "data": data_of(json.loads(report.read_text(encoding="utf-8"))),
        "tests": tests,
        "signature": signature,
        "limits": LIMITS,
    }
    sys.stdout.write(json.dumps(card, indent=2, ensure_ascii=False) + "\n")


def data_of(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Give the pairs of every corpus before and after cleaning, and its licence."""
    data = {}
    for corpus in report["corpora"]:
        source = Path(corpus["source"])
        folder = source.parent.name
        name = f"{folder}/{source.name.partition('.')[0]}"
        data[name] = {
            "pairs read": corpus["pairs_read"],
            "trained on": corpus["pairs_kept"],
            "times": corpus["times"],
            "licence": LICENCES.get(name) or LICENCES[folder],
        }
    return data


def tests_of(scores: Path) -> tuple[dict[str, dict[str, Any]], str]:
    """Give BLEU for every test set and search, and BLEU's signature."""
    tests = {}
    signatures = set()
    for translations in sorted(scores.glob("*.greedy.txt")):
        test = translations.name.removesuffix(".greedy.txt")
        row: dict[str, Any] = {"sentences": translations.read_bytes().count(b"\n")}
        for search, title in SEARCHES.items():
            evaluated = json.loads((scores / f"{test}.{search}.json").read_text(encoding="utf-8"))
            (result,) = evaluated["results"]
            row[title] = round(result["score"], 1)
            signatures.add(result["signature"])
        tests[nice(test)] = row
    (signature,) = signatures
    return tests, signature


def nice(test: str) -> str:
    """Name a test set as people do: "tatoeba/test", "newstest2019"."""
    folder, name, *_ = test.split(".")
    return name if name.startswith(folder) else f"{folder}/{name}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
