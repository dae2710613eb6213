"""The paper's claims: each a rule on the table, with one outcome of three.

What a claim says, its rule, the reason for it and the rule before it are data (claims.toml). Here
are the numbers that the rules speak of: most are contrasts (see `significance`), a few count.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from replication.significance import SEED, BootstrapTest, Contrast, Term, holm, mcnemar
from replication.table import (
    CAPTIONS,
    CONVERGED,
    DIAL,
    LARGE,
    MAIN,
    NEWS,
    SMALL,
    SOFTMAX,
    Json,
    Key,
    Number,
    Table,
)
from scones.text.reading import read_texts

LEVEL = 0.05
SEARCHES = {"greedy": "greedy", "beam4": "beam 4"}
MARGIN = 0.5
"""BLEU points that equal quality may lack."""
KEPT = 90.0
"""Modes are adequate if exact search keeps this part, in per cent, of the BLEU of beam 4."""
EQUAL_BLEU = 0.1
"""A cheaper beam has the same quality if it lacks no more than this."""
AMBIGUOUS = 0.5
"""Synthetic languages of this temperature or more decide claim 9."""
COLLAPSED = 0.5
"""A run with less than this part of its twin's BLEU has learned nothing, and decides nothing."""
IMPUTATIONS = 2_000
LANGUAGES = {MAIN: "product documentation, exploratory", DIAL: "short sentences"}
"""What the synthetic languages were made of."""
BESIDE = {MAIN: LANGUAGES[MAIN], CONVERGED: "converged", CAPTIONS: "captions"}
"""Results that a verdict does not rest on, as they are called beside it."""

Keys = tuple[str, Sequence[Key]]
"""A direction, and what is compared in it."""


@dataclass(frozen=True)
class Found:
    """What the numbers say to a claim."""

    short: str
    detail: str = ""
    """Direction by direction, and what is proved."""
    effect: float | None = None
    """Above 0 in the direction of the claim; None: nothing can be said."""
    p: float | None = None
    """None: decided without a test."""

    @property
    def shown(self) -> str:
        """All of it, with the p-value as it is."""
        p = "" if self.p is None else f"p = {_shown_p(self.p)}".replace("= <", "<")
        return "; ".join(filter(None, (self.short, self.detail, p)))


@dataclass(frozen=True)
class Verdict:
    """A claim, judged."""

    number: str
    about: Json
    """What claims.toml says of it."""
    outcome: str
    found: Found
    adjusted: float | None
    beside: Mapping[str, Found]
    """The same of results that the verdict does not rest on."""
    is_new: bool
    """Whether it rests on results that were made after the rule, which makes it confirmatory."""

    @property
    def shown_p(self) -> str:
        return _shown_p(self.adjusted)


def _shown_p(p: float | None) -> str:
    return "–" if p is None else "< .001" if p < 0.001 else f"{p:.3f}"[1:] if p < 1 else "1"


# Contrasts.


def _pairs(table: Table, variant: str, metric: str = "bleu", cross: bool = False) -> list[Keys]:
    """Give tuned SCONES and softmax on the news test; `cross` is greedy against beam 4."""
    found: list[Keys] = []
    for direction in table.directions(variant):
        tuned = table.tuned(variant, direction)
        for search in ("greedy",) if cross else SEARCHES:
            other = "beam4" if cross else search
            first = Key(variant, direction, tuned or "", NEWS, search, metric)
            second = Key(variant, direction, SOFTMAX, NEWS, other, metric)
            if table.get(first) and table.get(second):
                found.append((direction, (first, second)))
    return found


def _terms(found: Iterable[Keys], of: Callable[..., float], sign: float = 1.0) -> tuple[Term, ...]:
    known = list(found)
    return tuple(Term(one, sign / len(known), keys, of) for one, keys in known)


def _minus(first: float, second: float) -> float:
    return first - second


def _gain(first: float, second: float) -> float:
    """Relative, in per cent."""
    return 100 * (first / second - 1)


