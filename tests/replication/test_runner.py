"""Processes side by side: what is done stays done, a failure stops no other; and made alike?"""

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from replication import runner
from replication.runner import Job, differences, require_alike, run_all
from scones.errors import SconesError


@pytest.fixture(autouse=True)
def programs(monkeypatch, tmp_path):
    """Let the words of a job be a shell script, where `$0` stands for `-m`."""
    shell = tmp_path / "shell"
    shell.write_text('#!/bin/sh\nshift 2\nexec sh -c "$1"\n')
    shell.chmod(0o755)
    monkeypatch.setattr(runner.sys, "executable", str(shell))


def job(folder, name, script, number=1):
    return Job(name, [script], folder / f"{name}.log", {"number": number})


def run(jobs, at_once=2):
    """Run jobs that do not need one another; gives what was said."""
    said = []
    run_all([[one] for one in jobs], at_once, said.append)
    return said


def test_what_is_done_is_not_done_again(tmp_path):
    said = run([job(tmp_path / "logs", name, f"echo {name}; echo ! >&2") for name in "abc"])
    assert sorted(said) == sorted(f"{n}: {what}" for n in "abc" for what in ("begins", "done"))
    for name in "abc":
        assert (tmp_path / "logs" / f"{name}.log").read_text() == f"{name}\n!\n"
        marker = tmp_path / "logs" / f"{name}.done.json"
        assert json.loads(marker.read_text()) == {"number": 1}
    assert run([job(tmp_path / "logs", "a", "exit 3")]) == []
    assert run([job(tmp_path / "logs", "a", "echo 2", number=2)]) == ["a: begins", "a: done"]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo first; echo 'scones: The oven is cold.'; exit 2", r"The oven is cold \(exit code 2"),
        ("kill -9 $$", r"nothing was said \(exit code -9"),
    ],
)
def test_a_failure_ends_its_chain_and_no_other(tmp_path, script, said):
    heard = []
    bad = [job(tmp_path, "bad", script), job(tmp_path, "never", "true")]
    good = [job(tmp_path, "good", "sleep 0.3"), job(tmp_path, "better", "true")]
    with pytest.raises(SconesError, match=f"^bad failed: {said}"):
        run_all([bad, good], 1, heard.append)
    assert heard[1].startswith("bad failed: ")
    assert heard[-1] == "better: done"
    assert not (tmp_path / "never.log").exists()


def test_the_next_of_a_chain_is_asked_for_when_the_one_before_has_ended(tmp_path):
    """What the first leaves decides what comes next, and what was begun is ended first."""

    def chain(name):
        yield job(tmp_path, f"{name}1", f"echo {name} > {tmp_path}/{name}.txt")
        found = (tmp_path / f"{name}.txt").read_text().strip()
        yield job(tmp_path, f"{name}2", f"echo {found}{found}")

    said = []
    run_all([chain("a"), chain("b")], 1, said.append)
    begun = [line.removesuffix(": begins") for line in said if line.endswith(": begins")]
    assert begun == ["a1", "a2", "b1", "b2"]
    assert (tmp_path / "b2.log").read_text() == "bb\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_polite_stop_reaches_all(tmp_path, number, monkeypatch):
    monkeypatch.setattr(runner, "_GRACE", 0.5)
    asked = job(tmp_path, "asked", "trap 'echo checkpoint; exit 130' TERM; sleep 30 & wait")
    deaf = job(tmp_path, "deaf", "trap '' TERM; echo $$; while :; do sleep 0.1; done")
    threading.Timer(0.5, os.kill, (os.getpid(), number)).start()
    with pytest.raises(KeyboardInterrupt):
        run([asked, deaf])
    assert (tmp_path / "asked.log").read_text() == "checkpoint\n"
    with pytest.raises(ProcessLookupError):  # who does not listen is killed
        os.kill(int((tmp_path / "deaf.log").read_text()), 0)


@pytest.mark.parametrize(
    ("asked", "found", "said"),
    [
        ({"seed": 1, "own": 2}, {"seed": 1, "other": 3}, []),  # what one does not tell
        ({"seed": 1}, {"seed": 2}, ["seed 2, not 1"]),
        ({"[train]": {"max_steps": 3}}, {"[train]": {"max_steps": 3.0}}, []),
        ({"[train]": {}}, {"[train]": {"dropout": 0.1}}, ["[train] dropout 0.1, not nothing"]),
        ({"a": {"b": {"c": 1}}}, {"a": {"b": {"c": None}}}, ["a b c nothing, not 1"]),
    ],
)
def test_in_what_two_things_differ(asked, found, said):
    assert differences(asked, found) == said
    with pytest.raises(SconesError, match=r"here was made with .*; give the same again"):
        require_alike(Path("here"), {**asked, "seed": 1}, {**found, "seed": 2})
