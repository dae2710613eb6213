"""The commands as a user meets them."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from running import Done

import scones.cli as cli
from scones.model.folder import ModelFolder, read_facts

Scones = Callable[..., Done]

# translate


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


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--search", "all", "--threshold", 2), "threshold must be at most 1, not 2.0"),
        (("--search", "exact", "--max-states", 0), "max_states must be above 0"),
        (("--search", "exact", "--length-penalty", 1), "leave out --length-penalty"),
        (("--search", "exact", "--max-memory", -1), "--max-memory must be above 0"),
    ],
)
def test_exact_search_refuses_what_has_no_meaning(
    tiny_model: Path, scones: Scones, flags: tuple[object, ...], said: str
) -> None:
    done = scones("translate", tiny_model, *flags, stdin="Tee\n")
    assert done.code == 2
    assert said in done.err
    assert done.out == ""


def test_nothing_in_nothing_out(tiny_model: Path, scones: Scones) -> None:
    assert scones("translate", tiny_model) == Done(0, "", "")


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
    import torch

    folder = ModelFolder.load(tiny_model)
    with torch.no_grad():
        folder.model.output_bias[3 + ord("\n")] = 50.0  # the piece <0x0A>
    folder.save(tmp_path / "model")
    done = scones("translate", tmp_path / "model", stdin="Tee\nSahne\n")
    assert done.out.count("\n") == 2


# translate as a process: pipes and signals


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


def test_a_bad_line_ends_it_while_the_input_is_open(tiny_model: Path) -> None:
    with start(tiny_model) as process:
        assert say(process, b"Tee") != b""
        assert say(process, b"T\xff") == b""
        assert process.wait(timeout=20) == 2
        assert process.stderr is not None
        assert process.stderr.read().startswith(b"scones: Line 2 of the input is not UTF-8")


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


# score


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


# creamtea, compare


@pytest.fixture
def tea(tmp_path: Path, scones: Scones) -> Path:
    """A small cream-tea corpus as the command writes it."""
    sizes = ["--train", 6, "--dev", 5, "--test", 10]
    done = scones("creamtea", tmp_path / "tea", *sizes)
    assert done == Done(
        0, f"{tmp_path / 'tea'}: 6 training pairs, 5 dev and 10 test sentences.\n", ""
    )
    return tmp_path / "tea"


def test_creamtea_writes_a_corpus_with_all_translations(tea: Path) -> None:
    parts = [f"{part}.{language}" for part in ("dev", "test", "train") for language in ("de", "en")]
    assert sorted(path.name for path in tea.iterdir()) == sorted([*parts, "dev.json", "test.json"])
    judged = json.loads((tea / "test.json").read_text())
    assert [entry["source"] for entry in judged] == (tea / "test.de").read_text().splitlines()
    for entry, reference in zip(judged, (tea / "test.en").read_text().splitlines(), strict=True):
        assert reference in entry["references"]
        assert not {*entry["references"]} & {*entry["near_misses"]}


def test_creamtea_says_in_json_what_it_wrote(tmp_path: Path, scones: Scones) -> None:
    sizes = {"train": 6, "dev": 2, "test": 3, "seed": 5}
    flags = [word for name, number in sizes.items() for word in (f"--{name}", number)]
    done = scones("creamtea", tmp_path / "tea", *flags, "--json")
    assert json.loads(done.out) == {"folder": str(tmp_path / "tea"), **sizes}


def test_compare_shows_tables_and_writes_all_figures(
    tiny_models: Path, tea: Path, scones: Scones
) -> None:
    words = [
        *("compare", f"base={tiny_models / 'softmax'}", tiny_models / "scones"),
        *("--source", tea / "test.de", "-r", tea / "test.en", "--device", "cpu"),
        *("--judged", tea / "test.json", "--judged-dev", tea / "dev.json"),
        *("--output", tea / "figures.json", "--show", 2),
    ]
    as_json = scones(*words, "--json")
    assert json.loads(as_json.out) == json.loads((tea / "figures.json").read_text())
    done = scones(*words)
    assert done.code == 0, done.err
    assert "\x1b" not in done.out + done.err
    assert "BLEU, beam 4" in done.out
    assert "ROC area" in done.out
    assert done.out.count("(not valid)") == 4
    figures = json.loads((tea / "figures.json").read_text())
    assert [*figures["systems"]] == ["base", "scones"]
    assert figures["systems"]["base"]["p"] == {"greedy": None, "beam 4": None}
    for system in figures["systems"].values():
        assert 0 <= system["acceptance"]["area"] <= 1
        assert system["valid"] == {"greedy": 0.0, "beam 4": 0.0}
        assert system["signature"] in done.out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["{models}/scones"], "Two models are called 'scones'; tell them apart with NAME=FOLDER"),
        (["--judged-dev", "{tea}/dev.json"], "--judged-dev chooses thresholds for --judged"),
        (["--judged", "{tea}/dev.json"], "The judged set is not the test set"),
        (["--judged", "{tea}/test.de"], "test.de is damaged: it is not valid JSON"),
        (["other=nowhere"], "model folder nowhere does not exist"),
    ],
)
def test_compare_refuses_what_cannot_be_compared(
    tiny_models: Path, tea: Path, scones: Scones, more: list[str], said: str
) -> None:
    texts = ["--source", tea / "test.de", "-r", tea / "test.en"]
    words = [word.format(models=tiny_models, tea=tea) for word in more]
    done = scones("compare", tiny_models / "scones", *texts, *words)
    assert (done.code, done.out) == (2, "")
    assert re.search(said, done.err.splitlines()[-1])


# tune and replicate, as small as can be

TINY = ["--layers", 1, "--size", 32, "--heads", 2, "--feed-forward", 64, "--max-length", 64]
TINY += ["--max-steps", 2, "--validate-every", 1, "--dev-sentences", 4, "--device", "cpu"]


def test_tune_trains_once_for_each_alpha(tiny_store: Path, tmp_path: Path, scones: Scones) -> None:
    alphas = ["--alpha", 0.5, "--alpha", 0.2, "--alpha", 0.5]
    words = ["tune", tiny_store, tmp_path / "sweep", *alphas, *TINY, "--json"]
    done = scones(*words)
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert [row["alpha"] for row in result["runs"]] == [0.2, 0.5]
    assert result == json.loads((tmp_path / "sweep" / "tune.json").read_text())
    for row in result["runs"]:
        facts = read_facts(Path(row["model"]))
        assert facts.output["alpha"] == row["alpha"]
        assert facts.scores["bleu"] == row["dev_bleu"]
    logs = sorted((tmp_path / "sweep").glob("*/training/log.jsonl"))
    before = [log.read_text() for log in logs]
    assert json.loads(scones(*words).out) == result
    assert [log.read_text() for log in logs] == before  # nothing was trained again


RECIPE = """
[model]
layers = 1
size = 32
heads = 2
feed_forward = 64
max_length = 64
[train]
max_steps = 2
validate_every = 1
dev_sentences = 4
"""


def test_replicate_compares_both_layers_over_seeds(
    tiny_store: Path, tmp_path: Path, tea: Path, scones: Scones, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train_here(command: list[str], folder: Path) -> Path:
        """Train in this process: three new ones would take most of the test's time."""
        assert command[:3] == [sys.executable, "-m", "scones"]
        assert cli.run(command[3:]) == 0
        return folder

    monkeypatch.setattr("scones.paper.replication._run", train_here)
    (tmp_path / "tiny.toml").write_text(RECIPE)
    runs = tmp_path / "runs"
    words = [
        *("replicate", tiny_store, runs, "--recipe", tmp_path / "tiny.toml", "--device", "cpu"),
        *("--source", tea / "test.de", "-r", tea / "test.en", "--jobs", 1),
        *("--alpha", 0.5, "--tuning-seed", 9, "--seed", 1),
    ]
    done = scones(*words)
    assert done.code == 0, done.err
    assert {path.name for path in runs.iterdir() if path.is_dir()} == {
        "scones-0.5-seed9",
        "scones-0.5-seed1",
        "softmax-seed1",
    }
    result = json.loads((runs / "replication.json").read_text())
    assert (result["alpha"], result["seeds"][0]["seed"]) == (0.5, 1)
    assert all(minutes > 0 for minutes in result["seeds"][0]["minutes"].values())
    assert done.out == (runs / "replication.md").read_text() + "\n"
    as_json = scones(*words, "--json")  # nothing is trained again
    assert json.loads(as_json.out) == json.loads((runs / "replication.json").read_text())
