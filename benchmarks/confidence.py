"""Whose confidence is worth most: that of SCONES, of a softmax twin, or BoostedProb's?

    pip install boostedprob
    for layer in scones softmax; do     # the twins: the shipped weights, trained on, same batches
        scones train STORE runs/twin/$layer --output-layer $layer \\
            --start-from scones/pocket/pocket-en-de --preset small --encoder-layers 8 \\
            --decoder-layers 2 --dropout 0 --attention-dropout 0 --max-tokens 2048 \\
            --learning-rate 0.0005 --warmup-steps 10 --cooldown 0.6 --max-steps 60
    done
    SCONES_DATA=... python benchmarks/confidence.py runs/twin/scones runs/twin/softmax \\
        --output docs/results/confidence/peers

Judges read the same pairs: sentences that people rated, the first model's translations of news, and
references beside themselves with something spoilt (recipes/several/spoil.py). How token scores
become one of a sentence (sum, divided by the root of their number, or mean) each judge chooses on
qe/dev. Every figure but those of qe/dev is tested against the judge of the first line by paired
bootstrap. "map" is `scones.evaluation.calibration`, fitted on qe/train or on half of the news.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import facts, flags, number

import scones
from scones.evaluation.calibration import features, fit, reliability
from scones.evaluation.metrics import sentence_chrf
from scones.evaluation.significance import acceptance, p_value
from scones.files import write_file, write_json
from scones.outputs import OutputLayer
from scones.search.positions import measures
from scones.text.reading import read_texts
from scones.translator import Translator

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "recipes" / "several"))

from spoil import spoilt  # noqa: E402

Pairs = Sequence[tuple[str, str]]
Values = Any
RESAMPLES = 1000
GATHER: dict[str, Callable[[Sequence[float]], float]] = {
    "sum": lambda terms: sum(terms),
    "sum / √n": lambda terms: sum(terms) / len(terms) ** 0.5,
    "mean": lambda terms: sum(terms) / len(terms),
}


@dataclass(frozen=True)
class Judge:
    """Somebody who has a score for every token of a pair."""

    translator: Translator
    boosted: bool = False

    def read(self, pairs: Pairs) -> list[list[tuple[float, float, float]]]:
        """Of each token: its score as a logarithm, ambiguity, doubt."""
        output = self.translator.output
        how = partial(boosted if self.boosted else measures, output)
        return self.translator._read(*self.translator._pairs(pairs), how, 512)

    def features(self, pairs: Pairs, read: Sequence[Any]) -> list[list[float]]:
        """What the map takes."""
        sources = self.translator.subwords.encode([source for source, _ in pairs])
        found = []
        for (_, text), source, rows in zip(pairs, sources, read, strict=True):
            terms, ambiguities, doubts = zip(*rows, strict=True)
            means = (float(np.mean(ambiguities)), float(np.mean(doubts)))
            found.append(features(text, len(source), terms, *means))
        return found


def boosted(output: OutputLayer, logits_NV: torch.Tensor, targets_N: torch.Tensor) -> list[Any]:
    """BoostedProb in place of the token's own; the package overwrites what it is given."""
    from boostedprob import calculate_boostedprob

    scores_NV = output.log_scores(logits_NV)
    chances_N = calculate_boostedprob(scores_NV.clone(), targets_N)
    rows = measures(output, logits_NV, targets_N)
    terms = chances_N.clamp(1e-12, 1).log().tolist()
    return [(term, *others) for term, (_, *others) in zip(terms, rows, strict=True)]


# Statistics of draws.


def pearson(one: Values, other: Values) -> float:
    return float(np.corrcoef(one, other)[0, 1])


def spearman(one: Values, other: Values) -> float:
    """Pearson's of the ranks, in which ties share their mean."""
    ranks = []
    for values in (one, other):
        _, place, count = np.unique(values, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(count) - (count - 1) / 2)[place])
    return pearson(*ranks)


def area(scores: Values, yes: Values) -> float:
    return acceptance(scores[yes].tolist(), scores[~yes].tolist(), 0.0).area


def tested(
    statistic: Callable[[Values, Values], float], judges: Mapping[str, Values], truth: Values
) -> dict[str, tuple[float, float | None]]:
    """The statistic of each judge, and p of its difference to the first one's."""
    first = next(iter(judges))
    rng = np.random.default_rng(12345)
    draws = [rng.choice(len(truth), len(truth)) for _ in range(RESAMPLES)]
    values = {name: np.asarray(scores, float) for name, scores in judges.items()}
    whole = {name: statistic(scores, truth) for name, scores in values.items()}
    drawn = {
        name: np.array([statistic(scores[draw], truth[draw]) for draw in draws])
        for name, scores in values.items()
    }
    return {
        name: (
            whole[name],
            None
            if name == first
            else p_value(drawn[name] - drawn[first], whole[name] - whole[first]),
        )
        for name in values
    }


# What they judge.


def rated(part: str, limit: int) -> tuple[Pairs, Values]:
    """Pairs with z_mean, what people thought of them."""
    head, *lines = read_texts(data(f"qe/{part}.en-de.tsv.xz"))
    names = head.split("\t")
    rows = [dict(zip(names, line.split("\t"), strict=False)) for line in lines[:limit]]
    pairs = [(row["original"], row["translation"]) for row in rows]
    return pairs, np.array([float(row["z_mean"]) for row in rows])


def data(name: str) -> Path:
    return Path(os.environ["SCONES_DATA"]) / name


