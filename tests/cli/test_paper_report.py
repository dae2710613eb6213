"""`scones paper report` and `scones paper check`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from report_toys import make_toys, write_lines
from running import Done

from scones.paper.results import Results


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_toys(tmp_path_factory.mktemp("paper"))


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCONES_DATA", raising=False)


def test_report_is_written(scones: Callable[..., Done], toys: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "report"
    done = scones("paper", "report", toys / "results", out, "--data", toys / "data")
    assert done.code == 0, done.err
    assert done.out.startswith(f"{out / 'index.html'} (")
    names = {path.name for path in out.iterdir()}
    assert names >= {"index.html", "report.md", "figure-3.svg"}
    assert (toys / "results" / "de-en" / "significance.json").exists()


def test_check_tells_a_different_cell(
    scones: Callable[..., Done], toys: Path, tmp_path: Path
) -> None:
    shutil.copytree(toys / "results", tmp_path / "results")
    for direction in Results(tmp_path / "results").directions():
        for path in direction.folder.glob("*.txt.xz"):
            write_lines(path, ["damaged"] * len(direction.hypotheses(path.name)))
    words = ("paper", "check", tmp_path / "results", "--data", toys / "data")
    done = scones(*words)
    assert done.code == 1
    assert done.err.startswith("scones: 1 of 1 BLEU cells are not what their translations give")
    done = scones(*words, "--json", "--seed", 3)
    assert done.code == 1
    found = json.loads(done.out)
    assert found["seed"] == 3
    assert not found["cells"][0]["same"]


def test_refusals(refused: Callable[..., None], toys: Path, tmp_path: Path) -> None:
    refused("paper", "report", tmp_path / "none", tmp_path / "out", said="is no folder")
    refused("paper", "report", tmp_path, tmp_path / "out", said="holds no results")
    refused("paper", "check", toys / "results", "--cells", 0, said="--cells must be at least 1")
    empty = tmp_path / "data"
    empty.mkdir()
    refused("paper", "check", toys / "results", "--data", empty, said="has no references of")