def _kept(first: float, second: float) -> float:
    return 100 * first / second


def _spared(softmax_4: float, softmax_wide: float, small_4: float, small_wide: float) -> float:
    """By how much less BLEU falls from beam 4 to the widest beam."""
    return (softmax_4 - softmax_wide) - (small_4 - small_wide)


def widest(table: Table, variant: str, direction: str, *runs: str) -> int | None:
    """Give the widest beam that all of these were searched with, if it is wider than 4."""
    sizes = [set(table.beams(variant, direction, run)) for run in runs]
    common = set.intersection(*sizes)
    return max(common) if common and 4 in common and max(common) > 4 else None


def _searched(
    table: Table, variant: str, searches: Callable[[str], Sequence[tuple[str, str]] | None]
) -> Iterator[Keys]:
    """Give the BLEU keys of searches on the first sentences, where all were run."""
    for direction in table.directions(variant):
        asked = searches(direction) or ()
        part = table.part(variant, direction)
        keys = [Key(variant, direction, run, part, search, "bleu") for run, search in asked]
        if keys and all(table.get(key) for key in keys):
            yield direction, keys


def _best_alpha(table: Table, variant: str) -> Iterator[Term]:
    """Compare the α chosen on the development set with the α of the fewest errors, held out."""
    found = []
    for direction in table.directions(variant):
        alphas, tuned = table.alphas(variant, direction), table.tuned(variant, direction)
        searched = [run for run in alphas if table.beams(variant, direction, run)]
        size = widest(table, variant, direction, *searched) if searched else None
        if tuned is None or size is None:
            continue
        part = table.part(variant, direction)

        def of(run: str, search: str, metric: str, d: str = direction, part: str = part) -> float:
            return _value(table, Key(variant, d, run, part, search, metric))

        # Of equals the larger α, which makes it harder for the claim.
        fewest = min(
            searched, key=lambda run: (of(run, f"beam{size}", "errors.share"), -alphas[run])
        )
        truest = max(searched, key=lambda run: (of(run, "exact", "bleu"), alphas[run]))
        rival = max(fewest, truest, key=alphas.__getitem__)
        sign = float(np.sign(alphas[tuned] - alphas[rival]))
        keys = [Key(variant, direction, run, NEWS, "greedy", "bleu") for run in (tuned, rival)]
        found.append((direction, sign, keys))
    for direction, sign, keys in found:
        yield Term(direction, sign / len(found), keys, _minus)


def _smoothed(table: Table, variant: str) -> list[Keys]:
    """Give SCONES without and with label smoothing at the same α."""
    found: list[Keys] = []
    for direction in table.directions(variant):
        runs = table.runs(variant, direction)
        twins = {alpha: run for run, alpha in table.alphas(variant, direction).items()}
        for run, one in runs.items():
            if one.layer == "scones" and one.label_smoothing and one.alpha in twins:
                for search in SEARCHES:
                    plain = Key(variant, direction, twins[one.alpha], NEWS, search, "bleu")
                    found.append((direction, (plain, plain._replace(run=run))))
    return [one for one in found if all(map(table.get, one[1]))]


def _collapsed(table: Table, pair: Keys) -> bool:
    plain, smoothed = (_value(table, key) for key in pair[1])
    return smoothed < COLLAPSED * plain


