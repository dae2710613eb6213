"""The recipes of the paper's experiments; the whole way is in tests/cli/test_paper_run.py."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from scones.errors import SconesError
from scones.files import write_json
from scones.paper.plan import Plan
from scones.paper.running import corpora_report
from scones.text.store import TokenStore

RECIPES = Path(__file__).parents[2] / "recipes" / "paper"
TOY = """
[prepare]
source_language = "de"
target_language = "en"
[systems]
softmax = { layer = "softmax" }
[tests]
dev = { source = "${SCONES_DATA}/dev.de", reference = "${SCONES_DATA}/dev.en", role = "dev" }
test = { source = "test.de", reference = "test.en" }
[search]
set = "test"
[speed]
set = "test"
"""


def plan(folder: Path, text: str = TOY) -> Plan:
    (folder / "toy.toml").write_text(text)
    return Plan.load(folder / "toy.toml", folder / "data")


def test_a_recipe_is_read(tmp_path: Path) -> None:
    found = plan(tmp_path)
    assert (found.direction, found.dev, found.first_seed) == ("de-en", "dev", 1)
    assert found.sets["dev"].source == tmp_path / "data" / "dev.de"
    assert found.run("softmax").name == "softmax"
    assert found.run("softmax", 5).name == "softmax-seed5"
    assert found.search is not None
    assert found.search.beams[-1] == 1000
    assert found.shown(found.sets["dev"].source) == "dev.de"
    assert found.shown(Path("/else/where/news/test.de")) == "news/test.de"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (', role = "dev"', "", r'must have one set with role = "dev", not 0'),
        ("softmax = {", "sconse = {", "has no system 'softmax'; there are sconse"),
        ('layer = "softmax"', 'layer = "sconse"', r"\[systems\] softmax: .*'sconse' is not known"),
        ('[search]\nset = "test"', '[search]\nset = "tset"', "'tset' is not a set of"),
        ('"test.en" }', '"test.en", rule = 1 }', r"\[tests\] test: 'rule' is not known"),
        ('{ layer = "softmax" }', '"softmax"', r"\[systems\].*softmax"),
        ('source_language = "de"', "", "'source_language' is missing"),
        ("[speed]", "[sped]", "'sped' is not a section"),
        ("[speed]", "[train]\nmax_step = 1\n[speed]", "did you mean 'max_steps'"),
    ],
)
def test_a_wrong_recipe_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in TOY
    with pytest.raises(SconesError, match=said):
        plan(tmp_path, TOY.replace(old, new))


@pytest.mark.parametrize("direction", ["de-en", "en-de"])
def test_the_recipes_of_the_project(direction: str) -> None:
    found = Plan.load(RECIPES / f"{direction}.toml", Path("data"))
    assert found.direction == direction
    assert [*found.sets] == ["newstest2018", "newstest2019", "europarl", "msdocs"]
    assert found.dev == "newstest2018"
    assert f"newstest2019.{direction}." in found.sets["newstest2019"].source.name
    for test in found.sets.values():
        assert test.source.name.endswith(f".{found.languages[0]}.xz")
        assert test.reference.name.endswith(f".{found.languages[1]}.xz")


def test_both_directions_differ_in_nothing_but_the_direction() -> None:
    there, back = (tomllib.loads((RECIPES / f"{d}.toml").read_text()) for d in ("de-en", "en-de"))
    assert {**there["search"], "beams": 0} == {**back["search"], "beams": 0}
    assert there["prepare"]["source"] == back["prepare"]["target"]
    assert there["prepare"]["held_out"] == back["prepare"]["held_out"]
    for section in ("model", "train", "systems", "speed"):
        assert there[section] == back[section]


@pytest.mark.parametrize("direction", ["de-en", "en-de"])
def test_nothing_that_is_tested_on_is_trained_on(direction: str) -> None:
    recipe = tomllib.loads((RECIPES / f"{direction}.toml").read_text())
    prepare = recipe["prepare"]
    dev = {prepare["dev_source"], prepare["dev_target"]}
    tested = {
        path for test in recipe["tests"].values() for path in (test["source"], test["reference"])
    }
    assert tested <= dev | {*prepare["held_out"]}
    assert not (dev | {*prepare["held_out"]}) & {*prepare["source"], *prepare["target"]}


def test_a_corpus_is_reported_without_sentences_or_places(tmp_path: Path, tiny_store: Path) -> None:
    store = TokenStore.open(tiny_store)
    store.path = tmp_path
    data = tmp_path / "data"
    write_json(
        tmp_path / "report.json",
        {
            "pairs_read": 5,
            "corpora": [
                {
                    "source": str(data / "europarl" / "train.de"),
                    "target": "/else/where/train.en",
                    "pairs_kept": 4,
                    "examples": {"short": [{"source": "Ein Satz."}]},
                }
            ],
            "options": {"pieces": 99, "source": [str(data)], "held_out": [str(data / "test.de")]},
        },
    )
    assert corpora_report(store, plan(tmp_path)) == {
        "pairs_read": 5,
        "corpora": [
            {"source": "europarl/train.de", "target": "where/train.en", "pairs_kept": 4},
        ],
        "options": {"pieces": 99, "held_out": ["test.de"]},
    }
