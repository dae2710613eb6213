"""The report's tables: each a pivot of the tidy table, the paper's numbers in rows of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean, stdev

from replication.claims import LANGUAGES, SEARCHES, kept, mark_name, signed, temperatures
from replication.significance import BootstrapTest
from replication.table import (
    CAPTIONS,
    CONVERGED,
    DIRECTIONS,
    LARGE,
    LONGER,
    MAIN,
    NEWS,
    RETRAINED,
    SMALL,
    SOFTMAX,
    Json,
    Key,
    Table,
    label,
)
from scones.evaluation.significance import mark

SETS = {
    "europarl": "parliament speeches, held-out sittings",
    "msdocs": "product documentation",
    "tatoeba": "everyday sentences",
}


@dataclass(frozen=True)
class Cell:
    """What stands in a place of a table."""

    text: str
    keys: tuple[Key, ...] = ()
    """The numbers that it shows, or is made of."""
    strong: bool = False


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    label: str
    cells: Sequence[Cell]
    system: str = ""
    """Whose colour it has; "paper" for the paper's numbers."""


@dataclass(frozen=True)
class Grid:
    """A table whose first column names the rows."""

    heads: Sequence[str]
    """Of all columns but the first."""
    rows: Sequence[Row]
    groups: Sequence[str] = ()
    """Headings over the columns, each over as many as the others."""
    title: str = ""

    @property
    def span(self) -> int:
        return len(self.heads) // (len(self.groups) or 1)

    @property
    def full_heads(self) -> list[str]:
        """The headings with those above them."""
        if not self.groups:
            return list(self.heads)
        above = [group for group in self.groups for _ in range(self.span)]
        return [f"{head}, {group}" for group, head in zip(above, self.heads, strict=True)]


NOTHING = Cell("–")


@dataclass(frozen=True)
class Pivot:
    """Shows numbers of the table."""

    table: Table
    tests: Mapping[str, BootstrapTest]
    published: Json

    def cell(self, key: Key, shown: str = "{:.1f}", baseline: str = "") -> Cell:
        """Show a number, marked where it differs from a baseline; a dash where there is none."""
        number = self.table.get(key)
        if number is None:
            return NOTHING
        test = self.tests.get(mark_name(key, baseline)) if baseline else None
        return Cell(shown.format(number.value) + (mark(test.p) if test else ""), (key,))

    def gain(self, key: Key, baseline: str) -> Cell:
        """Show by how many per cent a score is above a baseline's."""
        ours, theirs = self.table.get(key), self.table.get(key._replace(run=baseline))
        if ours is None or theirs is None:
            return NOTHING
        test = self.tests.get(mark_name(key, baseline))
        text = signed(100 * (ours.value / theirs.value - 1)) + (mark(test.p) if test else "")
        return Cell(text, (ours.key, theirs.key), strong=True)

    def paper(self, *rows: Sequence[str]) -> Row:
        return Row("the paper", [Cell(text) for row in rows for text in row], "paper")

    def by_search(
        self, run: Mapping[str, str | None], test: str, metric: str = "bleu", shown: str = "{:.1f}"
    ) -> list[Cell]:
        """Show a run of every direction with both searches."""
        baseline = SOFTMAX if metric == "bleu" else ""
        return [
            self.cell(Key(MAIN, direction, name or "", test, search, metric), shown, baseline)
            for search in SEARCHES
            for direction, name in run.items()
        ]

    def runs(self, system: str, directions: Iterable[str]) -> dict[str, str | None]:
        """Name a run in every direction; "tuned" is SCONES with the chosen α."""
        tuned = {one: self.table.tuned(MAIN, one) for one in directions}
        return tuned if system == "tuned" else dict.fromkeys(tuned, system)

    def both(self, test: str, metric: str, shown: str, directions: Sequence[str]) -> list[Row]:
        """Show softmax and tuned SCONES."""
        return [
            Row(name, self.by_search(self.runs(system, directions), test, metric, shown), system)
            for system, name in ((SOFTMAX, "Softmax"), ("tuned", "SCONES, tuned α"))
        ]

    def gains(self, test: str, directions: Sequence[str], baseline: str) -> list[Cell]:
        tuned = self.runs("tuned", directions)
        return [
            self.gain(Key(MAIN, direction, run or "", test, search, "bleu"), baseline)
            for search in SEARCHES
            for direction, run in tuned.items()
        ]


