"""`scones export`, `scones shortlist`, and `scones translate` with engines, exports and lists."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from running import Refused, Scones


@pytest.fixture
def text(tea_pairs: list[tuple[str, str]], tmp_path: Path) -> Path:
    path = tmp_path / "text.de"
    path.write_text("".join(f"{source}\n" for source, _ in tea_pairs[:10]) + "\n")
    return path


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
    done = scones("export", tmp_path / "model", "--quantization", "int8", "--json")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["model", "model-ctranslate2", "model-ctranslate2-int8"]
    report, folder = json.loads(done.out), tmp_path / names[-1]
    assert (report["folder"], report["quantization"]) == (str(folder), "int8")
    assert report["bytes"] == sum(path.stat().st_size for path in folder.iterdir())
    stored = json.loads((folder / "config.json").read_text())["scones"]["check"]
    assert stored == {"text": "random pieces", **report["check"]}


def test_what_an_export_cannot_do_is_refused(
    tiny_model: Path, tmp_path: Path, scones: Scones, refused: Refused
) -> None:
    export, line = tmp_path / "export", "Tee mit Milch\n"
    assert scones("export", tiny_model, export).code == 0
    refused("export", tiny_model, export, said="exists already; choose another name or pass --over")
    beam = "beam search applies a softmax, for which this model was not trained"
    refused("translate", export, "--search", "beam", said=beam, stdin=line)
    refused("translate", export, "--json", said="no probabilities of tokens", stdin=line)
    refused("score", export, export / "README.md", export / "README.md", said="gives no scores")


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
    again = scones("shortlist", tiny_store, path, *SMALL, "--overwrite", "--json")
    facts = json.loads(again.out)
    assert (facts["vocabulary"], facts["bytes"]) == (500, path.stat().st_size)
    assert 0.9 < facts["coverage"]["tokens"] < 1
    text = "".join(f"{source}\n" for source, _ in tea_pairs[:5])
    lines = [
        scones("translate", tiny_model, "--device", "cpu", *flags, stdin=text).out.splitlines()
        for flags in ((), ("--shortlist", path), ("--shortlist", path, "--max-tokens", "1"))
    ]
    assert [len(found) for found in lines] == [5, 5, 5]
    assert lines[0] != lines[1] == lines[2]
