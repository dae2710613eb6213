"""Train pocket models on, with and without known wrong continuations, and judge them.

    python recipes/several/negatives.py STORE OUT [--side-by-side 4]      every run
    python recipes/several/negatives.py STORE OUT --run de-en.10.1        one of them
    python recipes/several/negatives.py --table OUT                       what came out

STORE is made by recipes/several/negatives.toml (recipes/several/negatives.sh does all of it). A run
is DIRECTION.WEIGHT.SEED; the weight "none" is the twin without, "10m" has mined mistakes too, "o10"
tells of the ends of translations that lack a word, and of nothing else. It
leaves in OUT its translations (greedy, beam 4), the pairs won (spoil.py), and the model as int8.
Weights are chosen on tatoeba/dev and newstest2018 alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from spoil import won

from scones.model.config import ModelOptions
from scones.model.folder import store_again
from scones.options import from_section, load_recipe
from scones.outputs import output_layer
from scones.text.reading import read_texts
from scones.text.store import TokenStore, reverse_store
from scones.training.options import Experiment, TrainOptions
from scones.translator import load

RECIPE = Path(__file__).with_name("negatives.toml")
SETS = {
    "tatoeba-dev": "tatoeba/dev.de-en",
    "newstest2018": "newstest/newstest2018.de-en",
    "tatoeba-test": "tatoeba/test.de-en",
    "newstest2019": "newstest/newstest2019.{direction}",
}
SPOILT = 4000
"""So many sentences of a set are spoilt; all are translated."""
WEIGHTS = ("none", "1", "3", "o3", "o10", "o30")
RUNS = [f"de-en.{weight}.{seed}" for weight in WEIGHTS for seed in (1, 2, 3)]
RUNS += [f"en-de.{weight}.1" for weight in WEIGHTS]


def main() -> None:
    """Do what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", type=Path, nargs="*")
    parser.add_argument("--run")
    parser.add_argument("--table", type=Path)
    parser.add_argument("--side-by-side", type=int, default=4)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--sentences", type=int, help="so many of every set: to try the program")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--runs", nargs="*", default=RUNS)
    given = parser.parse_args()
    if given.table:
        table(given.table)
        return
    store, out = given.folders
    if given.run:
        run(given, store, out)
    else:
        every_run(given, store, out)


def every_run(given: argparse.Namespace, store: Path, out: Path) -> None:
    """Prepare what they share, then start them side by side, as many at a time as asked for."""
    from scones.training.mistakes import mine

    out.mkdir(parents=True, exist_ok=True)
    for direction in ("de-en", "en-de"):
        place = store_of(store, direction)
        if not place.exists():
            reverse_store(store, place)
        mistakes = out / f"{direction}.mistakes"
        wanted = any(name.startswith(f"{direction}.10m") for name in given.runs)
        if wanted and not mistakes.exists():
            found = mine(TokenStore.open(place), pocket(direction), mistakes, 0.5, 2, given.device)
            say(f"{direction}: {found}")
    waiting, running = list(given.runs), dict[str, subprocess.Popen[bytes]]()
    failed = []
    while waiting or running:
        while waiting and len(running) < given.side_by_side:
            name = waiting.pop(0)
            log = (out / f"{name}.log").open("wb")
            command = [sys.executable, __file__, str(store), str(out), "--run", name]
            command += ["--device", given.device]
            command += ["--steps", str(given.steps)] if given.steps else []
            command += ["--sentences", str(given.sentences)] if given.sentences else []
            running[name] = subprocess.Popen(command, stdout=log, stderr=log)
        time.sleep(0.5)
        for name in [name for name, process in running.items() if process.poll() is not None]:
            code = running.pop(name).returncode
            failed += [name] if code else []
            say(f"{name} {'failed' if code else 'done'}")
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def say(text: str) -> None:
    """Print at once, for whoever watches."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def store_of(store: Path, direction: str) -> Path:
    """The store of a direction; the one that was prepared is de-en."""
    return store if direction == "de-en" else store.with_name(f"{store.name}.reversed")


def pocket(direction: str) -> Path:
    """The model that comes with the package."""
    import scones

    return Path(scones.__file__).parent / "pocket" / f"pocket-{direction}"


def experiment(given: argparse.Namespace, out: Path) -> Experiment:
    """What the recipe says, and the run's name."""
    direction, weight, seed = given.run.split(".")
    sections = load_recipe(RECIPE, "model", "train")
    told: dict[str, Any] = {"start_from": pocket(direction), "seed": int(seed)}
    if weight.startswith("o"):
        told["omissions"] = float(weight[1:])
    elif weight != "none":
        told["negatives"] = float(weight.removesuffix("m"))
    if weight.endswith("m"):
        told["mistakes"] = out / f"{direction}.mistakes"
    if given.steps:
        told["max_steps"] = given.steps
    options = from_section(TrainOptions, {**sections["train"], **told}, str(RECIPE))
    options = replace(options, device=given.device)
    model = from_section(ModelOptions, sections["model"], str(RECIPE))
    return Experiment(model, output_layer({"layer": "scones", "alpha": 0.5}), options)


