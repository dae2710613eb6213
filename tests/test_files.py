"""Nothing half-written: what is on disk after each thing that can go wrong."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scones.errors import SconesError
from scones.files import (
    FolderKind,
    _remove_leftovers,
    new_folder,
    read_json,
    replaced,
    sole_use,
    write_file,
    write_json,
    write_tensors,
)
from tests.cli.running import contents

KIND = FolderKind("a shop", "a", ("b*",))


def make_old(folder):
    (folder / "store").mkdir()
    (folder / "store" / "a").write_text("old")


OLD = {"store": None, "store/a": b"old"}


def full_disk(descriptor):
    """What `os.fsync` says where there is no room left."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_new_folder_appears_whole(tmp_path):
    target = tmp_path / "deep" / "down" / "store"
    with new_folder(target) as hidden:
        assert not target.exists()
        assert hidden.is_relative_to(target.parent)  # a rename across disks would be a copy
        (hidden / "a").write_text("1")
        (hidden / "more").mkdir()
        (hidden / "more" / "b").write_text("2")
    assert contents(target) == {"a": b"1", "more": None, "more/b": b"2"}
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("problem", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_failure_leaves_nothing(problem, tmp_path):
    def fill():
        with new_folder(tmp_path / "deep" / "store") as hidden:
            (hidden / "a").write_text("1")
            raise problem

    with pytest.raises(problem):
        fill()
    assert contents(tmp_path) == {}


def test_a_folder_that_exists_is_refused_and_kept(tmp_path):
    make_old(tmp_path)
    with (
        pytest.raises(SconesError, match="store exists already; choose another name"),
        new_folder(tmp_path / "store"),
    ):
        pytest.fail("the body must not run")
    assert contents(tmp_path) == OLD


def test_overwriting_replaces_the_whole_folder(tmp_path):
    make_old(tmp_path)
    with new_folder(tmp_path / "store", KIND, overwrite=True) as hidden:
        (hidden / "b").write_text("new")
        assert contents(tmp_path / "store") == {"a": b"old"}
    assert contents(tmp_path) == {"store": None, "store/b": b"new"}


@pytest.mark.parametrize("place", ["write", "fsync", "rename"])
def test_a_failed_overwrite_keeps_the_old_folder(tmp_path, monkeypatch, place):
    make_old(tmp_path)
    rename = Path.rename

    def rename_or_fail(path, target):
        if path.name == "new":  # the second of the two, the old folder is out of the way
            full_disk(0)
        return rename(path, target)

    if place == "write":
        monkeypatch.setattr(Path, "write_text", lambda *_: full_disk(0))
    if place == "fsync":
        monkeypatch.setattr(os, "fsync", full_disk)
    if place == "rename":
        monkeypatch.setattr(Path, "rename", rename_or_fail)
    with (
        pytest.raises(OSError, match="No space"),
        new_folder(tmp_path / "store", KIND, overwrite=True) as hidden,
    ):
        (hidden / "b").write_text("new")
    assert contents(tmp_path) == OLD


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("thesis.txt", "holds 'thesis.txt', which is no part of a shop"),
        (None, "is not a shop, and"),
    ],
)
def test_what_we_did_not_make_is_never_overwritten(name, said, tmp_path):
    make_old(tmp_path)
    if name:
        (tmp_path / "store" / name).write_text("years of work")
    else:
        (tmp_path / "store" / "a").rename(tmp_path / "store" / "b")
    before = contents(tmp_path)
    with (
        pytest.raises(SconesError, match=said),
        new_folder(tmp_path / "store", KIND, overwrite=True),
    ):
        pytest.fail("the body must not run")
    assert contents(tmp_path) == before


