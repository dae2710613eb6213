"""Is the development loss the same with and without what makes training fast?

    python benchmarks/quality.py STORE [--seeds 3] [--steps 400] [--json FILE]

The same recipe is trained with kernels, packed batches and graphs, and without any of them,
for several seeds; all runs go side by side, for their speed is not the question. Printed are the
development losses of all validations: mean and spread over the seeds, and how far the two means lie
apart, measured by the spread.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import facts, flags, save, show

from scones.hardware import choose_device

WAYS = {"fast": {"SCONES_KERNELS": "yes"}, "plain": {"SCONES_KERNELS": "no"}}
VALIDATIONS = 4


def main() -> None:
    """Train, compare, print, and write JSON where asked."""
    parser = flags(__doc__)
    parser.add_argument("store", type=Path, help="a store with a development set")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--max-tokens", type=int, default=8192)
    options = parser.parse_args()
    device = choose_device(options.device)
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        words = [
            *("--preset", options.preset, "--max-tokens", str(options.max_tokens)),
            *("--max-steps", str(options.steps), "--warmup-steps", str(options.steps // 2)),
            *("--validate-every", str(max(1, options.steps // VALIDATIONS)), "--patience", "0"),
            *("--device", str(device)),
        ]
        running = {}
        for way in WAYS:
            for seed in range(1, options.seeds + 1):
                command = ["scones", "train", str(options.store), str(place / f"{way}-{seed}")]
                command += [*words, "--seed", str(seed)]
                running[way, seed] = start(command, WAYS[way], place / f"{way}-{seed}.log")
        for (way, seed), process in running.items():
            if process.wait() != 0:
                sys.exit((place / f"{way}-{seed}.log").read_text())
        runs = [
            {"way": way, "seed": seed, **curve(place / f"{way}-{seed}")} for way, seed in running
        ]
    result = facts(device) | {"words": words, "runs": runs}
    result["comparison"] = comparison(runs)
    report(result["comparison"])
    save(result, options.json)


def start(command: list[str], way: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start a training in a process of its own."""
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", *command],
            env={**os.environ, **way},
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def curve(folder: Path) -> dict[str, list[float]]:
    """Read the validations of a run."""
    lines = (folder / "training" / "log.jsonl").read_text().splitlines()
    found = [event for event in map(json.loads, lines) if event["event"] == "validate"]
    return {key: [event[key] for event in found] for key in ("step", "loss", "bleu")}


def comparison(runs: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Give, validation by validation, the two means and how far they lie apart."""
    rows = []
    for index, step in enumerate(runs[0]["step"]):
        losses = {way: [run["loss"][index] for run in runs if run["way"] == way] for way in WAYS}
        means = {way: statistics.mean(values) for way, values in losses.items()}
        spread = max(statistics.pstdev(values) for values in losses.values())
        apart = abs(means["fast"] - means["plain"])
        rows.append({"step": step, **means, "spread": spread, "apart": apart})
    return rows


def report(rows: list[dict[str, float]]) -> None:
    """Print the table."""
    keys = ("fast", "plain", "apart", "spread")
    lines = [[str(row["step"]), *(f"{row[key]:.4f}" for key in keys)] for row in rows]
    show("dev loss at step", keys, lines)


if __name__ == "__main__":
    main()
