import json
import subprocess
import sys
from pathlib import Path

import pytest
import sacrebleu
from typer.testing import CliRunner

from scones.cli.commands import app
from scones.errors import SconesError
from scones.evaluation.significance import paired_bootstrap


@pytest.fixture
def folder(tmp_path, references, spoil, monkeypatch):
    """Files of references and systems, in the working folder."""
    texts = {
        "ref.txt": references,
        "ref2.txt": spoil(0.1, 9),
        "good.txt": spoil(0.2, 1),
        "bad.txt": ["", *spoil(0.5, 2)[1:]],
    }
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    monkeypatch.chdir(tmp_path)
    return texts


def run(*arguments):
    return CliRunner().invoke(app, ["evaluate", *arguments], catch_exceptions=False)


def test_one_system_gets_a_table_and_sacrebleus_signatures(folder):
    result = run("-r", "ref.txt", "-r", "ref2.txt", "good.txt")
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    for metric in (sacrebleu.BLEU(), sacrebleu.CHRF(), sacrebleu.TER()):
        expected = metric.corpus_score(folder["good.txt"], [folder["ref.txt"], folder["ref2.txt"]])
        row = next(line for line in result.stdout.splitlines() if expected.name in line.split())
        assert row.split() == [expected.name, "good.txt", f"{expected.score:.2f}"]
        assert f"{expected.name}|{metric.get_signature()}" in result.stdout.splitlines()
    assert "‡" not in result.stdout


def test_several_systems_are_tested_against_the_first(folder):
    result = run("-r", "ref.txt", "good.txt", "other=bad.txt", "[b]=good.txt", "--seed", "3")
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    systems = {"good.txt": folder["good.txt"], "other": folder["bad.txt"]}
    _, other = paired_bootstrap("bleu", systems, [folder["ref.txt"]], seed=3)
    interval = [f"[{other.low:.2f},", f"{other.high:.2f}]"]
    assert ["BLEU", "other", f"{other.score:.2f}‡", *interval, f"{other.p:.4f}"] in rows
    assert any(row[:2] == ["TER", "[b]"] and row[-1] == "1.0000" for row in rows)
    explanation = result.stdout.splitlines()[-1]
    assert explanation.startswith("† p < 0.05, ‡ p < 0.01: differs from good.txt")
    assert "1,000 resamples, seed 3" in explanation


def test_json_holds_the_same_numbers(folder):
    report = json.loads(run("-r", "ref.txt", "-m", "chrf", "good.txt", "bad.txt", "--json").stdout)
    systems = {name: folder[name] for name in ("good.txt", "bad.txt")}
    expected = paired_bootstrap("chrf", systems, [folder["ref.txt"]])
    assert [row["system"] for row in report["results"]] == list(systems)
    for row, result in zip(report["results"], expected, strict=True):
        assert row == vars(result) | {"mark": result.mark}
    assert report["length_ratios"].keys() == systems.keys()


def test_standard_input_and_a_single_metric_in_json(folder):
    """In a process of its own, since it reads /dev/stdin."""
    command = [sys.executable, "-m", "scones", "evaluate", "-r", "ref.txt", "--json", "-"]
    with Path("good.txt").open() as file:
        words = [*command, "-m", "ter", "-m", "ter"]
        done = subprocess.run(words, stdin=file, capture_output=True, text=True, check=True)
    (row,) = json.loads(done.stdout)["results"]
    assert done.stderr == ""
    assert row["system"] == "stdin"
    assert row["score"] == sacrebleu.corpus_ter(folder["good.txt"], [folder["ref.txt"]]).score
    assert row.keys() == {"system", "metric", "score", "signature"}


def test_an_equals_sign_in_an_existing_file_name_is_no_system_name(folder, tmp_path):
    (tmp_path / "alpha=0.5.txt").write_text((tmp_path / "good.txt").read_text())
    assert "alpha=0.5.txt" in run("-r", "ref.txt", "-m", "bleu", "alpha=0.5.txt").stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["good.txt", "short.txt"], "good.txt has 120 lines but short.txt has 1;"),
        (["good.txt", "--source", "short.txt"], "good.txt has 120 lines but short.txt has 1;"),
        (["good.txt", "./good.txt"], "Two systems are called 'good.txt'; .*NAME=FILE"),
        (["missing.txt"], "missing.txt does not exist"),
        (["good.txt", "-m", "bluer"], "'bluer' is unknown"),
    ],
)
def test_mistakes_are_one_sentence(folder, tmp_path, arguments, sentence):
    (tmp_path / "short.txt").write_text("only one line\n")
    with pytest.raises(SconesError, match=sentence):
        run("-r", "ref.txt", *arguments)
