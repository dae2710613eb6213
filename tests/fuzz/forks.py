"""Commands in forks of a process that has imported everything: fractions of a second each."""

import os
import resource
import shlex
import signal
import sys
import tomllib
from contextlib import redirect_stdout, suppress
from multiprocessing import get_context
from pathlib import Path

from tests.bridges.marian_models import new_model, write_subwords

os.environ |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "SCONES_COMMIT": "none"}

FORKS = get_context("fork")
MEMORY = 4 * 2**30
TEXT = "Guten Morgen.\n\nIch möchte Tee.\n"
COMMANDS = tomllib.loads(Path(__file__).with_name("commands.toml").read_text())


def words_of(command, **places):
    """Take a command apart, with frequent words and places put into it."""
    return shlex.split(command.format(**COMMANDS["words"], **places).format(**places))


def make(place):
    """Make valid folders of every kind; gives the folder that holds them."""
    from scones.cli import run

    os.environ["XDG_CACHE_HOME"], valid = str(place / "cache"), place / "valid"
    (valid / "given").mkdir(parents=True)
    often = {name: 60 * text for name, text in COMMANDS["given_often"].items()}
    for name, text in {**COMMANDS["given"], **often}.items():
        (valid / "given" / name).write_text(text)
    with redirect_stdout(sys.stderr):
        for command in COMMANDS["make"]["commands"]:
            if code := run(words_of(command, valid=valid)):
                raise RuntimeError(f"{command} ended with {code}")
    _write_marian(valid / "marian", valid / "texts")
    return valid


def _write_marian(folder, texts):
    """A Marian folder, of which no command of ours is the maker."""
    folder.mkdir()
    sides = ((texts / name).read_text().splitlines() for name in ("train.de", "train.en"))
    vocabulary = write_subwords(folder, list(zip(*sides, strict=True)), 300)
    new_model(vocabulary, max_position_embeddings=64).save_pretrained(folder)


def run_in_a_fork(words, place, seconds, *numbers):
    """Run a command, its output in `place`; gives its exit code, and whether it was late.

    It and its children are sent these signals, one after each so many seconds.
    """
    child, late = FORKS.Process(target=_be_scones, args=(words, place)), False
    child.start()
    os.setpgid(child.pid, child.pid)
    for number in numbers:
        child.join(seconds)
        if child.exitcode is None:
            late = True
            os.killpg(child.pid, number)
    child.join()
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    return child.exitcode, late


def _be_scones(words, place):
    from scones.cli import main

    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(place / "out")
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    (place / "stdin").write_text(TEXT)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        flags = os.O_RDWR | os.O_CREAT | (os.O_TRUNC if number else 0)
        os.dup2(os.open(place / name, flags), number)
    sys.stdin, sys.argv = open(0), ["scones", *words]  # noqa: SIM115
    sys.stdout.reconfigure(encoding="utf-8", errors="strict")
    main()
