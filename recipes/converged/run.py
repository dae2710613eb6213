# ruff: noqa: T201
"""Runs recipes/converged on another machine, borrowed for minutes and without a network.

What goes there must fit through a narrow door, in several goes, and what is not brought home is
gone. So the store is made here and cut into pieces that are unpacked side by side; everything that
is computed there is `scones paper run` as it is; and what there is of results, finished or not, can
be asked for at any time. With `nvidia-cuda-mps-control -d` before it, six trainings side by side
had 1.02M target tokens a second together; two, without it, 0.9M.

    here     run.py pieces data/de-en carry           carry/q0, q1, …: the store
             run.py code de-en carry                  carry/code: this code, the test sets
    there    python3 -m tarfile -e code.tar.xz /tmp/c; then in /tmp/c, with all pieces in pieces/:
             python3 recipes/converged/run.py unpack de-en
             python3 recipes/converged/run.py go de-en softmax scones-0.2 > go.log   begin, go on
             python3 recipes/converged/run.py wait 500 [FILE]           say how it stands
             python3 recipes/converged/run.py home de-en OUT [SYSTEM]  results (and a model)
    here     run.py merge FOLDER                      what came home, into this tree
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import os
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUNS = Path("runs/converged")
RESULTS = Path("docs/results/converged")
TEXT = Path("text")
"""Below ROOT there: the test sets, as SCONES_DATA has them."""
PIECE = 11_000_000
"""Bytes of a piece on the way there."""
PART = 20_000_000
"""Bytes of a file of the store that are compressed together, to half the size or so."""
CHUNK = 15_000_000
"""Bytes of a file on the way home."""


def code(direction: str, out: str) -> None:
    """Pack this code as it is committed, and the test sets of a direction: out/code."""
    sys.path.insert(0, str(ROOT))
    from replication.plan import Plan

    plan = Plan.load(ROOT / "recipes" / "converged" / f"{direction}.toml")
    assert plan.data is not None
    texts = {file for test in plan.sets.values() for file in (test.source, test.reference)}
    parts = ("scones", "replication", "recipes/converged", "pyproject.toml")
    names = _git("ls-files", *parts).split("\n")
    commit = _git("rev-parse", "--short", "HEAD") + ("+" if _git("status", "--porcelain") else "")
    files = {name: (ROOT / name).read_bytes() for name in names if "pocket-" not in name}  # weights
    packed = {
        "code.tar.xz": _tar({**files, "COMMIT": commit.encode()}),
        "text.tar.xz": _tar(
            {str(TEXT / one.relative_to(plan.data)): one.read_bytes() for one in sorted(texts)}
        ),
    }
    _write(packed, Path(out) / "code")


def pieces(store: str, out: str) -> None:
    """Cut a store into pieces: folders out/q0, q1, …, of at most PIECE bytes each."""
    jobs: list[tuple[str, bytes, list[dict[str, int]]]] = []
    sums = {}
    here = f"{os.environ['SCONES_DATA'].rstrip('/')}/".encode()
    for file in sorted(Path(store).iterdir()):
        data = file.read_bytes()
        if file.name == "report.json":  # results tell of it, and not where the corpora lie here
            data = data.replace(here, b"")
        sums[file.name] = hashlib.sha256(data).hexdigest()
        words = {"id": lzma.FILTER_LZMA2, "preset": 9, "lc": 0, "lp": 1, "pb": 1}
        filters = [words if file.suffix == ".tokens" else {"id": lzma.FILTER_LZMA2, "preset": 9}]
        if file.suffix == ".offsets":  # lengths, once each offset is taken from the next
            filters.insert(0, {"id": lzma.FILTER_DELTA, "dist": 8})
        for number, begin in enumerate(range(0, max(1, len(data)), PART)):
            jobs.append((f"{file.name}.{number:02d}.xz", data[begin : begin + PART], filters))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda job: lzma.compress(job[1], filters=job[2]), jobs)
        packed = {job[0]: data for job, data in zip(jobs, found, strict=True)}
    packed["sums.json"] = json.dumps(sums).encode()
    folders: list[dict[str, bytes]] = []
    for name, data in sorted(packed.items(), key=lambda one: -len(one[1])):
        for folder in folders:
            if len(data) + sum(map(len, folder.values())) <= PIECE:
                break
        else:
            folders.append(folder := {})
        folder[name] = data
    for number, folder in enumerate(folders):
        _write(folder, Path(out) / f"q{number}")


def _write(packed: dict[str, bytes], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in packed.items():
        (folder / name).write_bytes(data)
    print(f"{folder}: {sum(map(len, packed.values())):,} bytes, {', '.join(packed)}")


def _tar(files: Mapping[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return lzma.compress(archive.getvalue())


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def unpack(direction: str) -> None:
    """Put the store and the test sets together again, and check every byte."""
    begin = time.perf_counter()
    folder = Path("pieces")
    with tarfile.open(folder / "text.tar.xz") as tar:
        tar.extractall(filter="data")
    sums = json.loads((folder / "sums.json").read_text())
    names = [(name, sorted(folder.glob(f"{name}.[0-9][0-9].xz"))) for name in sums]
    store = Path("data") / direction
    store.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        parts = [pool.map(_unpacked, files) for _, files in names]
        for (name, _), found in zip(names, parts, strict=True):
            data = b"".join(found)
            if hashlib.sha256(data).hexdigest() != sums[name]:
                sys.exit(f"{name}: a piece is missing or damaged")
            (store / name).write_bytes(data)
    print(f"unpacked {store} in {time.perf_counter() - begin:.1f} s")


def _unpacked(file: Path) -> bytes:
    return lzma.decompress(file.read_bytes())


def go(direction: str, *systems: str) -> None:
    """Train, translate and search systems side by side; what is done is not done again.

    Wide beams take a minute and exact search is what the time was asked for. So the searches are
    run with small beams first, and once more as the recipe says, which adds the wide ones.
    """
    Path("ended").unlink(missing_ok=True)
    recipe = Path("recipes/converged", f"{direction}.toml")
    small_beams = Path("small-beams", recipe.name)
    small_beams.parent.mkdir(exist_ok=True)
    small_beams.write_text(re.sub(r"(?m)^beams = .*", "beams = [1, 4]", recipe.read_text()))
    codes = []
    for asked, stage in ((recipe, "translate"), (small_beams, "search"), (recipe, "search")):
        words = ["paper", "run", str(asked), str(RESULTS), "--store", f"data/{direction}"]
        words += ["--runs", str(RUNS), "--jobs", str(len(systems)), "--until", stage]
        for system in systems:
            words += ["--system", system]
        running = _scones(*words)
        while running.poll() is None:
            _make_small(direction, systems)
            time.sleep(1)
        codes.append(running.returncode)
    Path("ended").write_text(f"{codes}\n")
    sys.exit(max(codes))


def _make_small(direction: str, systems: Sequence[str]) -> None:
    """Write the models that are trained in int8, the form in which they come home."""
    for system in systems:
        model = RUNS / direction / system
        done = model.with_name(f"{system}.train.done.json").exists()
        if done and not Path(f"{model}.int8").exists():
            _scones("export", str(model), f"{model}.int8", "--to", "pocket").wait()


def _scones(*words: str) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "PYTHONPATH": ".",
        "SCONES_DATA": str(TEXT.resolve()),
        "SCONES_COMMIT": Path("COMMIT").read_text(),
    }
    return subprocess.Popen([sys.executable, "-m", "scones", *words], env=environment)


def wait(seconds: str, *files: str) -> None:
    """Wait until files are there, else until all has ended, at most so long; say how far it is."""
    asked = [Path(file) for file in files or ["ended"]]
    deadline = time.monotonic() + float(seconds)
    while time.monotonic() < deadline and not Path("ended").exists():
        if all(file.exists() for file in asked):
            break
        time.sleep(1)
    logs = [*RUNS.glob("*/*.log"), *RUNS.glob("*/*/training/log.jsonl")]
    for log in [Path("go.log"), *sorted(logs)]:
        if log.exists():
            print(f"== {log}", *log.read_text(errors="replace").split("\n")[-4:], sep="\n")
    print("ended" if Path("ended").exists() else "still running")


def home(direction: str, out: str, system: str | None = None) -> None:
    """Write all that is small and, if asked for, one model in int8 into a folder."""
    files = {}
    for file in [*RESULTS.rglob("*"), *(RUNS / direction).rglob("*")]:
        with suppress(FileNotFoundError):  # trainings go on, and old checkpoints go
            if file.is_file() and file.suffix != ".safetensors":
                files[str(file)] = file.read_bytes()
    for name in ("go.log", "COMMIT"):
        files[str(RUNS / direction / name)] = Path(name).read_bytes()
    packed = {"results.tar.xz": _tar(files)}
    if system:
        data = (RUNS / direction / f"{system}.int8" / "model.int8.safetensors").read_bytes()
        parts = [data[begin : begin + CHUNK] for begin in range(0, len(data), CHUNK)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for number, part in enumerate(pool.map(_packed, parts)):
                packed[f"{direction}.{system}.int8.{number:02d}.xz"] = part
    _write(packed, Path(out))


def _packed(data: bytes) -> bytes:
    return lzma.compress(data, preset=1)  # weights: nothing repeats, more effort gives no more


def merge(folder: str) -> None:
    """Unpack what came home: results and logs into this tree, models below runs/converged."""
    came = Path(folder)
    if (came / "results.tar.xz").exists():
        with tarfile.open(came / "results.tar.xz") as tar:
            tar.extractall(ROOT, filter="data")
    for first in came.glob("*.int8.00.xz"):
        stem = first.name.removesuffix(".00.xz")
        direction, system = stem.removesuffix(".int8").split(".", 1)
        data = b"".join(map(_unpacked, sorted(came.glob(f"{stem}.[0-9][0-9].xz"))))
        model = ROOT / RUNS / direction / f"{system}.int8"
        model.mkdir(parents=True, exist_ok=True)
        (model / "model.int8.safetensors").write_bytes(data)
        print(f"{model}: {len(data):,} bytes")


COMMANDS: dict[str, Callable[..., None]] = {
    "code": code,
    "pieces": pieces,
    "unpack": unpack,
    "go": go,
    "wait": wait,
    "home": home,
    "merge": merge,
}

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(__doc__)
    COMMANDS[sys.argv[1]](*sys.argv[2:])