def test_what_is_no_file_is_written_to_and_a_link_is_followed(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_file(tmp_path / "pipe", "a report")
    assert os.read(reader, 100) == b"a report"
    os.close(reader)
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_file(tmp_path / "link", "through the link")
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "through the link"
    with pytest.raises(SconesError, match="pipe is not a regular file"):
        read_json(tmp_path / "pipe")


def test_leftovers_of_killed_processes_go_and_those_of_running_ones_stay(tmp_path):
    """One had moved the old folder out of the way, and was to put the new one in its place."""
    left = tmp_path / ".store.writing-1"
    (left / "old").mkdir(parents=True)
    (left / "old" / "a").write_text("old")
    (tmp_path / ".a.writing-1").write_text("as earlier versions wrote")
    running = tmp_path / ".store.writing-2"
    running.mkdir()
    handle = os.open(running, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(SconesError, match="exists already"), new_folder(tmp_path / "store", KIND):
        pytest.fail("the old folder is back, and is not to be overwritten")
    write_file(tmp_path / "a", "new")
    assert contents(tmp_path) == {**OLD, "a": b"new", ".store.writing-2": None}
    os.close(handle)


def test_a_file_is_replaced_in_one_step(tmp_path):
    write_file(tmp_path / "a", "old")
    write_file(tmp_path / "a", b"\xc3\xa4")
    write_json(tmp_path / "b", {"ä": [None]})
    assert contents(tmp_path) == {"a": b"\xc3\xa4", "b": '{\n  "ä": [\n    null\n  ]\n}\n'.encode()}
    assert read_json(tmp_path / "b") == {"ä": [None]}


def test_a_full_disk_keeps_the_old_file(tmp_path, monkeypatch):
    write_file(tmp_path / "a", "old")
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        write_file(tmp_path / "a", "new")
    assert contents(tmp_path) == {"a": b"old"}


@pytest.mark.parametrize("content", [b"", b'{"a": ', b"\xff\xfe", b"{'a': 1}"])
def test_damaged_json_is_a_sentence(content, tmp_path):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(SconesError, match=r"a\.json is damaged: it is not valid JSON"):
        read_json(tmp_path / "a.json")
    with pytest.raises(SconesError, match=r"nowhere\.json does not exist"):
        read_json(tmp_path / "nowhere.json")


def test_others_may_read_a_tensor_file_as_any_other(tmp_path):
    import torch

    write_tensors(tmp_path / "tensors", {"one": torch.ones(1)})
    write_file(tmp_path / "text", "one")
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_a_folder_is_of_one_process_until_that_ends(tmp_path):
    holding = "import sys, pathlib, scones.files as files\n" + (
        "with files.sole_use(pathlib.Path(sys.argv[1])): print('held', flush=True); input()"
    )
    command = [sys.executable, "-c", holding, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        refusal = pytest.raises(SconesError, match=r"Another process is writing to .*; wait for it")
        with refusal, sole_use(tmp_path):
            pass
        other.kill()
        other.wait()
        with sole_use(tmp_path):
            pass


def test_leftovers_go_though_what_was_written_is_not_written_again(tmp_path):
    """A process may be killed when its file is in place and its hidden folder is not yet gone."""
    (tmp_path / ".beams.json.writing-1" / "new").mkdir(parents=True)
    (tmp_path / ".beams.json.writing-mine").write_text("not ours")
    with sole_use(tmp_path):
        assert contents(tmp_path) == {".beams.json.writing-mine": b"not ours"}
        with replaced(tmp_path / "a") as beside:
            beside.write_text("new")
            _remove_leftovers(tmp_path)  # what is in use stays
            assert beside.exists()


def test_a_folder_that_another_takes_for_a_leftover_is_made_again(tmp_path, monkeypatch):
    removed = []

    def remove_first(descriptor, operation):
        if not removed:
            removed.append(Path(f"/proc/self/fd/{descriptor}").readlink())
            removed[0].rmdir()

    monkeypatch.setattr(fcntl, "flock", remove_first)
    write_file(tmp_path / "a", "new")
    assert removed
    assert contents(tmp_path) == {"a": b"new"}


def test_a_folder_is_free_and_gone_after_a_failure(tmp_path):
    with pytest.raises(ValueError, match="a reason"), sole_use(tmp_path / "new" / "out"):
        raise ValueError("a reason")
    assert contents(tmp_path) == {}
    with sole_use(tmp_path / "new" / "out"):
        (tmp_path / "new" / "out" / "a").write_text("kept")
    assert contents(tmp_path / "new") == {"out": None, "out/a": b"kept"}


def test_a_file_system_without_locks_is_used_without(tmp_path, monkeypatch):
    def fail(descriptor, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", fail)
    with sole_use(tmp_path), sole_use(tmp_path):
        pass
