"""`scones translate` and `scones score` as a user meets them."""

import json
import lzma
import math
import os
import pty
import signal
import subprocess
import sys

import pytest
import torch
from running import Done

from scones.model.folder import ModelFolder
from scones.translator import load


@pytest.fixture
def sentences(tea_pairs):
    return [source for source, _ in tea_pairs[:12]]


@pytest.fixture(scope="module")
def translator(tiny_model):
    return load(tiny_model, "cpu")


def lines_of(texts):
    return "".join(f"{text}\n" for text in texts)


# That the numbers are right is tested with the translator; here, that they are its numbers.


def test_answers_come_in_order_and_an_empty_line_stays_empty(
    tiny_model, scones, translator, sentences
):
    texts = [sentences[0], "", *sentences[1:], "   "]
    flags = ["--max-tokens", 100, "--chunk", 7, "--no-split"]
    done = scones("translate", tiny_model, *flags, stdin=lines_of(texts))
    found = [best.text for (best,) in translator.translate(texts)]
    assert done == Done(0, lines_of(found), "")
    long = lines_of([sentences[0], "Tee " * 200, sentences[1]])
    done = scones("translate", tiny_model, "--too-long", "skip", stdin=long)
    assert done.out == lines_of([found[0], "", found[2]])
    assert scones("translate", tiny_model) == Done(0, "", "")  # nothing in, nothing out


def test_files_are_read_one_behind_the_other(tiny_model, tmp_path, scones, sentences):
    (tmp_path / "one").write_text(lines_of(sentences[:5]))
    (tmp_path / "two.xz").write_bytes(lzma.compress(lines_of(sentences[5:]).encode()))
    expected = scones("translate", tiny_model, stdin=lines_of(sentences))
    words = [tiny_model, tmp_path / "one", tmp_path / "two.xz", "--chunk", 3]
    assert scones("translate", *words, stdin="Not this.\n") == expected
    (tmp_path / "long").write_text(f"{sentences[0]}\n{'Tee ' * 200}\n")
    done = scones("translate", tiny_model, tmp_path / "long")
    assert (done.code, done.out.count("\n")) == (2, 1)
    assert "Sentence 2 has" in done.err


def test_text_in_the_other_language_is_translated_with_one_warning(tiny_model, scones, caplog):
    texts = lines_of(["The tea is here.", "Would you like it with or without milk?"] * 20)
    done = scones("translate", tiny_model, "--chunk", 4, stdin=texts)
    assert (done.code, done.out.count("\n")) == (0, 40)
    assert [record.getMessage() for record in caplog.records] == [
        "The text looks like English, but scones translates from German; pocket-en-de goes the "
        "other way."
    ]
    caplog.clear()
    scones("translate", tiny_model, stdin="Den Tee mit oder ohne Milch?\n" + texts)
    assert not caplog.records  # a German letter that quotes an English one


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("Tee\nSahne\n".encode("utf-16"), "The input, line 1 looks like UTF-16.*iconv -f utf-16"),
        (lzma.compress(b"Tee\n"), r"The input is compressed; unpack it"),
        ("Öl\n".encode("latin-1"), "Line 1 of the input is not UTF-8 text.*iconv -f latin1"),
    ],
)
def test_what_is_no_text_is_refused_as_in_a_file(tiny_model, refused, content, said):
    refused("translate", tiny_model, stdin=content, said=said)


def test_scores_of_texts_in_each_others_place_come_with_a_warning(
    tiny_model, tmp_path, scones, caplog
):
    (tmp_path / "de").write_text("Der Tee ist mit Milch und ohne Zucker.\n")
    (tmp_path / "en").write_text("The tea is with milk and without sugar.\n")
    assert scones("score", tiny_model, tmp_path / "de", tmp_path / "en").code == 0
    assert not caplog.records
    assert scones("score", tiny_model, tmp_path / "en", tmp_path / "de").code == 0
    assert "looks like English" in caplog.text


def test_a_paragraph_is_translated_in_sentences(tiny_model, scones, translator, sentences):
    pytest.importorskip("sentencex")
    paragraph = "  ".join(sentences[:3])
    parts = [best.text for (best,) in translator.translate(sentences[:3])]
    told = scones("translate", tiny_model, stdin=lines_of(["", paragraph, "", ""]))
    assert told == Done(0, lines_of(["", "  ".join(parts), "", ""]), "")
    whole = translator.translate([paragraph])[0][0].text
    assert scones("translate", tiny_model, "--no-split", stdin=paragraph).out == f"{whole}\n"
    as_json = scones("translate", tiny_model, "--json", stdin=paragraph)
    (found,) = json.loads(as_json.out)["translations"]
    assert found["text"] == "  ".join(parts)
    several = scones("translate", tiny_model, "--search", "beam", "--n-best", 2, stdin=paragraph)
    wide = translator.translate([paragraph], "beam", n_best=2)[0]
    assert [line.split("\t")[2] for line in several.out.splitlines()] == [one.text for one in wide]


def test_on_a_terminal_it_says_what_it_waits_for(tiny_model):
    terminal, ours = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "scones", "translate", str(tiny_model)],
        stdin=ours,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        said = process.stderr.readline().decode()
        os.write(terminal, b"Tee\n\x04")
        assert len(process.stdout.read().splitlines()) == 1
    assert said == (
        f"{tiny_model} waits for text (de → en): type a line and press Enter; Ctrl-D ends.\n"
    )


