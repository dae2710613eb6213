"""Ray makes what processes make, on two cores and on three nodes, whatever is killed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray")
pytest.importorskip("pyarrow")

sys.path.insert(0, str(Path(__file__).parent))
from kills import command, main, same, three_nodes

pytestmark = pytest.mark.slow


@pytest.fixture
def source(tmp_path, tea_pairs):
    path = tmp_path / "source.txt"
    path.write_text("".join(f"{text}\n" for text, _ in tea_pairs * 2))
    return path


def run(words):
    return subprocess.run(words, capture_output=True, text=True, timeout=300)


def test_a_cluster_of_three_makes_what_processes_make(source, tiny_model, tmp_path):
    assert run(command(tiny_model, source, tmp_path / "local", 50)).returncode == 0
    with three_nodes() as cluster:
        more = ["--ray-address", cluster.address]
        done = run(command(tiny_model, source, tmp_path / "three", 50, *more))
        assert done.returncode == 0, done.stderr
        mistaken = run(["env", "--", *command(tiny_model, tmp_path, tmp_path / "no", 50, *more)])
        assert mistaken.returncode == 2
        assert mistaken.stderr.splitlines()[-1].startswith("scones: ")
    assert same(tmp_path / "local", tmp_path / "three")


@pytest.mark.parametrize("cores", [1, 2])
def test_actors_on_all_cores_do_not_wait_for_ever(cores, source, tiny_model, tmp_path):
    words = command(tiny_model, source, tmp_path / "out", 50, "--launcher", "ray")
    held = ["taskset", "-c", ",".join(map(str, sorted(os.sched_getaffinity(0))[:cores]))]
    done = run([*held, *words])
    assert done.returncode == 0, done.stderr
    assert "800 rows in 16 shards, 16 made now" in done.stdout


def test_a_cluster_that_is_not_there_is_a_sentence(source, tiny_model, tmp_path):
    more = ["--ray-address", "127.0.0.1:6399"]
    done = run(command(tiny_model, source, tmp_path / "out", 50, *more))
    assert done.returncode == 2
    *theirs, sentence = done.stderr.splitlines()  # Ray has lines of its own
    assert sentence.startswith("scones: No Ray cluster answers at 127.0.0.1:6399")
    assert all(line.startswith("[20") for line in theirs)
    assert not (tmp_path / "out").exists()


def test_whoever_is_killed_the_same_command_completes_the_work(source, tiny_model, tmp_path):
    main([str(tiny_model), str(source), str(tmp_path / "kills"), "--rounds", "5", "--rows", "40"])
