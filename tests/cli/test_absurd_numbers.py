"""Numbers that no machine can take, and files nested without end: one sentence each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from scones import cli
from scones.errors import SconesError
from scones.files import read_json
from scones.model.config import ModelOptions
from scones.paper.results import reading

Refused = Callable[..., None]
HUGE = "9" * 23


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--max-steps", HUGE], f"--max-steps {HUGE} is too large a number"),
        (["--seed", f"-{HUGE}"], "is too large a number"),
        (
            ["--max-steps", "3", "--max-length", "99999999999"],
            "--max-length must be at most 2,147,483,647",
        ),
        (
            ["--max-steps", "3", "--weight-decay", "1e300"],
            r"--weight-decay must be at most 1,000,000, not 1e\+300",
        ),
        (
            ["--max-steps", "3", "--accumulate", "9999999999"],
            "--accumulate must be at most 1,000,000, not 9999999999",
        ),
    ],
)
def test_training(
    tiny_store: Path, tmp_path: Path, refused: Refused, flags: list[str], said: str
) -> None:
    words = ["train", tiny_store, tmp_path / "model", "--preset", "tiny", "--device", "cpu"]
    refused(*words, *flags, said=said)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("memory", ["nan", "inf", "0", "-1"])
def test_memory(tiny_model: Path, tmp_path: Path, refused: Refused, memory: str) -> None:
    text = tmp_path / "text"
    text.write_text("Tee\n")
    words = ["analyze", tiny_model, "--source", text, "-r", text, "-o", tmp_path / "out"]
    refused(*words, "--max-memory", memory, said="max_memory must be above 0")


def test_sizes_of_a_model() -> None:
    with pytest.raises(
        SconesError, match="vocabulary must be at most 2,147,483,647, not 10000000000"
    ):
        ModelOptions(preset="tiny").build(vocabulary=10**10)


def test_a_file_nested_without_end(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(SconesError, match=r"deep\.json is damaged"):
        read_json(tmp_path / "deep.json")


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (OverflowError("int too big to convert"), "too large to compute with"),
        (RecursionError("maximum recursion depth exceeded"), "nested too deeply"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"), "not enough memory"),
    ],
)
def test_what_a_command_stumbles_over(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    problem: Exception,
    said: str,
) -> None:
    def stumble(arguments: list[str]) -> int:
        raise problem

    monkeypatch.setattr("scones.cli.commands.call", stumble)
    assert cli.run(["info"]) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert said in sentence


def test_other_errors_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble(arguments: list[str]) -> int:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr("scones.cli.commands.call", stumble)
    with pytest.raises(RuntimeError, match="of ours"):
        cli.run(["info"])


def test_a_wrong_results_file_is_named(tmp_path: Path) -> None:
    refusal = pytest.raises(SconesError, match=r"cannot be read as results \(KeyError: 'sentences'")
    with refusal, reading(tmp_path):
        json.loads("{}")["sentences"]
