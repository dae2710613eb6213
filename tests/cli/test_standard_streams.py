"""Standard streams that are closed or full, or pipes that nobody reads."""

import os
import shlex
from functools import partial

import pytest
from running import in_a_process
from test_refusals import ANALYZE, PREPARE, TRAIN

slow = pytest.mark.slow
COMMANDS = [
    "translate {model}",
    "translate {model} --search beam --n-best 2",
    "translate {model} --search all --threshold 0.5 --max-states 50",
    "translate {model} --json",
    "score {model} {here}/train.de {here}/train.en",
    "evaluate -r {here}/train.en {here}/train.en",
    "info {model}",
    PREPARE,
    ANALYZE.replace("{model}", "m={model}") + "--sentences 2 --no-exact",
    "ibm3 sample {here}/ibm3",
]


def full(descriptor):
    os.dup2(os.open("/dev/full", os.O_WRONLY), descriptor)


def unread(descriptor):
    reader, writer = os.pipe()
    os.dup2(writer, descriptor)
    os.close(reader)


@pytest.mark.parametrize(
    ("descriptor", "breaking", "said"),
    [
        pytest.param(0, os.close, "There is no standard input: it is closed", marks=slow),
        (1, os.close, "There is no standard output: it is closed"),
        (1, full, "There is no space left to write standard output"),
        (1, unread, None),  # whoever stops reading knows why
        pytest.param(2, os.close, None, marks=slow),
        pytest.param(2, full, None, marks=slow),
        (2, unread, None),
    ],
)
@pytest.mark.parametrize(
    "words", ["--help", TRAIN, *(pytest.param(words, marks=slow) for words in COMMANDS)]
)
def test_who_misses_a_stream_says_so_and_all_others_finish_their_work(
    words, descriptor, breaking, said, corpus, tiny_store, tiny_model, scones
):
    if "ibm3" in words:
        assert scones("ibm3", "fit", corpus / "ibm3", "--store", tiny_store).code == 0
    line = words.format(here=corpus, store=tiny_store, model=tiny_model)
    done = in_a_process(*shlex.split(line), stdin=b"Tee\n", first=partial(breaking, descriptor))
    misses = (words.startswith(("translate", "ibm3")), words != TRAIN, False)[descriptor]
    assert done.code == (2 if misses else 0), done.err
    assert "Exception ignored" not in done.err
    sentences = [line for line in done.err.splitlines() if line.startswith("scones: ")]
    assert [str(said) in line for line in sentences] == [True] * bool(misses and said)
    if words == TRAIN:
        assert "validate" in (corpus / "run" / "training" / "log.jsonl").read_text()
