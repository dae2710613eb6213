"""`scones creamtea` and `scones prepare`: flags, recipes, and a store turned round."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import Refused, Scones

from scones.text.store import TokenStore


def test_creamtea_writes_a_corpus_with_all_translations(tea: Path) -> None:
    parts = [f"{part}.{language}" for part in ("dev", "test", "train") for language in ("de", "en")]
    assert sorted(path.name for path in tea.iterdir()) == sorted([*parts, "dev.json", "test.json"])
    judged = json.loads((tea / "test.json").read_text())
    assert [entry["source"] for entry in judged] == (tea / "test.de").read_text().splitlines()
    for entry, reference in zip(judged, (tea / "test.en").read_text().splitlines(), strict=True):
        assert reference in entry["references"]
        assert not {*entry["references"]} & {*entry["near_misses"]}


def test_creamtea_says_in_json_what_it_wrote(tmp_path: Path, scones: Scones) -> None:
    sizes = {"train": 6, "dev": 2, "test": 3, "seed": 5}
    flags = [word for name, number in sizes.items() for word in (f"--{name}", number)]
    done = scones("creamtea", tmp_path / "tea", *flags, "--json")
    assert json.loads(done.out) == {"folder": str(tmp_path / "tea"), **sizes}


RECIPE = """
[prepare]
source_language = "de"
target_language = "en"
source = "${CORPUS}/train.de"
target = ["${CORPUS}/train.en"]
pieces = 281
workers = 1

[prepare.cleaning]
identify_language = false
max_words = 3
"""


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pairs = [
        ("der Tee ist heiß", "the tea is hot"),
        ("der Rahm ist kalt", "the cream is cold"),
        ("der Tee ist heiß", "the tea is hot"),
        ("[red]", "[red]"),
    ]
    for column, ending in enumerate(("de", "en")):
        lines = "".join(f"{pair[column]}\n" for pair in pairs)
        (tmp_path / f"train.{ending}").write_text(lines)
    monkeypatch.setenv("CORPUS", str(tmp_path))
    return tmp_path


def _flags(folder: Path) -> list[object]:
    files = ["--source", folder / "train.de", "--target", folder / "train.en"]
    return [*files, "-s", "de", "-t", "en", "--any-language", "--workers", 1, "--pieces", 283]


def test_flags_make_a_store_and_a_table(corpus: Path, scones: Scones) -> None:
    done = scones("prepare", corpus / "store", *_flags(corpus))
    assert done.code == 0, done.err
    assert len(TokenStore.open(corpus / "store").split("train")) == 2
    assert "the same pair was there before" in done.out
    assert "[red] | [red] (4)" in done.out  # not taken for a colour
    assert "clean: 4 pairs" in done.err


def test_json_is_all_that_standard_output_gets(corpus: Path, scones: Scones) -> None:
    done = scones("prepare", corpus / "store", *_flags(corpus), "--json", "--keep-duplicates")
    report = json.loads(done.out)
    assert (report["pairs_read"], report["pairs_kept"]) == (4, 3)
    assert report["options"]["cleaning"]["drop_duplicates"] is False


def test_flags_win_over_the_recipe(corpus: Path, scones: Scones) -> None:
    (corpus / "recipe.toml").write_text(RECIPE)
    flags = ["--recipe", corpus / "recipe.toml", "--pieces", 282, "--max-words", 50]
    done = scones("prepare", corpus / "store", *flags)
    assert done.code == 0, done.err
    store = TokenStore.open(corpus / "store")
    assert len(store.subwords) == 282
    assert len(store.split("train")) == 2


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("pieces =", "peices =", "'peices' is not known .did you mean 'pieces'"),
        ("max_words", "max_word", r"section \[prepare\]\.cleaning: 'max_word' is not known"),
        ("workers = 1", 'workers = "two"', "'workers' must be a whole number"),
        ("workers = 1", "workers = 0", "workers must be at least 1, not 0"),
        ("[prepare.cleaning]", "cleaning = 3\n[train]", "'cleaning' must be a section of its own"),
        ('source_language = "de"', "", "'source_language' is missing"),
    ],
)
def test_a_wrong_recipe_is_refused(
    corpus: Path, refused: Refused, old: str, new: str, said: str
) -> None:
    (corpus / "recipe.toml").write_text(RECIPE.replace(old, new))
    refused("prepare", corpus / "store", "--recipe", corpus / "recipe.toml", said=said)


def test_a_store_is_turned_round(corpus: Path, scones: Scones, refused: Refused) -> None:
    assert scones("prepare", corpus / "de-en", *_flags(corpus)).code == 0
    done = scones("prepare", corpus / "en-de", "--reversed", corpus / "de-en")
    assert "en → de, the 2 training pairs of" in done.out
    assert TokenStore.open(corpus / "en-de").report["source_language"] == "en"
    done = scones("prepare", corpus / "other", "--reversed", corpus / "de-en", "--json")
    assert json.loads(done.out)["target_language"] == "de"
    for more, said in (
        (_flags(corpus), "leave out --source-language"),
        (["--keep-duplicates"], "leave out --drop-duplicates"),
        (["--recipe", "a.toml"], "leave out --recipe"),
    ):
        refused("prepare", corpus / "third", "--reversed", corpus / "de-en", *more, said=said)
