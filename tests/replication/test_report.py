"""The report of made-up results: what a rule says, what is stored, what a reader can follow."""

import csv
import json
import lzma
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pandas")
pytest.importorskip("jinja2")

from replication import claims, significance
from replication.check import check
from replication.claims import contrasts, judge, search_errors, temperatures
from replication.report import write
from replication.significance import BootstrapTest, References, find_tests, holm, mcnemar
from replication.table import DIAL, MAIN, NEWS, Key, Number, Table, read_table
from scones.analysis.tables import texts_digest
from scones.errors import SconesError
from scones.evaluation.metrics import score

WORDS = ["the", "cream", "goes", "on", "a", "scone", "before", "or", "after", "some", "jam", "and"]
SENTENCES = 40


def references(direction):
    draw = random.Random(direction)
    return [" ".join(draw.choices(WORDS, k=10)) for _ in range(SENTENCES)]


def worse(texts, share, seed):
    draw = random.Random(seed)
    return [
        " ".join("clotted" if draw.random() < share else word for word in text.split())
        for text in texts
    ]


def keep(folder, name, texts):
    content = "".join(f"{text}\n" for text in texts).encode()
    (folder / name).write_bytes(lzma.compress(content))
    return name


def write_run(folder, system, share):
    """Write a run that gets this share of the words wrong, greedy somewhat more."""
    direction, alpha = folder.name, system.partition("-")[2]
    tests = {}
    for test in (NEWS, "newstest2018"):
        truth, searches = references(direction), {}
        for search, more in (("greedy", 0.05), ("beam4", 0.0)):
            texts = worse(truth, share + more, f"{test}{search}")
            found = {metric: score(metric, texts, [truth]) for metric in ("bleu", "chrf", "ter")}
            file = keep(folder, f"{system}.{test}.{search}.txt.xz", texts)
            scores = {metric: one.value for metric, one in found.items()}
            signed = {metric: one.signature for metric, one in found.items()}
            about = {"command": "scones translate", "length_ratio": 1.0, "signatures": signed}
            searches[search] = {**about, "file": file, "scores": scores}
        digest = texts_digest(truth)
        tests[test] = {"reference_digest": digest, "sentences": SENTENCES, "searches": searches}
    output = {"layer": "scones", "alpha": float(alpha)} if alpha else {"layer": "softmax"}
    training = {"steps": 9, "recipe": {"model": {"preset": "tiny"}, "train": {}}}
    run = {"name": system, "system": system, "seed": 1, "output": output, "training": training}
    run |= {"commit": "abc", "device": "cpu", "model_digest": "d", "command": "scones train"}
    run |= {"dev": "newstest2018", "tests": tests}
    (folder / f"{system}.json").write_text(json.dumps(run))


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(significance, "RESAMPLES", 300)
    (tmp_path / "data" / "newstest").mkdir(parents=True)
    for direction in ("de-en", "lt-en"):
        folder = tmp_path / "results" / direction
        folder.mkdir(parents=True)
        for system, share in (("softmax", 0.4), ("scones-0.2", 0.35), ("scones-1.0", 0.2)):
            write_run(folder, system, share)
        path = tmp_path / "data" / "newstest" / f"{NEWS}.{direction}.en"
        path.write_text("".join(f"{text}\n" for text in references(direction)))
    return tmp_path / "results"


class TestSignificance:
    def test_a_test_is_made_once_and_kept(self, results):
        table = read_table(results)
        wanted = list(contrasts(table).values())
        made = find_tests(table, wanted, References(results.parent / "data"))
        assert made["claim 1"].low < made["claim 1"].value < made["claim 1"].high
        assert made["claim 1"].p == pytest.approx(2 / 301)
        stored = (results / "tests.json").read_bytes()
        assert find_tests(read_table(results), wanted, None) == made
        find_tests(table, wanted, References(results.parent / "data"))
        assert (results / "tests.json").read_bytes() == stored

    def test_a_test_about_other_translations_does_not_count(self, results):
        table = read_table(results)
        find_tests(table, list(contrasts(table).values()), References(results.parent / "data"))
        write_run(results / "lt-en", "softmax", 0.5)
        other = read_table(results)
        assert "claim 1" not in find_tests(other, list(contrasts(other).values()), None)

    def test_equal_translations_do_not_differ(self, results):
        for direction in ("de-en", "lt-en"):
            write_run(results / direction, "softmax", 0.2)
        table = read_table(results)
        wanted = [contrasts(table)["1"]]
        (found,) = find_tests(table, wanted, References(results.parent / "data")).values()
        assert (found.value, found.p) == (0.0, 1.0)

    def test_other_references_are_refused(self, results):
        path = results.parent / "data" / "newstest" / f"{NEWS}.de-en.en"
        path.write_text("jam\n" * SENTENCES)
        found = References(results.parent / "data")
        number = read_table(results).get(Key(MAIN, "de-en", "softmax", NEWS, "greedy", "bleu"))
        with pytest.raises(SconesError, match="scored with others"):
            found.of(number)

    def test_p_values_are_corrected_for_their_number(self):
        found = holm({"a": 0.01, "b": 0.04, "c": 0.03})
        assert found == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})

    def test_pairs_that_differ_are_tested_exactly(self):
        assert mcnemar(0, 5) == 2 / 2**5
        assert mcnemar(8, 2) == pytest.approx(2 * (1 + 10 + 45) / 2**10)


