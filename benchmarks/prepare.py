"""How fast and how large is `scones prepare` on a million pairs of Europarl?

    SCONES_DATA=... python benchmarks/prepare.py [--pairs 20000] [--workers 2] [--json FILE]

Runs the command in a process of its own and adds up, five times a second, the proportional set
size (PSS: memory shared by n processes counts 1/n in each) of that process and all its children.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import psutil

LIMIT_GIGABYTES = 2.5
LIMIT_SECONDS = 720


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = argparse.ArgumentParser(description="Time and memory of scones prepare on Europarl.")
    parser.add_argument("--pairs", type=int, help="use only the first so many pairs")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the numbers to this file too")
    options = parser.parse_args()
    if "SCONES_DATA" not in os.environ:
        sys.exit("Set SCONES_DATA to the folder that holds europarl/train.de-en.de.xz.")
    data = Path(os.environ["SCONES_DATA"]) / "europarl"
    with tempfile.TemporaryDirectory() as scratch:
        corpus = _corpus(data, options.pairs, Path(scratch))
        result = measure(corpus, data, Path(scratch), options.workers)
    _print(result)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


def measure(corpus: list[Path], data: Path, scratch: Path, workers: int) -> dict[str, Any]:
    """Run the command and watch its memory."""
    report = scratch / "report.json"
    command = [sys.executable, "-m", "scones", "prepare", str(scratch / "store")]
    command += ["--source-language", "de", "--target-language", "en"]
    command += ["--source", str(corpus[0]), "--target", str(corpus[1])]
    command += ["--dev-source", str(data / "dev.de-en.de.xz")]
    command += ["--dev-target", str(data / "dev.de-en.en.xz")]
    command += ["--workers", str(workers), "--json"]
    begin = time.perf_counter()
    peak = 0
    with report.open("wb") as output:
        process = subprocess.Popen(command, stdout=output)
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            peak = max(peak, _memory(watched))
            time.sleep(0.2)
    seconds = time.perf_counter() - begin
    if process.returncode:
        sys.exit(f"scones prepare failed with exit code {process.returncode}.")
    return {
        "seconds": round(seconds, 1),
        "peak_gigabytes": round(peak / 1e9, 3),
        "memory": "sum of PSS over all processes, 5 samples a second",
        "workers": workers,
        "cores": len(psutil.Process().cpu_affinity() or []),
        "report": json.loads(report.read_bytes()),
    }


def _memory(parent: psutil.Process) -> int:
    total = 0
    try:
        for process in [parent, *parent.children(recursive=True)]:
            try:
                total += process.memory_full_info().pss
            except psutil.Error:
                continue  # it ended in between
    except psutil.Error:
        pass
    return total


def _corpus(data: Path, pairs: int | None, scratch: Path) -> list[Path]:
    files = [data / f"train.de-en.{language}.xz" for language in ("de", "en")]
    if pairs is None:
        return files
    cut = [scratch / file.name for file in files]
    for file, shorter in zip(files, cut, strict=True):
        with lzma.open(file) as whole, lzma.open(shorter, "wb", preset=0) as part:
            part.writelines(islice(whole, pairs))
    return cut


def _print(result: dict[str, Any]) -> None:
    report = result["report"]
    print(f"{report['pairs_read']:,} pairs read, {report['pairs_kept']:,} kept")
    print(f"{'stage':<18}{'seconds':>10}{'pairs/s':>12}")
    for stage in report["stages"]:
        print(f"{stage['name']:<18}{stage['seconds']:>10.1f}{stage['pairs_per_second']:>12,.0f}")
    seconds, gigabytes = result["seconds"], result["peak_gigabytes"]
    print(f"{'total':<18}{seconds:>10.1f}   ({seconds / LIMIT_SECONDS:.2f} of {LIMIT_SECONDS} s)")
    share = gigabytes / LIMIT_GIGABYTES
    print(f"peak memory {gigabytes:.2f} GB over all processes ({share:.2f} of {LIMIT_GIGABYTES})")


if __name__ == "__main__":
    main()
