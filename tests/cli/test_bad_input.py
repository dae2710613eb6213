"""Bad input: one clear sentence, exit code 2, nothing half-written."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from running import Refused, Scones, assert_refusal, contents, no_file_larger_than

TEN_THOUSAND_WORDS = "Tee " * 10_000


TINY_RUN = ["--layers", 1, "--size", 32, "--heads", 2, "--feed-forward", 64, "--device", "cpu"]
TINY_RUN += ["--max-steps", 2, "--max-tokens", 512]


def preparing(corpus: Path, *more: object) -> list[object]:
    files = ["--source", corpus / "train.de", "--target", corpus / "train.en"]
    languages = ["-s", "de", "-t", "en", "--any-language"]
    return ["prepare", corpus / "store", *files, *languages, "--pieces", 400, "--workers", 1, *more]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text + b"Tee\n", r"train\.de has 151 lines but \S+train\.en has 150"),
        (lambda text: text.decode().encode("latin-1"), r"train\.de is not UTF-8.*line \d+.*iconv"),
        (lambda text: b"\0" + text, r"train\.de, line 1 .*NUL"),
        (lambda text: text.replace(b"\n", b"\r\n"), r"train\.de has Windows line ends.*--dos"),
        (lambda text: b"\n" * text.count(b"\n"), r"Nothing of \S+train\.de.*empty"),
    ],
    ids=["unequal", "latin-1", "nul", "crlf", "blank"],
)
def test_prepare_refuses_a_bad_file(
    corpus: Path, refused: Refused, change: Callable[[bytes], bytes], said: str
) -> None:
    path = corpus / "train.de"
    path.write_bytes(change(path.read_bytes()))
    refused(*preparing(corpus), said=said)


def test_a_folder_without_permission(
    corpus: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbid(path: Path, *_: object) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os, "mkdir", forbid)  # root, who may run the tests, may write anywhere
    refused(*preparing(corpus), said=r"no permission to use \S+store")


def test_an_unreadable_line_ends_a_translation_behind_its_answers(
    tiny_model: Path, refused: Refused
) -> None:
    for bad, said in (
        (b"Te\xff", "Line 3 .* not UTF-8 .*byte 3 is 0xFF"),
        (b"T\0", "Line 3 .* holds a NUL byte"),
    ):
        lines = b"Guten Tag.\n\n" + bad + b"\nTee\n"
        refused("translate", tiny_model, stdin=lines, said=said, answers=2)


def test_a_sentence_of_ten_thousand_words(
    tiny_model: Path, scones: Scones, refused: Refused, caplog: pytest.LogCaptureFixture
) -> None:
    lines = f"Guten Tag.\n{TEN_THOUSAND_WORDS}\nTee\n"
    said = r"Sentence 2 has [\d,]+ pieces and the model takes 63; split it"
    refused("translate", tiny_model, "--chunk", 1, stdin=lines, said=said, answers=1)
    assert caplog.messages == []
    first, last = scones("translate", tiny_model, stdin="Guten Tag.\nTee\n").out.splitlines()
    for policy, word in (("skip", "skipped"), ("cut", "cut")):
        done = scones("translate", tiny_model, "--too-long", policy, stdin=lines)
        assert done.code == 0
        answers = done.out.splitlines()
        assert (answers[0], answers[2]) == (first, last)
        assert (answers[1] == "") == (policy == "skip")
        assert any(
            re.fullmatch(rf"Sentence 2 has .*: it is {word}\.", one) for one in caplog.messages
        )


WEIGHTS = "model.safetensors"


@pytest.mark.parametrize(
    ("command", "file", "content", "said"),
    [
        ("info model", "", None, "model does not exist"),
        ("info model", "config.json", None, "it has no config.json"),
        ("info model", "config.json", b"{}", "not a SCONES model"),
        ("info model", "config.json", b"[" * 100_000, "config.json is damaged"),
        ("info store", "store.json", b"{", "store.json is damaged"),
        ("translate model", WEIGHTS, None, f"{WEIGHTS} does not exist"),
        ("translate model", WEIGHTS, b"", f"{WEIGHTS} is damaged"),
        ("translate model", "subwords.model", b"pieces of cake", "subwords.model is damaged"),
        ("train store", "", None, "store is not a folder; make a store with `scones prepare"),
        ("train store", "train.source.tokens", b"", "train.source.tokens is damaged: it has 0"),
        ("shortlist store", "subwords.model", None, "subwords.model does not exist"),
    ],
)
def test_what_is_damaged_is_refused(
    tiny_model: Path,
    tiny_store: Path,
    tmp_path: Path,
    refused: Refused,
    command: str,
    file: str,
    content: bytes | None,
    said: str,
) -> None:
    """Everything that can be wrong with such folders is tested with those who read them."""
    name, kind = command.split()
    folder = tmp_path / kind
    shutil.copytree({"model": tiny_model, "store": tiny_store}[kind], folder)
    if content is not None:
        (folder / file).write_bytes(content)
    elif file:
        (folder / file).unlink()
    else:
        shutil.rmtree(folder)
    more = {"train": [tmp_path / "run", *TINY_RUN], "shortlist": [tmp_path / "list"]}.get(name, [])
    refused(name, folder, *more, stdin="Tee\n", said=said)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("ibm3 fit {mine} --source train.de --target train.en --overwrite", "not an IBM Model 3"),
        (
            "ibm3 import run {mine} --source-vocabulary a --target-vocabulary b --overwrite",
            "not an",
        ),
        ("prepare {mine} -s de -t en --source train.de --target train.en --overwrite", "a store"),
        ("export {model} {mine} --to pocket --overwrite", "not a model folder"),
        ("export {model} {mine} --overwrite", "not an export"),
        ("shortlist {store} {mine}/thesis.txt --overwrite", "exists and is not a shortlist"),
        ("analyze {model} --source train.de -r train.en -o {mine}", "is not a result of this"),
        (
            "compare {model} {model2} --source train.de -r train.en --output {mine}/thesis.txt",
            "is not a result of this command",
        ),
    ],
)
def test_nobodys_files_are_replaced(
    corpus: Path,
    tiny_models: Path,
    tiny_store: Path,
    refused: Refused,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    said: str,
) -> None:
    monkeypatch.chdir(corpus)
    mine = corpus / "mine"
    mine.mkdir()
    for name in ("thesis.txt", "analysis.md"):
        (mine / name).write_text("years of work")
    models = {"model": tiny_models / "scones", "model2": tiny_models / "softmax"}
    words = command.format(mine="mine", store=tiny_store, **models).split()
    refused(*words, said=said)


@pytest.mark.parametrize(
    ("command", "size"),
    [("creamtea", 4096), ("prepare", 2_000), ("prepare", 20_000), ("export", 50_000)],
)
def test_without_space_nothing_is_left(
    corpus: Path, tiny_model: Path, scones: Scones, command: str, size: int
) -> None:
    words = {
        "creamtea": ["creamtea", corpus / "tea", "--train", 300],
        "prepare": preparing(corpus, "--workers", 2),
        "export": ["export", tiny_model, corpus / "export"],
    }
    before = contents(corpus)
    with no_file_larger_than(size):
        done = scones(*words[command])
    assert_refusal(done, "no space left to write")
    assert contents(corpus) == before


@pytest.mark.parametrize("first", [["--validate-every", 1], ["--checkpoint-every", 1]])
def test_train_without_space_can_go_on_later(
    tiny_store: Path, tmp_path: Path, scones: Scones, first: list[object]
) -> None:
    run = tmp_path / "run"
    # The run's record and its log fit, the weights do not.
    with no_file_larger_than(20_000):
        done = scones("train", tiny_store, run, *TINY_RUN, *first)
    assert_refusal(done, r"no space left to write \S+model\.safetensors")
    left = sorted(contents(run))
    assert left == ["training", "training/checkpoints", "training/log.jsonl", "training/run.json"]
    assert scones("train", tiny_store, run, *TINY_RUN, *first).code == 0
    assert scones("info", run).code == 0


def test_the_remedy_for_windows_files_is_there_wherever_it_is_named(
    tiny_model: Path, tmp_path: Path, scones: Scones, refused: Refused
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"\xef\xbb\xbfTee\r\nSahne\r\n")
    target.write_bytes(b"tea\r\ncream\r\n")
    few = ["-s", "de", "-t", "en", "--any-language", "--pieces", 271, "--workers", 1]
    for words in (
        ["score", tiny_model, source, target],
        ["evaluate", "-r", target, target],
        ["compare", tiny_model, "--source", source, "-r", target],
        ["prepare", tmp_path / "store", "--source", source, "--target", target, *few],
    ):
        refused(*words, said="pass --dos")
        assert scones(*words, "--dos").code == 0