def summary(pivot: Pivot) -> Grid:
    """The paper's findings in numbers, and ours."""
    rows, published = [], pivot.published
    for search, said in SEARCHES.items():
        for system, name in ((SOFTMAX, "Softmax"), ("tuned", "SCONES, tuned α")):
            runs = pivot.runs(system, DIRECTIONS)
            cells = [
                pivot.cell(Key(MAIN, d, r or "", NEWS, search, "bleu")) for d, r in runs.items()
            ]
            rows.append(Row(f"{name}, {said}", cells, system))
            rows.append(pivot.paper(published["bleu"][search][system]))
        gains = pivot.gains(NEWS, DIRECTIONS, SOFTMAX)
        half = gains[:6] if search == "greedy" else gains[6:]
        rows.append(Row(f"Gain, {said}, %", half))
        rows.append(pivot.paper(published["bleu"][search]["gain"]))
    for system, name in ((SOFTMAX, "softmax"), (SMALL, "α = 0.2")):
        found = [kept(pivot.table, MAIN, direction, system) for direction in DIRECTIONS]
        cells = [Cell(f"{share:.0f}".replace("nan", "–"), tuple(keys)) for share, keys in found]
        exact, beam = (published["searched"][search][system] for search in ("exact", "beam4"))
        theirs = [f"{100 * float(e) / float(b):.0f}" for e, b in zip(exact, beam, strict=True)]
        rows += [Row(f"Exact search keeps, {name}, %", cells, system), pivot.paper(theirs)]
    return Grid(DIRECTIONS, rows)


def table_1(pivot: Pivot) -> Grid:
    """Sizes of the models, as the softmax runs have them."""
    rows, shown = [], {"parameters": "{:,.0f}", "batch": "{:,.0f} tokens"}
    for name, theirs in pivot.published["sizes"].items():
        run = "" if name == "vocabulary" else SOFTMAX
        keys = [Key(MAIN, direction, run, "", "", name) for direction in DIRECTIONS]
        cells = [pivot.cell(key, shown.get(name, "{:,g}")) for key in keys]
        rows.append(Row(name, [*cells, Cell(theirs)]))
    return Grid([*DIRECTIONS, "the paper"], rows)


def table_2(pivot: Pivot) -> Grid:
    """Training pairs."""
    rows = []
    for direction in DIRECTIONS:
        keys = [Key(MAIN, direction, "", "", "", name) for name in ("pairs_read", "pairs_kept")]
        cells = [pivot.cell(key, "{:,.0f}") for key in keys]
        source, target = direction.split("-")
        pair = direction if target == "en" else f"{target}-{source}"
        rows.append(
            Row(direction, [*cells, *(Cell(one) for one in pivot.published["corpora"][pair])])
        )
    heads = ["read", "kept", "the paper: unfiltered", "the paper: filtered"]
    return Grid(heads, rows)


def table_3(pivot: Pivot) -> list[Grid]:
    """BLEU on the news test: tuned SCONES and softmax, then every system."""
    published = pivot.published["bleu"]
    rows = []
    for system, name in (
        (SOFTMAX, "Softmax"),
        ("softmax-ls", "Softmax with label smoothing"),
        ("tuned", "SCONES, tuned α"),
    ):
        rows.append(Row(name, pivot.by_search(pivot.runs(system, DIRECTIONS), NEWS), system))
        if system in published["greedy"]:
            rows.append(pivot.paper(*(published[search][system] for search in SEARCHES)))
    rows.append(Row("Gain of tuned SCONES, %", pivot.gains(NEWS, DIRECTIONS, SOFTMAX)))
    rows.append(pivot.paper(*(published[search]["gain"] for search in SEARCHES)))
    over = "Gain over softmax with label smoothing, %"
    rows.append(Row(over, pivot.gains(NEWS, DIRECTIONS, "softmax-ls")))
    heads = [*DIRECTIONS] * len(SEARCHES)
    groups = ["greedy", "beam 4"]
    systems = {
        one.system: one
        for direction in DIRECTIONS
        for one in pivot.table.runs(MAIN, direction).values()
        if one.layer == "scones"
    }
    every = [
        Row(label(one), pivot.by_search(pivot.runs(system, DIRECTIONS), NEWS), system)
        for system, one in sorted(
            systems.items(), key=lambda item: (item[1].label_smoothing, item[0])
        )
    ]
    return [
        Grid(heads, rows, groups),
        Grid(heads, every, groups, "Every SCONES system"),
        *converged(pivot),
    ]


