import errno
import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from scones.errors import SconesError
from scones.files import new_folder, read_json, write_json
from scones.text.store import StoreWriter, TokenStore, reverse_store, token_type
from scones.text.subwords import Subwords

SOURCES = [[5, 6, 7], [], [8], [399, 9]]
TARGETS = [[10], [11, 12], [], [13, 14, 15, 16]]
DEV = (["eins zwei", "mit\u2028Trenner"], ["one two", "with\rreturn"])


@pytest.fixture
def subwords(tiny_subwords):
    return Subwords(tiny_subwords)


@pytest.fixture
def folder(tmp_path, subwords):
    return _write(tmp_path / "store", subwords)


def _write(path, subwords, chunk=2):
    with new_folder(path) as hidden, StoreWriter(hidden, subwords, "de", "en", True) as writer:
        for start in range(0, len(SOURCES), chunk):
            end = start + chunk
            writer.append("train", SOURCES[start:end], TARGETS[start:end])
        writer.append_dev(*DEV)
        writer.finish()
    return path


def test_what_was_written_is_read(folder, subwords):
    store = TokenStore.open(folder)
    train = store.split("train")
    assert (store.source_language, store.target_language) == ("de", "en")
    assert len(train) == 4
    assert [ids.tolist() for ids in train.sources] == SOURCES
    assert [train.targets[i].tolist() for i in range(4)] == TARGETS
    assert train.sources.lengths.tolist() == [3, 0, 1, 2]
    assert train.targets.lengths.tolist() == [1, 2, 0, 4]
    assert store.subwords.digest == subwords.digest
    assert store.dev_texts == DEV
    assert store.split("dev").targets[0].tolist() == subwords.encode(["one two"])[0]
    store.verify()
    tokens, lengths = train.sources.gather(np.array([3, 1, 0]))  # in the order asked for
    assert (tokens.tolist(), lengths.tolist()) == ([399, 9, 5, 6, 7], [2, 0, 3])


def test_without_a_development_set(tmp_path, subwords):
    with new_folder(tmp_path / "store") as hidden:
        StoreWriter(hidden, subwords, "de", "en").finish()
    store = TokenStore.open(tmp_path / "store")
    assert store.dev_texts is None
    assert len(store.split("train")) == 0
    with pytest.raises(SconesError, match="no split 'dev', only train"):
        store.split("dev")


def test_the_digest_does_not_depend_on_the_chunks(tmp_path, subwords):
    one = TokenStore.open(_write(tmp_path / "one", subwords, chunk=1))
    four = TokenStore.open(_write(tmp_path / "four", subwords, chunk=4))
    assert one.digest == four.digest


def test_a_store_travels_as_its_path(folder):
    store = TokenStore.open(folder)
    packed = pickle.dumps(store)
    assert len(packed) < 1000
    assert pickle.loads(packed).split("train").targets[3].tolist() == TARGETS[3]


def test_large_vocabularies_take_four_bytes():
    assert token_type(65_536).itemsize == 2
    assert token_type(65_537).itemsize == 4


@pytest.mark.parametrize(
    "name",
    ["train.source.tokens", "train.target.offsets", "train.groups", "subwords.model"],
)
def test_a_missing_or_shortened_file_is_refused(folder, name):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-2])
    with pytest.raises(SconesError, match=name.replace(".", r"\.")):
        TokenStore.open(folder)
    (folder / name).unlink()
    with pytest.raises(SconesError, match=name.replace(".", r"\.")):
        TokenStore.open(folder)


@pytest.mark.parametrize("name", ["train.source.tokens", "train.groups", "dev.target.txt"])
def test_flipped_or_shuffled_tokens_are_noticed(folder, name):
    content = (folder / name).read_bytes()
    TokenStore.open(folder)
    for changed in (bytes([content[0] ^ 1]) + content[1:], content[::-1]):
        (folder / name).write_bytes(changed)
        for _ in range(2):  # not the first time alone
            with pytest.raises(SconesError, match=r"digest|more groups"):
                TokenStore.open(folder)


def test_offsets_that_do_not_fit_are_refused(folder):
    offsets = np.fromfile(folder / "train.source.offsets", "<u8")
    offsets[-1] += 1
    offsets.tofile(folder / "train.source.offsets")
    with pytest.raises(SconesError, match="does not fit its tokens"):
        TokenStore.open(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 99}, "store of format 99"),
        ({"splits": {"train": {"pairs": 4}}}, "an entry is missing or wrong"),
        ({"splits": None}, "an entry is missing or wrong"),
        ({"vocabulary": {"size": "many", "digest": ""}}, "not the model of this store"),
    ],
)
def test_a_wrong_store_json_is_refused(folder, change, message):
    facts = json.loads((folder / "store.json").read_text())
    (folder / "store.json").write_text(json.dumps(facts | change))
    with pytest.raises(SconesError, match=message):
        TokenStore.open(folder)