def contrasts(table: Table, variant: str = MAIN) -> dict[str, Contrast]:
    """Give all contrasts that there are numbers for, by the claim."""
    gains = _pairs(table, variant)
    rich = [pair for pair in gains if "de" in pair[0].split("-")]
    poor = [pair for pair in gains if pair not in rich]
    less_data = (*_terms(poor, _gain), *_terms(rich, _gain, -1.0)) if rich and poor else ()

    def curse(direction: str) -> list[tuple[str, str]] | None:
        size = widest(table, variant, direction, SOFTMAX, SMALL)
        both = [(run, search) for run in (SOFTMAX, SMALL) for search in ("beam4", f"beam{size}")]
        return None if size is None else both

    exact = [(SMALL, "exact"), (SOFTMAX, "exact")]
    kept = [(SMALL, "exact"), (SMALL, "beam4")]
    learned = [pair for pair in _smoothed(table, variant) if not _collapsed(table, pair)]
    ter = [(one, keys[::-1]) for one, keys in _pairs(table, variant, "ter")]  # less is better
    found: dict[str, tuple[Sequence[Term], float]] = {
        "1": (_terms(gains, _minus), 0.0),
        "2": (less_data, 0.0),
        "3": (_terms(_pairs(table, variant, cross=True), _minus), -MARGIN),
        "5": (_terms(_searched(table, variant, curse), _spared), 0.0),
        "6a": (_terms(_searched(table, variant, lambda _: exact), _minus), 0.0),
        "6b": (_terms(_searched(table, variant, lambda _: kept), _kept), KEPT),
        "8": (tuple(_best_alpha(table, variant)), 0.0),
        "10": (_terms(learned, _minus), -MARGIN),
        "11 chrF": (_terms(_pairs(table, variant, "chrf"), _minus), 0.0),
        "11 TER": (_terms(ter, _minus), 0.0),
    }
    before = "" if variant == MAIN else f"{variant}, "
    return {
        name: Contrast(f"{before}claim {name}", tuple(terms), null)
        for name, (terms, null) in found.items()
        if terms
    }


def marks(table: Table) -> Iterator[Contrast]:
    """Give the differences that tables mark: every run against softmax of its seed and search."""
    for variant in dict.fromkeys(one.variant for one in table.numbers):
        for direction in table.directions(variant):
            yield from _marks_of(table, variant, direction)


def _marks_of(table: Table, variant: str, direction: str) -> Iterator[Contrast]:
    runs = table.runs(variant, direction)
    for one in table.of(variant, direction):
        if one.metric != "bleu" or one.role != "test" or one.system == SOFTMAX:
            continue
        seeded = {run: other for run, other in runs.items() if other.seed == one.seed}
        against = [SOFTMAX] if one.set != NEWS or one.alpha is None else [SOFTMAX, "softmax-ls"]
        for baseline in (run for run, other in seeded.items() if other.system in against):
            other = one.key._replace(run=baseline)
            if table.get(other) is not None:
                yield Contrast(
                    mark_name(one.key, baseline), (Term("", 1.0, (one.key, other), _minus),)
                )


def mark_name(key: Key, baseline: str) -> str:
    place = key.direction if key.variant == MAIN else f"{key.variant} {key.direction}"
    return f"{place}: {key.run} against {baseline}, {key.set}, {key.search}"


# What the numbers say to each claim.


def judge(table: Table, tests: Mapping[str, BootstrapTest]) -> list[Verdict]:
    """Judge all claims, in the order of claims.toml."""
    claims: dict[str, Json] = tomllib.loads((Path(__file__).parent / "claims.toml").read_text())
    rests = dict.fromkeys(claims, MAIN)
    if temperatures(table, DIAL):
        rests["9"] = DIAL
    found = {number: _found(number, table, tests, rests[number]) for number in claims}
    beside = {
        number: {
            name: one
            for variant, name in BESIDE.items()
            if variant != rests[number]
            if (one := _found(number, table, tests, variant)).effect is not None
        }
        for number in claims
    }
    adjusted = holm({number: one.p for number, one in found.items() if one.p is not None})
    return [
        Verdict(
            number,
            about,
            _outcome(found[number], adjusted.get(number)),
            found[number],
            adjusted.get(number),
            beside[number],
            rests[number] != MAIN,
        )
        for number, about in claims.items()
    ]


def _outcome(found: Found, adjusted: float | None) -> str:
    if found.effect is None or found.effect == 0 or (adjusted is not None and adjusted >= LEVEL):
        return "not confirmed"
    return "confirmed" if found.effect > 0 else "opposite"