def made_up(scores, direction="de-en"):
    """Give a table of numbers by "run set search metric" for de-en."""
    numbers = []
    for name, value in scores.items():
        run, test, search, metric = name.split()
        layer, _, rest = run.partition("-")
        smoothing = 0.1 if rest == "ls" else 0.0
        alpha = None if layer == "softmax" else 0.5 if rest == "ls" else float(rest)
        at = (MAIN, direction, run, test, search, metric, value, run, layer, alpha, smoothing)
        numbers.append(Number(*at, sentences=200))
    return Table(Path("none"), tuple(numbers), {})


def outcome(table, number, **tests):
    (found,) = (one for one in judge(table, tests) if one.number == number)
    return found.outcome


class TestRules:
    @pytest.mark.parametrize(
        ("value", "p", "said"),
        [(0.6, 0.001, "confirmed"), (-0.6, 0.001, "opposite"), (0.6, 0.06, "not confirmed")],
    )
    def test_an_effect_needs_its_side_and_its_p_value(self, results, value, p, said):
        table = read_table(results)
        test = BootstrapTest("claim 1", value, value - 0.1, value + 0.1, p, 0.0, ())
        assert outcome(table, "1", **{"claim 1": test}) == said

    def test_p_values_of_all_claims_count_together(self, results):
        known = {
            name: BootstrapTest(name, 1.0, 0.9, 1.1, 0.03, 0.0, ())
            for name in ("claim 1", "claim 3")
        }
        assert outcome(read_table(results), "1", **known) == "not confirmed"

    def test_as_good_means_not_worse_by_more_than_half_a_point(self, results):
        known = contrasts(read_table(results))
        assert known["3"].null == -0.5
        test = BootstrapTest("claim 3", -0.2, -0.4, 0.0, 0.002, known["3"].null, ())
        assert outcome(read_table(results), "3", **{"claim 3": test}) == "confirmed"

    def test_less_data_is_two_groups(self, results):
        terms = contrasts(read_table(results))["2"].terms
        assert {one.direction: one.weight for one in terms} == {"de-en": -0.5, "lt-en": 0.5}

    @pytest.mark.parametrize(
        ("beam2", "bleu2", "said"),
        [(1.5, 30.0, "confirmed"), (0.9, 30.0, "not confirmed"), (0.9, 29.0, "confirmed")],
    )
    def test_speed_is_against_the_cheapest_beam_of_equal_bleu(self, beam2, bleu2, said):
        scores = {}
        for run, search, seconds, bleu in (
            ("scones-1.0", 1, 1.0, 30.0),
            ("softmax", 2, beam2, bleu2),
            ("softmax", 4, 2.0, 30.5),
        ):
            place = f"{run} {NEWS}:200 speed.{search}"
            scores |= {f"{place} sentences_per_second": 1 / seconds, f"{place} bleu": bleu}
            scores |= {f"{place} seconds.{turn}": seconds for turn in range(3)}
        assert outcome(made_up(scores), "4") == said

    def test_a_collapsed_run_decides_nothing(self):
        scores = {f"scones-0.5 {NEWS} greedy bleu": 20.0, f"scones-ls {NEWS} greedy bleu": 0.1}
        assert outcome(made_up(scores), "10") == "not confirmed"
        assert "10" in contrasts(made_up({**scores, f"scones-ls {NEWS} greedy bleu": 19.0}))

    @pytest.mark.parametrize(("p", "said"), [(0.001, "confirmed"), (0.03, "not confirmed")])
    def test_ambiguity_is_judged_by_the_doubled_p_value_of_the_newest_languages(self, p, said):
        scores = {"scones-0.2 s exact p": p, "scones-0.2 s exact floor": 0.4}
        for run, bleu in (("softmax", 0.5), ("scones-1.0", 0.2), ("scones-0.2", 8.0)):
            scores |= {f"{run} s exact bleu": bleu, f"{run} s exact proved": 150}
            scores[f"{run} s beam4 bleu"] = 10.0
        old = made_up({**scores, "scones-0.2 s exact p": 0.5}, direction="synthetic-0.5")
        table = made_up(scores, direction="synthetic-0.5")
        new = tuple(replace(one, variant=DIAL) for one in table.numbers)
        table = replace(table, numbers=(*old.numbers, *new))
        assert (outcome(old, "9"), outcome(table, "9")) == ("not confirmed", said)
        (worst,) = temperatures(table, DIAL, worst=True)
        assert (worst.bleu["scones-0.2"], round(worst.ahead, 1)) == (0.4, -0.1)

    @pytest.mark.parametrize(
        ("proofs", "said"),
        [
            (None, "of about 40 modes that both prove, softmax alone misses about 19, α = 0.2"),
            (30, "of 30 modes that both prove, softmax alone misses 10, α = 0.2 alone 0"),
        ],
    )
    def test_search_errors_are_of_sentences_that_both_prove(
        self, tmp_path, monkeypatch, proofs, said
    ):
        monkeypatch.setattr(claims, "IMPUTATIONS", 50)
        numbers = []
        for run, errors in (("scones-0.2", 1), ("softmax", 20)):
            exact = [f"text {place}" for place in range(40)]
            beam = [f"other {text}" if n < errors else text for n, text in enumerate(exact)]
            for search, texts, known in (
                ("beam64", beam, {"errors.share": errors / 40, "errors.compared": 40, "bleu": 9}),
                ("exact", exact, {"proved": 40}),
                ("beam4", beam, {"bleu": 9}),
            ):
                file = keep(tmp_path, f"{run}.{search}.txt.xz", texts)
                at = (MAIN, "de-en", run, f"{NEWS}:40", search)
                if search == "exact" and proofs:  # of the first ten sentences there are none
                    known |= {f"proof.{place}": place >= 40 - proofs for place in range(40)}
                for metric, value in known.items():
                    numbers.append(Number(*at, metric, value, file=file, digest="d", sentences=40))
        found = search_errors(Table(tmp_path / "none", tuple(numbers), {}), MAIN)
        assert found.p == mcnemar(0, 10 if proofs else 19)
        assert said in found.short


