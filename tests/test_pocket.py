"""Pocket models: opened by name, made by recipes and by `scones export`, shown by the demo."""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
import torch

import scones
from scones.cli import run
from scones.errors import SconesError
from scones.model import folder as pocket
from scones.model.config import ModelOptions
from scones.model.folder import store_again
from scones.model.transformer import Transformer
from scones.options import from_section, load_recipe
from scones.text.subwords import Subwords

ROOT = Path(__file__).parents[1]
NAMES = ["pocket-de-en", "pocket-en-de"]
PAIRS = ["de-en", "en-de"]
LARGEST = 12_000_000


@pytest.fixture
def shipped(tiny_model, tmp_path, monkeypatch):
    """A package that comes with two models, and a working directory with nothing in it."""
    monkeypatch.setattr(pocket, "POCKET", tmp_path / "package")
    for name in NAMES:
        store_again(tiny_model, tmp_path / "package" / name, "int8", {"name": name})
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "package"


def test_a_model_is_opened_by_its_name(shipped, tea_pairs, capsys):
    assert pocket.pocket_models() == NAMES
    sentences = [source for source, _ in tea_pairs[:5]]
    found = scones.load("pocket-de-en").translate(sentences)
    assert found == scones.load(shipped / "pocket-de-en").translate(sentences)
    assert any(several[0].text for several in found)
    assert run(["info", "pocket-de-en", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["kind"], facts["storage"], facts["name"]) == ("model", "int8", "pocket-de-en")
    assert facts["total_bytes"] == sum(p.stat().st_size for p in (shipped / NAMES[0]).iterdir())


def test_a_folder_of_that_name_goes_first(shipped, tiny_models):
    assert pocket.find_model("pocket-de-en") == shipped / "pocket-de-en"
    shutil.copytree(tiny_models / "softmax", "pocket-de-en")
    assert pocket.find_model("pocket-de-en") == Path("pocket-de-en")
    assert scones.load("pocket-de-en").output.to_config()["layer"] == "softmax"
    assert scones.load("pocket-en-de").output.to_config()["layer"] == "scones"


def test_a_name_that_is_not_known(shipped, monkeypatch):
    known = "the models that come with scones are pocket-de-en, pocket-en-de"
    with pytest.raises(SconesError, match=f"The model folder pocket-fi-en does not exist; {known}"):
        scones.load("pocket-fi-en")
    with pytest.raises(SconesError, match=r"The model folder a/b/pocket-de-en does not exist\.$"):
        scones.load("a/b/pocket-de-en")
    monkeypatch.setattr(pocket, "POCKET", shipped / "nowhere")
    with pytest.raises(SconesError, match="and this copy of scones brings no pocket models"):
        scones.load("pocket-de-en")


def test_the_command_line_makes_a_pocket_model_and_turns_it_back(
    shipped, tiny_model, tmp_path, capsys
):
    Path("card.json").write_text(json.dumps({"limits": ["Knows tea alone."]}))
    small = ["export", str(tiny_model), "small", "--to", "pocket", "--card", "card.json"]
    assert run(small) == 0
    assert re.match(r"small: [\d,]+ weights in int8, 0\.\d\d MB", capsys.readouterr().out)
    assert "Knows tea alone." in Path("small/README.md").read_text()
    assert run(["export", "pocket-de-en", "--to", "huggingface", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["folder"], done["storage"]) == ("pocket-de-en-huggingface", "float32")
    assert Path("pocket-de-en-huggingface/model.safetensors").is_file()


@pytest.mark.parametrize("pair", PAIRS)
def test_the_recipe_makes_a_model_that_fits(pair, monkeypatch):
    monkeypatch.setenv("SCONES_DATA", "/corpora")
    sections = load_recipe(ROOT / f"recipes/pocket/{pair}.toml", "prepare", "model")
    pieces = len(Subwords.load(ROOT / sections["prepare"]["subwords"]))
    with torch.device("meta"):
        model = Transformer(from_section(ModelOptions, sections["model"], "").build(pieces))
    # A byte a weight of a matrix, four a scale or a number of a vector; half a megabyte of pieces.
    parameters = model.parameters()
    size = sum(p.numel() + 4 * len(p) if p.ndim == 2 else 4 * p.numel() for p in parameters)
    assert 0.85 * LARGEST < size + 500_000 < LARGEST


def mirrored(path):
    """The same text for the other direction, of what recipes/pocket/text.sh makes for each."""
    made = re.fullmatch(r"(data/pocket-text/(?:dictionary|typed)/.*)(..)-(..)(\.\w+)", path)
    return made.expand(r"\1\3-\2\4") if made else path


def test_the_recipes_are_each_other_the_other_way_round(monkeypatch):
    monkeypatch.setenv("SCONES_DATA", "/corpora")
    one, other = (
        load_recipe(ROOT / f"recipes/pocket/{pair}.toml", "prepare", "model", "output", "train")
        for pair in PAIRS
    )
    there, back = one.pop("prepare"), other.pop("prepare")
    assert (there["source_language"], there["target_language"]) == ("de", "en")
    starts = [recipe["train"].pop("start_from") for recipe in (one, other)]
    assert starts == [f"runs/start/scones/pocket/pocket-{pair}" for pair in PAIRS]
    assert one == other
    for name in ("source", "target"):
        other_side = {"source": "target", "target": "source"}[name]
        assert there[name] == [mirrored(path) for path in back[other_side]]
        assert there[f"dev_{name}"] == back[f"dev_{other_side}"]
    for name in ("held_out", "times"):
        assert there[name] == back[name]
    assert there["several"] == [mirrored(path) for path in back["several"]]
    sides = dict(
        zip(
            [*there["source"], *there["several"]],
            [*there["target"], *there["several"]],
            strict=True,
        )
    )
    assert [mirrored(sides[path]) for path in there["trusted"]] == back["trusted"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "",
            [
                r"✓ \d+ of 10 are what the list has",
                r"The worst of these 20.*\n  .+ → .+\n    the list has: ",
                r"    0\.\d\d █+ +\S",
                r"\nTry next:",
            ],
        ),
        (
            "Der Tee ist heiß.",
            [r"de → en\n  Der Tee ist heiß\. → The tea is hot\.\n", r"█+ +The tea"],
        ),
        ("The tea is hot, isn't it?", [r"en → de\n  The tea is hot, isn't it\? → .*Tee"]),
    ],
)
def test_the_demo(text, shown):
    done = subprocess.run(
        [sys.executable, ROOT / "recipes" / "pocket" / "demo.py", text],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert all(re.search(part, done.stdout) for part in shown)
    assert "\x1b" not in done.stdout


TEXTS = {
    "pocket-de-en": {
        "Ich muss jetzt gehen.": "I have to leave now.",
        "Guten Morgen!": "Good morning!",
    },
    "pocket-en-de": {
        "I have to leave now.": "Ich muss jetzt gehen.",
        "Good morning!": "Guten Morgen!",
    },
    "tea-scones": {"Er hat die Milch getrunken.": "He drank the milk."},
    "tea-softmax": {"Er hat die Milch getrunken.": "He's drunk the milk."},
}


@pytest.mark.parametrize("name", pocket.pocket_models())
def test_a_model_that_is_shipped_is_small_and_works(name):
    folder = pocket.POCKET / name
    assert sum(path.stat().st_size for path in folder.iterdir()) <= LARGEST
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = patterns["tool"]["setuptools"]["package-data"]["scones"]
    for path in folder.iterdir():  # else a wheel would come without it
        assert any(fnmatch(f"pocket/{name}/{path.name}", pattern) for pattern in patterns)
    card = (folder / "README.md").read_text()
    assert all(f"\n## {title}\n" in card for title in ("Trained on", "Scores", "Limits"))
    found = scones.load(name, "cpu").translate(list(TEXTS[name]))
    assert [best.text for (best,) in found] == list(TEXTS[name].values())


def test_the_readme_says_what_a_shipped_model_finds():
    (found,) = scones.load("pocket-de-en", "cpu").translate(
        ["Vielen Dank für Ihre Hilfe."], search="all"
    )
    readme = (ROOT / "README.md").read_text()
    shown = re.findall(r'([\d.]+) "([^"]+)"', readme[readme.index("It prints ") :])[: len(found)]
    assert [one.text for one in found] == [text for _, text in shown]
    for one, (probability, _) in zip(found, shown, strict=True):  # what runs depends on the CPU
        assert one.probability == pytest.approx(float(probability), abs=0.03)
    assert sum(one.probability or 0.0 for one in found) > 1  # they need not share


@pytest.fixture
def everyday(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "recipes" / "pocket")
    return importlib.import_module("everyday")


def test_what_is_tested_with_is_not_trained_on(everyday, tmp_path):
    everyday.write(tmp_path)
    train = everyday.read_blocks(ROOT / "recipes/pocket/phrasebook/train.txt")
    test = everyday.read_blocks(ROOT / "recipes/pocket/phrasebook/test.txt")
    assert (len(train) > 300, len(test) > 40) == (True, True)
    sets = [
        block
        for pair in PAIRS
        for path in everyday.set_files(pair).values()
        for block in everyday.read_blocks(path)
    ]
    for language in ("de", "en"):
        held_out = {everyday.plain(line) for block in test + sets for line in block.lines[language]}
        assert not held_out & {everyday.plain(x) for block in train for x in block.lines[language]}
    listed = set((tmp_path / "held_out.txt").read_text(encoding="utf-8").split("\n"))
    assert {
        line for block in test + sets for side in block.lines.values() for line in side
    } <= listed
    assert "auf wiedersehen" in listed  # whatever its case and mark
    lengths = {
        path.name: len(path.read_text(encoding="utf-8").split("\n")) for path in tmp_path.iterdir()
    }
    assert lengths["phrasebook.de"] == lengths["phrasebook.en"] > 1000
    assert lengths["grammar.de"] == lengths["grammar.en"] > 5000


@pytest.mark.parametrize("pair", PAIRS)
def test_the_sets_are_whole(everyday, pair):
    source = pair[:2]
    files = everyday.set_files(pair)
    assert len(files) >= 13
    for name, path in files.items():
        blocks = everyday.read_blocks(path)
        assert len(blocks) >= 40, name
        for block in blocks:
            if name == "long":
                assert len(block.lines[source][0].split()) >= 60
            if not block.has:  # the accepted translations keep what must be kept
                assert all(block.kept(line) for line in block.lines[pair[3:]]), block


def test_a_set_is_scored_by_matches_and_by_what_is_kept(everyday, tmp_path):
    (tmp_path / "set.txt").write_text(
        "# a comment\n\nde: Tee, {name}?\nen: Tea, {name}?\nen: Some tea, {name}?\n"
        "keep: {name}\nhas: tea | cuppa\nmost: 3\n\nde: Ja.\nen: Yes.\n"
    )
    tea, yes = everyday.read_blocks(tmp_path / "set.txt")
    assert (tea.matches("some tea, {Name}", "en"), tea.matches("Tea?", "en")) == (True, False)
    assert tea.kept("A cuppa, {name}?")
    assert not any(tea.kept(x) for x in ("Tea, {Name}?", "{name}", "a b Tea {name}"))
    assert (yes.has_checks, tea.has_checks) == (False, True)
    for wrong, message in (
        ("en: Tea.\n", "lacks a language"),
        ("tea\n", "line 1: 'tea' is none of"),
    ):
        (tmp_path / "set.txt").write_text(wrong)
        with pytest.raises(SystemExit, match=message):
            everyday.read_blocks(tmp_path / "set.txt")
