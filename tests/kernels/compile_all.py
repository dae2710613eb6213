"""Compiles every kernel for an NVIDIA GPU of the Hopper generation, without having one.

A script of its own, since it needs Triton as it is: in the tests' process it is an interpreter.
Prints the name of each kernel, and the bytes of shared memory that it takes.
"""

import importlib
import pkgutil
import re

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource, GluonJITFunction
from triton.runtime.jit import JITFunction

import scones.kernels
from scones.kernels import (
    IGNORED,
    attention,
    decoding,
    embedding,
    linear,
    norm,
    streamed,
)
from scones.kernels import (
    head as rows,
)
from scones.kernels import (
    head as turns,
)
from scones.kernels import (
    streamed as gold,
)

TYPES = {
    # What is computed with, in bf16.
    **dict.fromkeys(["queries", "keys", "values", "mixed", "slopes"], "*bf16"),
    **dict.fromkeys(["to_queries", "to_keys", "to_values"], "*bf16"),
    **dict.fromkeys(["projected", "cache", "memory", "normed", "logits"], "*bf16"),
    **dict.fromkeys(["added", "to_added", "to_normed", "x", "total", "to_total"], "*bf16"),
    **dict.fromkeys(["to_x", "results", "cut", "hidden", "kept", "scaled"], "*bf16"),
    # What is added up, in float32.
    **dict.fromkeys(["norms", "addend", "shift", "bias", "weights", "table"], "*fp32"),
    **dict.fromkeys(["losses", "sums", "scores", "written_scores"], "*fp32"),
    **dict.fromkeys(["means", "factors", "numbers", "factor"], "*fp32"),
    **dict.fromkeys(["gold_slopes", "sum_changes", "loss_changes"], "*fp32"),
    "to_vectors": "*fp32",
    # Where things are.
    **dict.fromkeys(["starts_q", "starts_k", "starts", "lengths", "limits"], "*i32"),
    **dict.fromkeys(["owners", "seed", "places"], "*i32"),
    **dict.fromkeys(["targets", "chosen", "tokens", "positions", "ids", "kept_targets"], "*i64"),
    **dict.fromkeys(["sentences", "written", "counts"], "*i64"),
    # Single numbers; all others are integers.
    **dict.fromkeys(["scale", "lift", "alpha", "smoothing", "epsilon"], "fp32"),
}
ATTENTION = {
    "DROPS": True, "CAUSAL": True, "PRECISION": "tf32", "BLOCK_Q": 64, "BLOCK_K": 64, "SIZE": 64,
}  # fmt: skip
ROW = {"BLOCK": 32, "SIZE": 64}
KERNELS = [
    (attention._forward, ATTENTION),
    (attention._backward, {**ATTENTION, "ALONE": True}),
    (attention._backward, {**ATTENTION, "ALONE": False, "DROPS": False, "CAUSAL": False}),
    (attention._backward_queries, ATTENTION),
    (decoding._add_and_norm, {"ADDS": True, "SIZE": 512}),
    (decoding._attend_back, {"OWNED": True, **ROW}),
    (decoding._attend_back, {"OWNED": False, **ROW}),
    (decoding._attend_source, {"BEAMS": 4, **ROW}),
    (decoding._advance, {"SCORED": True, "ROWS": 1024}),
    (decoding._block_bests, {"BEST": 5, "KEPT": 8, "NORMED": True, "COLUMNS": 2048}),
    (embedding._embed, {"DROPS": True, "ROWS": 4, "SIZE": 512}),
    (embedding._embed_backward, {"DROPS": True, "ROWS": 4, "SIZE": 512}),
    (linear._sum_slopes, {"RELU": True, "ROWS": 16, "COLUMNS": 128, "AHEAD": 2}),
    (linear._sum_slopes, {"RELU": False, "ROWS": 16, "COLUMNS": 128, "AHEAD": 2}),
    (rows._without_ignored, {"IGNORED": IGNORED, "SIZE": 512}),
    (rows._scale, {"BLOCK": 4096}),
    (norm._forward, {"ADDS": True, "DROPS": True, "ROWS": 2, "SIZE": 512}),
    (norm._backward, {"ADDS": True, "DROPS": True, "ROWS": 2, "SIZE": 512, "AHEAD": 2}),
    (turns._scones, {
        "IGNORED": IGNORED, "WEIGHTED": False, "SMOOTHED": False, "FAST": True,
        "ROWS": 128, "COLUMNS": 1024, "STAGES": 4,
    }),
    (turns._scones, {
        "IGNORED": IGNORED, "WEIGHTED": True, "SMOOTHED": True, "FAST": True,
        "ROWS": 128, "COLUMNS": 1024, "STAGES": 4,
    }),
    (turns._softmax, {
        "IGNORED": IGNORED, "WEIGHTED": True, "SMOOTHED": True, "COLUMNS": 4096,
    }),
    (gold._find, {"WEIGHTED": True, "ROWS": 128, "SIZE": 512, "PIECE": 64}),
    (gold._put, {"ROWS": 128}),
    (streamed._stream, {
        "PIECES": 1, "STAGES": streamed.ring_stages(1),
        "IGNORED": IGNORED, "WEIGHTED": True, "SMOOTHED": True,
    }),
    (streamed._stream, {
        "PIECES": 8, "STAGES": streamed.ring_stages(8),
        "IGNORED": IGNORED, "weights": None, "WEIGHTED": False, "SMOOTHED": False,
    }),
]  # fmt: skip
SPECIAL = {
    decoding._add_and_norm: {"scale": "*fp32", "x": "*fp32"},
    embedding._embed: {"positions": "*fp32", "places": "*i64", "factor": "fp32", "out": "*bf16"},
    embedding._embed_backward: {"factor": "fp32", "out": "*fp32"},
    norm._forward: {"scale": "*fp32"},
    norm._backward: {"scale": "*fp32"},
    decoding._block_bests: {"logits": "*fp32", "values": "*fp32"},
    gold._find: dict.fromkeys(["hidden", "weight"], "*bf16"),
    gold._put: {"gradient": "*bf16"},
    streamed._stream: {
        **dict.fromkeys(
            ["hidden", "weight"], f"tensordesc<bf16[128, 64],{streamed.PIECE_LAYOUT!r}>"
        ),
        "gradient": f"tensordesc<bf16[128, 32],{streamed.PART_LAYOUT!r}>",
    },
}
OPTIONS = {
    gold._find: {"num_warps": 16},
    streamed._stream: streamed.OPTIONS,
}


