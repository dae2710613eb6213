"""Every benchmark runs at toy size, and what it writes becomes the tables and plots of the page."""

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def run():
    """Run a script of benchmarks/ with some flags, and give its module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))

        def run(name, *flags):
            module = importlib.import_module(name)
            patch.setattr(sys, "argv", [f"benchmarks/{name}.py", *map(str, flags)])
            module.main()
            return module

        yield run


@pytest.fixture(scope="module")
def results(run, tiny_store, tmp_path_factory):
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
        "cpu": ["--task", "greedy", "--task", "load"],
        "ibm3_fit": [],
        "ibm3_sampling": ["--lines", "20"],
    }
    for name, words in flags.items():
        run(name, *words, "--toy", "--repeats", "1", "--json", folder / f"{name}.json")
    return folder


@pytest.fixture
def read(results):
    return lambda name: json.loads((results / f"{name}.json").read_text())


@pytest.mark.slow
def test_every_output_layer_agrees_with_float64(read):
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
def test_decoding_gives_the_peers_lines_in_float32(read):
    found = read("decoding")["results"]
    questions = {entry["question"] for entry in found}
    assert {"greedy", "single", "beam", "paper", "growth with the batch"} <= questions
    for entry in found:
        assert entry["ratio"] > 0
        if entry["question"] != "paper":
            assert entry["equal"] == 1
            assert entry["score_gaps"] == []


def test_the_page_is_that_of_the_stored_results(run, tmp_path):
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


@pytest.mark.slow
def test_what_somebody_at_the_page_waits_for_is_measured(tmp_path):
    for needed in ("fastapi", "playwright"):
        pytest.importorskip(needed)
    if not shutil.which("chromium"):
        pytest.skip("there is no Chromium here")
    # In a process of its own: Playwright bears no event loop of other tests beside it.
    words = [ROOT / "benchmarks" / "page.py", "--sentences", "2", "--json", tmp_path / "page.json"]
    subprocess.run([sys.executable, *words], check=True, timeout=200)
    waited = json.loads((tmp_path / "page.json").read_text())["milliseconds"]
    assert waited["translation"]["measured"] == 2
    assert 80 <= waited["translation"]["median"] <= waited["translation"]["95 %"]