def _found(number: str, table: Table, tests: Mapping[str, BootstrapTest], variant: str) -> Found:
    others = {"4": _speed, "7": search_errors, "9": _ambiguity}
    if number in others:
        return others[number](table, variant)
    known = contrasts(table, variant)
    if number == "11":
        return _second_metrics(known, tests)
    if number == "10" and number not in known:
        return _smoothing(table, variant)
    one = known.get(number)
    test = None if one is None else tests.get(one.name)
    if one is None or test is None:
        return Found("not measured, or no test is stored.")
    short, detail = _SAY[number](table, one, test)
    return Found(short, detail, test.value - test.null, test.p)


def interval(test: BootstrapTest) -> str:
    """Show a value with its interval."""
    digits = 2 if abs(test.value) < 1 else 1
    value, low, high = (signed(one, digits) for one in (test.value, test.low, test.high))
    return f"{value} [{low}, {high}]"


def signed(value: float, digits: int = 1) -> str:
    """Show a difference."""
    return f"{value:+.{digits}f}".replace("-", "−")


def kept(table: Table, variant: str, direction: str, run: str) -> tuple[float, list[Key]]:
    """Give what exact search keeps of the BLEU of beam 4, in per cent, and the numbers of that."""
    part = table.part(variant, direction)
    keys = [Key(variant, direction, run, part, search, "bleu") for search in ("exact", "beam4")]
    return _kept(*(_value(table, key) for key in keys)), keys


def by_direction(table: Table, one: Contrast) -> dict[str, float]:
    """Give the mean of a contrast's terms in every direction."""
    values: dict[str, list[float]] = {}
    for term in one.terms:
        value = float(term.of(*(_value(table, key) for key in term.keys)))
        values.setdefault(term.direction, []).append(value)
    return {direction: fmean(found) for direction, found in values.items()}


def _each(table: Table, one: Contrast, shown: Callable[[float], str] = signed) -> str:
    return ", ".join(f"{name} {shown(value)}" for name, value in by_direction(table, one).items())


def _value(table: Table, key: Key) -> float:
    number = table.get(key)
    return float("nan") if number is None else number.value


def _proved(table: Table, one: Contrast, run: str) -> str:
    numbers = [
        table.get(key._replace(metric="proved"))
        for term in one.terms
        for key in term.keys
        if key.search == "exact" and key.run == run
    ]
    known = [number for number in numbers if number is not None]
    proved, sentences = sum(n.value for n in known), sum(n.sentences or 0 for n in known)
    return f"{proved / sentences:.0%} of {sentences:,} modes proved" if sentences else "none proved"


def _say_gains(table: Table, one: Contrast, test: BootstrapTest) -> tuple[str, str]:
    values = [term.of(*(_value(table, key) for key in term.keys)) for term in one.terms]
    ahead = f"{sum(value > 0 for value in values)} of {len(values)} differences are gains"
    return f"{interval(test)} BLEU", f"{ahead}; {_each(table, one)} (mean of both searches)"


def _say_less_data(table: Table, one: Contrast, test: BootstrapTest) -> tuple[str, str]:
    groups: dict[str, list[float]] = {"fi, lt": [], "de": []}
    for direction, gain in by_direction(table, one).items():
        groups["de" if "de" in direction.split("-") else "fi, lt"].append(gain)
    means = ", ".join(f"{name} {signed(fmean(gains))} %" for name, gains in groups.items())
    return f"{interval(test)} points ({means})", _each(table, one)


def _say_curse(table: Table, one: Contrast, test: BootstrapTest) -> tuple[str, str]:
    beams = {term.direction: max(int(key.search[4:]) for key in term.keys) for term in one.terms}
    widths = ", ".join(f"{direction} {size:,}" for direction, size in beams.items())
    return f"{interval(test)} BLEU less lost", f"{_each(table, one)}; widest beams: {widths}"


def _say_modes(table: Table, one: Contrast, test: BootstrapTest) -> tuple[str, str]:
    proved = f"{_proved(table, one, SMALL)} at α = 0.2, {_proved(table, one, SOFTMAX)} with softmax"
    return f"{interval(test)} BLEU", f"{_each(table, one)}; {proved}; else the best found counts"


