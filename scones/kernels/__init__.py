"""Kernels: what PyTorch has no fast operation for, in Triton, each with a plain twin to test it by.

They run on GPUs, and on a CPU under Triton's interpreter (TRITON_INTERPRET=1), which is how the
tests reach them. Everything else in the package asks `scones.hardware.gpu_path` first and has
another way, which SCONES_KERNELS=no makes it take.
"""

from __future__ import annotations

IGNORED = -(2**40)
"""The target of a row that does not count."""
