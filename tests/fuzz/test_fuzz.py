"""Folders with one thing wrong, odd flags, commands that are killed: see the program itself."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "flags", ["--minutes 0.1 --seed 1", pytest.param("--kills 50", marks=pytest.mark.slow)]
)
def test_nothing_breaks_a_command_but_for_a_sentence(flags):
    command = [sys.executable, "-m", "tests.fuzz", *flags.split()]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