def _say_kept(table: Table, one: Contrast, test: BootstrapTest) -> tuple[str, str]:
    proved = f"{_proved(table, one, SMALL)}; else the best found counts"
    short = f"{test.value:.0f} % [{test.low:.0f}, {test.high:.0f}] kept"
    return short, f"{_each(table, one, '{:.0f} %'.format)}; {proved}"


def _say_plainly(table: Table, one: Contrast, test: BootstrapTest) -> tuple[str, str]:
    return f"{interval(test)} BLEU", _each(table, one)


_SAY: Mapping[str, Callable[[Table, Contrast, BootstrapTest], tuple[str, str]]] = {
    "1": _say_gains,
    "2": _say_less_data,
    "3": _say_plainly,
    "5": _say_curse,
    "6a": _say_modes,
    "6b": _say_kept,
    "8": _say_plainly,
    "10": _say_plainly,
}


def _second_metrics(known: Mapping[str, Contrast], tests: Mapping[str, BootstrapTest]) -> Found:
    """Both metrics have to be beyond chance, and of one sign."""
    names = {metric: known.get(f"11 {metric}") for metric in ("chrF", "TER")}
    found = {metric: tests.get(one.name) for metric, one in names.items() if one is not None}
    both = {metric: test for metric, test in found.items() if test is not None}
    if len(both) < len(names):
        return Found("not measured, or no test is stored.")
    short = f"chrF {interval(both['chrF'])}, TER {interval(both['TER'])}"
    detail = "above 0: SCONES is better; " + ", ".join(
        f"{m} p = {t.p:.4f}" for m, t in both.items()
    )
    effect = _agreed([test.value for test in both.values()])
    return Found(short, detail, effect, max(test.p for test in both.values()))


def _smoothing(table: Table, variant: str) -> Found:
    pairs = _smoothed(table, variant)
    if not pairs:
        return Found("no system was trained with and without it at the same α.")
    said = []
    for direction, keys in pairs:
        before, after = (_value(table, key) for key in keys)
        said.append(f"{direction}, {SEARCHES[keys[0].search]}: {before:.1f} → {after:.1f}")
    return Found("λ = 0.1 collapsed: it decides nothing", "; ".join(said))


def _speed(table: Table, variant: str) -> Found:
    """SCONES greedy against softmax with beam 4, and with its cheapest beam of equal BLEU."""
    effects, said, rounds = [], [], []
    for direction in table.directions(variant):
        here = table.of(variant, direction)
        timed = [one for one in here if one.metric == "sentences_per_second"]
        beams = {(one.layer, one.search): one for one in timed}
        fast, slow = beams.get(("scones", "speed.1")), beams.get((SOFTMAX, "speed.4"))
        if fast is None or slow is None:
            continue
        bleu = {one.key: _value(table, one.key._replace(metric="bleu")) for one in timed}
        enough = bleu[fast.key] - EQUAL_BLEU
        equal = [o for o in timed if o.layer == SOFTMAX and bleu[o.key] >= enough]
        cheapest = max((slow, *equal), key=lambda one: one.value)
        factors = [_rounds(table, fast, other) for other in (slow, cheapest)]
        worst, best = min(map(min, factors)), max(factors[0])
        effects.append(max(0.0, worst - 1) + min(0.0, best - 1))
        beam = f"{fast.value / cheapest.value:.2f}× beam {cheapest.search.partition('.')[2]}"
        beam = "no cheaper beam" if cheapest is slow else beam
        said.append(f"{direction} {fast.value / slow.value:.2f}× beam 4, {beam} of equal BLEU")
        rounds.append(f"{direction} at least {worst:.2f}× in every round, {fast.device}")
    if not effects:
        return Found("the speed of no direction was measured.")
    return Found("; ".join(said), "; ".join(rounds), _agreed(effects))


