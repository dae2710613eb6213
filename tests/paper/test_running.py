"""The recipes of the paper's experiments; the whole way is in tests/cli/test_paper_run.py."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from scones.errors import SconesError
from scones.paper.plan import Plan
from scones.paper.report.published import DIRECTIONS

RECIPES = Path(__file__).parents[2] / "recipes" / "paper"
SETS = {
    "de": ("newstest2018", ["europarl", "msdocs"]),
    "fi": ("newstest2018", ["msdocs", "tatoeba"]),
    "lt": ("newsdev-ntrex", ["msdocs", "tatoeba"]),
}
"""By the language that is not English: the development set, and tests besides newstest2019."""
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
    assert found.shown(found.sets["dev"].source) == "dev.de"
    assert found.shown(Path("/else/where/news/test.de")) == "news/test.de"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (', role = "dev"', "", r'must have one set with role = "dev", not 0'),
        ('layer = "softmax"', 'layer = "sconse"', r"\[systems\] softmax: .*'sconse' is not known"),
        ('[search]\nset = "test"', '[search]\nset = "tset"', "'tset' is not a set of"),
        ('"test.en" }', '"test.en", sentences = 99 }', "200 sentences of 'test' .* cuts to 99"),
        ("[speed]", "[sped]", "'sped' is not a section"),
        ("[speed]", "[speed]\nbeams = [1, -2]", r"\[speed\]: beams must be above 0, not -2"),
        ("[speed]", "[speed]\nbeams = []", r"\[speed\] names no beams"),
        ("[speed]", "[train]\nmax_step = 1\n[speed]", "did you mean 'max_steps'"),
    ],
)
def test_a_wrong_recipe_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in TOY
    with pytest.raises(SconesError, match=said):
        plan(tmp_path, TOY.replace(old, new))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_recipes_of_the_project(direction: str) -> None:
    """Nothing that is tested on is trained on, and texts are of the language they should be."""
    found = Plan.load(RECIPES / f"{direction}.toml", Path("data"))
    assert found.direction == direction
    dev, tests = SETS[(set(found.languages) - {"en"}).pop()]
    assert [*found.sets] == [dev, "newstest2019", *tests]
    assert (found.dev, found.search and found.search.set) == (dev, "newstest2019")
    for test in found.sets.values():
        assert test.source.name.endswith(f".{found.languages[0]}.xz")
        assert test.reference.name.endswith(f".{found.languages[1]}.xz")
    recipe = tomllib.loads((RECIPES / f"{direction}.toml").read_text())
    prepare = recipe["prepare"]
    left_out = {prepare["dev_source"], prepare["dev_target"], *prepare["held_out"]}
    for test in recipe["tests"].values():
        assert {test["source"], test["reference"]} <= left_out
    assert not left_out & {*prepare["source"], *prepare["target"]}
