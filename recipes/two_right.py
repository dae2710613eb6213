"""Draw a sentence under a softmax and under SCONES: docs/two-right.svg, the README's picture.

    make compare && python recipes/two_right.py

The models are those of recipes/compare.sh: the same corpus, recipe and budget, and one reference
for each sentence in training, in which this one does not stand. It is the test sentence that says
what the paper's title asks. Drawn is what each model's `score` gives to all of its right
translations, which the corpus knows, and to the most probable of eight wrong ones that look right.
"""

from __future__ import annotations

import json
import math
from html import escape
from pathlib import Path

import scones
from scones.files import write_file

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT / "runs" / "compare"
NAMES = {"softmax": "softmax", "SCONES": "scones"}
SENTENCE = "Zuerst kommt die Marmelade auf das Brötchen, dann die Sahne."

WIDTH, ROW, TOP, LEFT, LONGEST = 600, 54, 84, 34, 480
STYLE = """
.ground { fill: #ffffff }
text { font: 15px system-ui, sans-serif; fill: #1f2933 }
.small { font-size: 13px; fill: #52606d }
.softmax { fill: #0f766e }
.SCONES { fill: #7e22ce }
@media (prefers-color-scheme: dark) {
  .ground { fill: #0d1117 }
  text { fill: #f1f5f9 }
  .small { fill: #b6c2cf }
  .softmax { fill: #2dd4bf }
  .SCONES { fill: #c084fc }
}
"""


def main() -> None:
    """Score and draw."""
    corpus = json.loads((MODELS / "corpus" / "test.json").read_text())
    (example,) = (one for one in corpus if one["source"] == SENTENCE)
    right, wrong = example["references"], example["near_misses"]
    texts = [*right, *wrong]
    found = {}
    for name, folder in NAMES.items():
        translator = scones.load(MODELS / folder, "cpu", engine="torch")
        scores = translator.score([(SENTENCE, text) for text in texts])
        found[name] = dict(zip(texts, map(math.exp, scores), strict=True))
    worst = max(wrong, key=lambda text: max(given[text] for given in found.values()))
    shown = [*sorted(right, key=found["SCONES"].__getitem__, reverse=True), worst]
    write_file(ROOT / "docs" / "two-right.svg", drawn(found, shown, len(right)))


def drawn(found: dict[str, dict[str, float]], texts: list[str], right: int) -> str:
    """Give the picture: a text a row, a bar a model; the first texts are right."""
    height = TOP + ROW * len(texts) + 44
    about = f"Probabilities of {right} right translations of “{SENTENCE}” and of a wrong one"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-label="{escape(about)}">',
        f"<style>{STYLE}</style>",
        '<rect width="100%" height="100%" rx="6" class="ground"/>',
        text(10, 22, SENTENCE),
        text(10, 46, "How probable is each text as its translation?", "small"),
    ]
    for place, name in enumerate(found):
        parts += [
            f'<rect x="{10 + 110 * place}" y="58" width="12" height="12" class="{name}"/>',
            text(28 + 110 * place, 69, name, "small"),
        ]
    longest = max(max(given.values()) for given in found.values())
    for row, words in enumerate(texts):
        y = TOP + ROW * row
        parts.append(text(10, y + 16, "✓" if row < right else "✗"))
        parts.append(text(LEFT, y + 16, words))
        for place, (name, given) in enumerate(found.items()):
            width, bar = LONGEST * given[words] / longest, y + 23 + 13 * place
            parts += [
                f'<rect x="{LEFT}" y="{bar}" width="{width:.1f}" height="10" class="{name}"/>',
                text(LEFT + width + 6, bar + 10, f"{given[words]:.2f}", "small"),
            ]
    sums = [
        f"{name} {sum(given[one] for one in texts[:right]):.2f}" for name, given in found.items()
    ]
    parts.append(text(10, height - 14, f"The right ones together: {', '.join(sums)}", "small"))
    return "\n".join([*parts, "</svg>\n"])


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """One line of text."""
    return f'<text x="{x:.1f}" y="{y}" class="{kind}">{escape(words, quote=False)}</text>'


if __name__ == "__main__":
    main()