def converged(pivot: Pivot) -> Iterator[Grid]:
    """BLEU of the systems that were trained to the end."""
    table, rows = pivot.table, []
    tests = (NEWS, *SETS)
    for direction in table.directions(CONVERGED):
        for run, one in table.runs(CONVERGED, direction).items():
            keys = [
                Key(CONVERGED, direction, run, test, s, "bleu") for test in tests for s in SEARCHES
            ]
            name = f"{direction}, {label(one)}, {one.steps or 0:,} steps"
            rows.append(Row(name, [pivot.cell(key, baseline=SOFTMAX) for key in keys], run))
    if rows:
        heads = list(SEARCHES.values()) * len(tests)
        yield Grid(heads, rows, tests, "Converged: trained to the end, not part of the verdicts")


def other_sets(pivot: Pivot) -> list[Grid]:
    """Table 3 on the test sets that the paper does not have."""
    grids = []
    for test, about in SETS.items():
        there = {
            one.direction for one in pivot.table.numbers if (one.variant, one.set) == (MAIN, test)
        }
        directions = [one for one in DIRECTIONS if one in there]
        rows = pivot.both(test, "bleu", "{:.1f}", directions)
        rows.append(Row("Gain, %", pivot.gains(test, directions, SOFTMAX)))
        grids.append(Grid(directions * 2, rows, ["greedy", "beam 4"], f"{test}: {about}"))
    return grids


def seeds(pivot: Pivot) -> list[Grid]:
    """Several seeds, longer training, and second trainings."""
    table, rows = pivot.table, []
    for direction in DIRECTIONS:
        runs = table.runs(MAIN, direction).values()
        for system in dict.fromkeys(one.system for one in runs if one.run != one.system):
            cells = []
            for search in SEARCHES:
                asked = (NEWS, search, "bleu", system)
                same = [
                    one for one in table.of(MAIN, direction) if (*one.key[3:], one.system) == asked
                ]
                scores = [one.value for one in same]
                text = f"{fmean(scores):.2f} ± {stdev(scores):.2f} ({len(scores)})"
                cells.append(Cell(text, tuple(one.key for one in same)))
            rows.append(Row(f"{direction}, {system}", cells, system))
    searches = list(SEARCHES.values())
    title = "Mean ± standard deviation (seeds), newstest2019"
    return [
        Grid(searches, rows, (), title),
        _beside(pivot, LONGER, "longer", "Trained longer, newstest2019"),
        _beside(pivot, RETRAINED, "again", "Trained once more from the same recipe"),
    ]


def _beside(pivot: Pivot, variant: str, name: str, title: str) -> Grid:
    """Show runs of a variant beside those of the recipes."""
    table, rows = pivot.table, []
    for direction in table.directions(variant):
        for run, one in table.runs(variant, direction).items():
            stored = Key(MAIN, direction, run, NEWS, "", "bleu")
            keys = [stored._replace(search=s, variant=v) for s in SEARCHES for v in (MAIN, variant)]
            first = table.get(keys[0])
            same = first is not None and first.model_digest == one.model_digest
            about = f"{one.steps:,} steps" + (", the same weights, bit by bit" if same else "")
            cells = [pivot.cell(key, "{:.2f}", SOFTMAX) for key in keys]
            rows.append(Row(f"{direction}, {label(one)}, {about}", cells, run))
    return Grid(["stored", name] * 2, rows, list(SEARCHES.values()), title)


