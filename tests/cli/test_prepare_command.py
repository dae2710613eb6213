from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from scones.cli.prepare import prepare
from scones.errors import SconesError
from scones.text.store import TokenStore


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    pairs = [
        ("der Tee ist heiß", "the tea is hot"),
        ("der Rahm ist kalt", "the cream is cold"),
        ("der Tee ist heiß", "the tea is hot"),
        ("[red]", "[red]"),
    ]
    for column, ending in enumerate(("de", "en")):
        lines = "".join(f"{pair[column]}\n" for pair in pairs)
        (tmp_path / f"train.{ending}").write_text(lines)
    return tmp_path


def _run(*arguments: object) -> Result:
    app = typer.Typer()
    app.command()(prepare)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def _flags(folder: Path, pieces: int = 283) -> list[object]:
    files = ["--source", folder / "train.de", "--target", folder / "train.en"]
    return [*files, "-s", "de", "-t", "en", "--any-language", "--workers", 1, "--pieces", pieces]


def test_flags_make_a_store_and_a_table(corpus: Path) -> None:
    result = _run(corpus / "store", *_flags(corpus))
    assert result.exit_code == 0, result.output
    assert len(TokenStore.open(corpus / "store").split("train")) == 2
    assert "the same pair was there before" in result.stdout
    assert "[red] | [red] (4)" in result.stdout  # not taken for a colour
    assert "clean: 4 pairs" in result.stderr


def test_json_is_all_that_standard_output_gets(corpus: Path) -> None:
    result = _run(corpus / "store", *_flags(corpus), "--json", "--keep-duplicates")
    report = json.loads(result.stdout)
    assert (report["pairs_read"], report["pairs_kept"]) == (4, 3)
    assert report["options"]["cleaning"]["drop_duplicates"] is False


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


def test_flags_win_over_the_recipe(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS", str(corpus))
    (corpus / "recipe.toml").write_text(RECIPE)
    flags = ["--recipe", corpus / "recipe.toml", "--pieces", 282, "--max-words", 50]
    result = _run(corpus / "store", *flags)
    assert result.exit_code == 0, result.output
    store = TokenStore.open(corpus / "store")
    assert len(store.subwords) == 282
    assert len(store.split("train")) == 2


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("pieces =", "peices =", "'peices' is not known .did you mean 'pieces'"),
        ("max_words", "max_word", r"section \[prepare\]\.cleaning: 'max_word' is not known"),
        ("workers = 1", 'workers = "two"', "'workers' must be a whole number"),
        ("[prepare.cleaning]", "cleaning = 3\n[train]", r"must be a section \[prepare\.cleaning\]"),
    ],
)
def test_a_wrong_recipe_is_refused(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, message: str
) -> None:
    monkeypatch.setenv("CORPUS", str(corpus))
    (corpus / "recipe.toml").write_text(RECIPE.replace(old, new))
    result = _run(corpus / "store", "--recipe", corpus / "recipe.toml")
    assert isinstance(result.exception, SconesError)
    with pytest.raises(SconesError, match=message):
        raise result.exception
    assert not (corpus / "store").exists()


def test_a_missing_language_is_named(corpus: Path) -> None:
    result = _run(corpus / "store", "--source", corpus / "train.de", "-t", "en")
    assert "'source_language' is missing" in str(result.exception)


def test_a_store_is_turned_round(corpus: Path) -> None:
    assert _run(corpus / "de-en", *_flags(corpus)).exit_code == 0
    done = _run(corpus / "en-de", "--reversed", corpus / "de-en")
    assert "en → de, the 2 training pairs of" in done.stdout
    assert TokenStore.open(corpus / "en-de").report["source_language"] == "en"
    done = _run(corpus / "other", "--reversed", corpus / "de-en", "--json")
    assert json.loads(done.stdout)["target_language"] == "de"
    done = _run(corpus / "third", "--reversed", corpus / "de-en", *_flags(corpus))
    assert isinstance(done.exception, SconesError)
    assert "leave out --source-language" in str(done.exception)
