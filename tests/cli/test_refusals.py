"""Flags that make no sense: one clear sentence, exit code 2, nothing written.

Every line of the tables is a command and what it says; {words} in braces are places.
"""

import re
import shlex
from pathlib import Path

import pytest
import torch

from scones import cli

HUGE = "9" * 23
PREPARE = "prepare {here}/store --source {here}/train.de --target {here}/train.en -s de -t en "
PREPARE += "--any-language --pieces 400 --workers 1 "
TRAIN = "train {store} {here}/run --layers 1 --size 32 --heads 2 --feed-forward 64 --device cpu "
TRAIN += "--max-steps 2 --max-tokens 512 "
TEST_SET = "--source {here}/train.de -r {here}/train.en "
ANALYZE = "analyze {model} " + TEST_SET + "--beam-size 1 -o {here}/out --device cpu "
COMPARE = "compare {model} " + TEST_SET
EXPORT = "export {model} {here}/export "
REPLICATE = "replicate {store} {here}/runs --recipe {recipe} --seed 1 " + TEST_SET
SHORTLIST = "shortlist {store} "

COMMANDS = [
    (PREPARE + "--source missing.de", "2 source and 1 target files"),
    (PREPARE + "--identify-language -t klingon", "'klingon' is not a language"),
    ("prepare {here}/new --source a --target b", "The command line: --source-language is missing"),
    (PREPARE + "--pieces 9 --like {model}", "subwords from {model}; leave out --pieces"),
    ("prepare {here}/new --reversed {store} --like {model}", "leave out --like"),
    (PREPARE.replace("{here}/store", "{here}"), "exists already; .*--overwrite"),
    (PREPARE.replace("{here}/store", "{here}") + "--overwrite", "is not a store"),
    #
    ("translate {model} --n-best 3", "one translation; use --search beam for --n-best"),
    ("translate {model} --too-long shorten", "--too-long must be one of error, cut, skip, not sh"),
    ("translate {model} --device toaster", "device 'toaster' is not known"),
    ("translate {model} --precision int3", "--precision must be one of auto, float32, bf16"),
    ("translate {model} --search all --threshold 2", "--threshold must be at most 1, not 2.0"),
    ("translate {model} --search exact --length-penalty 1", "beam, not exact; give that or"),
    ("translate {model} --threshold 0.1", "goes with --search all, not greedy; give that or"),
    ("translate {model} --beam-size 2", "--beam-size goes with --search beam or exact or all, not"),
    ("translate {model} --search beam --max-states 9", "--max-states goes with --search exact or"),
    ("translate {model} --search all --n-best 2 --split", "--n-best goes .*; --split goes with"),
    ("translate {model} --search beam --n-best 9", "--n-best must be at most --beam-size, 4, not"),
    ("translate {model} --search beam --n-best 2 --split", "leave out --split, or ask for one"),
    ("translate {here}/train.de {model}", "first: scones translate {model} {here}/train.de"),
    ("translate {here}/train.de", "first: scones translate MODEL {here}/train.de"),
    ("translate {model} {here}/train.de {here}/latin.en", "latin.en, line 1 is not UTF-8"),
    ("translate {model} {here}/train.de {here}/none", "none does not exist; .* > .*none"),
    ("translate {model} --shortlist {here}/train.de", "damaged or is no shortlist"),
    ("score {model} {here}/train.de {here}/short.en", r"de has 150 lines but \S+short.en has 1"),
    (
        "score {here}/train.de {here}/train.en {model}",
        "first: scones score {model} {here}/train.de ",
    ),
    ("score {model} {here}/long.de {here}/short.en", "Source 1 has 1.,... pieces"),
    ("score {model} {here}/short.en {here}/latin.en", r"line 1 is not UTF-8 text .byte 2 is 0xE9"),
    #
    (TRAIN + "--references all", "prepare it again with --group-sources"),
    (TRAIN + "--negatives 0", "--negatives must be above 0"),
    (TRAIN + "--negatives 3 --output-layer softmax", "'softmax' cannot be told"),
    (TRAIN + "--negatives 3 --mistakes {here}/train.de", "train.de cannot be read .*scones mine"),
    (TRAIN + "--mistakes {here}/train.de", "mistakes needs negatives"),
    ("mine {store} {model} {here}/train.de", "exists and is not a file of scones mine"),
    ("mine {store} {model} {here}/mined", "prepare it again with --group-sources"),
    (TRAIN + "--output-layer entmax", "output layer 'entmax' is not known"),
    (TRAIN + "--output alpha", "--output alpha is not KEY=VALUE"),
    (TRAIN + "--output-layer softmax --alpha 0.5", "of the layer softmax: 'alpha' is not known"),
    ("train {here}/run {store} --max-steps 2", "is a store, which comes first: .*/store .*/run"),
    ("translate {model} 'Guten Tag'", "Guten Tag does not exist; .*: echo 'Guten Tag' . scones"),
    ("train {here}/train.de {here}/run --max-steps 2", "train.de is a file; give a store"),
    (TRAIN + "--max-steps 0 --seed -1", "--max-steps must be .*; --seed must be at least 0"),
    (TRAIN + "--device cuda:99", "device 'cuda:99' is not there"),
    (TRAIN.replace("{here}/run", "{here}"), "is not a training run"),
    (TRAIN + f"--max-steps {HUGE}", f"--max-steps {HUGE} is too large a number"),
    #
    (EXPORT + "--to abacus", "--to must be one of ctranslate2, pocket, huggingface, not abacus"),
    (EXPORT + "--card a.json", "--card goes with --to pocket and huggingface"),
    (EXPORT + "--to pocket --check a.de", "go with CTranslate2, not with --to pocket"),
    ("export {here}/nowhere {here}/a/b", "folder .* does not exist"),
    #
    (SHORTLIST + "{here}/train.de", "train.de exists already; .*--overwrite"),
    ("shortlist {here} {here}/list", "is not a store"),
    #
    (ANALYZE + "--beam-size 0", "--beam-size must be at least 1, not 0"),
    (ANALYZE + "-o {here}/train.de", r"train\.de is a file; give a folder"),
    (ANALYZE + "{here}/scones", "Two models are called 'scones'; .*NAME=FOLDER"),
    (ANALYZE + "a/b={model}", r"'a/b' cannot be the beginning of a file's name; .* first="),
    #
    (COMPARE + "--judged-dev {here}/judged.json", "--judged-dev chooses thresholds for --judged"),
    (COMPARE + "--judged {here}/judged.json", "The judged set is not the test set"),
    (COMPARE + "--output {here}/nowhere/figures.json", "nowhere is not a folder"),
    #
    (REPLICATE + "--tuning-seed 1", "tuning seed 1 is also a test seed"),
    ("creamtea {here}/train.de/tea --train 5", r"train\.de: "),
]


