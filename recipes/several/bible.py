"""One version of the Bible against seven: what a model makes of an eighth that it never saw.

    python recipes/several/bible.py text FOLDER         text and recipe for scones prepare
    python recipes/several/bible.py run FOLDER SYSTEM.SEED [--steps 3000] [--device cpu]
    python recipes/several/bible.py table FOLDER        what came out

Every thirtieth verse is held out, and of all verses the version bsb. `one` has one of the seven
other versions for each verse, drawn once; `rows` has all seven, as pairs of their own; `all` has
the same pairs and is told of the others at each prefix. Sources, sizes and steps are the same.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch.nn import functional

from scones.model.config import ModelOptions
from scones.outputs.scones import Scones
from scones.text import PAD
from scones.text.reading import read_texts
from scones.training.options import Experiment, TrainOptions
from scones.translator import Translator, load

HELD_OUT = "bsb"
VERSIONS = ["web", "bbe", "ulb", "lsv", "darby", "fbv", "webster"]
MODEL = ModelOptions(preset="tiny", layers=3, size=256, heads=4, feed_forward=1024, dropout=0.1)
SYSTEMS = ("one", "rows", "all")


def main() -> None:
    """Do what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=["text", "run", "table"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--verses", type=int, help="so many held-out verses: to try the program")
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    if given.what == "text":
        text(given.folder)
    elif given.what == "run":
        run(given)
    else:
        table(given.folder)


def verses(name: str) -> list[str]:
    """All verses of a version."""
    return read_texts(Path(os.environ["SCONES_DATA"]) / "bible" / f"all.{name}.xz")


def held_out(index: int) -> bool:
    """Whether a verse is for testing."""
    return index % 30 == 7


def text(folder: Path) -> None:
    """Write what is trained on, as source TAB targets, and the test set."""
    german = verses("de")
    versions = [verses(f"{name}.en") for name in VERSIONS]
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(1)
    one, seven = [], []
    for index, verse in enumerate(german):
        if held_out(index):
            continue
        targets = [version[index] for version in versions]
        one.append((verse, rng.choice(targets)))
        seven.append((verse, *targets))
    write(folder / "one.tsv", map("\t".join, one))
    write(folder / "all.tsv", map("\t".join, seven))
    for name, texts in (("de", german), (HELD_OUT, verses(f"{HELD_OUT}.en"))):
        write(folder / f"test.{name}", (v for index, v in enumerate(texts) if held_out(index)))
    for name, version in zip(VERSIONS, versions, strict=True):
        write(folder / f"test.{name}", (v for index, v in enumerate(version) if held_out(index)))


def write(path: Path, lines: Iterator[str]) -> None:
    """Write lines."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def run(given: argparse.Namespace) -> None:
    """Train a system and judge it."""
    from scones.training.loop import train

    system, seed = given.name.split(".")
    options = TrainOptions(
        max_steps=given.steps,
        max_tokens=8192,
        learning_rate=0.006,
        warmup_steps=min(300, given.steps // 5),
        cooldown=0.5,
        validate_every=10**6,
        checkpoint_every=10**6,
        log_every=200,
        patience=0,
        seed=int(seed),
        device=given.device,
        references="all" if system == "all" else None,
    )
    store = given.folder / ("one" if system == "one" else "all")
    place = given.folder / "runs" / given.name
    place.parent.mkdir(parents=True, exist_ok=True)
    train(Experiment(MODEL, Scones(alpha=0.5), options), store, place)
    translator = load(place / "last", given.device, engine="torch")
    sources = read_texts(given.folder / "test.de")[: given.verses]
    facts = judged(translator, sources, given.folder)
    (given.folder / f"{given.name}.json").write_text(json.dumps(facts) + "\n", encoding="utf-8")
    for search in ("greedy", "beam"):
        found = translator.translate(sources, search=search)
        write(
            given.folder / f"{given.name}.{search}.txt",
            (translations[0].text for translations in found),
        )


def judged(translator: Translator, sources: Sequence[str], folder: Path) -> dict[str, float]:
    """Probability and rank of the pieces of the unseen version, and those of a seen one."""
    facts = {}
    for version in (HELD_OUT, VERSIONS[0]):
        targets = read_texts(folder / f"test.{version}")[: len(sources)]
        log_probs, ranks = [], []
        for place in range(0, len(sources), 32):
            pair = (sources[place : place + 32], targets[place : place + 32])
            for log_prob, rank in pieces(translator, *pair):
                log_probs.append(log_prob)
                ranks.append(rank)
        facts[f"{version}: probability per piece"] = math.exp(statistics.mean(log_probs))
        facts[f"{version}: mean probability"] = statistics.mean(map(math.exp, log_probs))
        facts[f"{version}: first, of all pieces"] = statistics.mean(rank == 1 for rank in ranks)
        facts[f"{version}: among the first five"] = statistics.mean(rank <= 5 for rank in ranks)
        facts[f"{version}: mean reciprocal rank"] = statistics.mean(1 / rank for rank in ranks)
    return facts


@torch.inference_mode()
def pieces(
    translator: Translator, sources: Sequence[str], targets: Sequence[str]
) -> list[tuple[float, int]]:
    """Log-probability and rank, among all tokens, of every piece of the targets."""
    model, encode = translator.model, translator.subwords.encode
    source_BS, target_BT = (
        torch.nn.utils.rnn.pad_sequence(
            [torch.tensor([*ids, 1]) for ids in encode(texts)], batch_first=True
        ).to(model.device)
        for texts in (sources, targets)
    )
    inputs_BT = functional.pad(target_BT[:, :-1], (1, 0), value=PAD)
    hidden_ND = model(source_BS, inputs_BT)[target_BT != PAD]
    logits_NV = functional.linear(hidden_ND, model.output_weight, model.output_bias)
    gold_N1 = target_BT[target_BT != PAD].unsqueeze(1)
    own_N1 = logits_NV.gather(1, gold_N1)
    log_probs_N = translator.output.scores_of(logits_NV, gold_N1.squeeze(1))
    ranks_N = 1 + (logits_NV > own_N1).sum(1)
    return list(zip(log_probs_N.tolist(), ranks_N.tolist(), strict=True))


def table(folder: Path) -> None:
    """Print the means over seeds."""
    from scones.evaluation.metrics import bleu

    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    for path in sorted(folder.glob("*.*.json")):
        name = path.name.removesuffix(".json")
        facts = json.loads(path.read_text(encoding="utf-8"))
        for search in ("greedy", "beam"):
            lines = (folder / f"{name}.{search}.txt").read_text(encoding="utf-8").split("\n")[:-1]
            for title, known in (("unseen version", [HELD_OUT]), ("seen seven", VERSIONS)):
                references = [read_texts(folder / f"test.{v}")[: len(lines)] for v in known]
                facts[f"BLEU, {title}, {search}"] = bleu(lines, references).value
        found[name.split(".")[0]].append(facts)
    systems = [system for system in SYSTEMS if system in found]
    rows = [f"| | {' | '.join(systems)} |", f"|---|{'--:|' * len(systems)}"]
    for measure in found[systems[0]][0]:
        cells = []
        for system in systems:
            values = [facts[measure] for facts in found[system]]
            spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.3f}{spread}")
        rows.append(f"| {measure} | {' | '.join(cells)} |")
    sys.stdout.write("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
