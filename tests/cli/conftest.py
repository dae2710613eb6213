"""Running the command line in this process."""

import sys

import pytest
from running import Done, assert_refusal, contents

from scones.cli import run


@pytest.fixture
def scones(capsys, monkeypatch, tmp_path_factory):
    """Run a command in this process; `stdin` is what it reads."""
    text = tmp_path_factory.mktemp("stdin") / "text"

    def call(*arguments, stdin=b""):
        text.write_bytes(stdin.encode() if isinstance(stdin, str) else stdin)
        capsys.readouterr()
        with text.open() as file:
            monkeypatch.setattr(sys, "stdin", file)
            code = run([str(argument) for argument in arguments])
        return Done(code, *capsys.readouterr())

    return call


@pytest.fixture
def refused(scones, tmp_path):
    """Run a command that must refuse: one sentence, exit code 2, nothing changed in tmp_path."""

    def check(*arguments, said, stdin=b"", answers=0):
        before = contents(tmp_path)
        done = scones(*arguments, stdin=stdin)
        assert_refusal(done, said)
        assert done.out.count("\n") == answers, done.out
        assert contents(tmp_path) == before

    return check


@pytest.fixture
def corpus(tmp_path, tea_pairs):
    """A folder with train.de and train.en."""
    for column, language in enumerate(("de", "en")):
        lines = "".join(f"{pair[column]}\n" for pair in tea_pairs[:150])
        (tmp_path / f"train.{language}").write_text(lines)
    return tmp_path


@pytest.fixture
def tea(tmp_path, scones):
    """A small cream-tea corpus as the command writes it."""
    sizes = ["--train", 6, "--dev", 5, "--test", 10]
    done = scones("creamtea", tmp_path / "tea", *sizes)
    assert done == Done(
        0, f"{tmp_path / 'tea'}: 6 training pairs, 5 dev and 10 test sentences.\n", ""
    )
    return tmp_path / "tea"