@pytest.mark.parametrize("options", [{}, {"search": "beam", "n_best": 3}])
def test_json_holds_every_token_with_its_probability(
    tiny_model, scones, translator, sentences, options
):
    texts = [*sentences, ""]
    flags = ["--search", "beam", "--n-best", 3] if options else []
    done = scones("translate", tiny_model, "--json", *flags, stdin=lines_of(texts))
    answers = [json.loads(line) for line in done.out.splitlines()]
    assert [answer["source"] for answer in answers] == texts
    (nothing,) = answers.pop()["translations"]
    assert [*nothing.values()] == ["", None, None, True, 1, None, None, None, []]
    for answer, expected in zip(answers, translator.translate(sentences, **options), strict=True):
        for found, best in zip(answer["translations"], expected, strict=True):
            assert (found["text"], found["finished"]) == (best.text, best.finished)
            assert found["segmentations"] == best.segmentations
            pieces = [token["piece"] for token in found["tokens"]]
            assert pieces == [*best.tokens, *["</s>"] * best.finished]
            product = math.prod(token["probability"] for token in found["tokens"])
            if best.finished:
                assert found["probability"] == pytest.approx(best.probability, rel=1e-4)
                assert product == pytest.approx(found["probability"], rel=1e-6)
            else:
                assert (found["log_prob"], found["probability"]) == (None, None)


def test_exact_search_says_what_it_proved(tiny_model, scones, sentences):
    texts = [sentences[0], "", *sentences[1:4]]
    flags = ("--search", "exact", "--max-states", 50, "--json")
    done = scones("translate", tiny_model, *flags, stdin=lines_of(texts))
    assert (done.code, done.err) == (0, "")
    answers = [json.loads(line) for line in done.out.splitlines()]
    assert [one["source"] for one in answers] == texts
    assert answers.pop(1)["certificate"] is None
    for one in answers:
        assert one["certificate"]["states"] <= 50
        assert one["lattice"]["translations"] == len(one["translations"])


def test_several_translations_are_a_table(tiny_model, scones, sentences, caplog):
    """Of the number of the sentence, the log-probability and the text."""

    def rows_of(*flags):
        done = scones("translate", tiny_model, *flags, stdin=lines_of(["", *sentences[:3]]))
        assert (done.code, done.err) == (0, "")
        rows = [line.split("\t") for line in done.out.splitlines()]
        assert rows == sorted(rows, key=lambda row: int(row[0]))
        return rows

    rows = rows_of("--search", "beam", "--beam-size", 4, "--n-best", 2)
    assert rows[0] == ["1", "", ""]
    first = {row[0]: row[2] for row in reversed(rows)}
    best = scones("translate", tiny_model, "--search", "beam", stdin=lines_of(sentences[:3]))
    assert [*reversed(first.values())] == ["", *best.out.splitlines()]
    assert len(rows) > len(first)
    probable = rows_of("--search", "all", "--max-states", 50, "--threshold", 1e-30)
    assert all(float(row[1]) >= math.log(1e-30) for row in probable if row[2])
    none = scones("translate", tiny_model, "--search", "all", "--threshold", 1, stdin="Tee\n")
    assert (none.code, none.out) == (0, "")
    assert (
        "Line 1, taken as one sentence: no translation is as probable as 1; lower --threshold."
        in caplog.text
    )


def test_a_translation_with_a_line_end_stays_one_line(tiny_model, tmp_path, scones):

    folder = ModelFolder.load(tiny_model)
    with torch.no_grad():
        folder.model.output_bias[3 + ord("\n")] = 50.0  # the piece <0x0A>
    folder.save(tmp_path / "model")
    done = scones("translate", tmp_path / "model", stdin="Tee\nSahne\n")
    assert done.out.count("\n") == 2


def start(model):
    return subprocess.Popen(
        [sys.executable, "-m", "scones", "translate", str(model)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        # A test run in the background ignores Ctrl-C, and so would what it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def say(process, line):
    """Write a line and wait for its answer, with the input still open."""
    process.stdin.write(line + b"\n")
    process.stdin.flush()
    return process.stdout.readline()


def test_each_line_is_answered_while_the_input_is_open_until_ctrl_c(tiny_model, scones, sentences):
    expected = scones("translate", tiny_model, stdin=lines_of(sentences[:3])).out.splitlines()
    with start(tiny_model) as process:
        for text, answer in zip(sentences[:3], expected, strict=True):
            assert say(process, text.encode()).decode() == f"{answer}\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130
        assert process.stderr.read() == b""


def test_scores_are_those_of_the_translator(tiny_model, tmp_path, scones, translator, tea_pairs):
    pairs = tea_pairs[:5]
    (tmp_path / "de").write_text(lines_of([source for source, _ in pairs]))
    (tmp_path / "en").write_text(lines_of([target for _, target in pairs]))
    words = ["score", tiny_model, tmp_path / "de", tmp_path / "en"]
    scores = translator.score(pairs)
    plain = scones(*words)
    assert [float(line) for line in plain.out.splitlines()] == pytest.approx(scores, abs=1e-5)
    as_json = [json.loads(line) for line in scones(*words, "--json").out.splitlines()]
    tokens = translator.score_tokens(pairs)
    for facts, log_prob, terms in zip(as_json, scores, tokens, strict=True):
        assert facts["log_prob"] == pytest.approx(log_prob, abs=1e-5)
        assert facts["token_log_probs"] == pytest.approx([*terms], abs=1e-5)
        assert facts["probability"] == pytest.approx(math.exp(facts["log_prob"]))
