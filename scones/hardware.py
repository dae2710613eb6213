"""The device, its number format, and how fast it can multiply matrices."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import time
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scones.errors import SconesError

if TYPE_CHECKING:  # nothing here may load PyTorch before `wait_briefly` was called
    import torch

SHARES = "SCONES_SHARES"
"""The variable that says how many processes were started side by side, to share one GPU."""


def wait_briefly() -> None:
    """Let threads that wait for each other sleep soon, so that a busy machine stays usable.

    PyTorch's OpenMP library reads this when it is loaded. By default a thread spins for
    milliseconds at the end of every operation: on a machine with other work, all the time that it
    is given, while the thread it waits for is given none. What the user has set counts.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # some microseconds


def threads() -> int:
    """How many threads to compute with: as many as PyTorch, which need not be there for that."""
    if torch := sys.modules.get("torch"):
        return int(torch.get_num_threads())
    told = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    if told.isdecimal() and int(told):
        return int(told)
    return usable_cores()


def set_threads(count: int) -> None:
    """Compute with so many from now on, whoever computes."""
    os.environ["OMP_NUM_THREADS"] = str(count)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(count)


def usable_cores() -> int:
    # A container or `taskset` may allow fewer cores than the machine has; macOS cannot say.
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


@cache
def keep_memory() -> None:
    """Let the C library keep what is freed, up to 256 MB of it at the end of a heap.

    By default it gives the memory of every batch back, and the system takes a sixth of the time of
    a search to hand it out anew.
    """
    import ctypes

    with suppress(OSError, TypeError, AttributeError):  # of Linux's C library alone
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-1, 1 << 28)  # M_TRIM_THRESHOLD
        mallopt(-3, 1 << 25)  # M_MMAP_THRESHOLD, the largest that it takes


@cache
def processor() -> tuple[str, bool]:
    """Its maker, and whether it has all that CTranslate2 means by AVX512 (Linux tells)."""
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
    except OSError:
        return "", False
    facts = dict(re.findall(r"^(\w+)\s*: (.*)$", first, re.MULTILINE))
    wanted = {f"avx512{part}" for part in ("f", "cd", "bw", "dq", "vl")}
    return facts.get("vendor_id", ""), wanted <= set(facts.get("flags", "").split())


def is_cpu(name: str) -> bool:
    """Whether that device is a CPU here; PyTorch is asked only where there may be a GPU."""
    names = ("nvidia*", "nvhost*", "kfd", "dxg")
    gpu = any(True for name in names for _ in Path("/dev").glob(name))
    return name == "cpu" or (name == "auto" and not gpu) or choose_device(name).type == "cpu"


def choose_device(name: str) -> torch.device:
    """Turn "auto", "cpu", "cuda" or "cuda:N" into a device that is there."""
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")  # as little use as a kind of device that is not supported
    if device.type not in ("cpu", "cuda"):
        raise SconesError(f"The device '{name}' is not known; use auto, cpu or cuda.")
    if device.type == "cuda":
        if (device.index or 0) >= torch.cuda.device_count():
            raise SconesError(f"The device '{name}' is not there; use --device auto or cpu.")
        # Batches come in ever new shapes, and cuDNN's attention makes a new plan for each of them,
        # which takes longer than the training step; the other fused kernels need no plan.
        torch.backends.cuda.enable_cudnn_sdp(False)
    return device


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """Turn "auto", "float32" or "bf16" into the type of the matrix products."""
    import torch

    if name == "float32":
        return torch.float32
    if name == "bf16":
        return torch.bfloat16
    fast = device.type == "cuda" or torch.cpu._is_avx512_bf16_supported()
    return torch.bfloat16 if fast else torch.float32


def usable(device: torch.device) -> bool:
    """Whether Triton kernels (`scones.kernels`) run on a device."""
    if not _installed() or os.environ.get("SCONES_KERNELS") == "no":
        return False
    return device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"


@cache
def _installed() -> bool:
    return importlib.util.find_spec("triton") is not None


def attention_fits(head_size: int) -> bool:
    """Whether there are attention kernels for heads of this size."""
    return head_size >= 16 and head_size.bit_count() == 1


def gpu_path(model: Any) -> bool:
    """Whether a `Transformer` takes the GPU rooms: kernels, and no padding.

    Asked where something is built (a searcher, an expander, training steps), never while it runs:
    what was built then knows what it is.
    """
    config = model.config
    ours = not config.post_norm and config.activation == "relu"
    return ours and usable(model.device) and attention_fits(config.size // config.heads)


def spare_memory(device: torch.device) -> int:
    """Half of a GPU's free memory, shared with processes that were started beside this."""
    import torch

    free, _ = torch.cuda.mem_get_info(device)
    shares = os.environ.get(SHARES, "")
    return free // (2 * max(1, int(shares) if shares.isdecimal() else 1))


def matrix_rate(device: torch.device, precision: torch.dtype) -> float:
    """Measure, in a fraction of a second, the FLOP/s of a large matrix product."""
    import torch

    size = 8192 if device.type == "cuda" else 1024
    left = torch.randn(size, size, device=device, dtype=precision)
    right = torch.randn(size, size, device=device, dtype=precision)
    fastest = float("inf")
    wait = partial(torch.cuda.synchronize, device) if device.type == "cuda" else lambda: None
    for _ in range(4):  # the first one warms up
        wait()
        begin = time.perf_counter()
        left @ right
        wait()
        fastest = min(fastest, time.perf_counter() - begin)
    return 2 * size**3 / fastest
