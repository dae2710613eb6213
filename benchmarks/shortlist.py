"""How much sooner do we translate with a shortlist of target pieces, and what does it change?

    SCONES_DATA=... python benchmarks/shortlist.py --model runs/a --store data/a [--json FILE]

Greedy search by PyTorch with and without a shortlist, in turns, each at its best batch size of a
few, and a sentence at a time. Output is compared line by line, and by BLEU; where lines are equal,
so should be their scores, if the model is a SCONES model. Coverage says how many of the pieces of
the reference, and of the output without a shortlist, are on the list of their sentence.

With `--random` instead of a model, weights are random and have the paper's sizes (61 million with
32,000 pieces), and every sentence runs to its length limit: the same work, so that the times alone
are compared.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import facts, flags, number, save, seconds, show, take_turns
from toys import toy_model, toy_pairs, toy_store

from scones.evaluation.metrics import bleu
from scones.hardware import choose_device
from scones.model.config import ModelOptions
from scones.model.folder import ModelFacts, ModelFolder
from scones.model.transformer import Transformer
from scones.outputs import output_layer
from scones.outputs.scones import Scones
from scones.search.engine import searcher
from scones.search.searcher import Hypothesis, Searcher, SearchOptions
from scones.search.shortlist import Shortlist
from scones.text import END
from scones.text.reading import read_texts
from scones.text.store import TokenStore

WITHOUT, WITH = "all pieces", "shortlist"
GREEDY = SearchOptions(scores=False)
ONE_AT_A_TIME = 1  # padded tokens of a batch: no second sentence fits
BATCH_TOKENS = {"cpu": (512, 1024, 2048, 4096), "cuda": (16_384, 65_536, 262_144)}

Ids = list[list[int]]


@dataclass
class Contender:
    """One way to translate, and what it wrote."""

    searcher: Searcher
    sources: Ids
    max_tokens: int = ONE_AT_A_TIME
    output: list[Hypothesis] = field(default_factory=list)

    def run(self, scores: bool = False) -> None:
        """Translate everything."""
        options = replace(GREEDY, max_tokens=self.max_tokens, scores=scores)
        self.output = [best for (best,) in self.searcher.search(self.sources, options)]

    def choose_batch(self, sizes: Sequence[int], device: torch.device) -> None:
        """Warm up, and keep the fastest of some batch sizes."""
        times = {}
        for self.max_tokens in sizes:
            self.run()
            times[self.max_tokens] = seconds(self.run, device)
        self.max_tokens = min(times, key=times.__getitem__)


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = flags(__doc__)
    parser.add_argument("--model", type=Path, help="a model folder")
    parser.add_argument("--random", action="store_true", help="random weights instead")
    parser.add_argument("--store", type=Path, help="the store that the model was trained on")
    parser.add_argument("--source", type=Path, help="text; Tatoeba's test of SCONES_DATA if unset")
    parser.add_argument("--reference", type=Path, help="its translation")
    parser.add_argument("--sentences", type=int, default=500, help="the first so many")
    parser.add_argument("--per-token", type=int, default=100)
    parser.add_argument("--frequent", type=int, default=500)
    parser.add_argument("--pairs", type=int, default=500_000, help="pairs to learn from")
    options = parser.parse_args()
    device = choose_device(options.device)
    with tempfile.TemporaryDirectory() as scratch:
        if options.toy:
            options.store, options.model = Path(scratch) / "store", Path(scratch) / "model"
            toy_store(options.store)
            toy_model(options.model, "scones")
        elif not options.store or not (options.model or options.random):
            parser.error("give --store, and --model or --random, or --toy")
        store = TokenStore.open(options.store)
        folder = random_model(store) if options.random else ModelFolder.load(options.model)
        folder.model.to(device)
    texts, references = toy_pairs() if options.toy else read(options.source, options.reference)
    texts, references = texts[: options.sentences], references[: options.sentences]
    begin = time.perf_counter()
    shortlist = Shortlist.make(store, options.per_token, options.frequent, options.pairs)
    making = time.perf_counter() - begin
    result = facts(device) | {"sentences": len(texts), "seconds_to_make_the_list": making}
    sources = store.subwords.encode(texts)
    output = output_layer(folder.facts.output)
    contenders = {
        WITHOUT: Contender(searcher(folder.model, output), sources),
        WITH: Contender(searcher(folder.model, output, shortlist=shortlist), sources),
    }
    result["results"] = [
        race(contenders, batch, options.repeats, device) for batch in ("best", "one sentence")
    ]
    wanted = {"reference": store.subwords.encode(references)}
    if not options.random:
        result |= compare(contenders, store, references)
        wanted["output"] = [list(best.tokens) for best in contenders[WITHOUT].output]
    result["coverage"] = {
        name: asdict(shortlist.coverage(zip(sources, targets, strict=True)))
        for name, targets in wanted.items()
    }
    save(result, options.json)
    report(result)


def race(
    contenders: dict[str, Contender], batch: str, repeats: int, device: torch.device
) -> dict[str, Any]:
    """Let both translate in turns; the ratio is above 1 where the shortlist is faster."""
    for contender in contenders.values():
        sizes = BATCH_TOKENS[device.type] if batch == "best" else (ONE_AT_A_TIME,)
        contender.choose_batch(sizes, device)
    runs = {name: partial(seconds, one.run, device) for name, one in contenders.items()}
    times = take_turns(runs, repeats)
    rows: dict[str, dict[str, Any]] = {
        name: {
            "sentences_per_second": len(one.sources) / statistics.median(times[name]),
            "seconds": times[name],
            "batch_tokens": one.max_tokens,
        }
        for name, one in contenders.items()
    }
    speeds = [row["sentences_per_second"] for row in rows.values()]
    return {"batch": batch, "ratio": speeds[1] / speeds[0], "systems": rows}


def compare(
    contenders: dict[str, Contender], store: TokenStore, references: list[str]
) -> dict[str, Any]:
    """Compare the translations, and the scores of those that are the same."""
    for contender in contenders.values():
        contender.run(scores=True)
    pairs = list(zip(contenders[WITHOUT].output, contenders[WITH].output, strict=True))
    gaps = [
        abs((left.log_prob or 0.0) - (right.log_prob or 0.0))
        for left, right in pairs
        if left.tokens == right.tokens
    ]
    scores = {
        name: bleu(store.subwords.decode([best.tokens for best in one.output]), [references])
        for name, one in contenders.items()
    }
    return {
        "equal": len(gaps) / len(pairs),
        "largest_score_difference_of_equal_lines": max(gaps, default=None),
        "bleu": {name: score.value for name, score in scores.items()},
        "signature": scores[WITH].signature,
    }


def random_model(store: TokenStore) -> ModelFolder:
    """Give a model that has learnt nothing and never ends."""
    torch.manual_seed(1)
    model = Transformer(ModelOptions(preset="paper").build(len(store.subwords))).eval()
    with torch.no_grad():
        model.output_bias[END] = -1e9
    languages = store.source_language, store.target_language
    return ModelFolder(model, store.subwords.model, ModelFacts(Scones().to_config(), *languages))


def read(source: Path | None, reference: Path | None) -> tuple[list[str], list[str]]:
    """Read the text and its references."""
    if source is None or reference is None:
        if "SCONES_DATA" not in os.environ:
            sys.exit("Give --source and --reference, or set SCONES_DATA to the corpora's folder.")
        folder = Path(os.environ["SCONES_DATA"]) / "tatoeba"
        source, reference = (folder / f"test.de-en.{code}.xz" for code in ("de", "en"))
    return read_texts(source), read_texts(reference)


def report(result: dict[str, Any]) -> None:
    """Print the speeds, the ratio, and what became of the translations."""
    rows = []
    for entry in result["results"]:
        speeds = [number(row["sentences_per_second"], 1) for row in entry["systems"].values()]
        rows.append([entry["batch"], *speeds, number(entry["ratio"], 2)])
    show("batch", [f"{WITHOUT}/s", f"{WITH}/s", "ratio"], rows)
    rows = [
        [name, f"{one['tokens']:.2%}", f"{one['sentences']:.1%}", number(one["size"])]
        for name, one in result["coverage"].items()
    ]
    show("on the list", ["tokens", "whole sentences", "pieces a list"], rows)
    if "equal" in result:
        scores = ", ".join(f"{name} {score:.2f}" for name, score in result["bleu"].items())
        gap = result["largest_score_difference_of_equal_lines"]
        print(f"\nBLEU: {scores}; equal lines: {result['equal']:.1%}, whose log-probabilities")
        print(f"differ by at most {gap:.1e}")


if __name__ == "__main__":
    main()