def summed(read: Sequence[Any], how: str) -> Values:
    return np.array([GATHER[how]([row[0] for row in rows]) for rows in read])


def on_ratings(judges: Mapping[str, Judge], given: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Correlations with ratings, and how each judge gathers its scores."""
    dev, dev_truth = rated("dev", given.dev)
    test, truth = rated("test20", given.limit)
    train, train_truth = rated("train", given.train)
    result: dict[str, Any] = {}
    chosen, scores = {}, {}
    for name, judge in judges.items():
        on_dev = judge.read(dev)
        by_way = {how: pearson(summed(on_dev, how), dev_truth) for how in GATHER}
        chosen[name] = max(by_way, key=lambda how: by_way[how])
        result[name] = {"gathered": chosen[name], "qe/dev Pearson": by_way[chosen[name]]}
        read = judge.read(test)
        scores[name] = summed(read, chosen[name])
        if given.train:
            known = judge.features(train, judge.read(train))
            good = train_truth > np.median(train_truth)
            mapped = fit(known, good, "z_mean above the median")
            scores[f"{name}, map"] = np.array(mapped.confidence(judge.features(test, read)))
    for title, statistic in (("Pearson", pearson), ("Spearman", spearman)):
        for name, (value, p) in tested(statistic, scores, truth).items():
            result.setdefault(name, {})[f"qe/test20 {title}"] = (value, p)
    return result, chosen


def on_news(judges: Mapping[str, Judge], chosen: Mapping[str, str], given: Any) -> dict[str, Any]:
    """Which translations of news are better than the median, and how sure one may be of it."""
    texts = [
        read_texts(data(f"newstest/newstest2018.de-en.{language}.xz"))[: given.news]
        for language in ("en", "de")
    ]
    first = next(iter(judges.values())).translator
    found = [best.text for best, *_ in first.translate(texts[0], too_long="cut")]
    chrf = np.array(sentence_chrf(found, texts[1:]))
    good = chrf > np.median(chrf)
    pairs, half = list(zip(texts[0], found, strict=True)), len(found) // 2
    result: dict[str, Any] = {name: {} for name in judges}
    scores = {}
    for name, judge in judges.items():
        read = judge.read(pairs)
        scores[name] = summed(read, chosen[name])
        known = judge.features(pairs, read)
        told = fit(known[:half], good[:half], "").confidence(known[half:])
        result[name]["calibration error, map"] = reliability(told, good[half:]).error
    for name, (value, p) in tested(area, scores, good).items():
        result[name]["AUC, chrF above the median"] = (value, p)
    return result


def on_spoilt(judges: Mapping[str, Judge], given: Any) -> dict[str, Any]:
    """The share of references that win against themselves with something spoilt."""
    sources, references = (
        read_texts(data(f"tatoeba/dev.de-en.{language}.xz"))[: given.spoilt]
        for language in ("en", "de")
    )
    wrong = [one for several in spoilt(references).values() for one in several]
    won = {}
    for name, judge in judges.items():
        right = summed(judge.read(list(zip(sources, references, strict=True))), "sum")
        bad = summed(judge.read([(sources[index], text) for index, text in wrong]), "sum")
        won[name] = np.array([right[index] for index, _ in wrong]) > bad
    share = tested(lambda wins, _: float(wins.mean()), won, np.zeros(len(wrong)))
    return {name: {f"pairs won of {len(wrong):,}": value} for name, value in share.items()}


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """A Markdown table; a p-value stands behind the number that it tests."""
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    lines = [f"| judge | {' | '.join(columns)} |", f"|---|{'--:|' * len(columns)}"]
    for name, row in rows.items():
        cells = []
        for column in columns:
            value = row.get(column, "")
            if isinstance(value, tuple):
                value = number(value[0], 3) + ("" if value[1] is None else f" (p {value[1]:.3f})")
            cells.append(value if isinstance(value, str) else number(value, 3))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Let all judge, and print and write the table."""
    parser = flags(__doc__)
    for name in ("scones", "softmax"):
        parser.add_argument(name)
    parser.add_argument("--dev", type=int, default=1000, help="rated pairs of qe/dev")
    parser.add_argument("--limit", type=int, default=1000, help="rated pairs of qe/test20")
    parser.add_argument(
        "--train", type=int, default=7000, help="rated pairs that the map is fitted on"
    )
    parser.add_argument("--news", type=int, default=1000, help="sentences of news")
    parser.add_argument("--spoilt", type=int, default=500, help="references to spoil")
    parser.add_argument("--output", type=Path, required=True, help="STEM of STEM.json, STEM.md")
    given = parser.parse_args()
    scones_model, softmax = (scones.load(name, "cpu") for name in (given.scones, given.softmax))
    judges = {
        "SCONES": Judge(scones_model),
        "softmax twin": Judge(softmax),
        "BoostedProb on the twin": Judge(softmax, boosted=True),
    }
    rows, chosen = on_ratings(judges, given)
    more = on_news(judges, chosen, given) if given.news else {}
    wrong = on_spoilt(judges, given) if given.spoilt else {}
    for name in judges:
        rows[name] |= more.get(name, {}) | wrong.get(name, {})
    made = facts(torch.device("cpu"))
    note = f"`{made['command']}`, commit {made['commit']}, {RESAMPLES:,} resamples, seed 12345.\n"
    write_json(given.output.with_suffix(".json"), {**made, "judges": rows})
    write_file(given.output.with_suffix(".md"), f"{table(rows)}\n{note}")
    sys.stdout.write(table(rows))


if __name__ == "__main__":
    main()