def _agreed(effects: Sequence[float]) -> float:
    """Give the smallest effect where all have one sign; else 0, which confirms nothing."""
    return min(effects, key=abs) if min(effects) > 0 or max(effects) < 0 else 0.0


def _rounds(table: Table, fast: Number, slow: Number) -> list[float]:
    """Give by which factor one is faster, round by round."""
    times = [
        [table.get(one.key._replace(metric=f"seconds.{turn}")) for turn in range(100)]
        for one in (fast, slow)
    ]
    return [s.value / f.value for f, s in zip(*times, strict=True) if f and s]


@dataclass(frozen=True)
class _Errors:
    """Search errors of a system with the widest beam, sentence by sentence as far as is known."""

    differs: np.ndarray
    """Whether the beam gave another text than exact search."""
    proved: int
    errors: int
    """Among the proved."""
    proofs: np.ndarray | None
    """Which are proved, where that is stored."""

    def draw(self, random: np.random.Generator) -> np.ndarray:
        """Say which sentences are proved: as stored, else any that the counts allow."""
        if self.proofs is not None:
            return self.proofs
        found = np.zeros(len(self.differs), dtype=bool)
        for group, count in ((True, self.errors), (False, self.proved - self.errors)):
            places = np.flatnonzero(self.differs == group)
            found[random.choice(places, min(count, len(places)), replace=False)] = True
        return found


def _errors(table: Table, variant: str, direction: str, run: str, size: int) -> _Errors | None:
    part = table.part(variant, direction)
    beam = table.get(Key(variant, direction, run, part, f"beam{size}", "errors.share"))
    exact = table.get(Key(variant, direction, run, part, "exact", "proved"))
    if beam is None or exact is None or not beam.digest:
        return None
    texts = [read_texts(table.path(one)) for one in (beam, exact)]
    differs = np.array([one != other for one, other in zip(*texts, strict=True)])
    compared = table.get(beam.key._replace(metric="errors.compared"))
    assert compared is not None
    proofs = [
        one.value > 0
        for place in range(len(differs))
        if (one := table.get(exact.key._replace(metric=f"proof.{place}")))
    ]
    known = np.array(proofs) if len(proofs) == len(differs) else None
    return _Errors(differs, int(exact.value), round(beam.value * compared.value), known)


def search_errors(table: Table, variant: str) -> Found:
    """Compare search errors on the sentences that both systems prove.

    Where it is not stored which those are, they are drawn at random among all that the stored
    counts and texts allow, and the largest p-value of all draws counts.
    """
    found = []
    for direction in table.directions(variant):
        size = widest(table, variant, direction, SOFTMAX, SMALL)
        if size is not None:
            both = [_errors(table, variant, direction, run, size) for run in (SMALL, SOFTMAX)]
            found += [tuple(one for one in both if one is not None)] if all(both) else []
    if not found:
        return Found("no direction has both systems searched exactly and with a wide beam.")
    random = np.random.default_rng(SEED)
    known = sum(all(one.proofs is not None for one in both) for both in found)
    stored = known == len(found)
    draws = np.zeros((1 if stored else IMPUTATIONS, 3), dtype=int)
    for draw in draws:
        for small, softmax in found:
            proved = small.draw(random) & softmax.draw(random)
            fewer = int((proved & softmax.differs & ~small.differs).sum())
            more = int((proved & small.differs & ~softmax.differs).sum())
            draw += (fewer, more, int(proved.sum()))
    fewer, more, sentences = (int(np.median(draws[:, place])) for place in range(3))
    p = max(mcnemar(int(one), int(other)) for one, other, _ in np.unique(draws, axis=0))
    total = sum(len(small.differs) for small, _ in found)
    bounds = [
        f"{name} {sum(one.errors for one in group) / total:.0%} to "
        f"{sum(one.errors + len(one.differs) - one.proved for one in group) / total:.0%}"
        for name, group in (("α = 0.2", [b[0] for b in found]), ("softmax", [b[1] for b in found]))
    ]
    own = [sum(b[i].errors for b in found) / sum(b[i].proved for b in found) for i in (0, 1)]
    about = "" if stored else "about "
    short = (
        f"of {about}{sentences:,} modes that both prove, softmax alone misses {about}{fewer}, "
        f"α = 0.2 alone {about}{more}"
    )
    detail = (
        f"errors in {own[0]:.0%}, softmax {own[1]:.0%}, of each one's proved sentences; which "
        f"those are is stored for {known} of {len(found)} directions; of all {total:,}, the "
        f"unproved counted as no error and as errors: {', '.join(bounds)}"
    )
    return Found(short, detail, float(fewer - more), p)


