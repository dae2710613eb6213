"""Completion by the shell: commands, flags, values; paths are left to the shell itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from scones.cli import run
from scones.cli.train import OutputFlags


def completed(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    """Ask as bash does what could stand at the end of a line."""
    monkeypatch.setenv("_SCONES_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    with pytest.raises(SystemExit) as ended:
        run([])
    assert ended.value.code == 0
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("scones tr", ["train", "translate"]),
        ("scones --ver", ["--version"]),
        ("scones train store model --max-", ["--max-length", "--max-steps", "--max-minutes"]),
        ("scones train store model --optimizer ", ["lamb", "adamw"]),
        ("scones train store model --optimizer a", ["adamw"]),
        ("scones train store model --preset ", ["tiny", "small", "paper"]),
        ("scones train store model --output-layer ", ["scones", "softmax"]),
        ("scones tune store runs --loss-average s", ["sentences"]),
        ("scones evaluate out.en -m ble", ["bleu", "bleurt"]),
        ("scones score model --device c", ["cpu", "cuda"]),
        ("scones translate ", []),  # nothing: then the shell completes a path
        ("scones translate runs/", []),
        ("scones train store model --recipe ", []),
    ],
)
def test_what_could_come_next(
    line: str,
    expected: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = completed(line, monkeypatch, capsys)
    if line.endswith("--max-"):
        assert {*expected, "--max-tokens"} == {*found}
    else:
        assert found == expected


def test_the_output_layers_that_are_offered_are_those_that_there_are() -> None:
    from scones.outputs import layer_names

    (flag,) = (field for field in fields(OutputFlags) if field.name == "output_layer")
    assert {*flag.metadata["values"]} <= {*layer_names()}


def test_the_presets_that_are_offered_are_those_that_there_are() -> None:
    from typing import get_args, get_type_hints

    from scones.model.config import PRESETS, ModelOptions

    assert list(get_args(get_type_hints(ModelOptions)["preset"])) == list(PRESETS)


@pytest.mark.parametrize(
    ("shell", "file", "holds"),
    [
        ("bash", ".bash_completions/scones.sh", "complete -o default -F _scones_completion scones"),
        ("zsh", ".zfunc/_scones", "#compdef scones"),
        ("fish", ".config/fish/completions/scones.fish", "complete --command scones"),
    ],
)
def test_installing_and_showing(
    shell: str,
    file: str,
    holds: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("shellingham.detect_shell", lambda: (shell, f"/bin/{shell}"))
    for flag in ("--install-completion", "--show-completion"):
        with pytest.raises(SystemExit) as ended:
            run([flag])
        assert ended.value.code == 0
    assert holds in (tmp_path / file).read_text()
    assert holds in capsys.readouterr().out


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not there")
def test_bash_itself_completes(tmp_path: Path) -> None:
    program = tmp_path / "scones"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m scones "$@"\n')
    program.chmod(0o755)
    (tmp_path / "model").mkdir()
    script = """
    eval "$(_SCONES_COMPLETE=source_bash scones)"
    COMP_WORDS=(scones train store model --optimizer a) COMP_CWORD=5
    _scones_completion scones
    echo "${COMPREPLY[*]}"
    complete -p scones
    """
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, env=environment
    )
    assert done.stderr == ""
    # -o default: where scones offers nothing, bash completes paths.
    assert done.stdout.splitlines() == [
        "adamw",
        "complete -o default -F _scones_completion scones",
    ]
