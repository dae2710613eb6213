"""Every benchmark runs at toy size, and what it writes becomes the tables and plots of the page."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

Run = Callable[..., ModuleType]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Run a script of benchmarks/ with some flags, and give its module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))

        def run(name: str, *flags: str | Path) -> ModuleType:
            module = importlib.import_module(name)
            patch.setattr(sys, "argv", [f"benchmarks/{name}.py", *map(str, flags)])
            module.main()
            return module

        yield run


@pytest.fixture(scope="module")
def results(run: Run, tiny_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the benchmarks wrote."""
    folder = tmp_path_factory.mktemp("results")
    flags = {
        "output_layer": ["--case", "24x16x50", "--case", "24x16x100"],
        "training": [tiny_store, "--no-compile", "--batch-tokens", "100"],
        "decoding": ["--precision", "float32", "--batch-tokens", "256"],
        "shortlist": [],
        "exact": ["--max-states", "40", "--peer-states", "10", "--width", "4", "16"],
        "quality": [
            *(tiny_store, "--device", "cpu", "--preset", "tiny", "--seeds", "1"),
            *("--steps", "4", "--max-tokens", "512"),
        ],
        "ibm3_fit": [],
        "ibm3_sampling": ["--lines", "20"],
    }
    for name, words in flags.items():
        run(name, *words, "--toy", "--repeats", "1", "--json", folder / f"{name}.json")
    return folder


@pytest.fixture
def read(results: Path) -> Callable[[str], dict[str, Any]]:
    return lambda name: json.loads((results / f"{name}.json").read_text())


@pytest.mark.slow
def test_files_say_what_was_measured_where(results: Path) -> None:
    files = list(results.glob("*.json"))
    assert len(files) == 8
    for path in files:
        facts = json.loads(path.read_text())
        assert facts["command"].startswith(f"python benchmarks/{path.stem}.py ")
        assert {"commit", "device", "python", "torch", "triton", "transformers"} <= facts.keys()


@pytest.mark.slow
def test_every_output_layer_agrees_with_float64(read) -> None:
    cases = read("output_layer")["cases"]
    assert [case["vocabulary"] for case in cases] == [50, 100]
    for case in cases:
        rows = case["rows"]
        assert rows["three products"]["times_products"] == 1
        assert rows["SCONES, ours"]["times_ours"] == 1
        measured = {name: row for name, row in rows.items() if "loss" in row}
        assert len(measured) >= 6
        for name, row in measured.items():
            errors = [value for key, value in row.items() if key.endswith("_error")]
            assert len(errors) == 4, name
            assert max(errors) < 1e-5, name


@pytest.mark.slow
def test_exact_search_agrees_with_one_prefix_at_a_time(read) -> None:
    (entry,) = read("exact")["results"]
    assert entry["proved_by_both"] <= min(entry["proved"].values())
    assert (entry["largest_difference"] or 0.0) < 1e-3
    speeds = entry["states_per_second"]
    ratio = speeds["expanded together"] / speeds["one at a time"]
    assert entry["ratio"] == pytest.approx(ratio)
    assert [row["width"] for row in read("exact")["growth"]] == [4, 16]


@pytest.mark.slow
def test_our_softmax_and_the_peer_start_from_the_same_loss(run: Run, tiny_store, tmp_path) -> None:
    import numpy as np
    import torch

    module = importlib.import_module("training")
    options = argparse.Namespace(
        preset="tiny",
        optimizer="lamb",
        attention_dropout=0.0,
        no_compile=True,
        no_eager=False,
        toy=True,
    )
    store = module.TokenStore.open(tiny_store)
    trainers = module.make_trainers(options, store, torch.device("cpu"), torch.float32, tmp_path)
    tokens, pairs = store.split("train"), np.arange(7)
    ours, peer = trainers[module.OUR_SOFTMAX], trainers[module.PEER]
    ours.model.eval()
    peer.model.eval()
    batch = ours.batch(tokens, pairs, 512)
    with torch.no_grad():
        mine = float(ours.objective(batch)) / batch.total
        assert mine == pytest.approx(
            float(peer.model(**peer.batch(tokens, pairs, 512)).loss), rel=1e-4
        )


@pytest.mark.slow
def test_decoding_gives_the_peers_lines_in_float32(read) -> None:
    found = read("decoding")["results"]
    questions = {entry["question"] for entry in found}
    assert {"greedy", "single", "beam", "paper", "growth with the batch"} <= questions
    for entry in found:
        assert entry["ratio"] > 0
        if entry["question"] != "paper":
            assert entry["equal"] == 1
            assert entry["score_gaps"] == []


def test_the_page_is_that_of_the_stored_results(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "docs" / "performance.md"
    page.parent.mkdir()
    stored = (ROOT / "docs" / "performance.md").read_text()
    page.write_text(stored)
    results = page.parent / "results" / "performance"
    if (ROOT / "docs" / "results" / "performance").exists():
        results.parent.mkdir()
        results.symlink_to(ROOT / "docs" / "results" / "performance")
    run("tables", "--results", results, "--page", page)
    assert page.read_text() == stored
