"""`scones info`: models, training runs in any state, stores."""

import json
import re
import shutil

from scones.model.folder import ModelFolder
from scones.text.store import TokenStore

TINY = ["--layers", 1, "--size", 32, "--heads", 2, "--feed-forward", 64, "--max-length", 64]
TINY += ["--dev-sentences", 4, "--device", "cpu", "--log-every", 1]


def facts_of(scones, folder):
    done = scones("info", folder, "--json")
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


def table_of(scones, folder):
    """Give the rows of the table by name."""
    done = scones("info", folder)
    assert (done.code, done.err) == (0, "")
    rows = [re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in done.out.splitlines()]
    return {row[0]: row[-1] for row in rows}


def test_a_model(tiny_models, scones):
    folder = tiny_models / "softmax"
    facts = facts_of(scones, folder)
    assert (facts["kind"], facts["languages"]) == ("model", "de → en")
    assert facts["output"] == {"layer": "softmax", "label_smoothing": 0.0}
    assert (facts["size"], facts["heads"], facts["max_length"]) == (32, 2, 64)
    assert (facts["steps"], facts["seed"], facts["scores"]) == (7, 1, {"bleu": 12.5})
    model = ModelFolder.load(folder).model
    assert facts["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert facts["files"] == {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    assert facts["total_bytes"] == sum(facts["files"].values())
    table = table_of(scones, folder)
    assert table["parameters"] == f"{facts['parameters']:,}"
    assert (table["layer"], table["bleu"], table["tied embeddings"]) == ("softmax", "12.5", "no")
    assert table["model.safetensors"] == f"{facts['files']['model.safetensors'] / 1000:.1f} kB"


def test_an_exported_model_is_described_without_its_weights(tiny_model, tmp_path, scones):
    assert scones("export", tiny_model, tmp_path / "export", "--quantization", "int8").code == 0
    facts = facts_of(scones, tmp_path / "export")
    assert (facts["kind"], facts["engine"]) == ("export", "ctranslate2")
    assert facts["parameters"] == facts_of(scones, tiny_model)["parameters"]
    assert facts["output"]["layer"] == "scones"
    assert table_of(scones, tmp_path / "export")["quantization"] == "int8"


def test_a_run_from_its_first_moment_to_its_end(tiny_store, tmp_path, scones):
    run = tmp_path / "run"
    more = [*TINY, "--max-steps", 3, "--validate-every", 2]
    done = scones("train", tiny_store, run, *more, "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    facts = facts_of(scones, run)
    digest = TokenStore.open(tiny_store).digest
    assert (facts["kind"], facts["data_digest"]) == ("model", digest)
    training = facts["training"]
    assert (training["ended"], training["step"], training["validations"]) == (True, 3, 2)
    assert training["best_dev_bleu"] == facts["scores"]["bleu"] == result["best_bleu"]
    assert training["best_step"] == facts["steps"] == result["best_step"]
    assert result["model"] == str(run)
    assert result["steps"] == 3

    shutil.rmtree(run / "last")  # as while it was still running
    with (run / "training" / "log.jsonl").open("ab") as log:
        log.write(b'{"event": "train", "step": 9, "loss": NaN}\n{"event": "validate", "step": 1}\n')
        log.write(b'{}\n[]\n\xff\n{"event": "train", "st')
    assert table_of(scones, run)["ended"] == "no"
    training = facts_of(scones, run)["training"]
    assert (training["ended"], training["step"], training["loss"]) == (False, 9, None)

    for path in [path for path in run.iterdir() if path.is_file()]:
        path.unlink()  # as before the first validation
    facts = facts_of(scones, run)
    assert facts["kind"] == "training run without a model so far"
    assert (facts["layers"], facts["output"]["layer"], facts["seed"]) == (1, "scones", 1)
    assert (facts["data_digest"], facts["training"]["step"]) == (digest, 9)

    (run / "training" / "log.jsonl").unlink()
    assert facts_of(scones, run)["training"] == {"ended": False, "step": 0}


def test_a_store(tiny_store, scones):
    facts = facts_of(scones, tiny_store)
    store = TokenStore.open(tiny_store)
    assert (facts["kind"], facts["languages"], facts["vocabulary"]) == ("store", "de → en", 500)
    assert (facts["train"]["pairs"], facts["dev"]["pairs"]) == (380, 20)
    assert facts["train"]["target_tokens"] == store.split("train").targets.lengths.sum()
    assert facts["data_digest"] == store.digest
    table = table_of(scones, tiny_store)
    assert table["data digest"] == store.digest[:16]
    assert table["vocabulary"] == "500"


def test_nothing_that_a_stranger_wrote_moves_the_terminal(tiny_model, tmp_path, scones):
    model, strange = shutil.copytree(tiny_model, tmp_path / "model"), "\x1b[31m\n\x9b\u202e"
    config = json.loads((model / "config.json").read_text())
    config["scones"]["source_language"] = strange
    config["scones"]["scores"] = {strange: [strange], "files": 3, "total_bytes": strange}
    (model / "config.json").write_text(json.dumps(config))
    (model / "\x1b[2J").touch()
    for words in ([model], [model, "--json"], [f"nowhere{strange}\ud800"]):
        done = scones("info", *words)
        assert all(line.isprintable() for line in (done.out + done.err).split("\n"))
        assert done.code == (0 if model in words else 2)
    assert done.err.count("\n") == 1


def test_a_damaged_run_is_refused(tmp_path, refused):
    (tmp_path / "run" / "training").mkdir(parents=True)
    (tmp_path / "run" / "training" / "run.json").write_text('{"model": {}}')
    refused("info", tmp_path / "run", said=r"run\.json is damaged: an entry is missing")