class TestTable:
    def test_a_damaged_file_is_one_sentence(self, results):
        path = results / "de-en" / "softmax.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "tests": 3}))
        with pytest.raises(SconesError, match=r"softmax.json cannot be read as results"):
            read_table(results)

    def test_an_error_of_our_own_is_not_called_damage(self, results, monkeypatch):
        def broken(*_):
            raise KeyError("ours")

        monkeypatch.setattr("replication.tables.summary", broken)
        with pytest.raises(KeyError, match="ours"):
            write(results, results.parent / "out")


def test_every_bleu_cell_can_be_computed_again(results):
    data = results.parent / "data"
    news = [one for one in read_table(results).numbers if (one.set, one.metric) == (NEWS, "bleu")]
    path = data / "newstest" / "newstest2018.{}.en"
    for direction in ("de-en", "lt-en"):
        Path(str(path).format(direction)).write_text("\n".join(references(direction)) + "\n")
    found = list(check(results, data, None))
    assert len(found) == 2 * len(news)
    assert all(one.same for one in found)
    keep(results / "de-en", f"softmax.{NEWS}.greedy.txt.xz", ["jam"] * SENTENCES)
    assert sum(not one.same for one in check(results, data, None)) == 1


def test_a_page_leads_only_to_what_is_there(results):
    out = results.parent / "out"
    written = write(results, out, results.parent / "data")
    assert not written.problems
    page = (out / "index.html").read_text()
    targets = set(re.findall(r'id="([^"]+)"', page))
    for link in re.findall(r'href="([^"]+)"', page):
        if link.startswith("#"):
            assert link[1:] in targets
        elif not link.startswith("https://aclanthology.org/"):
            assert (out / link).exists(), link
    assert "<script" not in page
    cells = list(csv.DictReader((out / "data" / "cells.csv").open()))
    (shown,) = {
        one["shown"]
        for one in cells
        if (one["page"], one["row"], one["column"]) == ("table-3", "Softmax", "de-en, greedy")
    }
    assert f">{shown}</td>" in page
    assert all(one["file"] for one in cells)
