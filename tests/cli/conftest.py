"""Running the command line in this process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from running import Done, Refused, Scones, assert_refusal, contents

from scones.cli import run


@pytest.fixture
def scones(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Scones:
    """Run a command in this process; `stdin` is what it reads."""
    text = tmp_path_factory.mktemp("stdin") / "text"

    def call(*arguments: object, stdin: str | bytes = b"") -> Done:
        text.write_bytes(stdin.encode() if isinstance(stdin, str) else stdin)
        capsys.readouterr()
        with text.open() as file:
            monkeypatch.setattr(sys, "stdin", file)
            code = run([str(argument) for argument in arguments])
        return Done(code, *capsys.readouterr())

    return call


@pytest.fixture
def refused(scones: Scones, tmp_path: Path) -> Refused:
    """Run a command that must refuse: one sentence, exit code 2, nothing changed in tmp_path."""

    def check(*arguments: object, said: str, stdin: str | bytes = b"", answers: int = 0) -> None:
        before = contents(tmp_path)
        done = scones(*arguments, stdin=stdin)
        assert_refusal(done, said)
        assert done.out.count("\n") == answers, done.out
        assert contents(tmp_path) == before

    return check


@pytest.fixture
def corpus(tmp_path: Path, tea_pairs: list[tuple[str, str]]) -> Path:
    """A folder with train.de and train.en."""
    for column, language in enumerate(("de", "en")):
        lines = "".join(f"{pair[column]}\n" for pair in tea_pairs[:150])
        (tmp_path / f"train.{language}").write_text(lines)
    return tmp_path


@pytest.fixture
def tea(tmp_path: Path, scones: Scones) -> Path:
    """A small cream-tea corpus as the command writes it."""
    sizes = ["--train", 6, "--dev", 5, "--test", 10]
    done = scones("creamtea", tmp_path / "tea", *sizes)
    assert done == Done(
        0, f"{tmp_path / 'tea'}: 6 training pairs, 5 dev and 10 test sentences.\n", ""
    )
    return tmp_path / "tea"
