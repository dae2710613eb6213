"""How much faster is IBM Model 3 fitted than by NLTK, and do both find the same alignments?

    python benchmarks/ibm3_fit.py [--pairs 60] [--iterations 5] [--json FILE]

The corpus is told by a small language with translations, fertilities, words out of nowhere and
neighbours that change places, so that both must converge. Both go from IBM 1 over IBM 2 to IBM 3
with the same number of iterations each, on one core, and take turns; ours includes reading and
pruning its tables. An alignment says for every target word which source word it comes from, or
that it comes from none.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from random import Random
from typing import Any, TypeVar

import torch
from common import facts, flags, number, save, show, take_turns

from scones.ibm3.fitting import TrainingPairs, estimate, fit
from scones.ibm3.options import FitOptions

OURS, PEER = "sil-thot", "NLTK"
WORDS = 30

Pair = tuple[list[int], list[int]]
Alignment = list[int | None]
T = TypeVar("T")


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = flags(__doc__)
    parser.add_argument("--pairs", type=int, default=60, help="pairs of the corpus")
    parser.add_argument("--iterations", type=int, default=5, help="of each of the three models")
    options = parser.parse_args()
    if options.toy:
        options.pairs, options.iterations = 20, 2
    corpus = tell(options.pairs)
    runs: dict[str, Callable[[], tuple[float, Any]]] = {
        OURS: partial(timed, ours, corpus, options.iterations),
        PEER: partial(timed, peer, corpus, options.iterations),
    }
    rounds = take_turns(runs, options.repeats)
    times = {name: [seconds for seconds, _ in values] for name, values in rounds.items()}
    seconds = {name: statistics.median(values) for name, values in times.items()}
    result = facts(torch.device("cpu")) | {
        **{name: version(name) for name in ("sil-thot", "nltk")},
        "pairs": options.pairs,
        "iterations": options.iterations,
        "seconds": times,
        "ratio": seconds[PEER] / seconds[OURS],
        "links": sum(len(target) for _, target in corpus),
        "equal": agreement(align(corpus, options.iterations), rounds[PEER][0][1]),
    }
    save(result, options.json)
    rows = [
        [name, number(value, 2), number(options.pairs / value)] for name, value in seconds.items()
    ]
    show("fitted by", ["seconds", "pairs/s"], rows)
    print(
        f"\nratio {result['ratio']:,.0f}; {result['equal']:.1%} of {result['links']:,} links equal"
    )


def tell(pairs: int, seed: int = 1) -> list[Pair]:
    """Tell pairs of a language whose word x is the target word x, or x + WORDS one time in four."""
    rng = Random(seed)
    corpus = []
    for _ in range(pairs):
        source = [rng.randrange(WORDS) for _ in range(rng.randint(2, 5))]
        target: list[int] = []
        for x in source:
            fertility = 2 if x % 5 == 0 else 0 if x % 5 == 1 and rng.random() < 0.3 else 1
            target += [x + WORDS * (rng.random() < 0.25) for _ in range(fertility)]
            target += [2 * WORDS] * (rng.random() < 0.1)
        if len(target) > 1 and rng.random() < 0.3:
            place = rng.randrange(len(target) - 1)
            target[place : place + 2] = target[place + 1], target[place]
        if target:
            corpus.append((source, target))
    return corpus


def settings(iterations: int) -> FitOptions:
    """Give what NLTK does: by way of IBM 2, places by both lengths, nothing smoothed."""
    return FitOptions(
        ibm1=iterations,
        hmm=0,
        ibm2=iterations,
        ibm3=iterations,
        distortions="both",
        fertility_smoothing=0.0,
    )


def ours(corpus: list[Pair], iterations: int) -> object:
    """Fit as `scones ibm3 fit` does."""
    words = [str(word) for word in range(2 * WORDS + 1)]
    return fit(corpus, words, words, settings(iterations))


def align(corpus: list[Pair], iterations: int) -> list[Alignment]:
    """Give the alignments that ours ends with."""
    size = 2 * WORDS + 1
    pairs = TrainingPairs(corpus, size, size, settings(iterations))
    model = estimate(pairs, settings(iterations))
    alignments: list[Alignment] = []
    for index in range(len(corpus)):
        source, target, _ = pairs.model.get_sentence_pair(index)
        links = model.get_best_alignment(source, target)[1].to_numpy()
        alignments.append([int(column.argmax()) if column.any() else None for column in links.T])
    return alignments


def peer(corpus: list[Pair], iterations: int) -> list[Alignment]:
    """Fit with NLTK, whose first sentence is the one that is generated; gives its alignments."""
    from nltk.translate import AlignedSent, IBMModel3

    pairs = [
        AlignedSent(list(map(str, target)), list(map(str, source))) for source, target in corpus
    ]
    IBMModel3(pairs, iterations)
    alignments: list[Alignment] = []
    for pair, (_, target) in zip(pairs, corpus, strict=True):
        links: dict[int, Any] = {link[0]: link[1] for link in pair.alignment}
        alignments.append([links.get(place) for place in range(len(target))])
    return alignments


def agreement(left: list[Alignment], right: list[Alignment]) -> float:
    """Give the share of target words that both link to the same source word, or both to none."""
    links = [
        one == other
        for one_sentence, other_sentence in zip(left, right, strict=True)
        for one, other in zip(one_sentence, other_sentence, strict=True)
    ]
    return sum(links) / len(links)


def timed(run: Callable[..., T], *arguments: Any) -> tuple[float, T]:
    """Time a call by the wall clock; gives also what it gives."""
    begin = time.perf_counter()
    result = run(*arguments)
    return time.perf_counter() - begin, result


if __name__ == "__main__":
    main()
