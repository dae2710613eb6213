"""`scones tune`, and torchrun, whose processes together write what one would write."""

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from running import in_a_process

from scones.model.folder import FolderConfig, read_facts

TINY = ["--layers", 1, "--size", 32, "--heads", 2, "--feed-forward", 64, "--max-length", 64]
TINY += ["--max-steps", 2, "--validate-every", 1, "--dev-sentences", 4, "--device", "cpu"]


def test_flags_win_over_a_recipe_and_name_settings_of_any_layer(tiny_store, tmp_path, scones):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        "[output]\nalpha = 0.3\nlabel_smoothing = 0.2\n[train]\nseed = 7\nmax_steps = 99\n"
    )
    words = ["train", tiny_store, tmp_path / "run", "--recipe", recipe, *TINY]
    given = ["--output", "label_smoothing=0.1", "--json"]
    done = scones(*words, *given, "--output-layer", "softmax")
    assert json.loads(done.out)["steps"] == 2
    facts = read_facts(tmp_path / "run")
    assert (facts.output, facts.seed) == ({"layer": "softmax", "label_smoothing": 0.1}, 7)
    words[2] = tmp_path / "other"  # of a recipe's settings those stay that the layer has too
    assert scones(*words, "--output-layer", "softmax").code == 0
    assert read_facts(tmp_path / "other").output["label_smoothing"] == 0.2


def test_a_model_gives_what_a_run_that_starts_from_it_does_not_say(
    tiny_store, tmp_path, scones, refused
):
    start, run = tmp_path / "start", tmp_path / "run"
    words = ["train", tiny_store, start, *TINY, "--encoder-layers", 2, "--alpha", 0.3]
    assert scones(*words, "--dropout", 0.2, "--label-smoothing", 0.1).code == 0
    words = ["train", tiny_store, run, "--start-from", start, *TINY[-8:]]
    refused(*words, "--encoder-layers", 1, said="--encoder-layers 2 where 1 is")
    refused(*words, "--preset", "tiny", said="--decoder-layers 1 where 2 is")
    given = ["--alpha", 0.4, "--attention-dropout", 0.3]
    assert scones(*words, *given).code == 0
    begun = json.loads((run / "training" / "run.json").read_text())
    assert begun["output"] == {"layer": "scones", "alpha": 0.4, "label_smoothing": 0.1}
    model = FolderConfig.read(run).sizes()
    assert model == replace(FolderConfig.read(start).sizes(), attention_dropout=0.3)
    shutil.rmtree(start)  # not needed any more
    assert scones(*words, *given, "--max-steps", 3).code == 0
    softmax = ["--output-layer", "softmax", "--start-from", run]
    assert scones("train", tiny_store, tmp_path / "other", *softmax, *TINY[-8:]).code == 0
    assert read_facts(tmp_path / "other").output == {"layer": "softmax", "label_smoothing": 0.1}


def test_tune_trains_once_for_each_alpha(tiny_store, tmp_path, scones):
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


TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
by_two = partial(in_a_process, launcher=TORCHRUN)


@pytest.fixture(scope="module")
def text(tea_pairs):
    """2,000 lines of all lengths, some of them empty."""
    sources = [source for source, _ in tea_pairs]
    lines = [" ".join(sources[i % 97 : i % 97 + i % 3]) for i in range(2000)]
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["--search", "beam", "--beam-size", "2"]])
def test_two_processes_write_what_one_writes(flags, tiny_model, text):
    text = text if not flags else "".join(text.splitlines(keepends=True)[:100])
    one = in_a_process("translate", tiny_model, *flags, stdin=text.encode())
    two = by_two("translate", tiny_model, *flags, "--chunk", "300", stdin=text.encode())
    assert one.code == two.code == 0, two.err
    assert two.out == one.out
    assert two.out.count("\n") == text.count("\n")


@pytest.mark.slow
def test_a_mistake_ends_all_processes_with_one_sentence(tiny_model):
    done = by_two("translate", tiny_model, stdin=b"Tee\n" + b"Tee " * 10_000 + b"\nTee\n")
    assert done.code != 0
    assert done.out.count("\n") == 1
    assert done.err.count("scones: Sentence 2 has 1") == 1
    assert "Another process" not in done.err
