"""Bad input: one clear sentence, exit code 2, nothing half-written."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from running import Refused, Scones, assert_refusal, contents, in_a_process

from scones.text.store import TokenStore

TEN_THOUSAND_WORDS = "Tee " * 10_000


TINY_RUN = ["--layers", 1, "--size", 32, "--heads", 2, "--feed-forward", 64, "--device", "cpu"]
TINY_RUN += ["--max-steps", 2, "--max-tokens", 512]


def preparing(corpus: Path, *more: object) -> list[object]:
    files = ["--source", corpus / "train.de", "--target", corpus / "train.en"]
    languages = ["-s", "de", "-t", "en", "--any-language"]
    return ["prepare", corpus / "store", *files, *languages, "--pieces", 400, "--workers", 1, *more]


def rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def without_last_line(text: bytes) -> bytes:
    return text[: text.rstrip().rindex(b"\n") + 1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without_last_line, r"train\.de has 149 lines but \S+train\.en has 150"),
        (lambda text: b"", r"train\.de is empty"),
        (lambda text: text.decode().encode("latin-1"), r"train\.de is not UTF-8.*line \d+.*iconv"),
        (lambda text: text.decode().encode("utf-16"), r"train\.de, line 1 looks like UTF-16"),
        (lambda text: b"\0" + text, r"train\.de, line 1 .*NUL"),
        (lambda text: text.replace(b" ", b"\0"), r"train\.de, line 1 .*NUL"),
        (lambda text: text.replace(b"\n", b"\r\n"), r"train\.de has Windows line ends.*--dos"),
        (lambda text: b"\xef\xbb\xbf" + text, r"train\.de starts with a byte-order mark.*--dos"),
        (lambda text: b"\n" * text.count(b"\n"), r"Nothing of \S+train\.de.*empty"),
    ],
    ids=["unequal", "empty", "latin-1", "utf-16", "nul", "many-nuls", "crlf", "bom", "blank"],
)
def test_prepare_refuses_a_bad_file(
    corpus: Path, refused: Refused, change: Callable[[bytes], bytes], said: str
) -> None:
    rewrite(corpus / "train.de", change)
    refused(*preparing(corpus), said=said)


def test_the_remedy_dos_works(corpus: Path, scones: Scones) -> None:
    assert scones(*preparing(corpus)).code == 0
    digest = TokenStore.open(corpus / "store").digest
    for language in ("de", "en"):
        path = corpus / f"train.{language}"
        rewrite(path, lambda text: b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"))
    assert scones(*preparing(corpus, "--dos", "--overwrite")).code == 0
    assert TokenStore.open(corpus / "store").digest == digest


def test_one_bad_line_among_many_is_dropped_and_counted(corpus: Path, scones: Scones) -> None:
    for language, bad in (("de", b"nicht \xff lesbar\n"), ("en", b"not readable\n")):
        rewrite(corpus / f"train.{language}", lambda text, bad=bad: text + bad)
    report = json.loads(scones(*preparing(corpus, "--json")).out)
    assert (report["pairs_read"], report["pairs_kept"]) == (151, 150)


def test_prepare_keeps_a_store_that_exists(corpus: Path, scones: Scones, refused: Refused) -> None:
    (corpus / "store").mkdir()
    (corpus / "store" / "notes.txt").write_text("mine")
    refused(*preparing(corpus), said=r"store exists already.*--overwrite")
    refused(*preparing(corpus, "--overwrite"), said="is not a store")
    shutil.rmtree(corpus / "store")
    assert scones(*preparing(corpus)).code == 0
    rewrite(corpus / "train.de", without_last_line)
    refused(*preparing(corpus, "--overwrite"), said="149 lines")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_folder_without_permission(
    corpus: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def forbid(path: Path, *_: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(os, "mkdir", forbid)  # root, who may run the tests, may write anywhere
    refused(*preparing(corpus), said=r"no permission to use \S+store")


def test_an_unreadable_line_ends_a_translation_behind_its_answers(
    tiny_model: Path, refused: Refused
) -> None:
    for bad, said in ((b"Te\xff", "Line 3 .* not UTF-8 .*0xff.*3"), (b"T\0", "Line 3 .* NUL")):
        lines = b"Guten Tag.\n\n" + bad + b"\nTee\n"
        refused("translate", tiny_model, stdin=lines, said=said, answers=2)


def test_windows_text_is_translated_as_if_it_were_not(tiny_model: Path, scones: Scones) -> None:
    plain = scones("translate", tiny_model, stdin="Der Tee ist heiß.\nDer Kuchen auch.\n")
    windows = "\ufeffDer Tee ist heiß.\r\nDer Kuchen auch.\r\n"
    assert plain.code == 0
    assert plain.out.count("\n") == 2
    assert scones("translate", tiny_model, stdin=windows) == plain


def test_a_sentence_of_ten_thousand_words(
    tiny_model: Path, scones: Scones, refused: Refused, caplog: pytest.LogCaptureFixture
) -> None:
    lines = f"Guten Tag.\n{TEN_THOUSAND_WORDS}\nTee\n"
    said = r"Sentence 2 has [\d,]+ pieces and the model takes 63; split it"
    refused("translate", tiny_model, stdin=lines, said=said, answers=1)
    assert caplog.messages == []
    first, last = scones("translate", tiny_model, stdin="Guten Tag.\nTee\n").out.splitlines()
    for policy, word in (("skip", "skipped"), ("cut", "cut")):
        done = scones("translate", tiny_model, "--too-long", policy, stdin=lines)
        assert done.code == 0
        answers = done.out.splitlines()
        assert (answers[0], answers[2]) == (first, last)
        assert (answers[1] == "") == (policy == "skip")
        assert re.fullmatch(rf"Sentence 2 has .*: it is {word}\.", caplog.messages[-1])


def test_the_sentence_number_counts_all_lines(tiny_model: Path, refused: Refused) -> None:
    lines = "Tee\n" * 5 + TEN_THOUSAND_WORDS + "\n"
    refused("translate", tiny_model, "--chunk", 2, stdin=lines, said="Sentence 6 has", answers=5)


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        (b"Tee\nSahne\n", b"tea\n", r"de has 2 lines but \S+en has 1"),
        (b"Tee\n", b"t\xe9a\n", r"en, line 1 is not UTF-8 text \(byte 2 is 0xE9\)"),
        (TEN_THOUSAND_WORDS.encode(), b"tea\n", "Source 1 has 1.,... pieces"),
        (b"Tee\nTee\n", b"tea\n" + TEN_THOUSAND_WORDS.encode(), "Target 2 has 1.,... pieces"),
    ],
    ids=["unequal", "latin-1", "long-source", "long-target"],
)
def test_score_refuses_bad_files(
    tiny_model: Path, tmp_path: Path, refused: Refused, source: bytes, target: bytes, said: str
) -> None:
    (tmp_path / "de").write_bytes(source)
    (tmp_path / "en").write_bytes(target)
    refused("score", tiny_model, tmp_path / "de", tmp_path / "en", said=said)


Change = bytes | int | dict[str, object] | None


def spoil(folder: Path, file: str, change: Change) -> None:
    """Remove a file, write another content, cut bytes off its end, or change entries of a JSON."""
    path = folder / file
    if change is None:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    elif isinstance(change, bytes):
        path.write_bytes(change)
    elif isinstance(change, int):
        rewrite(path, lambda data: data[:-change])
    else:
        path.write_text(json.dumps(merged(json.loads(path.read_text()), change)))


def merged(old: dict[str, object], new: dict[str, object]) -> dict[str, object]:
    for name, value in new.items():
        if isinstance(value, dict):
            value = merged(old[name], value)  # type: ignore[arg-type]
        old[name] = value
    return {name: value for name, value in old.items() if value is not None}


WEIGHTS, CONFIG = "model.safetensors", "config.json"
DAMAGED_MODELS: list[tuple[str, Change, str]] = [
    ("", None, "model does not exist"),
    (WEIGHTS, 100, "model.safetensors is damaged"),
    (WEIGHTS, b"", "model.safetensors is damaged"),
    (WEIGHTS, None, "model.safetensors does not exist; the model is incomplete"),
    ("subwords.model", None, "subwords.model cannot be read .*incomplete"),
    ("subwords.model", b"pieces of cake", "subwords.model is damaged"),
    (CONFIG, None, "model is not a model folder: it has no config.json"),
    (CONFIG, 100, "config.json is damaged: it is not valid JSON"),
    (CONFIG, b"{}", "not a SCONES model"),
    (CONFIG, {"d_model": None}, "config.json is damaged: 'd_model' is missing"),
    (CONFIG, {"encoder_ffn_dim": 65}, "does not fit its config.json"),
    (CONFIG, {"d_model": -1}, "cannot be built: .*-1"),
    (
        CONFIG,
        {"scones": {"output": {"layer": "entmax"}}},
        "config.json: the output layer 'entmax' is not known; there are scones, softmax",
    ),
    (CONFIG, {"scones": {"format": 99}}, "has format 99, and this version"),
]


@pytest.mark.parametrize("command", ["info", "translate"])
@pytest.mark.parametrize(("file", "change", "said"), DAMAGED_MODELS)
def test_a_damaged_model_is_refused(
    tiny_model: Path,
    tmp_path: Path,
    refused: Refused,
    command: str,
    file: str,
    change: Change,
    said: str,
) -> None:
    shutil.copytree(tiny_model, tmp_path / "model")
    spoil(tmp_path / "model", file, change)
    refused(command, tmp_path / "model", stdin="Tee\n", said=said)


@pytest.mark.parametrize(
    ("command", "file", "change", "said"),
    [
        ("train", "", None, "store is not a folder; make a store with `scones prepare"),
        ("train", "store.json", None, "store is not a store"),
        ("train", "store.json", b"{", "store.json is damaged"),
        ("train", "train.source.tokens", 2, "train.source.tokens is damaged: it has .* bytes"),
        ("train", "subwords.model", None, "subwords.model does not exist"),
        ("info", "store.json", b"{", "store.json is damaged"),
        ("info", "store.json", None, "it has no config.json"),
        ("info", "subwords.model", None, "subwords.model"),
    ],
)
def test_a_damaged_store_is_refused(
    tiny_store: Path,
    tmp_path: Path,
    refused: Refused,
    command: str,
    file: str,
    change: Change,
    said: str,
) -> None:
    shutil.copytree(tiny_store, tmp_path / "store")
    spoil(tmp_path / "store", file, change)
    more = [tmp_path / "run", *TINY_RUN] if command == "train" else []
    refused(command, tmp_path / "store", *more, said=said)


def test_train_keeps_out_of_a_folder_that_is_no_run(
    tiny_store: Path, tmp_path: Path, refused: Refused
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    refused("train", tiny_store, tmp_path, *TINY_RUN, said="is not a training run")


def test_creamtea_without_space(tmp_path: Path) -> None:
    done = in_a_process("creamtea", tmp_path / "tea", "--train", 300, largest_file=4096)
    assert_refusal(done, "no space left to write")
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("largest_file", [2_000, 20_000])
def test_prepare_without_space(corpus: Path, largest_file: int) -> None:
    before = contents(corpus)
    done = in_a_process(*preparing(corpus, "--workers", 2), largest_file=largest_file)
    assert_refusal(done, "no space left to write")
    assert contents(corpus) == before


@pytest.mark.parametrize(
    "first",
    [
        ["--validate-every", 1],
        pytest.param(["--checkpoint-every", 1], marks=pytest.mark.slow),
    ],
)
def test_train_without_space_can_go_on_later(
    tiny_store: Path, tmp_path: Path, scones: Scones, first: list[object]
) -> None:
    run = tmp_path / "run"
    # The run's record and its log fit, the weights do not.
    done = in_a_process("train", tiny_store, run, *TINY_RUN, *first, largest_file=20_000)
    assert_refusal(done, r"no space left to write \S+model\.safetensors")
    left = sorted(contents(run))
    assert left == ["training", "training/checkpoints", "training/log.jsonl", "training/run.json"]
    assert scones("train", tiny_store, run, *TINY_RUN, *first).code == 0
    assert scones("info", run).code == 0


def test_a_disk_that_is_full_at_the_last_moment(
    corpus: Path, tiny_store: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    refused(*preparing(corpus), said=r"The disk of \S+store is full")
    refused("creamtea", corpus / "tea", "--train", 5, "--dev", 2, "--test", 2, said="no space left")
    refused("train", tiny_store, corpus / "run", *TINY_RUN, said="no space left")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has such a device")
def test_an_output_that_takes_nothing(tiny_model: Path) -> None:
    with Path("/dev/full").open("wb") as device:
        done = in_a_process("translate", tiny_model, stdin=b"Tee\n", out=device.fileno())
    assert_refusal(done, "no space left to write")


@pytest.mark.parametrize("problem", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory")])
def test_no_memory_left(
    tiny_model: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    def full(*_: object, **__: object) -> None:
        raise problem

    monkeypatch.setattr("scones.translator.Translator.translate", full)
    refused("translate", tiny_model, stdin=b"Tee\n", said="not enough memory left; give less")


def test_the_remedy_for_windows_files_is_there_wherever_it_is_named(
    tiny_model: Path, tmp_path: Path, scones: Scones, refused: Refused
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"\xef\xbb\xbfTee\r\nSahne\r\n")
    target.write_bytes(b"tea\r\ncream\r\n")
    refused("score", tiny_model, source, target, said="pass --dos")
    assert scones("score", tiny_model, source, target, "--dos").code == 0
    refused("evaluate", "-r", target, target, said="pass --dos")
    assert scones("evaluate", "-r", target, target, "--dos", "-m", "bleu").code == 0
    compared = ["compare", tiny_model, "--source", source, "-r", target]
    refused(*compared, said="pass --dos")
    assert scones(*compared, "--dos").code == 0