def test_what_is_not_a_store_is_refused(tmp_path):
    with pytest.raises(SconesError, match="is not a folder"):
        TokenStore.open(tmp_path / "none")
    with pytest.raises(SconesError, match=r"no store\.json"):
        TokenStore.open(tmp_path)
    (tmp_path / "store.json").write_text("[1]")
    with pytest.raises(SconesError, match="names no format"):
        TokenStore.open(tmp_path)


def test_arrays_that_do_not_fit_are_refused(tmp_path, subwords):
    two = np.array([5, 6])
    for tokens, lengths, said in (
        (two, np.array([1]), "2 tokens in sentences of 1"),
        (two, np.array([1, 1]), "2 source but 1 target"),
        (two * 20_000, np.array([2]), "does not fit into uint16"),
        (-two, np.array([2]), "does not fit into uint16"),
    ):
        writer = StoreWriter(tmp_path, subwords, "de", "en")
        with writer, pytest.raises(ValueError, match=said):
            writer.append_flat("train", (tokens, lengths), (two, np.array([2])))
    writer = StoreWriter(tmp_path, subwords, "de", "en")
    with writer, pytest.raises(ValueError, match="2"):
        writer.append("train", [[1]], [[1], [2]])


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
def store(tiny_store, tmp_path):
    folder = Path(shutil.copytree(tiny_store, tmp_path / "de-en"))
    write_json(folder / "report.json", REPORT)
    return folder


def test_a_reversed_store_has_source_and_target_exchanged(store, tmp_path):
    facts = reverse_store(store, tmp_path / "en-de")
    there, back = TokenStore.open(store), TokenStore.open(tmp_path / "en-de")
    back.verify()
    assert (back.source_language, back.target_language) == ("en", "de")
    assert back.digest == facts["digest"] != there.digest == facts["reversed_from"]
    for split in ("train", "dev"):
        for index in range(len(there.split(split))):
            assert (there.split(split).sources[index] == back.split(split).targets[index]).all()
            assert (there.split(split).targets[index] == back.split(split).sources[index]).all()
    assert back.dev_texts == there.dev_texts[::-1]
    found = back.report
    assert (found["source_language"], found["target_language"]) == ("en", "de")
    assert (found["source_tokens"], found["target_tokens"], found["stages"]) == (2, 1, [])
    (corpus,) = found["corpora"]
    assert (corpus["source"], corpus["target"]) == ("a.en", "a.de")
    assert (found["digest"], found["reversed_from"]) == (back.digest, there.digest)


@pytest.mark.parametrize("linked", [True, False])
def test_the_reverse_outlives_its_store_and_turns_into_it_again(
    store, tmp_path, monkeypatch, linked
):
    def refuse(*_):
        raise OSError(errno.EXDEV, "another disk")

    if not linked:  # across disks files are copied
        monkeypatch.setattr(os, "link", refuse)
    digest = TokenStore.open(store).digest
    reverse_store(store, tmp_path / "en-de")
    shutil.rmtree(store)
    reverse_store(tmp_path / "en-de", tmp_path / "again")
    again = TokenStore.open(tmp_path / "again")
    again.verify()
    assert again.digest == digest


def test_a_store_without_a_report_has_none_reversed(tiny_store, tmp_path):
    reverse_store(tiny_store, tmp_path / "en-de")
    assert not (tmp_path / "en-de" / "report.json").exists()
    assert read_json(tmp_path / "en-de" / "store.json")["source_language"] == "en"


def test_what_cannot_be_reversed_is_refused(store, tmp_path):
    with pytest.raises(SconesError, match="is not a folder"):
        reverse_store(tmp_path / "nowhere", tmp_path / "en-de")
    with pytest.raises(SconesError, match="cannot be its own reverse"):
        reverse_store(store, store, overwrite=True)
    (tmp_path / "precious").mkdir()
    with pytest.raises(SconesError, match="is not a store, and --overwrite replaces nothing else"):
        reverse_store(store, tmp_path / "precious", overwrite=True)
    with pytest.raises(SconesError, match="exists already"):
        reverse_store(store, tmp_path / "precious")
    assert not (tmp_path / "en-de").exists()
