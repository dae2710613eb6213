"""`scones export`, `scones shortlist`, and `scones translate` with engines, exports and lists."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from running import Refused, Scones, contents, in_a_process


@pytest.fixture
def text(tea_pairs: list[tuple[str, str]], tmp_path: Path) -> Path:
    path = tmp_path / "text.de"
    path.write_text("".join(f"{source}\n" for source, _ in tea_pairs[:10]) + "\n")
    return path


@pytest.fixture
def export(tiny_model: Path, tmp_path: Path, scones: Scones) -> Path:
    assert scones("export", tiny_model, tmp_path / "export").code == 0
    return tmp_path / "export"


def test_an_export_is_written_checked_and_used(
    tiny_model: Path, tmp_path: Path, text: Path, scones: Scones
) -> None:
    done = scones("export", tiny_model, tmp_path / "export", "--check", text)
    assert (done.code, done.err) == (0, "")
    assert re.fullmatch(
        rf"{tmp_path}/export: CTranslate2, float32, \d\.\d MB\. Greedy translations of 10 "
        r"sentences: 10 are the model's own, 0 differ by a near tie; "
        r"largest logit difference \S+e-\d+\.\n",
        done.out,
    )
    assert sorted(path.name for path in (tmp_path / "export").iterdir()) == [
        *("README.md", "config.json", "model.bin", "shared_vocabulary.json", "subwords.model"),
    ]
    lines = text.read_text()
    expected = scones("translate", tiny_model, "--engine", "torch", stdin=lines)
    assert expected.out.count("\n") == 11
    assert scones("translate", tmp_path / "export", stdin=lines) == expected
    assert scones("translate", tiny_model, stdin=lines) == expected
    assert scones("translate", tiny_model, "--engine", "ctranslate2", stdin=lines) == expected


def test_an_export_is_written_beside_the_model_unless_told_otherwise(
    tiny_model: Path, tmp_path: Path, scones: Scones
) -> None:
    shutil.copytree(tiny_model, tmp_path / "model")
    assert scones("export", tmp_path / "model", "--to", "ctranslate2").code == 0
    assert scones("export", tmp_path / "model", "--quantization", "int8").code == 0
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["model", "model-ctranslate2", "model-ctranslate2-int8"]


def test_the_report_as_json(tiny_model: Path, tmp_path: Path, scones: Scones) -> None:
    done = scones("export", tiny_model, tmp_path / "export", "--quantization", "int8", "--json")
    report = json.loads(done.out)
    assert report["folder"] == str(tmp_path / "export")
    assert report["quantization"] == "int8"
    assert report["bytes"] == sum(path.stat().st_size for path in (tmp_path / "export").iterdir())
    stored = json.loads((tmp_path / "export" / "config.json").read_text())["scones"]["check"]
    assert stored == {"text": "random pieces", **report["check"]}


def test_what_an_export_cannot_do_is_refused(export: Path, refused: Refused) -> None:
    line = "Tee mit Milch\n"
    beam = "beam search applies a softmax, for which this model was not trained"
    refused("translate", export, "--search", "beam", said=beam, stdin=line)
    refused("translate", export, "--json", said="no probabilities of tokens", stdin=line)
    refused("translate", export, "--engine", "torch", said="is an export for CTran", stdin=line)
    refused("score", export, export / "README.md", export / "README.md", said="gives no scores")


def test_with_a_model_folder_auto_does_it_all(tiny_model: Path, scones: Scones) -> None:
    for flags in (["--json"], ["--search", "beam", "--n-best", 2]):
        auto = scones("translate", tiny_model, *flags, stdin="Tee mit Milch\n")
        torch = scones(
            "translate", tiny_model, *flags, "--engine", "torch", stdin="Tee mit Milch\n"
        )
        assert auto == torch
        assert auto.code == 0


def test_what_exists_is_kept(tiny_model: Path, export: Path, refused: Refused) -> None:
    refused("export", tiny_model, export, said="exists already; choose another name or pass --over")
    (export.parent / "mine").mkdir()
    (export.parent / "mine" / "thesis.tex").touch()
    again = ["export", tiny_model, export.parent / "mine", "--overwrite"]
    refused(*again, said="mine is not an export, so it is not overwritten")


def test_a_damaged_export_is_refused(export: Path, refused: Refused) -> None:
    with (export / "model.bin").open("r+b") as file:
        file.truncate(1000)
    refused("translate", export, said=r"model\.bin is damaged; export the model again", stdin="x")
    shutil.rmtree(export)
    refused("translate", export, said="The model folder .* does not exist", stdin="x")


def test_a_full_disk_leaves_nothing(tiny_model: Path, tmp_path: Path) -> None:
    before = contents(tmp_path)
    done = in_a_process("export", tiny_model, tmp_path / "export", largest_file=50_000)
    assert done.code == 2, done
    assert re.fullmatch(r"scones: There is no space left to write.*\n", done.err)
    assert contents(tmp_path) == before


def test_without_ctranslate2(
    tiny_model: Path,
    export: Path,
    scones: Scones,
    refused: Refused,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = scones("translate", tiny_model, stdin="Tee\n")
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    said = r"not installed; install it with pip install 'scones\[ctranslate2\]'"
    refused("export", tiny_model, export.parent / "other", said=said)
    refused("translate", export, said=said, stdin="Tee\n")
    refused("translate", tiny_model, "--engine", "ctranslate2", said=said, stdin="Tee\n")
    assert scones("translate", tiny_model, stdin="Tee\n") == expected


SMALL = ("--per-token", "20", "--frequent", "10")


def test_a_shortlist_is_made_and_used(
    tiny_store: Path,
    tiny_model: Path,
    tea_pairs: list[tuple[str, str]],
    tmp_path: Path,
    scones: Scones,
) -> None:
    path = tmp_path / "new" / "de-en.shortlist"
    done = scones("shortlist", tiny_store, path, *SMALL)
    assert (done.code, done.err) == (0, "")
    assert re.fullmatch(
        rf"{path}: 500 pieces, 0\.0 MB\. A sentence of the development set has \d+ pieces on its "
        r"list, and 9\d\.\d% of its translation's are among them\.\n",
        done.out,
    )
    text = "".join(f"{source}\n" for source, _ in tea_pairs[:5])
    lines = [
        scones("translate", tiny_model, "--device", "cpu", *flags, stdin=text).out.splitlines()
        for flags in ((), ("--shortlist", path), ("--shortlist", path, "--max-tokens", "1"))
    ]
    assert [len(found) for found in lines] == [5, 5, 5]
    assert lines[0] != lines[1] == lines[2]


def test_as_json(tiny_store: Path, tmp_path: Path, scones: Scones) -> None:
    done = scones("shortlist", tiny_store, tmp_path / "list", *SMALL, "--json")
    facts = json.loads(done.out)
    assert facts["vocabulary"] == 500
    assert facts["bytes"] == (tmp_path / "list").stat().st_size
    assert 0.9 < facts["coverage"]["tokens"] < 1