def table_4(pivot: Pivot) -> list[Grid]:
    """chrF and TER; BLEURT where it was computed, the paper's beside."""
    grids = []
    for metric, name in (("chrf", "chrF, higher is better"), ("ter", "TER, lower is better")):
        rows = pivot.both(NEWS, metric, "{:.1f}", DIRECTIONS)
        grids.append(Grid([*DIRECTIONS] * 2, rows, ["greedy", "beam 4"], name))
    rows = []
    for row in pivot.both(NEWS, "bleurt", "{:.2f}", DIRECTIONS):
        theirs = pivot.published["bleurt"]
        rows += [row, pivot.paper(*(theirs[search][row.system] for search in SEARCHES))]
    return [*grids, Grid([*DIRECTIONS] * 2, rows, ["greedy", "beam 4"], "BLEURT, not replicated")]


def table_5(pivot: Pivot) -> Grid:
    """The chosen α, and all that it was chosen from."""
    table = pivot.table
    tuned = pivot.runs("tuned", DIRECTIONS)
    alphas = {direction: table.alphas(MAIN, direction) for direction in DIRECTIONS}
    chosen = [
        NOTHING
        if run is None
        else Cell(f"{alphas[direction][run]:g}", (table.dev(MAIN, direction, run).key,), True)  # type: ignore[union-attr]
        for direction, run in tuned.items()
    ]
    rows = [Row("Chosen α", chosen), pivot.paper(pivot.published["chosen"]["alpha"])]
    systems = sorted({run: a for found in alphas.values() for run, a in found.items()}.items())
    for run, name in [*((run, f"α = {alpha:g}") for run, alpha in systems), (SOFTMAX, "softmax")]:
        found = [table.dev(MAIN, direction, run) for direction in DIRECTIONS]
        cells = [
            NOTHING
            if one is None
            else Cell(f"{one.value:.1f}", (one.key,), tuned[one.direction] == run)
            for one in found
        ]
        rows.append(Row(f"BLEU of the development set, {name}", cells, run))
    return Grid(DIRECTIONS, rows)


def table_6(pivot: Pivot) -> list[Grid]:
    """Beam search and exact search."""
    table, published, searches = pivot.table, pivot.published["searched"], ("beam4", "exact")

    def cells(variant: str, directions: Sequence[str], run: str) -> list[Cell]:
        return [
            pivot.cell(Key(variant, direction, run, table.part(variant, direction), search, "bleu"))
            for search in searches
            for direction in directions
        ]

    rows = []
    for run in (SOFTMAX, SMALL, "scones-0.5", "scones-0.7", LARGE):
        name = next((label(one) for one in table.numbers if one.run == run), run)
        rows.append(Row(name, cells(MAIN, DIRECTIONS, run), run))
        if run in published["exact"]:
            rows.append(pivot.paper(*(published[search][run] for search in searches)))
    heads = ["beam 4", "exact search"]
    grids = [Grid([*DIRECTIONS] * 2, rows, heads)]
    there = table.directions(CONVERGED)
    runs = {
        run: one for direction in there for run, one in table.runs(CONVERGED, direction).items()
    }
    more = [Row(label(one), cells(CONVERGED, there, run), run) for run, one in runs.items()]
    title = "Converged: trained to the end, not part of the verdicts"
    return [*grids, Grid(there * 2, more, heads, title)] if more else grids


