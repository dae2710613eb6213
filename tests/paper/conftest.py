"""Made-up results that reports are written of."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from report_toys import make_toys


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_toys(tmp_path_factory.mktemp("report"))


@pytest.fixture
def copy(toys: Path, tmp_path: Path) -> Path:
    """Give a results folder that may be changed; its data folder lies beside it."""
    for name in ("results", "data"):
        shutil.copytree(toys / name, tmp_path / name)
    for path in tmp_path.rglob("significance.json"):
        path.unlink()
    return tmp_path / "results"


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(test_set: str, direction: str) -> list[str]:
        raise OSError("no network")

    monkeypatch.setattr("sacrebleu.utils.get_reference_files", refuse)
