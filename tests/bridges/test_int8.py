"""Models stored as int8 run in int8: text, scores, the cache, and a start without PyTorch."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import scones
from scones.bridges.ctranslate2 import _OTHER_PRODUCTS, _alike, encoder_of
from scones.cache import made_once
from scones.model.folder import FolderConfig, ModelFolder, OpenedFolder, store_again
from scones.model.transformer import source_mask
from scones.search.engine import padded
from scones.text import PAD

POCKET = "pocket-de-en"
PROGRAM = """
import sys
from scones import cli
assert cli.run(["translate", "pocket-de-en", "--json", "--device", "cpu"]) == 0
print("torch" in sys.modules, file=sys.stderr)
"""
CIRCLES = ["a" * 16, "*" * 16, "-" * 20]
IN_PYTHON = f"""
import json, scones, sys
found = [one for (one,) in scones.load("pocket-de-en", "cpu").translate({CIRCLES})]
print(json.dumps([[one.text, one.log_prob, one.finished] for one in found]))
print("torch" in sys.modules, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def sentences(tea_pairs):
    return sorted({source for source, _ in tea_pairs}, key=len)[::7][:40]


def start(cache):
    environment = os.environ | {"SCONES_CACHE": cache}
    command = [sys.executable, "-c", PROGRAM]
    text = "Hallo.\nGuten Morgen.\n"
    done = subprocess.run(command, env=environment, capture_output=True, text=True, input=text)
    return done.stdout, done.stderr


def test_the_command_never_imports_pytorch(tmp_path):
    """Not even to convert the model, and nothing but time is lost without a cache."""
    first = start(str(tmp_path / "cache"))
    assert first[0].count("log_prob") > 2
    assert first[1] == "False\n"
    (model,) = (tmp_path / "cache" / "ctranslate2").glob("*/model.bin")
    written = model.stat().st_mtime_ns
    assert start(str(tmp_path / "cache")) == first
    assert model.stat().st_mtime_ns == written
    assert start(os.devnull) == first


def test_circles_are_ended_without_pytorch():
    """The logits say what the end would have had where the circles begin."""
    done = subprocess.run([sys.executable, "-c", IN_PYTHON], capture_output=True, text=True)
    *said, with_torch = done.stderr.splitlines()
    assert [line.count("ran in circles") for line in said] == [1, 1, 1]
    assert with_torch == "False"
    texts, log_probs, finished = zip(*json.loads(done.stdout), strict=True)
    assert all(finished)
    assert all(len(text) < 5 for text in texts)
    exact = scones.load(POCKET, "cpu", "float32")
    wanted = exact.score(list(zip(CIRCLES, texts, strict=True)))
    assert list(log_probs) == pytest.approx(wanted, abs=0.4)


def test_text_and_scores_are_nearly_those_of_float32(sentences):
    exact = scones.load(POCKET, "cpu", "float32")
    assert exact.translate(sentences) == scones.load(POCKET, engine="torch").translate(sentences)
    found = [one for (one,) in scones.load(POCKET, "cpu").translate(sentences)]
    assert found != [one for (one,) in exact.translate(sentences)]  # it is another arithmetic
    wanted = exact.score_tokens(
        [(source, one.text) for source, one in zip(sentences, found, strict=True)]
    )
    near = [
        one.token_log_probs == pytest.approx(terms, abs=0.4)
        for one, terms in zip(found, wanted, strict=True)
        if one.finished and len(terms) == len(one.tokens) + 1
    ]
    assert np.mean(near) > 0.9
    unscored = scones.load(POCKET, "cpu").translate(sentences, scores=False)
    assert [one.text for (one,) in unscored] == [one.text for one in found]


def test_a_sentence_does_not_depend_on_its_neighbours(sentences):
    translator = scones.load(POCKET, "cpu")
    together = translator.translate(sentences)
    for sentence, (one,) in zip(sentences, together, strict=True):
        ((alone,),) = translator.translate([sentence])
        assert alone == one  # to the last bit of its scores


def test_nor_does_it_without_avx512(sentences):
    """Products add in other orders there; each in a process, since oneDNN asks once."""
    program = (
        "import sys, scones; translate = scones.load('pocket-de-en', 'cpu').translate\n"
        "lines = sys.stdin.read().split('\\n')\n"
        "assert translate(lines) == [translate([line])[0] for line in lines]"
    )
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2", "CT2_FORCE_CPU_ISA": "AVX2"}
    command, text = [sys.executable, "-c", program], "\n".join(sentences)
    subprocess.run(command, env=environment, check=True, text=True, input=text)


@pytest.mark.parametrize(
    ("processor", "told", "shared"),
    [
        (("AuthenticAMD", True), {}, [[1, 3, 9, 15], [16, 19, 20, 384], [385], [600]]),
        (("GenuineIntel", True), {}, [[1], [3], [9], [15], [16, 19], [20], [384], [385], [600]]),
        (("AuthenticAMD", False), {}, None),
        (("AuthenticAMD", True), {"ONEDNN_MAX_CPU_ISA": "AVX2"}, None),
        (("GenuineIntel", True), {"CT2_USE_MKL": "0"}, None),
        (("", False), {}, None),
    ],
)
def test_only_lengths_that_add_alike_share_a_batch(monkeypatch, processor, told, shared):
    monkeypatch.setattr("scones.bridges.ctranslate2.processor", lambda: processor)
    for name in _OTHER_PRODUCTS:
        monkeypatch.delenv(name, raising=False)
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    lengths = [20, 384, 1, 600, 15, 9, 16, 385, 19, 3]
    found = [sorted(lengths[index] for index in group) for group in _alike(lengths)]
    assert found == (shared or [[length] for length in sorted(lengths)])


def test_the_encoder_gives_the_states_of_the_model(sentences):
    encode = encoder_of(OpenedFolder.of(FolderConfig.read(POCKET)))
    folder = ModelFolder.load(POCKET)
    source_BS = padded(folder.vocabulary.encode(sentences), torch.device("cpu"))
    with torch.inference_mode():
        wanted_BSD = folder.model.encode(source_BS, source_mask(source_BS))
    found_BSD = torch.from_numpy(encode(source_BS.numpy()))
    real_BS = source_BS != PAD
    error = (found_BSD - wanted_BSD)[real_BS].norm() / wanted_BSD[real_BS].norm()
    assert 1e-4 < error < 0.05


def test_a_damaged_cache_is_made_again(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setenv("SCONES_CACHE", str(tmp_path / "cache"))
    store_again(tiny_model, tmp_path / "small", "int8")
    expected = scones.load(tmp_path / "small", "cpu").translate(["Tee", "Kuchen"])
    (model,) = (tmp_path / "cache" / "ctranslate2").glob("*/model.bin")
    whole = model.read_bytes()
    for damage in (whole[:-9], b"", whole.replace(whole[500:510], b"0123456789")):
        model.write_bytes(damage)
        assert scones.load(tmp_path / "small", "cpu").translate(["Tee", "Kuchen"]) == expected
        assert model.read_bytes() == whole
    (model.parent / "digests.json").write_text("[]")
    with made_once("ctranslate2", "something else", lambda path: (path / "a").touch()) as made:
        assert [path.name for path in made.iterdir()] == ["a"]
    assert scones.load(tmp_path / "small", "cpu").translate(["Tee", "Kuchen"]) == expected
