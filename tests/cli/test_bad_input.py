"""Bad input: one clear sentence, exit code 2, nothing half-written."""

import errno
import os
import shutil

import pytest
from running import assert_refusal, contents, no_file_larger_than

TINY_RUN = ["--layers", 1, "--size", 32, "--heads", 2, "--feed-forward", 64, "--device", "cpu"]
TINY_RUN += ["--max-steps", 2, "--warmup-steps", 1, "--max-tokens", 512]


def preparing(corpus, *more):
    files = ["--source", corpus / "train.de", "--target", corpus / "train.en"]
    languages = ["-s", "de", "-t", "en", "--any-language"]
    return ["prepare", corpus / "store", *files, *languages, "--pieces", 400, "--workers", 1, *more]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text + b"Tee\n", r"train\.de has 151 lines but \S+train\.en has 150"),
        (lambda text: text.decode().encode("latin-1"), r"train\.de is not UTF-8.*line \d+.*iconv"),
        (lambda text: b"\0" + text, r"train\.de, line 1 .*NUL"),
        (lambda text: b"\n" * text.count(b"\n"), r"Nothing of \S+train\.de.*empty"),
    ],
    ids=["unequal", "latin-1", "nul", "blank"],
)
def test_prepare_refuses_a_bad_file(corpus, refused, change, said):
    path = corpus / "train.de"
    path.write_bytes(change(path.read_bytes()))
    refused(*preparing(corpus), said=said)


def test_a_folder_without_permission(corpus, refused, monkeypatch):
    def forbid(path, *_):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os, "mkdir", forbid)  # root, who may run the tests, may write anywhere
    refused(*preparing(corpus), said=r"no permission to use \S+store")


WEIGHTS = "model.safetensors"


@pytest.mark.parametrize(
    ("command", "file", "content", "said"),
    [
        ("info model", "config.json", None, "it has no config.json"),
        ("info model", "config.json", b"[" * 100_000, "config.json is damaged"),
        ("info store", "store.json", b"{", "store.json is damaged"),
        ("translate model", WEIGHTS, None, f"{WEIGHTS} does not exist"),
        ("train store", "", None, "store is not a folder; make a store with `scones prepare"),
        ("shortlist store", "subwords.model", None, "subwords.model does not exist"),
    ],
)
def test_what_is_damaged_is_refused(
    tiny_model, tiny_store, tmp_path, refused, command, file, content, said
):
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
        ("compare {model} --source train.de -r train.en --output {mine}/thesis.txt", "a result"),
    ],
)
def test_nobodys_files_are_replaced(
    corpus, tiny_model, tiny_store, refused, monkeypatch, command, said
):
    monkeypatch.chdir(corpus)
    mine = corpus / "mine"
    mine.mkdir()
    for name in ("thesis.txt", "analysis.md"):
        (mine / name).write_text("years of work")
    words = command.format(mine="mine", store=tiny_store, model=tiny_model).split()
    refused(*words, said=said)


@pytest.mark.parametrize(
    ("command", "size"),
    [("creamtea", 4096), ("prepare", 2_000), ("prepare", 20_000), ("export", 50_000)],
)
def test_without_space_nothing_is_left(corpus, tiny_model, scones, command, size):
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
def test_train_without_space_can_go_on_later(tiny_store, tmp_path, scones, first):
    run = tmp_path / "run"
    # The run's record and its log fit, the weights do not.
    with no_file_larger_than(20_000):
        done = scones("train", tiny_store, run, *TINY_RUN, *first)
    assert_refusal(done, r"no space left to write \S+model\.safetensors")
    left = sorted(contents(run))
    assert left == ["training", "training/checkpoints", "training/log.jsonl", "training/run.json"]
    assert scones("train", tiny_store, run, *TINY_RUN, *first).code == 0
    assert scones("info", run).code == 0


def test_files_of_windows_are_read_as_what_they_say(tiny_model, corpus, scones):
    source, target = corpus / "train.de", corpus / "train.en"

    def answers():
        assert scones(*preparing(corpus, "--overwrite")).code == 0
        yield (corpus / "store" / "store.json").read_text()
        yield scones("translate", tiny_model, source)
        yield scones("score", tiny_model, source, target)
        yield scones("evaluate", "-r", target, source)

    before = [*answers()]
    for path in (source, target):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert [*answers()] == before
    assert before[2].out.count("\n") == 150