@pytest.mark.parametrize(("words", "said"), COMMANDS)
def test_a_flag_that_makes_no_sense(words, said, corpus, tiny_store, tiny_model, refused):
    (corpus / "short.en").write_text("tea\n")
    (corpus / "long.de").write_text("Tee " * 10_000)
    (corpus / "latin.en").write_bytes(b"t\xe9a\n")
    (corpus / "judged.json").write_text('[{"source": "x", "references": [], "near_misses": []}]')
    recipe = Path(__file__).parents[2] / "recipes" / "multi30k.toml"
    places = {"here": corpus, "store": tiny_store, "model": tiny_model, "recipe": recipe}
    said = re.sub(r"{(here|model)}", lambda place: str(places[place[1]]), said)
    refused(*shlex.split(words.format(**places)), stdin="Tee\n", said=said)


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (OverflowError("int too big to convert"), "too large to compute with"),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates"), "cannot be written"),
        (RecursionError("maximum recursion depth exceeded"), "nested too deeply"),
        (MemoryError(), "not enough memory left; give less"),
        (torch.OutOfMemoryError("CUDA out of memory"), "not enough memory left; give less"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"), "not enough memory"),
        (RuntimeError("a mistake of ours"), None),
    ],
)
def test_what_a_command_stumbles_over(monkeypatch, capsys, problem, said):
    def stumble(arguments):
        raise problem

    monkeypatch.setattr("scones.cli.commands.call", stumble)
    if said is None:  # what is our own mistake is not hidden
        with pytest.raises(RuntimeError, match="of ours"):
            cli.run(["info"])
        return
    assert cli.run(["info"]) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert said in sentence
