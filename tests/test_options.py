"""Recipes: what is read, and what is said about a file that does not fit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from scones.errors import SconesError
from scones.model.config import ModelOptions
from scones.options import (
    REQUIRED,
    Given,
    from_section,
    load_recipe,
    option,
    out_of_bounds,
)
from scones.outputs import output_layer
from scones.text.prepare import PrepareConfig
from scones.training.options import TrainOptions

FOLDER = Path(__file__).parents[1] / "recipes"
RECIPES = sorted([*FOLDER.glob("*.toml"), *FOLDER.glob("pocket/*.toml")])


@dataclass(frozen=True)
class Baking:
    """A section of a made-up recipe."""

    oven: Literal["gas", "fan"]
    minutes: int = option(12, "how long")
    degrees: float = option(220.0, "how hot")
    jam_first: bool = option(False, "which comes first")
    fillings: list[str] = option(["jam"], "what goes in")
    tray: Path | None = option(None, "where they lie")


@dataclass(frozen=True)
class Party:
    """One whose options hold others."""

    guests: int = option(REQUIRED, "how many", least=1)
    baking: Baking = option(REQUIRED, "what there is")
    shares: list[float] = option([], "who gets how much", above=0)
    jam: float = option(0.5, "of it all", least=0, below=1)


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(
        '[prepare]\nsource = ["${FLOUR}/a.de", "b.de"]\ntarget = "${FLOUR}-${FLOUR}"\n'
        '[model]\nsize = 32\n[train]\nstart_from = "${BUTTER}/model"\n',
        encoding="utf-8",
    )
    return path


def test_only_the_named_sections_are_given(recipe, monkeypatch):
    monkeypatch.delenv("FLOUR", raising=False)
    monkeypatch.delenv("BUTTER", raising=False)
    assert load_recipe(recipe, "model", "output") == {"model": {"size": 32}, "output": {}}


def test_variables_are_expanded_in_strings_and_lists(recipe, monkeypatch):
    monkeypatch.setenv("FLOUR", "/mill")
    monkeypatch.delenv("BUTTER", raising=False)
    section = load_recipe(recipe, "prepare")["prepare"]
    assert section == {"source": ["/mill/a.de", "b.de"], "target": "/mill-/mill"}
    with pytest.raises(SconesError, match=r"recipe\.toml uses \$\{BUTTER\}, which is not set"):
        load_recipe(recipe, "model", "train")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"[model\nsize = 3", "recipe.toml is not valid TOML"),
        (b"[model]\nsize = 3\nsize = 4", "recipe.toml is not valid TOML"),
        (b"\xff\xfe", "recipe.toml is not valid TOML"),
        (b"[models]\nsize = 3", r"'models' is not a section of a recipe; there are \[prepare\], "),
        (b"size = 3", "'size' is not a section of a recipe"),
        (b"model = 3", "'model' is not a section of a recipe"),
    ],
)
def test_a_file_that_is_no_recipe_is_refused(content, sentence, tmp_path):
    (tmp_path / "recipe.toml").write_bytes(content)
    with pytest.raises(SconesError, match=sentence):
        load_recipe(tmp_path / "recipe.toml", "model")


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(SconesError, match=r"The recipe .*nowhere\.toml does not exist"):
        load_recipe(tmp_path / "nowhere.toml", "model")
    with pytest.raises(SconesError, match="cannot be read"):
        load_recipe(tmp_path, "model")


def test_a_section_fills_a_dataclass():
    section = {"oven": "fan", "degrees": 200, "fillings": "cream", "tray": "tin"}
    baking = from_section(Baking, section, "here")
    assert baking == Baking("fan", 12, 200.0, False, ["cream"], Path("tin"))
    assert isinstance(baking.degrees, float)
    from_section(Baking, {"oven": "gas"}, "here").fillings.append("cream")  # no default is shared
    assert from_section(Baking, {"oven": "gas"}, "here").fillings == ["jam"]


def test_all_problems_are_said_at_once():
    section = {"oven": "wood", "minuts": 3, "jam_first": 1, "fillings": ["jam", 3], "tray": 7}
    with pytest.raises(SconesError) as caught:
        from_section(Baking, section, "scones.toml [bake]")
    assert str(caught.value) == (
        "scones.toml [bake]: 'oven' must be one of 'gas', 'fan', not 'wood'; "
        "'minuts' is not known (did you mean 'minutes'?); "
        "'jam_first' must be true or false, not 1; "
        "'fillings' must be a list, each a text, not ['jam', 3]; "
        "'tray' must be a path, not 7."
    )
    with pytest.raises(SconesError, match="here: 'oven' is missing"):
        from_section(Baking, {}, "here")


@pytest.mark.parametrize("value", [True, 1.0, "12", None, [12]])
def test_only_a_whole_number_is_a_whole_number(value):
    with pytest.raises(SconesError, match="'minutes' must be a whole number"):
        from_section(Baking, {"oven": "gas", "minutes": value}, "here")


def test_what_was_given_wins_over_a_section_also_inside_it():
    given = Given(Party, {"guests": 3, "baking": {"minutes": 9}})
    section = {"guests": 2, "baking": {"oven": "gas", "minutes": 8, "degrees": 180}}
    assert given.over(section, "here") == Party(3, Baking("gas", 9, 180.0))
    with pytest.raises(SconesError, match=r"here\.baking: 'oven' is missing"):
        given.over({}, "here")
    with pytest.raises(SconesError, match="'baking' must be a section of its own, not 3"):
        from_section(Party, {"guests": 1, "baking": 3}, "here")


def test_bounds_are_checked_of_each_value():
    party = Party(0, Baking("gas"), [1.0, float("nan"), 0.25], 2.0)
    assert out_of_bounds(party) == [
        "guests must be at least 1, not 0",
        "shares must be above 0, not nan",
        "jam must be in [0, 1), not 2.0",
    ]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_fills_its_dataclasses(path, monkeypatch):
    monkeypatch.setenv("SCONES_DATA", "/corpora")
    sections = load_recipe(path, "prepare", "model", "output", "train")
    if prepare := sections["prepare"]:
        from_section(PrepareConfig, prepare, "[prepare]").validate()
    from_section(ModelOptions, sections["model"], "[model]").build(vocabulary=8000)
    output_layer(sections["output"], "[output]")
    from_section(TrainOptions, sections["train"], "[train]")
