"""`scones translate` and `scones score` as a user meets them."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from running import Scones

from scones.model.folder import ModelFolder


@pytest.fixture
def sentences(tea_pairs: list[tuple[str, str]]) -> list[str]:
    return [source for source, _ in tea_pairs[:12]]


def lines_of(texts: list[str]) -> str:
    return "".join(f"{text}\n" for text in texts)


def test_answers_come_in_order_and_an_empty_line_stays_empty(
    tiny_model: Path, scones: Scones, sentences: list[str]
) -> None:
    alone = [scones("translate", tiny_model, stdin=f"{text}\n").out for text in sentences]
    assert len(set(alone)) > 4
    mixed = [sentences[0], "", *sentences[1:], "   "]
    done = scones("translate", tiny_model, "--max-tokens", 100, "--chunk", 7, stdin=lines_of(mixed))
    assert done.code == 0
    assert done.err == ""
    assert done.out == alone[0] + "\n" + "".join(alone[1:]) + "\n"


def test_exact_search_says_what_it_proved(
    tiny_model: Path, scones: Scones, sentences: list[str]
) -> None:
    text = lines_of([sentences[0], "", *sentences[1:4]])
    flags = ("--search", "exact", "--max-states", 50, "--json")
    done = scones("translate", tiny_model, *flags, stdin=text)
    assert (done.code, done.err) == (0, "")
    answers = [json.loads(line) for line in done.out.splitlines()]
    assert [one["source"] for one in answers] == [sentences[0], "", *sentences[1:4]]
    for one in answers:
        if one["source"]:
            certificate = one["certificate"]
            assert certificate["states"] <= 50
            assert certificate["upper_bound"] >= one["translations"][0]["log_prob"] - 1e-9
            assert one["lattice"]["translations"] == len(one["translations"])
        else:
            assert one["certificate"] is None


def test_all_translations_above_a_probability(
    tiny_model: Path, scones: Scones, sentences: list[str]
) -> None:
    flags = ("--search", "all", "--max-states", 50, "--threshold", 1e-30)
    done = scones("translate", tiny_model, *flags, stdin=lines_of(sentences[:3]))
    assert (done.code, done.err) == (0, "")
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert [int(row[0]) for row in rows] == sorted(int(row[0]) for row in rows)
    assert all(len(row) == 3 and float(row[1]) >= math.log(1e-30) for row in rows)


@pytest.mark.parametrize("search", [[], ["--search", "beam", "--n-best", "3"]])
@pytest.mark.parametrize("layer", ["scones", "softmax"])
def test_json_holds_every_token_with_its_probability(
    tiny_models: Path, scones: Scones, sentences: list[str], layer: str, search: list[str]
) -> None:
    texts = [*sentences, ""]
    done = scones("translate", tiny_models / layer, "--json", *search, stdin=lines_of(texts))
    answers = [json.loads(line) for line in done.out.splitlines()]
    assert [answer["source"] for answer in answers] == texts
    assert answers.pop()["translations"] == [
        {"text": "", "log_prob": None, "probability": None, "finished": True, "tokens": []}
    ]
    for answer in answers:
        assert 1 <= len(answer["translations"]) <= (3 if search else 1)
        log_probs = [found["log_prob"] for found in answer["translations"]]
        assert log_probs == sorted(log_probs, reverse=True)
        for found in answer["translations"]:
            tokens = found["tokens"]
            assert (tokens[-1]["piece"] == "</s>") == found["finished"]
            product = math.prod(token["probability"] for token in tokens)
            assert product == pytest.approx(found["probability"], rel=1e-6)
            assert math.log(product) == pytest.approx(found["log_prob"], abs=1e-5)
            pieces = "".join(token["piece"] for token in tokens if token["piece"] != "</s>")
            assert pieces.replace("▁", " ").strip() == found["text"].strip()


def test_n_best_is_a_table(tiny_model: Path, scones: Scones, sentences: list[str]) -> None:
    flags = ["--search", "beam", "--beam-size", 4, "--n-best", 2]
    done = scones("translate", tiny_model, *flags, stdin=lines_of(["", *sentences[:3]]))
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert rows[0] == ["1", "", ""]
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    first = {row[0]: row[2] for row in reversed(rows)}
    best = scones("translate", tiny_model, "--search", "beam", stdin=lines_of(sentences[:3]))
    assert [*reversed(first.values())] == ["", *best.out.splitlines()]
    assert len(rows) > len(first)


def test_a_translation_with_a_line_end_stays_one_line(
    tiny_model: Path, tmp_path: Path, scones: Scones
) -> None:

    folder = ModelFolder.load(tiny_model)
    with torch.no_grad():
        folder.model.output_bias[3 + ord("\n")] = 50.0  # the piece <0x0A>
    folder.save(tmp_path / "model")
    done = scones("translate", tmp_path / "model", stdin="Tee\nSahne\n")
    assert done.out.count("\n") == 2


def start(model: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "scones", "translate", str(model)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        # A test run in the background ignores Ctrl-C, and so would what it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def say(process: subprocess.Popen[bytes], line: bytes) -> bytes:
    """Write a line and wait for its answer, with the input still open."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line + b"\n")
    process.stdin.flush()
    return process.stdout.readline()


def test_each_line_is_answered_while_the_input_is_open_until_ctrl_c(
    tiny_model: Path, scones: Scones, sentences: list[str]
) -> None:
    expected = scones("translate", tiny_model, stdin=lines_of(sentences[:3])).out.splitlines()
    with start(tiny_model) as process:
        for text, answer in zip(sentences[:3], expected, strict=True):
            assert say(process, text.encode()).decode() == f"{answer}\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_a_reader_that_goes_away_is_no_error(tiny_model: Path) -> None:
    with start(tiny_model) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        say(process, b"Tee")
        process.stdout.close()
        process.stdin.write(b"Sahne\n")
        process.stdin.close()
        process.wait(timeout=20)
        assert process.stderr.read() == b""


@pytest.mark.parametrize("layer", ["scones", "softmax"])
def test_score_agrees_with_translate(
    tiny_models: Path, tmp_path: Path, scones: Scones, sentences: list[str], layer: str
) -> None:
    from scones import load

    translator = load(tiny_models / layer, "cpu")
    subwords = translator.subwords
    found = {
        source: best
        for source, (best,) in zip(sentences, translator.translate(sentences), strict=True)
        # The same text may be split into other pieces than the model wrote.
        if best.finished and subwords.pieces(subwords.encode([best.text])[0]) == [*best.tokens]
    }
    assert len(found) > 2
    (tmp_path / "de").write_text(lines_of([*found]))
    (tmp_path / "en").write_text(lines_of([best.text for best in found.values()]))
    files = tmp_path / "de", tmp_path / "en"
    plain = scones("score", tiny_models / layer, *files)
    assert plain.code == 0
    as_json = scones("score", tiny_models / layer, *files, "--json", "--max-tokens", 20)
    rows = zip(found.values(), plain.out.splitlines(), as_json.out.splitlines(), strict=True)
    for best, line, json_line in rows:
        assert float(line) == pytest.approx(best.log_prob, abs=1e-5)
        facts = json.loads(json_line)
        assert facts["log_prob"] == pytest.approx(best.log_prob, abs=1e-5)
        assert facts["token_log_probs"] == pytest.approx([*best.token_log_probs], abs=1e-5)
        assert facts["probability"] == pytest.approx(math.exp(facts["log_prob"]))
