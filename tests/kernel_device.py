"""Where tests run Triton kernels: on a GPU, or on a CPU under Triton's interpreter.

Triton looks at TRITON_INTERPRET while it is imported itself, and once more at every kernel. So it
is set for these imports alone: everywhere else `scones.hardware.usable` says no to a CPU. A module
that imports this one is skipped where Triton is not installed.
"""

import importlib
import pkgutil
import sys

import pytest
import torch

import scones.kernels

pytest.importorskip("triton.runtime", reason="needs Triton")

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def make_usable(patch):
    """Let the package take the kernels on this device, which on a CPU it does not by itself."""
    if DEVICE.type == "cpu":
        patch.setenv("TRITON_INTERPRET", "1")


def _import_interpreted():
    # Somebody may have imported Triton before; its library in C++ can only be loaded once.
    for name in [name for name in sys.modules if name.split(".")[0] == "triton"]:
        if not name.startswith("triton._C"):
            del sys.modules[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        importlib.import_module("triton.experimental.gluon")  # else imported by the first kernel
        for module in pkgutil.iter_modules(scones.kernels.__path__, "scones.kernels."):
            importlib.import_module(module.name)


if DEVICE.type == "cpu":
    _import_interpreted()
