"""The tables of the report: every number has an origin, and nothing is invented."""

from __future__ import annotations

import dataclasses
import re
import shutil
import statistics
from pathlib import Path

from report_toys import FIRST, document, row, table

from scones.paper.report.document import Document
from scones.paper.report.references import References
from scones.paper.report.significance import find_marks
from scones.paper.report.study import NEWS, Study
from scones.paper.results import LONGER, RETRAINED, Results


def test_every_number_of_ours_has_its_origin(whole: Document) -> None:
    found = whole
    for one in found.tables():
        for line in one.rows:
            assert len(line.cells) == len(one.heads) - 1, one.key
            for cell in line.cells:
                if cell.kind == "ours" and cell.about != "of the rows above":
                    assert cell.origin is not None, (one.key, line.label)
                elif cell.kind == "plain":
                    assert not re.search(r"\d", cell.text), (one.key, line.label, cell.text)
    for origin in found.origins():
        known = origin.everything
        assert origin.file
        if "corpora" not in origin.key:
            assert any("scones " in fact for fact in known.values()), origin
            assert known["commit"]


def test_scores_are_the_stored_ones(whole: Document, toys: Path) -> None:
    results = Results(toys / "results")
    found = whole
    for test in ("newstest2019", "europarl", "msdocs"):
        one = table(found, f"table-3-{test}")
        places = [place for place, head in enumerate(one.heads[1:]) if head == "de-en"]
        for label, name in (("Softmax", "softmax"), ("SCONES, tuned α", "scones-0.5")):
            run = results.direction("de-en").run(name)
            assert run is not None
            expected = [f"{run.score(test, search):.1f}" for search in ("greedy", "beam4")]
            assert [row(one, label).cells[place].text for place in places] == expected


def test_what_was_not_run_says_so_and_why(whole: Document) -> None:
    found = whole
    cells = row(table(found, "table-3-newstest2019"), "Softmax").cells
    assert [cell.kind for cell in cells[:6]] == ["ours", "ours", *["missing"] * 4]
    assert cells[2].text == "not run"
    assert "fi-en, en-fi, lt-en, en-lt: no results yet" in table(found, "table-3-msdocs").reasons
    reasons = table(found, "table-3-msdocs").reasons
    assert "en-de: softmax: not translated yet" in reasons
    assert "en-de: softmax-ls: not trained yet" in reasons
    assert "en-de: scones-ls: no jam" in reasons
    assert "en-de: speed: no cream" in table(found, "speed-shares").reasons
    assert table(found, "table-3-europarl").heads == ["", "de-en", "en-de", "de-en", "en-de"]
    others = ["fi-en", "en-fi", "lt-en", "en-lt"]
    assert table(found, "table-3-tatoeba").heads == ["", *others, *others]
    assert "europarl" in dict(table(found, "seeds-de-en").groups)
    assert "tatoeba" not in dict(table(found, "seeds-de-en").groups)


def test_seeds_have_mean_and_deviation(whole: Document, toys: Path) -> None:
    runs = Results(toys / "results").direction("de-en").runs()
    scores = [run.score("newstest2019", "greedy") or 0.0 for run in runs if run.system == "softmax"]
    assert len(scores) == 3
    cell = row(table(whole, "seeds-de-en"), "softmax, mean of 3").cells[0]
    assert cell.text == f"{statistics.fmean(scores):.1f} ± {statistics.stdev(scores):.1f}"


def test_what_was_trained_again_stands_beside_the_first(copy: Path) -> None:
    assert table(document(copy), "retrained").reasons
    stored = Results(copy).direction("de-en").run("softmax")
    assert stored is not None
    news = {NEWS: stored.tests[NEWS]}
    again = Results(copy).apart(RETRAINED).direction("de-en")
    again.write_run(dataclasses.replace(stored, tests=news))
    (found,) = table(document(copy), "retrained").rows
    assert found.label == f"de-en, softmax: {NEWS}"
    first, second, *_, weights = found.cells
    assert first.text == second.text == f"{stored.score(NEWS, 'greedy', 'bleu'):.1f}"
    assert first.origin
    assert second.origin
    assert second.origin.file == f"retrained/{first.origin.file}"
    assert first.origin.anchor != second.origin.anchor
    assert weights.text == "the same, bit by bit"
    again.write_run(dataclasses.replace(stored, tests=news, model_digest="another"))
    (found,) = table(document(copy), "retrained").rows
    assert found.cells[-1].text == "others"


def test_what_was_trained_longer_stands_beside_the_recipe(copy: Path) -> None:
    stored = Results(copy).direction("de-en")
    longer = Results(copy).apart(LONGER).direction("de-en")
    softmax = stored.run("softmax")
    assert softmax is not None
    for name in ("softmax", "scones-0.5"):  # both with the translations of softmax
        run = stored.run(name)
        assert run is not None
        training = {**run.training, "steps": 30_000}
        longer.write_run(dataclasses.replace(run, training=training, tests=softmax.tests))
    for path in stored.folder.glob("softmax.*.txt.xz"):
        shutil.copy(path, longer.folder)
    marks = find_marks(Study(Results(copy)), References(copy.parent / "data"))
    whole = document(copy, marks)
    found = table(whole, "longer-de-en")
    assert "12,346 steps" in found.caption
    assert "30,000" in found.caption
    assert "α = 0.5; longer α = 0.5 (no other was trained)" in found.caption
    assert [line.label.split(": ")[1] for line in found.rows[:3]] == [
        "Softmax",
        "SCONES (α = 0.5)",
        "gain of tuned SCONES, %",
    ]
    first = stored.run("scones-0.5")
    assert first is not None
    recipe, more = row(found, f"{NEWS}: SCONES (α = 0.5)").cells[:2]
    assert recipe.text == f"{first.score(NEWS, 'greedy'):.1f}‡"
    assert more.text == f"{softmax.score(NEWS, 'greedy'):.1f}"
    assert more.origin
    assert more.origin.file == f"longer/de-en/softmax.{NEWS}.greedy.txt.xz"
    gains = row(found, f"{NEWS}: gain of tuned SCONES, %").cells
    assert {cell.text for cell in gains[1::2]} == {"+0.0"}
    known = row(table(whole, f"table-3-{NEWS}"), "Gain of tuned SCONES, %").cells
    assert gains[0].text == known[0].text
    assert ("de-en trained longer", "longer-de-en") in table(whole, "claims").rows[0].cells[
        -1
    ].links
    trained = [line.label for line in table(whole, "every-training").rows]
    assert "longer/de-en, softmax" in trained


def test_speed_up_is_split_into_beam_and_output_layer(whole: Document) -> None:
    found = table(whole, "speed-shares")
    first = [line.cells[0].text for line in found.rows]
    assert first[0] == "3.12×"
    assert first[1] == "3.9×"
    assert first[3:5] == ["2.50×", "1.25×"]


def test_exact_search_stands_beside_beam_search(whole: Document, toys: Path) -> None:
    analysis = Results(toys / "results").direction("de-en").analysis
    assert analysis is not None
    exact = analysis["systems"]["softmax"]["exact"]
    found = whole
    assert (
        row(table(found, "table-6"), "Softmax").cells[6].text == f"{exact['outputs']['bleu']:.1f}"
    )
    cells = row(table(found, "table-7"), "de-en, Softmax").cells
    assert [cell.text for cell in cells] == ["10.00 %", f"{FIRST}", "123,456", "–"]
    cells = row(table(found, "table-7"), "synthetic, γ = 0.1, SCONES (α = 0.2)").cells
    assert [cell.text for cell in cells] == ["4.32 %", "77", "654,321", "0.55 %"]
