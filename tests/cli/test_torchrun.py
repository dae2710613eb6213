"""`torchrun … -m scones translate`: several processes write what one would write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from running import Done, in_a_process

TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "scones"]


def by_two(*words: str | Path, stdin: str) -> Done:
    done = subprocess.run(
        [sys.executable, *TORCHRUN, *map(str, words)],
        input=stdin.encode(),
        capture_output=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture(scope="module")
def text(tea_pairs: list[tuple[str, str]]) -> str:
    """2,000 lines of all lengths, some of them empty."""
    sources = [source for source, _ in tea_pairs]
    lines = [" ".join(sources[i % 97 : i % 97 + i % 3]) for i in range(2000)]
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize("flags", [[], ["--search", "beam", "--beam-size", "2"]])
def test_two_processes_write_what_one_writes(flags, tiny_model: Path, text: str) -> None:
    text = text if not flags else "".join(text.splitlines(keepends=True)[:100])
    one = in_a_process("translate", tiny_model, *flags, stdin=text.encode())
    two = by_two("translate", tiny_model, *flags, "--chunk", "300", stdin=text)
    assert one.code == two.code == 0, two.err
    assert two.out == one.out
    assert two.out.count("\n") == text.count("\n")


def test_a_mistake_ends_all_processes_with_one_sentence(tiny_model: Path) -> None:
    done = by_two("translate", tiny_model, stdin="Tee\n" + "Tee " * 10_000 + "\nTee\n")
    assert done.code != 0
    assert done.out.count("\n") == 1
    assert done.err.count("scones: Sentence 2 has 1") == 1
    assert "Another process" not in done.err
