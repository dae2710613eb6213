"""Running the command line in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from running import Done, assert_refusal, contents

from scones.cli import run


@pytest.fixture
def scones(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., Done]:
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
def refused(scones: Callable[..., Done], tmp_path: Path) -> Callable[..., None]:
    """Run a command that must refuse: one sentence, exit code 2, nothing changed in tmp_path."""

    def check(*arguments: object, said: str, stdin: str | bytes = b"", answers: int = 0) -> None:
        before = contents(tmp_path)
        done = scones(*arguments, stdin=stdin)
        assert_refusal(done, said)
        assert done.out.count("\n") == answers, done.out
        assert contents(tmp_path) == before

    return check
