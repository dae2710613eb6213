"""Help pages, complete and quick, with examples that work; and completion by the shell."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import scones as package
from scones.cli import run
from scones.cli.commands import app

GROUP = typer.main.get_command(app)
COMMANDS = list(GROUP.commands)


def leaves(group=GROUP, before=""):
    """Give the commands, those of groups too, by the words that call them."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, f"{before}{name} ")
        else:
            yield before + name, command


LEAVES = dict(leaves())
REPOSITORY = Path(package.__file__).parents[1]
HEAVY = ("torch", "numpy", "sentencepiece", "sacrebleu", "safetensors", "py3langid", "rich")


def examples(text):
    """Give the words of every indented scones command of a text, redirections left away."""
    for line in text.replace("\\\n", " ").splitlines():
        if re.match(r" +(\w+ .*\| *)?scones ", line):
            lexer = shlex.shlex(line, posix=True, punctuation_chars="|<>")
            lexer.whitespace_split = True
            words = " ".join(shlex.quote(word) if word not in "|<>" else word for word in lexer)
            for part in words.split(" | "):
                if part.startswith("scones "):
                    yield shlex.split(re.sub(r" [<>] \S+", "", part))


def of_command(name):
    return list(examples((LEAVES.get(name) or GROUP.commands[name]).help))


def in_documents():
    for path in (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))):
        for block in re.findall(r"^```sh\n(.*?)^```", path.read_text(), re.M | re.S):
            for words in examples(re.sub("^", " ", block, flags=re.M)):
                yield path, words


def test_help_names_every_command_once(scones):
    for flag in ("--help", "-h"):
        done = scones(flag)
        assert (done.code, done.err) == (0, "")
        before_options = done.out.partition("\nOptions:")[0]
        assert re.findall(r"^  ([a-z0-9]+)  ", before_options, re.M) == COMMANDS
        assert "--install-completion" in done.out


def test_no_arguments_give_the_help_as_a_mistake(scones):
    done = scones()
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Usage: scones")


@pytest.mark.parametrize("command", LEAVES)
def test_every_command_says_what_it_does(scones, command):
    done = scones(*command.split(), "--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"Usage: scones {command} [OPTIONS]")
    assert "\x1b" not in done.out
    assert max(map(len, done.out.splitlines())) <= 80
    assert all(parameter.help for parameter in LEAVES[command].params)
    called = [" ".join(words[1:]) for words in of_command(command)]
    names = f"{command} ", f"{command.removeprefix('paper ')} "  # two have a shorter name as well
    assert len([words for words in called if words.startswith(names)]) >= 2


def parse(words):
    program, *rest = words
    assert program == "scones"
    name = next(name for name in LEAVES if rest[: len(name.split())] == name.split())
    arguments = rest[len(name.split()) :]
    LEAVES[name].make_context(name, arguments)  # raises for what it does not know
    for word in words:
        assert not word.startswith("recipes/") or (REPOSITORY / word).exists()


def test_examples_are_commands_that_can_be_given():
    for name in ("ibm3", *LEAVES):
        for words in of_command(name):
            parse(words)
    for path, words in in_documents():
        try:
            parse(words)
        except Exception as problem:
            raise AssertionError(f"{path}: {' '.join(words)}") from problem


SMALLER = {
    "creamtea": ["--train", "200", "--dev", "4", "--test", "4"],
    "prepare": ["--pieces", "450", "--workers", "1", "--any-language"],
    "train": ["--max-steps", "1", "--layers", "1", "--size", "32", "--max-length", "64"],
}


def test_the_way_of_a_sentence_works_as_it_stands(scones, tmp_path, monkeypatch):
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


def test_help_imports_nothing_heavy():
    """So that it comes at once."""
    program = "import sys, scones.cli; scones.cli.run(['--help']); "
    program += f"print([name for name in {HEAVY} if name in sys.modules])"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.endswith("\n[]\n")


def test_version(scones):
    done = scones("--version")
    assert done.code == 0
    version = re.escape(package.__version__)
    assert re.fullmatch(
        rf"scones {version}( \(commit \S+\))?, PyTorch \S+, Python 3\S+\n", done.out
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian"], "No such command 'trian'; did you mean 'train'?"),
        (["--verison"], "No such option: --verison; did you mean --version?"),
        (["train", "--max-step", "3"], "No such option: --max-step; did you mean --max-steps?"),
        (["score", "--xyzzy"], "No such option: --xyzzy; see scones score --help."),
        (["score"], "Missing argument 'MODEL'; see scones score --help."),
    ],
)
def test_what_is_not_known_gets_a_suggestion(scones, words, said):
    done = scones(*words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith(f"scones: {said}")


@pytest.mark.parametrize("module", ["typer", "torch"])
def test_ctrl_c_while_something_is_imported(module, tiny_model):
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


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("scones tr", ["train", "translate"]),
        ("scones --ver", ["--version"]),
        ("scones train store model --warm", ["--warmup-steps"]),
        ("scones train store model --optimizer ", ["lamb", "adamw"]),
        ("scones train store model --output-layer ", ["scones", "softmax"]),
        ("scones evaluate out.en -m ble", ["bleu", "bleurt"]),
        ("scones score model --device c", ["cpu", "cuda"]),
        ("scones translate ", []),  # nothing: then the shell completes a path
    ],
)
def test_what_could_come_next(line, expected, monkeypatch, capsys):
    """Ask as bash does what could stand at the end of a line."""
    monkeypatch.setenv("_SCONES_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    with pytest.raises(SystemExit) as ended:
        run([])
    assert ended.value.code == 0
    assert capsys.readouterr().out.split() == expected
