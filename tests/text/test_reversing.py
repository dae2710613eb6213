"""A store of the other direction, made without preparing anything again."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from scones.errors import SconesError
from scones.files import read_json, write_json
from scones.text.store import TokenStore, reverse_store

REPORT = {
    "source_language": "de",
    "target_language": "en",
    "source_tokens": 1,
    "target_tokens": 2,
    "corpora": [{"source": "a.de", "target": "a.en", "dropped": {"language (source)": 3}}],
    "stages": [{"name": "clean", "seconds": 9.0}],
    "digest": "old",
}


@pytest.fixture
def store(tiny_store: Path, tmp_path: Path) -> Path:
    folder = Path(shutil.copytree(tiny_store, tmp_path / "de-en"))
    write_json(folder / "report.json", REPORT)
    return folder


def test_source_and_target_are_exchanged(store: Path, tmp_path: Path) -> None:
    facts = reverse_store(store, tmp_path / "en-de")
    there, back = TokenStore.open(store), TokenStore.open(tmp_path / "en-de")
    back.verify()
    assert (back.source_language, back.target_language) == ("en", "de")
    assert back.digest == facts["digest"] != there.digest == facts["reversed_from"]
    for split in ("train", "dev"):
        for index in range(len(there.split(split))):
            assert (there.split(split).source(index) == back.split(split).target(index)).all()
            assert (there.split(split).target(index) == back.split(split).source(index)).all()
    assert there.dev_texts is not None
    assert back.dev_texts == there.dev_texts[::-1]
    assert back.report == {
        "source_language": "en",
        "target_language": "de",
        "source_tokens": 2,
        "target_tokens": 1,
        "corpora": [{"source": "a.en", "target": "a.de", "dropped": {"language (source)": 3}}],
        "stages": [],
        "digest": back.digest,
        "reversed_from": there.digest,
    }


def test_twice_is_the_same_again(store: Path, tmp_path: Path) -> None:
    reverse_store(store, tmp_path / "en-de")
    reverse_store(tmp_path / "en-de", tmp_path / "again")
    assert TokenStore.open(tmp_path / "again").digest == TokenStore.open(store).digest


def test_it_outlives_the_store_it_comes_from(store: Path, tmp_path: Path) -> None:
    reverse_store(store, tmp_path / "en-de")
    shutil.rmtree(store)
    TokenStore.open(tmp_path / "en-de").verify()


def test_where_nothing_can_be_linked_it_is_copied(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EXDEV, "another disk")

    monkeypatch.setattr(os, "link", refuse)
    reverse_store(store, tmp_path / "en-de")
    TokenStore.open(tmp_path / "en-de").verify()


def test_a_store_without_a_report_has_none_reversed(tiny_store: Path, tmp_path: Path) -> None:
    reverse_store(tiny_store, tmp_path / "en-de")
    assert not (tmp_path / "en-de" / "report.json").exists()
    assert read_json(tmp_path / "en-de" / "store.json")["source_language"] == "en"


def test_refusals(store: Path, tmp_path: Path) -> None:
    with pytest.raises(SconesError, match="is not a folder"):
        reverse_store(tmp_path / "nowhere", tmp_path / "en-de")
    with pytest.raises(SconesError, match="cannot be its own reverse"):
        reverse_store(store, store, overwrite=True)
    (tmp_path / "precious").mkdir()
    with pytest.raises(SconesError, match="is not a store; --overwrite replaces nothing but"):
        reverse_store(store, tmp_path / "precious", overwrite=True)
    with pytest.raises(SconesError, match="exists already"):
        reverse_store(store, tmp_path / "precious")
    assert not (tmp_path / "en-de").exists()
