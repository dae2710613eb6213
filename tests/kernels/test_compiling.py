"""Every kernel compiles for a GPU, also on machines that have none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton.runtime", reason="needs Triton")

SCRIPT = Path(__file__).with_name("compile_all.py")
SHARED_MEMORY = 227 * 1024
"""Bytes that a program can have on a GPU of the Hopper generation."""


def has_assembler():
    from importlib.util import find_spec

    spec = find_spec("triton")
    return (Path(spec.origin).parent / "backends/nvidia/bin/ptxas").exists()


@pytest.mark.skipif(not has_assembler(), reason="needs the ptxas that comes with Triton")
def test_every_kernel_compiles_for_a_gpu(tmp_path):
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    env["TRITON_CACHE_DIR"] = str(tmp_path)  # nothing that was compiled before counts
    done = subprocess.run(
        [sys.executable, SCRIPT], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) >= 10
    for name, shared in lines:
        assert int(shared) <= SHARED_MEMORY, f"{name} takes {shared} bytes of shared memory"