def run(given: argparse.Namespace, store: Path, out: Path) -> None:
    """Train, store small, translate, count the pairs won."""
    from scones.training.loop import train

    begin = time.perf_counter()
    place = out / "runs" / given.run
    place.parent.mkdir(parents=True, exist_ok=True)
    direction = given.run.split(".")[0]
    asked = experiment(given, out)
    if not (place / "last").exists():
        train(asked, store_of(store, direction), place)
    seconds = time.perf_counter() - begin
    model = out / f"{given.run}.model"
    store_again(place / "last", model, "int8", {}, overwrite=True)
    judge(given, model, out, direction)
    log = [json.loads(line) for line in (place / "training/log.jsonl").read_text().splitlines()]
    facts = {"seconds": seconds, "log": log[-1:], "options": asked.fingerprint()}
    text = json.dumps(facts, default=str)
    (out / f"{given.run}.run.json").write_text(text + "\n", encoding="utf-8")


def judge(given: argparse.Namespace, model: Path, out: Path, direction: str) -> None:
    """Write the translations of every set, and the pairs won."""
    translator = load(model, given.device, engine="torch")
    result = {}
    for name, (sources, references) in texts_of(direction, given.sentences).items():
        for search in ("greedy", "beam"):
            found = translator.translate(sources, search=search)
            lines = "".join(f"{translations[0].text}\n" for translations in found)
            (out / f"{given.run}.{name}.{search}.txt").write_text(lines, encoding="utf-8")
        result[name] = won(translator, sources[:SPOILT], references[:SPOILT])
    (out / f"{given.run}.won.json").write_text(json.dumps(result) + "\n", encoding="utf-8")


def texts_of(direction: str, sentences: int | None) -> dict[str, tuple[list[str], list[str]]]:
    """Sources and references of every set."""
    found = {}
    data = Path(os.environ["SCONES_DATA"])
    for name, stem in SETS.items():
        place = data / stem.format(direction=direction)
        sides = [
            read_texts(place.with_name(f"{place.name}.{side}.xz")) for side in direction.split("-")
        ]
        found[name] = tuple(list(islice(side, sentences)) for side in sides)
    return found  # type: ignore[return-value]


def table(out: Path) -> None:
    """Print, for every direction and weight, means over seeds: pairs won and BLEU."""
    from scones.evaluation.metrics import bleu

    rows: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    for path in sorted(out.glob("*.won.json")):
        name = path.name.removesuffix(".won.json")
        direction, weight, _ = name.split(".")
        row = {}
        counted = json.loads(path.read_text(encoding="utf-8"))
        for test, (_, references) in texts_of(direction, None).items():
            for kind, facts in counted[test].items():
                row[f"{test} {kind}"] = 100 * facts["won"]
            for search in ("greedy", "beam"):
                found = (out / f"{name}.{test}.{search}.txt").read_text(encoding="utf-8")
                lines = found.split("\n")[:-1]
                row[f"{test} BLEU {search}"] = bleu(lines, [references[: len(lines)]]).value
        rows[direction, weight].append(row)
    for direction in sorted({direction for direction, _ in rows}):
        weights = [weight for known, weight in rows if known == direction]
        say(f"\n| {direction} | {' | '.join(weights)} |\n|---|{'--:|' * len(weights)}")
        for measure in rows[direction, weights[0]][0]:
            cells = []
            for weight in weights:
                values = [row[measure] for row in rows[direction, weight]]
                spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
                cells.append(f"{statistics.mean(values):.2f}{spread}")
            say(f"| {measure} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
