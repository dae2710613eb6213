import json
import runpy
from pathlib import Path

from typer import Typer
from typer.testing import CliRunner

from scones.bridges.huggingface import load_converted
from scones.text.store import TokenStore

RECIPE = Path(__file__).parents[2] / "recipes" / "marian.py"


def test_the_whole_experiment_runs(tiny_store, tmp_path):
    texts = TokenStore.open(tiny_store).dev_texts
    for side, lines in zip(("de", "en"), texts, strict=True):
        (tmp_path / f"test.{side}").write_text("\n".join(lines[:2]) + "\n")
    program = Typer()
    program.command()(runpy.run_path(str(RECIPE))["main"])
    options = ["--test-source", tmp_path / "test.de", "--test-reference", tmp_path / "test.en"]
    options += ["--steps", 3, "--tuning-steps", 1, "--layers", 1, "--size", 64]
    options += ["--max-tokens", 512, "--dev-sentences", 2, "--device", "cpu"]
    options += ["--alpha", 0.7, "--tuning-rate", 1e-3]
    ran = CliRunner().invoke(
        program, [str(word) for word in [tiny_store, tmp_path / "run", *options]]
    )
    assert ran.exit_code == 0, ran.output
    result = json.loads((tmp_path / "run" / "marian.json").read_text())
    assert len(result["test"]["beam 4"]) == len(result["dev"]["greedy"]) == 6
    assert list(result["fine_tuning"]) == [
        "softmax, rate 0.001",
        "mean log-sum-exp, α = 0.7, rate 0.001",
        "least loss, α = 0.7, rate 0.001",
    ]
    assert (tmp_path / "run" / "marian.md").read_text() in ran.output
    scones = load_converted(tmp_path / "run" / "scones-normaliser")
    assert scones.config.scones["output"]["alpha"] == 0.7