def table_7(pivot: Pivot) -> Grid:
    """Sentences whose mode is not proved."""
    table, theirs = pivot.table, pivot.published["unfinished"]
    rows = []
    found = [one for one in table.numbers if one.metric == "unproved"]
    places = {(one.variant, one.direction): one for one in found}
    for (variant, direction), one in places.items():
        runs = {o.run: o for o in found if o.key[:2] == (variant, direction)}
        cells = []
        for run in (SOFTMAX, SMALL, "scones-0.5", "scones-0.7", LARGE):
            number, paper = runs.get(run), theirs.get(direction, {}).get(run)
            cells.append(Cell(f"{100 * number.value:.1f}", (number.key,)) if number else NOTHING)
            cells.append(Cell(paper or "–"))
        limit = pivot.cell(one.key._replace(metric="max_states"), "{:,.0f}")
        name = direction if variant == MAIN else f"{direction}, {variant}"
        rows.append(
            Row(
                name.replace("synthetic-", "synthetic, γ = "),
                [*cells, limit, Cell(f"{one.sentences or 0:,}")],
            )
        )
    rows.sort(key=lambda row: (row.label.startswith("synthetic"), row.label.endswith(CONVERGED)))
    heads = [
        one
        for run in ("softmax", "α = 0.2", "α = 0.5", "α = 0.7", "α = 1")
        for one in (run, "paper")
    ]
    return Grid([*heads, "limit of states", "sentences"], rows)


def by_temperature(pivot: Pivot) -> Iterator[Grid]:
    """Claim 9 at each temperature, and with the unproved modes of α = 0.2 as empty ones."""
    heads = ["softmax, beam 4", "exact: softmax", "exact: α = 1", "exact: α = 0.2"]
    heads += ["p, α = 0.2 against softmax", "α = 0.2 is"]
    for variant, worst in product(LANGUAGES, (False, True)):
        rows = []
        for one in temperatures(pivot.table, variant, worst):
            runs = (SOFTMAX, LARGE, SMALL)
            bleu = [f"{one.bleu[run]:.1f} ({one.proved[run]:.1%})" for run in runs]
            said = "ahead of both" if one.ahead > 0 else "not ahead of both"
            said += "" if one.p is not None and one.p < 0.05 else ", within the noise"
            p = "–" if one.p is None else f"{one.p:.3f}"
            here = pivot.table.of(variant, f"synthetic-{one.gamma}")
            said_of = ("exact bleu", "exact unproved")
            keys = tuple(it.key for it in here if f"{it.search} {it.metric}" in said_of)
            shown = (f"{one.beam[SOFTMAX]:.1f}", *bleu, p, said)
            rows.append(Row(f"γ = {one.gamma:g}", [Cell(text, keys) for text in shown]))
        if rows:
            about = ", the unproved modes of α = 0.2 as empty" if worst else ""
            yield Grid(heads, rows, (), f"{LANGUAGES[variant].capitalize()}{about}")


def timed(pivot: Pivot) -> Iterator[Grid]:
    """Speed and BLEU of small beams."""
    table, beams = pivot.table, ("1", "2", "4", "8")
    columns = list(product(("sentences_per_second", "bleu"), beams))
    for variant, direction in product((MAIN, CAPTIONS), DIRECTIONS):
        rows = []
        for run, one in table.runs(variant, direction).items():
            at = Key(variant, direction, run, table.part(variant, direction), "", "")
            keys = [at._replace(search=f"speed.{beam}", metric=name) for name, beam in columns]
            if table.get(keys[0]):
                rows.append(Row(label(one), [pivot.cell(key) for key in keys], run))
        if rows:
            title = direction if variant == MAIN else f"{direction}, captions, one CPU core"
            yield Grid(["greedy", *beams[1:]] * 2, rows, ["sentences a second", "BLEU"], title)


def trainings(pivot: Pivot) -> Grid:
    """How long every model was trained."""
    rows = []
    found = [one for one in pivot.table.numbers if one.metric == "target_tokens"]
    for one in found:
        names = {"target_tokens": "{:,.0f}", "minutes": "{:.0f}", "parameters": "{:,.0f}"}
        cells = [pivot.cell(one.key._replace(metric=name), shown) for name, shown in names.items()]
        about = [Cell(str(one.seed)), Cell(f"{one.steps:,}"), *cells, Cell(one.device)]
        place = one.direction if one.variant == MAIN else f"{one.direction}, {one.variant}"
        rows.append(Row(f"{place}: {one.run}", about, one.system))
    return Grid(["seed", "steps", "target tokens", "minutes", "parameters", "device"], rows)