@dataclass(frozen=True)
class Temperature:
    """What exact search found in a synthetic language."""

    gamma: float
    bleu: Mapping[str, float]
    """Of exact search, by system."""
    proved: Mapping[str, float]
    beam: Mapping[str, float]
    """BLEU of beam 4."""
    p: float | None
    """α = 0.2 against softmax, two-sided."""

    @property
    def ahead(self) -> float:
        """By how much BLEU α = 0.2 is ahead of the better of the others."""
        return self.bleu[SMALL] - max(self.bleu[SOFTMAX], self.bleu[LARGE])

    def kept(self, run: str) -> float:
        """Give what exact search keeps of the BLEU that softmax has with beam 4, in per cent."""
        return _kept(self.bleu[run], self.beam[SOFTMAX])


def temperatures(table: Table, variant: str = MAIN, worst: bool = False) -> list[Temperature]:
    """Give the synthetic languages that have softmax, α = 0.2 and α = 1, the mildest first.

    At worst every mode of α = 0.2 that is not proved counts as empty, the others' as found.
    """
    found, small = [], ("floor", "floor.p") if worst else ("bleu", "p")
    for direction in table.directions(variant, synthetic=True):
        by_run: dict[tuple[str, str], dict[str, float]] = {}
        for one in table.of(variant, direction):
            value = one.value / (one.sentences or 1) if one.metric == "proved" else one.value
            by_run.setdefault((one.search, one.metric), {})[one.run] = value
        exact = by_run.get(("exact", "bleu"), {})
        bleu, p = (by_run.get(("exact", name), {}).get(SMALL) for name in small)
        if {SOFTMAX, SMALL, LARGE} <= exact.keys() and bleu is not None:
            proved, beam = by_run["exact", "proved"], by_run["beam4", "bleu"]
            # What is stored is sacreBLEU's p-value, in effect one-sided.
            doubled = None if p is None else min(1.0, 2 * p)
            gamma = float(direction.partition("-")[2])
            found.append(Temperature(gamma, {**exact, SMALL: bleu}, proved, beam, doubled))
    return sorted(found, key=lambda one: one.gamma)


def _ambiguity(table: Table, variant: str) -> Found:
    found = temperatures(table, variant)
    deciding = [one for one in found if one.gamma >= AMBIGUOUS]
    if not deciding:
        return Found("no synthetic language of that temperature was searched exactly.")
    said = {
        one.gamma: f"γ = {one.gamma:g}: {one.bleu[SMALL]:.1f}, softmax {one.bleu[SOFTMAX]:.1f}, "
        f"α = 1 {one.bleu[LARGE]:.1f} BLEU ({one.proved[SMALL]:.1%} proved)"
        for one in found
    }
    short = "; ".join(said[one.gamma] for one in deciding)
    parts = [text for gamma, text in said.items() if gamma < AMBIGUOUS]
    parts += [f"γ = {one.gamma:g} p = {one.p:.3f}" for one in found if one.p is not None]
    parts += [
        f"with the unproved as empty γ = {one.gamma:g}: {one.bleu[SMALL]:.1f} BLEU, p = {one.p:.3f}"
        for one in temperatures(table, variant, worst=True)
        if one.p is not None
    ]
    p = max(1.0 if one.p is None else one.p for one in deciding)
    return Found(short, "; ".join(parts), _agreed([one.ahead for one in deciding]), p)