def compile_for_hopper(kernel, constants):
    """Compile one kernel down to machine code; gives its shared memory in bytes."""
    types = {**TYPES, **SPECIAL.get(kernel, {})}
    signature = {
        name: "constexpr" if name in constants else types.get(name, "i32")
        for name in kernel.arg_names
    }
    values = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    make = GluonASTSource if isinstance(kernel, GluonJITFunction) else ASTSource
    source = make(fn=kernel, signature=signature, constexprs=values)
    options = OPTIONS.get(kernel, {"num_warps": 4})
    done = triton.compile(source, GPUTarget("cuda", 90, 32), options=options)
    if "cubin" not in done.asm:
        raise SystemExit(f"{kernel.__name__} has no machine code.")
    return done.metadata.shared


def all_kernels():
    """Every function of `scones.kernels` that is written in Triton, by its full name."""
    modules = pkgutil.iter_modules(scones.kernels.__path__, "scones.kernels.")
    return {
        f"{module.name}.{name}": value
        for module in modules
        for name, value in vars(importlib.import_module(module.name)).items()
        if isinstance(value, JITFunction)
    }


def main():
    """Compile all; a kernel that is neither compiled nor part of one that is, is an error."""
    every = all_kernels()
    compiled = {kernel for kernel, _ in KERNELS}
    for name, kernel in every.items():
        others = (other.src for other in every.values() if other is not kernel)
        used = any(re.search(rf"\b{kernel.__name__}\b", source) for source in others)
        if kernel not in compiled and not used:
            raise SystemExit(f"{name} is compiled by no test; add it to {__file__}.")
    for kernel, constants in KERNELS:
        shared = compile_for_hopper(kernel, constants)
        print(f"{kernel.__module__}.{kernel.__name__}", shared, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
