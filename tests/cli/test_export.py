"""`scones export`, `scones shortlist`, and `scones translate` with engines, exports and lists."""

import json
import re
import shutil

import pytest


@pytest.fixture
def text(tea_pairs, tmp_path):
    path = tmp_path / "text.de"
    path.write_text("".join(f"{source}\n" for source, _ in tea_pairs[:10]) + "\n")
    return path


def test_an_export_is_written_beside_the_model_unless_told_otherwise(
    tiny_model, tmp_path, text, scones
):
    shutil.copytree(tiny_model, tmp_path / "model")
    assert scones("export", tmp_path / "model", "--to", "ctranslate2").code == 0
    done = scones("export", tmp_path / "model", "--quantization", "int8", "--json")
    names = sorted(path.name for path in tmp_path.glob("model*"))
    assert names == ["model", "model-ctranslate2", "model-ctranslate2-int8"]
    report, folder = json.loads(done.out), tmp_path / names[-1]
    assert (report["folder"], report["quantization"]) == (str(folder), "int8")
    assert report["bytes"] == sum(path.stat().st_size for path in folder.iterdir())
    stored = json.loads((folder / "config.json").read_text())["scones"]["check"]
    assert stored == {"text": "random pieces", **report["check"]}
    done = scones("export", tmp_path / "model", tmp_path / "export", "--check", text)
    assert "with the model in float32: 10 are the same, 0 differ" in done.out
    expected = scones("translate", tiny_model, "--engine", "torch", stdin=text.read_text())
    for words in (["export"], ["model", "--engine", "ctranslate2"]):
        done = scones("translate", tmp_path / words[0], *words[1:], stdin=text.read_text())
        assert done == expected
    told = scones("translate", tmp_path / "export", "--json", stdin=text.read_text())
    assert '"log_prob": -' in told.out


SMALL = ("--per-token", "20", "--frequent", "10")


def test_a_shortlist_is_made_and_used(tiny_store, tiny_model, tea_pairs, tmp_path, scones):
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
