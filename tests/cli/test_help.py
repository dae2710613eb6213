"""Help pages, complete and quick, with examples that work; and completion by the shell."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import typer
from running import Scones

import scones as package
from scones.cli import run
from scones.cli.commands import app
from scones.cli.train import OutputFlags

GROUP: Any = typer.main.get_command(app)
COMMANDS = list(GROUP.commands)


def leaves(group: Any = GROUP, before: str = "") -> Iterator[tuple[str, Any]]:
    """Give the commands, those of groups too, by the words that call them."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, f"{before}{name} ")
        else:
            yield before + name, command


LEAVES = dict(leaves())
REPOSITORY = Path(package.__file__).parents[1]
HEAVY = ("torch", "numpy", "sentencepiece", "sacrebleu", "safetensors", "py3langid", "rich")


def examples(text: str) -> Iterator[list[str]]:
    """Give the words of every indented scones command of a text, redirections left away."""
    for line in text.replace("\\\n", " ").splitlines():
        if re.match(r" +(\w+ .*\| *)?scones ", line):
            lexer = shlex.shlex(line, posix=True, punctuation_chars="|<>")
            lexer.whitespace_split = True
            words = " ".join(shlex.quote(word) if word not in "|<>" else word for word in lexer)
            for part in words.split(" | "):
                if part.startswith("scones "):
                    yield shlex.split(re.sub(r" [<>] \S+", "", part))


def of_command(name: str) -> list[list[str]]:
    return list(examples((LEAVES.get(name) or GROUP.commands[name]).help))


def in_documents() -> Iterator[tuple[Path, list[str]]]:
    for path in (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))):
        for block in re.findall(r"^```sh\n(.*?)^```", path.read_text(), re.M | re.S):
            for words in examples(re.sub("^", " ", block, flags=re.M)):
                yield path, words


def test_help_names_every_command_once_under_a_heading(scones: Scones) -> None:
    for flag in ("--help", "-h"):
        done = scones(flag)
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith("Usage: scones [OPTIONS] COMMAND")
        before_options = done.out.partition("\nOptions:")[0]
        assert re.findall(r"^  ([a-z0-9]+)  ", before_options, re.M) == COMMANDS
        headings = re.findall(r"^([A-Z].*):$", done.out, re.M)
        expected = ["From text to a model", "Use a model", "Judge", "Experiments", "Options"]
        assert headings == expected


def test_no_arguments_give_the_help_as_a_mistake(scones: Scones) -> None:
    done = scones()
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Usage: scones")


@pytest.mark.parametrize("command", ["", "ibm3", *LEAVES])
def test_every_page_is_plain_and_fits(scones: Scones, command: str) -> None:
    done = scones(*command.split(), "--help")
    assert (done.code, done.err) == (0, "")
    assert "\x1b" not in done.out
    assert max(map(len, done.out.splitlines())) <= 80


@pytest.mark.parametrize("command", LEAVES)
def test_every_command_says_what_it_does(scones: Scones, command: str) -> None:
    page = scones(*command.split(), "--help").out
    assert page.startswith(f"Usage: scones {command} [OPTIONS]")
    assert all(parameter.help for parameter in LEAVES[command].params)
    called = [" ".join(words[1:]) for words in of_command(command)]
    assert len([words for words in called if words.startswith(f"{command} ")]) >= 2


def parse(words: list[str]) -> None:
    program, *rest = words
    assert program == "scones"
    name = next(name for name in LEAVES if rest[: len(name.split())] == name.split())
    arguments = rest[len(name.split()) :]
    LEAVES[name].make_context(name, arguments)  # raises for what it does not know
    for word in words:
        assert not word.startswith("recipes/") or (REPOSITORY / word).exists()


def test_examples_are_commands_that_can_be_given() -> None:
    for name in ("ibm3", *LEAVES):
        for words in of_command(name):
            parse(words)
    for path, words in in_documents():
        try:
            parse(words)
        except Exception as problem:
            raise AssertionError(f"{path}: {' '.join(words)}") from problem


def test_the_check_of_examples_sees_a_flag_that_is_not_there() -> None:
    (words,) = examples("    scones score model a \\\n        b --jsno > c")
    assert words == ["scones", "score", "model", "a", "b", "--jsno"]
    with pytest.raises(Exception, match="No such option: --jsno"):
        parse(words)


