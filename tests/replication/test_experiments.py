"""The experiments at toy size: a direction, replicate, synthetic; recipes, and stored results."""

import json
import re
import shutil
import tomllib
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import pytest
from synthetic_toys import save_ibm3

from replication import directions, replicate, synthetic
from replication.plan import Plan
from replication.results import Direction, choose, score
from scones.errors import SconesError
from scones.evaluation.metrics import bleu
from scones.files import read_json
from scones.text.subwords import Subwords
from tests.cli.running import called, ended_well

ROOT = Path(__file__).parents[2]
STORED = ROOT / "docs" / "results"
TOY = Path(__file__).with_name("toy.toml").read_text()


@pytest.fixture(autouse=True)
def few_processes(monkeypatch):
    """Let jobs be run in this process: starting one takes seconds."""

    def run_here(chains, at_once, say):
        for job in chain.from_iterable(chains):
            if not job.is_done:
                ended_well(*job.command)
                job.end(0)
                say(f"{job.name}: done")

    for module in (directions, replicate, synthetic):
        monkeypatch.setattr(module, "run_all", run_here)


@pytest.fixture
def place(tea_pairs, tmp_path):
    """A folder with a recipe and test sets."""
    for name, pairs in (("little", tea_pairs[:2]), ("news", tea_pairs[2:10])):
        for side, language in enumerate(("de", "en")):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            (tmp_path / f"{name}.{language}").write_text(text)
    (tmp_path / "toy.toml").write_text(TOY)
    return tmp_path


def words(place, store, *more, recipe="toy.toml"):
    command = ["paper", "run", place / recipe, place / "results", "--store", store]
    return [*command, "--runs", place / "runs", "--data", place, "--device", "cpu", *more]


def test_a_direction_from_training_to_speed_and_nothing_twice(place, tiny_store):
    first = ended_well(*words(place, tiny_store, "--system", "softmax", "--until", "translate"))
    assert first.err.endswith("softmax: translation: done\n")
    done = ended_well(*words(place, tiny_store))
    assert "softmax: training" not in done.err
    assert "softmax: search: done" in done.err
    direction = Direction(place / "results" / "de-en")
    assert [run["name"] for run in direction.runs()] == ["softmax", "scones-0.5"]
    references = (place / "news.en").read_text().splitlines()[:6]
    for run in direction.runs():
        assert (run["dev"], run["training"]["steps"]) == ("little", 3)
        for search in ("greedy", "beam4"):
            texts = direction.texts(run["tests"]["news"]["searches"][search]["file"])
            assert score(run, "news", search) == bleu(texts, [references]).value
    for name in ("analysis", "speed"):
        about = direction.read(name) or {}
        assert (about["test"], about["sentences"]) == ("news", 3)
        assert [*about["systems"]] == ["softmax", "scones-0.5"]
        for system in about["systems"].values():
            assert [*system["beams"]] == ["1", "2"]
            assert all(len(direction.texts(row["file"])) == 3 for row in system["beams"].values())
    assert (direction.read("chosen") or {})["system"] == "scones-0.5"
    # Elsewhere, without store and models, all is done; only TER is missing, which needs neither.
    shutil.rmtree(place / "runs")
    assert ended_well(*words(place, place / "gone")).err == ""
    score_words = ["paper", "score", place / "toy.toml", place / "results", "--data", place]
    found = json.loads(ended_well(*score_words, "--jobs", 1, "--json").out)
    assert found["softmax"]["news"]["greedy"].keys() == {"bleu", "chrf", "ter"}
    # What was made otherwise is not put beside it, unless all of it is made again.
    (direction.path("softmax")).unlink()
    refused = called(*words(place, tiny_store, "--max-steps", 2))
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "scones-0.5.json was made with [train] max_steps 3, not 2; give the same" in refused.err
    (place / "other.toml").write_text(TOY.replace("max_states = 20", "max_states = 21"))
    refused = called(*words(place, tiny_store, recipe="other.toml"))
    assert "analysis.json was made with limits max_states 20, not 21" in refused.err
    again = ["--again", "--system", "scones-0.5", "--max-steps", 2, "--until", "translate"]
    ended_well(*words(place, tiny_store, *again))
    assert (direction.run("scones-0.5") or {})["training"]["steps"] == 2


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('role = "dev"', "", r'must have one set with role = "dev", not 0'),
        ('layer = "softmax"', 'layer = "sconse"', r"\[systems\] softmax: .*'sconse' is not known"),
        ('set = "news"', 'set = "new"', "'new' is not a set of"),
        ("sentences = 6", "sentences = 2", "fewer sentences of 'news'"),
        ("beams = [1, 2]", "beams = []", "names no beams"),
        ("max_steps = 3", "max_step = 1", "did you mean 'max_steps'"),
        ("scones-ls", "softmax", "'softmax' is in .left_out. and is also to"),
        ('= "de"', '= "lt"', "was made with direction de-en, not lt-en"),
    ],
)
def test_a_wrong_recipe_is_refused(place, tiny_store, old, new, said):
    assert old in TOY
    (place / "toy.toml").write_text(TOY.replace(old, new))
    done = called(*words(place, tiny_store))
    assert (done.code, done.out) == (2, "")
    assert re.search(said, done.err)
    assert not (place / "runs").exists()


