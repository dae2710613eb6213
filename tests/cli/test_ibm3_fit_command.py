"""`scones ibm3 fit` and `scones ibm3 import`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from running import Done

from scones.ibm3.parameters import Parameters

pytest.importorskip("thot.alignment")

Scones = Callable[..., Done]
Refused = Callable[..., None]
FEW = ("--ibm1", 2, "--hmm", 2, "--ibm3", 2)


def test_a_store_is_fitted_to(tiny_store: Path, tmp_path: Path, scones: Scones) -> None:
    folder = tmp_path / "new" / "tea.ibm3"
    done = scones("ibm3", "fit", folder, "--store", tiny_store, *FEW, "--show", 3)
    assert done.code == 0
    assert done.err.splitlines()[0] == "IBM 1 iterations: 0 of 2 done"
    assert done.err.splitlines()[-1] == "IBM 3 iterations: 2 of 2 done"
    for said in ("log-probability a word", "peak memory", "pruned of t", "source word"):
        assert said in done.out
    parameters = Parameters.load(folder)
    assert len(parameters.source_words) == len(parameters.target_words) == 500
    assert parameters.subwords is not None
    assert parameters.facts["options"]["ibm3"] == 2


def test_json_and_files_split_at_spaces(tmp_path: Path, scones: Scones) -> None:
    (tmp_path / "a").write_text("das Haus\ndas Buch\nein Buch\nein Haus\n" * 5)
    (tmp_path / "b").write_text("the house\nthe book\na book\na house\n" * 5)
    files = ("--source", tmp_path / "a", "--target", tmp_path / "b")
    done = scones("ibm3", "fit", tmp_path / "model", *files, "--pairs", 12, "--json")
    assert done.code == 0
    facts = json.loads(done.out)
    assert facts["pairs"] == 12
    assert [stage["name"] for stage in facts["stages"]] == [
        "read",
        "IBM 1",
        "HMM",
        "IBM 3",
        "tables",
    ]
    assert {word: best[0][0] for word, best in facts["words"].items()} == {
        "das": "the", "Haus": "house", "Buch": "book", "ein": "a",
    }  # fmt: skip
    assert Parameters.load(tmp_path / "model").source_words == ["das", "Haus", "Buch", "ein"]
    again = scones("ibm3", "fit", tmp_path / "model", *files, *FEW, "--overwrite", "--json")
    assert json.loads(again.out)["pairs"] == 20


def test_what_fit_refuses(tiny_store: Path, tmp_path: Path, refused: Refused) -> None:
    fit = ("ibm3", "fit", tmp_path / "new")
    empty, one = tmp_path / "empty", tmp_path / "one"
    empty.write_text("\n")
    one.write_text("ja\n")
    refused(*fit, said="Give either --store, or --source and")
    refused(*fit, "--source", one, said="Give either --store, or --source and")
    refused(*fit, "--store", tmp_path / "no", said="is not a folder")
    refused(*fit, "--store", tiny_store, "--pairs", 0, said="--pairs must be at least 1, not 0")
    refused(*fit, "--store", tiny_store, "--ibm3", 0, said="ibm3 must be at least 1, not 0")
    refused(*fit, "--source", empty, "--target", one, said="There is no pair of sentences")
    refused("ibm3", "fit", one, "--store", tiny_store, said="exists already")


TABLES = {
    "de.vcb": "2 das 5\n3 Haus 3\n",
    "en.vcb": "2 the 5\n3 house 3\n",
    "run.t3.final": "0 2 1\n2 2 1\n3 3 1\n",
    "run.n3.final": "2 0.5 0.5\n3 0 1\n",
    "run.d3.final": "1 1 100 2 1\n2 2 100 2 1\n",
    "run.p0_3.final": "0.9\n",
}


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    for name, content in TABLES.items():
        (tmp_path / name).write_text(content)
    return tmp_path


def vocabularies(folder: Path) -> tuple[object, ...]:
    return "--source-vocabulary", folder / "de.vcb", "--target-vocabulary", folder / "en.vcb"


def test_tables_of_giza_are_imported(tables: Path, scones: Scones) -> None:
    done = scones("ibm3", "import", tables / "run", tables / "model", *vocabularies(tables))
    assert (done.code, done.err) == (0, "")
    assert "Haus" in done.out
    assert "house 1.000" in done.out
    parameters = Parameters.load(tables / "model")
    assert parameters.p1 == pytest.approx(0.1)
    assert parameters.source_words == ["das", "Haus"]


def test_what_import_refuses(tables: Path, refused: Refused) -> None:
    command = ("ibm3", "import", tables / "run", tables / "model", *vocabularies(tables))
    (tables / "other.model").write_bytes(b"x")
    refused(*command, "--subwords", tables / "other.model", said="SentencePiece")
    refused(*command, "--best", 0, said="best must be at least 1, not 0")
    refused(*command, "--threshold", 1, said=r"threshold must be in \[0, 1\), not 1.0")
    (tables / "run.t3.final").write_text("2 2 1\n3 7 1\n")
    refused(*command, said="line 2 has the number 7, which is no word of")
    (tables / "run.d3.final").unlink()
    (tables / "run.t3.final").unlink()
    refused(*command, said=r"run\.t3\.final does not exist")
