"""`scones synthetic`: the whole experiment at toy size, going on after a stop, refusals."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from running import Done, contents, ended_well
from synthetic_toys import RECIPE, save_ibm3

from scones.text.store import TokenStore
from scones.text.subwords import Subwords

Scones = Callable[..., Done]
Refused = Callable[..., None]

SENTENCES = 5
STATES = 20
SYSTEMS = ["softmax", "scones-0.2"]


@pytest.fixture(scope="module")
def words(
    tiny_store: Path,
    tiny_subwords: bytes,
    tea_pairs: list[tuple[str, str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> list[str]:
    """A whole command; its OUT is the fourth word."""
    folder = tmp_path_factory.mktemp("synthetic")
    model = save_ibm3(folder / "toy.ibm3", Subwords(tiny_subwords))
    source = folder / "test.de"
    source.write_text("\n" + "".join(f"{source}\n" for source, _ in tea_pairs[: SENTENCES + 2]))
    command = ["synthetic", tiny_store, model, folder / "out", "--source", source]
    (folder / "toy.toml").write_text(RECIPE)
    command += ["--recipe", folder / "toy.toml", "--device", "cpu", "--jobs", "2"]
    command += ["--temperature", "1", "--temperature", "0.1", "--alpha", "0.2", "--pairs", "300"]
    command += ["--sentences", SENTENCES, "--max-states", STATES, "--max-memory", "0.5"]
    return [str(word) for word in command]


@pytest.fixture(scope="module")
def done(words: list[str]) -> Done:
    """How the command ended that did everything."""
    return ended_well(words)


@pytest.fixture(scope="module")
def out(words: list[str], done: Done) -> Path:
    return Path(words[3])


@pytest.fixture(scope="module")
def figures(out: Path) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads((out / "synthetic.json").read_text())
    return figures


@pytest.mark.slow
def test_every_language_is_sampled_trained_and_searched(
    done: Done, out: Path, figures: dict[str, Any]
) -> None:
    assert [*figures["temperatures"]] == ["1.0", "0.1"]
    for temperature, row in figures["temperatures"].items():
        place = out / f"gamma-{temperature}"
        store = TokenStore.open(place / "language" / "store")
        store.verify()
        assert 200 < row["training_pairs"] == len(store.split("train")) <= 300
        assert row["sentences"] == SENTENCES
        assert row["empty_test_references"] >= 1  # that of the empty line
        assert [*row["systems"]] == SYSTEMS
        for name, system in row["systems"].items():
            assert system["training"]["data_digest"] == store.digest == row["data_digest"]
            assert (system["training"]["steps"], system["training"]["seed"]) == (3, 1)
            assert system["output"]["layer"] == name.partition("-")[0]
            assert system["exact"]["outputs"]["searched"] == SENTENCES
            assert [*system["beams"]] == ["4"]
            assert system["exact"]["states"]["largest"] <= STATES
            assert "step " in (place / f"{name}.train.log").read_text()
            assert f"γ = {temperature}, {name}: search: done" in done.err
    assert figures["temperatures"]["0.1"]["systems"]["scones-0.2"]["output"]["alpha"] == 0.2


@pytest.mark.slow
def test_tables_and_plots(done: Done, out: Path, figures: dict[str, Any]) -> None:
    text = (out / "synthetic.md").read_text()
    assert done.out.rstrip("\n") == text.rstrip("\n")
    assert text.count("| SCONES (α = 0.2) |") == text.count("\n## ") - 1
    assert {"commit", "device", "command"} <= figures.keys()
    for plot in ("beam", "exact"):
        root = ElementTree.parse(out / f"{plot}.svg").getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.slow
def test_nothing_is_done_twice(
    words: list[str], out: Path, tmp_path: Path, scones: Scones, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(out, moved)
    before = contents(moved)
    monkeypatch.setattr(subprocess, "Popen", None)
    # Neither store nor model is needed any more, and the folder may be anywhere.
    again = scones("synthetic", "no-store", "no-model", moved, *words[4:], "--json")
    assert (again.code, again.err) == (0, "")
    after = contents(moved)
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"synthetic.json", "synthetic.md"}  # which name store and model
    rows = json.loads(again.out)["temperatures"]
    assert rows == json.loads(before["synthetic.json"] or b"")["temperatures"]


@pytest.mark.slow
def test_what_a_search_refuses_is_told(words: list[str], out: Path, scones: Scones) -> None:
    def results() -> dict[str, bytes | None]:
        return {name: data for name, data in contents(out).items() if not name.endswith(".log")}

    before = results()
    done = scones(*words, "--max-states", "21")
    assert (done.code, done.out) == (2, "")
    failed = (
        r"scones: γ = 1\.0, \S+: search failed: .*exact\.jsonl was made with max_states 20, not 21"
    )
    assert re.match(failed, done.err.splitlines()[-1])
    assert results() == before


def test_it_may_end_before_training(words: list[str], tmp_path: Path, scones: Scones) -> None:
    words = [*words[:3], str(tmp_path / "new" / "out"), *words[4:]]
    done = scones(*words, "--until", "sample")
    assert (done.code, done.out) == (0, "")
    left = {path.name for path in (tmp_path / "new" / "out" / "gamma-0.1").iterdir()}
    assert left == {"language"}
    done = scones(*words, "--until", "sample", "--seed", "2")
    assert done.code == 2
    assert "gamma-1.0/language was sampled with seed 1, not 2; give the same" in done.err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["--temperature", "0"], r"temperature must be above 0 and finite, not 0\.0"),
        (["--alpha", "0"], "alpha must be .* 0"),
        (["--until", "lunch"], "--until lunch is not a stage; there are sample, train, search"),
        (["--source", "nowhere.de"], r"nowhere\.de does not exist"),
        (["--recipe", "{folder}/bad.toml"], r"bad\.toml \[model\]: 'sise' is not known"),
    ],
)
def test_mistakes_are_told_before_anything_is_done(
    words: list[str], tmp_path: Path, refused: Refused, change: list[str], said: str
) -> None:
    (tmp_path / "bad.toml").write_text("[model]\nsise = 3\n")
    words = [*words[:3], str(tmp_path / "out"), *words[4:]]
    refused(*words, *(word.format(folder=tmp_path) for word in change), said=said)
