"""The models that come along, at work on sentences that nobody picked.

    python recipes/pocket/demo.py                        make demo
    python recipes/pocket/demo.py "A sentence of yours"  make demo TEXT="A sentence of yours"

Every tenth block of phrasebook/test.txt, which no model was trained on, in both directions: the
translation, its probability, and whether the phrasebook accepts it. Then the worst of them, and
for some all translations above a probability.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from everyday import Block, read_blocks
from rich.console import Console
from rich.text import Text

import scones
from scones.search.translations import Translation
from scones.translator import Translator

LIST = Path(__file__).parent / "phrasebook" / "test.txt"
MODELS = ("pocket-de-en", "pocket-en-de")
LEAST = 0.1
WORST = 3
MOST = 8
BAR = 24

NEXT = """
Try next:
  make demo TEXT="A sentence of yours, German or English"
  source .venv/bin/activate          then `scones` is a command of this shell
  scones translate pocket-de-en input.de
  scones info pocket-de-en           what the model is, and how good
  make compare                       train softmax and SCONES, and compare them
  scones --help                      from your own text to a model
"""

console = Console(highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class Answer:
    """A block of the list, and what a model made of it."""

    source: str
    found: Translation
    accepted: list[str]
    right: bool


def main() -> None:
    """Show the list, or translate what was given."""
    translators = [scones.load(name, "cpu") for name in MODELS]
    if given := " ".join(sys.argv[1:]).strip():
        yours(translators, given)
        return
    blocks = read_blocks(LIST)[::10]
    answers = [answer for translator in translators for answer in show(translator, blocks)]
    heading(f"The worst of these {len(answers)}: not in the list, and the least probable")
    wrong = sorted((one for one in answers if not one.right), key=probability)
    for one in wrong[:WORST]:
        console.print(f"  {one.source} → {one.found.text}")
        console.print(f"    the list has: {' / '.join(one.accepted)}", style="dim")
    heading(f"More than one is right: every translation with a probability of at least {LEAST}")
    console.print("  (in finer arithmetic than above: probabilities differ a little)", style="dim")
    for translator in translators:
        source, target = translator.source_language, translator.target_language
        alternatives(translator, [block.lines[source][0] for block in several(blocks, target)])
    console.print(NEXT)


def show(translator: Translator, blocks: list[Block]) -> list[Answer]:
    """Translate the first line of each block, and say which the block accepts."""
    source, target = translator.source_language, translator.target_language
    lines = [block.lines[source][0] for block in blocks]
    answers = [
        Answer(line, found, block.lines[target], block.matches(found.text, target))
        for line, (found,), block in zip(lines, translator.translate(lines), blocks, strict=True)
    ]
    right = sum(one.right for one in answers)
    heading(f"{source} → {target}: every tenth of a list that no model was trained on")
    width = max(len(one.source) for one in answers)
    for one in answers:
        mark = Text("  ✓ " if one.right else "    ", "green")
        console.print(
            mark, f"{one.source:{width}}  {probability(one):.2f}  {one.found.text}", sep=""
        )
    console.print(f"  ✓ {right} of {len(answers)} are what the list has; others may be right too")
    return answers


def probability(one: Answer) -> float:
    """What the model says of its translation; nothing of one that was cut."""
    return one.found.probability or 0.0


def several(blocks: list[Block], language: str) -> Iterable[Block]:
    """Those with the most accepted translations."""
    return sorted(blocks, key=lambda block: -len(block.lines[language]))[:2]


def alternatives(translator: Translator, sentences: list[str]) -> None:
    """List every translation above a probability, with bars."""
    found = translator.translate(sentences, search="all", threshold=LEAST, max_seconds=20)
    for sentence, translations in zip(sentences, found, strict=True):
        console.print(f"  {sentence}", style="bold")
        for one in translations[:MOST]:
            share = one.probability or 0.0
            bar = Text("█" * max(1, round(share * BAR)), "cyan")
            bar.pad_right(BAR - len(bar))
            console.print(f"    {share:.2f} ", bar, f" {one.text}", sep="")
        if len(translations) > MOST:
            console.print(f"    … and {len(translations) - MOST} more", style="dim")
        if not translations:
            console.print("    none is so probable", style="dim")


def yours(translators: list[Translator], text: str) -> None:
    """Translate a sentence from whichever language it is in."""
    import py3langid

    py3langid.set_languages([translator.source_language for translator in translators])
    language = py3langid.classify(text)[0]
    (translator,) = (one for one in translators if one.source_language == language)
    (best,) = translator.translate([text])[0]
    heading(f"{translator.source_language} → {translator.target_language}")
    console.print(f"  {text} → {best.text}")
    heading(f"Every translation with a probability of at least {LEAST}")
    alternatives(translator, [text])


def heading(title: str) -> None:
    """Begin a part."""
    console.print(f"\n{title}", style="bold underline")


if __name__ == "__main__":
    main()