@pytest.mark.parametrize("direction", ["de-en", "en-de", "fi-en", "en-fi", "lt-en", "en-lt"])
def test_nothing_that_is_tested_on_is_trained_on(direction):
    path = ROOT / "recipes" / "paper" / f"{direction}.toml"
    assert Plan.load(path, Path("data")).direction == direction
    recipe = tomllib.loads(path.read_text())
    prepare = recipe["prepare"]
    left_out = {prepare["dev_source"], prepare["dev_target"], *prepare["held_out"]}
    for test in recipe["tests"].values():
        assert {test["source"], test["reference"]} <= left_out
    assert not left_out & {*prepare["source"], *prepare["target"]}


def test_the_best_alpha_has_no_smoothing_and_the_first_seed():
    stored = Direction(STORED / "paper" / "lt-en")
    runs = stored.runs()
    assert choose(runs) == stored.read("chosen")
    assert choose([run for run in runs if run["system"].startswith("softmax")]) is None
    equal = [run for run in runs if run["name"] in ("scones-0.5", "scones-0.2")]
    for run in equal:
        run["tests"][run["dev"]]["searches"]["greedy"]["scores"]["bleu"] = 1.0
    assert (choose(equal) or {})["alpha"] == 0.2


def test_a_file_that_is_no_run_is_told(tmp_path):
    direction = Direction(tmp_path / "de-en")
    direction.write("softmax", {"tests": {}})
    with pytest.raises(SconesError, match=r"softmax.json does not hold the results of a run"):
        direction.runs()


def test_what_two_write_is_not_lost(tmp_path):
    direction = Direction(tmp_path / "de-en")

    def add(name):
        for number in range(20):
            with direction.changed("analysis") as kept:
                kept[f"{name}{number}"] = number

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(add, "ab"))
    assert len(direction.read("analysis") or {}) == 40


@pytest.mark.parametrize(
    ("figures", "tables", "markdown"),
    [
        ("paper/synthetic.json", "synthetic/synthetic.md", synthetic.markdown),
        ("multi30k.json", "multi30k.md", replicate.markdown),
    ],
)
def test_stored_tables_are_those_of_the_stored_figures(figures, tables, markdown):
    assert markdown(read_json(STORED / figures)) == (STORED / tables).read_text()


def test_replicate_compares_both_layers_over_seeds(place, tiny_store):
    command = ["replicate", tiny_store, place / "runs", "--recipe", place / "toy.toml"]
    command += ["--source", place / "news.de", "-r", place / "news.en", "--device", "cpu"]
    command += ["--alpha", 0.5, "--tuning-seed", 9, "--seed", 1]
    done = ended_well(*command)
    assert done.err.count("training: done") == 3
    result = json.loads((place / "runs" / "replication.json").read_text())
    assert (result["alpha"], result["seeds"][0]["seed"]) == (0.5, 1)
    assert done.out == (place / "runs" / "replication.md").read_text() + "\n"
    again = ended_well(*command, "--json")
    assert again.err == "seed 1: tested\n"
    assert json.loads(again.out)["dev_bleu_by_alpha"] == result["dev_bleu_by_alpha"]


def test_synthetic_languages_are_sampled_trained_and_searched(place, tiny_store, tiny_subwords):
    model = save_ibm3(place / "toy.ibm3", Subwords(tiny_subwords))
    out = place / "out"
    flags = ["--source", place / "news.de", "--recipe", place / "toy.toml", "--device", "cpu"]
    flags += ["--pairs", 100, "--sentences", 3, "--max-states", 20, "--max-memory", 0.5]
    command = ["synthetic", tiny_store, model, out, *flags, "--temperature", 1]
    assert ended_well(*command, "--until", "sample").out == ""
    refused = called(*command, "--until", "sample", "--seed", 2)
    assert "gamma-1.0/language was made with seed 1, not 2; give the same" in refused.err
    ended_well(*command, "--alpha", 0.2)
    # Another α stands beside what is there; neither store nor model is needed any more.
    done = ended_well("synthetic", "no-store", "no-model", *command[3:], "--alpha", 0.5, "--json")
    figures = json.loads(done.out)
    assert figures == json.loads((out / "synthetic.json").read_text())
    row = figures["temperatures"]["1.0"]
    assert [*row["systems"]] == ["softmax", "scones-0.2", "scones-0.5"]
    one = row["systems"]["scones-0.5"]
    assert (row["sentences"], one["training"]["steps"]) == (3, 3)
    assert one["floor"]["bleu"] <= one["exact"]["outputs"]["bleu"]
    assert (out / "synthetic.md").read_text().count("| γ = ") == 3
    refused = called(*command, "--alpha", 0.7, "--max-steps", 2)
    assert (
        "scones-0.7.search.done.json was made with budget --max-steps 2, not nothing" in refused.err
    )


@pytest.mark.parametrize("name", ["paper", "replicate", "synthetic"])
def test_an_installation_says_where_the_experiments_are(name, monkeypatch, tmp_path):
    monkeypatch.setattr("scones.cli.replication._ROOT", tmp_path)
    done = called(name, "run", "recipe", "--jobs", 6)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "clone the repository" in done.err
