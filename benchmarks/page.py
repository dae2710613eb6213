"""How long does somebody at the page wait? Measured in the browser.

    python benchmarks/page.py [--sentences 100] [--json FILE]

Starts `scones serve` with a pocket model and Chromium, and types sentences of ten words as people
do, key by key: from the last key to the first frame that shows the translation, the wait for
further keys included; then clicks on words, to the first frame that shows the alternatives. The
sentences are drawn at random from the Tatoeba test set where SCONES_DATA says where it is, else put
together from phrases of the phrasebook.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

WORDS = 10
MOST_MS = {"translation": (150, 300), "alternatives": (100, None)}
"""What the median and the 95th percentile should stay below."""
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
]

# The frame after the one in which something was changed begins when that one has been drawn.
WATCH = """
window.waited = { translation: [], alternatives: [] };
let key, click;
const drawn = (name, since) => requestAnimationFrame(() => setTimeout(() =>
    waited[name].push(performance.now() - since)));
document.querySelector("#text").addEventListener("input", () => { key = performance.now(); });
document.addEventListener("click", (event) => {
    if (event.target.matches(".word")) click = performance.now();
}, true);
new MutationObserver(() => {
    const source = document.querySelector("#all q.sentence").textContent;
    if (!key || source !== window.wanted) return;
    drawn("translation", key);
    key = 0;
}).observe(document.querySelector("#translation"), { childList: true });
new MutationObserver(() => {
    if (click) { drawn("alternatives", click); click = 0; }
}).observe(document.querySelector("#choices"), { childList: true });
"""


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = argparse.ArgumentParser(description="How long somebody at the page waits.")
    parser.add_argument("--sentences", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--key-seconds", type=float, default=0.06, help="from one key to the next")
    parser.add_argument("--json", type=Path, help="write the numbers to this file too")
    options = parser.parse_args()
    texts = ten_words(options.sentences, random.Random(options.seed))
    load = os.getloadavg()[0]
    with served("pocket-de-en") as address:
        waited = measure(address, texts, options.key_seconds)
    result: dict[str, Any] = {"sentences": len(texts), "load before": load, "milliseconds": {}}
    for name, times in waited.items():
        middle, late = median(times), quantiles(times, n=20)[-1]
        result["milliseconds"][name] = {"median": middle, "95 %": late, "measured": len(times)}
        most, rarely = MOST_MS[name]
        fits = middle <= most and (rarely is None or late <= rarely)
        print(
            f"{name}: median {middle:.0f} ms, 95 % within {late:.0f} ms ({len(times)} times); "
            f"wanted {most} and {rarely or 'any'}: {'yes' if fits else 'no'}"
        )
    print(f"load of the machine before: {load:.1f}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


def ten_words(many: int, dice: random.Random) -> list[str]:
    """German sentences of ten words, drawn by lot."""
    if data := os.environ.get("SCONES_DATA"):
        with lzma.open(Path(data) / "tatoeba/test.de-en.de.xz", "rt", encoding="utf-8") as lines:
            of_ten = {line.strip() for line in lines if len(line.split()) == WORDS}
        return dice.sample(sorted(line for line in of_ten if is_one(line)), many)
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from recipes.pocket import everyday

    blocks = everyday.read_blocks(everyday.HERE / "phrasebook" / "train.txt")
    phrases = [line for block in blocks for line in block.lines["de"]]
    found: list[str] = []
    while len(found) < many:
        first, second = dice.sample(phrases, 2)
        text = f"{first.rstrip('.!?')}, {second}"
        if len(text.split()) == WORDS and is_one(text):
            found.append(text)
    return found


def is_one(text: str) -> bool:
    """Whether a text is one sentence for sure."""
    return not set(text[:-1]) & set(".!?…:")


@contextmanager
def served(model: str) -> Iterator[str]:
    """The address of a server, as long as it is needed."""
    command = [sys.executable, "-m", "scones", "serve", model, "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.wait(60)


def measure(address: str, texts: list[str], key_seconds: float) -> dict[str, list[float]]:
    """Type and click; the milliseconds of either."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page()
        page.goto(address)
        page.wait_for_selector("#directions input")
        page.evaluate(WATCH)
        box = page.locator("#text")
        for done, text in enumerate([texts[0], *texts]):  # the first to warm up
            box.fill("")
            page.evaluate("text => { window.wanted = text; }", text)
            box.press_sequentially(text, delay=1000 * key_seconds)
            page.wait_for_function("done => waited.translation.length > done", arg=done)
            for word in page.locator("#translation .word").all()[:2]:
                word.click()
                page.wait_for_timeout(50)
                page.keyboard.press("Escape")
        waited: dict[str, list[float]] = page.evaluate("waited")
        browser.close()
    return {name: times[1:] for name, times in waited.items()}


if __name__ == "__main__":
    main()