SMALLER = {
    "creamtea": ["--train", "200", "--dev", "4", "--test", "4"],
    "prepare": ["--pieces", "450", "--workers", "1", "--any-language"],
    "train": ["--max-steps", "1", "--layers", "1", "--size", "32", "--device", "cpu"],
}


def test_the_way_of_a_sentence_works_as_it_stands(
    scones: Scones, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    way = list(examples(GROUP.help))
    assert [words[1] for words in way] == ["creamtea", "prepare", "train", "translate", "evaluate"]
    assert re.search(r"translate model < tea/test.de > output.en\n", GROUP.help)
    for _, command, *rest in way:
        stdin = Path("tea/test.de").read_bytes() if command == "translate" else b""
        done = scones(command, *rest, *SMALLER.get(command, []), stdin=stdin)
        assert done.code == 0, done.err
        if command == "translate":
            Path("output.en").write_text(done.out)
    assert "BLEU" in done.out


def test_the_many_flags_of_train_stand_under_headings(scones: Scones) -> None:
    page = scones("train", "--help").out
    headings = re.findall(r"^([A-Z].*):$", page, re.M)
    expected = ["Arguments", "Options", "Output", "Model", "Budget", "Batches", "Optimiser"]
    assert headings == [*expected, "Bookkeeping", "Start and machine"]
    budget = page.partition("Budget:\n")[2].partition("\n\n")[0]
    flags = re.findall(r"^  (--\S+)", budget, re.M)
    assert flags[:2] == ["--max-steps", "--max-minutes"]
    assert re.search(r"^  --optimizer lamb\|adamw +the optimiser", page, re.M)
    columns = {match.start(1) for match in re.finditer(r"^  --\S+ \S+  +(\S)", page, re.M)}
    starts = {column - page.rfind("\n", 0, column) for column in columns}
    assert len(starts) == 1  # one below the other, across headings


def test_help_comes_at_once() -> None:
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        command = [sys.executable, "-m", "scones", "--help"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        seconds.append(time.perf_counter() - begin)
    assert statistics.median(seconds) < 1.0  # 0.15 s on a machine with nothing else to do
    assert done.stdout.startswith("Usage: scones [OPTIONS]")  # and not "python -m scones"


def test_the_command_line_imports_nothing_heavy() -> None:
    program = "import sys, scones.cli.commands; "
    program += f"print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout == "[]\n"


def test_version(scones: Scones) -> None:
    import torch

    done = scones("--version")
    assert done.code == 0
    version, python = re.escape(package.__version__), ".".join(map(str, sys.version_info[:3]))
    expected = rf"scones {version}( \(commit \S+\))?, PyTorch (\S+), Python {python}\S*\n"
    match = re.fullmatch(expected, done.out)
    assert match
    assert match[2].partition("+")[0] == torch.__version__.partition("+")[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian"], "No such command 'trian'; did you mean 'train'?"),
        (["xyzzy"], "No such command 'xyzzy'; see scones --help."),
        (["--verison"], "No such option: --verison; did you mean --version?"),
        (["score", "--jsno"], "No such option: --jsno; did you mean --json?"),
        (["train", "--max-step", "3"], "No such option: --max-step; did you mean --max-steps?"),
        (["score", "--xyzzy"], "No such option: --xyzzy; see scones score --help."),
        (["score"], "Missing argument 'MODEL'; see scones score --help."),
    ],
)
def test_what_is_not_known_gets_a_suggestion(scones: Scones, words: list[str], said: str) -> None:
    done = scones(*words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith(f"scones: {said}")


@pytest.mark.parametrize("module", ["typer", "torch"])
def test_ctrl_c_while_something_is_imported(module: str, tiny_model: Path) -> None:
    program = f"""
import sys
class Impatient:
    def find_spec(self, name, *_):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Impatient())
from scones.cli import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, "info", str(tiny_model)], capture_output=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


# Completion by the shell: commands, flags, values; paths are left to the shell itself.


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


def test_what_is_offered_is_there() -> None:
    from scones.model.config import PRESETS, ModelOptions
    from scones.outputs import output_layer

    presets = get_args(get_type_hints(ModelOptions)["preset"])
    assert list(presets) == list(PRESETS)
    (layers,) = (field for field in fields(OutputFlags) if field.name == "output_layer")
    for name in layers.metadata["values"]:
        assert output_layer({"layer": name}).name == name


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
