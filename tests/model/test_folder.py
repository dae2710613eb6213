import json
import os
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from scones.errors import SconesError
from scones.files import file_digest as digest
from scones.files import read_json
from scones.model.config import ModelConfig
from scones.model.folder import ModelFacts, ModelFolder, read_facts
from scones.model.transformer import Transformer
from tests.damage import flip_a_bit, truncate


def small_model(tied=True, seed=3):
    torch.manual_seed(seed)
    config = ModelConfig(50, 2, 3, 32, 4, 48, 0.1, 0.1, tied_embeddings=tied, max_length=64)
    model = Transformer(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def folder_of(model):
    facts = ModelFacts({"layer": "scones", "alpha": 0.5}, "de", "en")
    return ModelFolder(model, b"pieces", facts)


@pytest.mark.parametrize("tied", [True, False])
def test_hugging_face_gives_the_same_logits(tied, tmp_path):
    """`test_tokenizer.py` opens a folder where scones is not installed, which takes its time."""
    from transformers import AutoModelForSeq2SeqLM

    model = small_model(tied)
    folder_of(model).save(tmp_path / "model")
    theirs, report = AutoModelForSeq2SeqLM.from_pretrained(
        tmp_path / "model", output_loading_info=True
    )
    assert not any(report.values()), report
    source, target = torch.randint(2, 50, (4, 9)), torch.randint(2, 50, (4, 7))
    source[1, 5:] = target[:, 0] = 0
    with torch.no_grad():
        ours = model.logits(model(source, target))
        found = theirs.eval()(
            input_ids=source, attention_mask=source != 0, decoder_input_ids=target
        ).logits
    assert ours.abs().max() > 1
    torch.testing.assert_close(ours, found, atol=1e-4, rtol=0)


@pytest.mark.parametrize("tied", [True, False])
def test_a_saved_model_is_the_model(tied, tmp_path, monkeypatch):
    from scones.model import folder

    model = small_model(tied)
    folder_of(model).save(tmp_path / "model")
    with pytest.raises(SconesError, match="exists already"):
        folder_of(model).save(tmp_path / "model")
    read = []
    monkeypatch.setattr(folder, "read_json", lambda path: read.append(path) or read_json(path))
    again = ModelFolder.load(tmp_path / "model")
    assert read == [tmp_path / "model" / "config.json"]  # once
    assert again.model.config == model.config
    assert (again.subwords, again.facts.output["alpha"]) == (b"pieces", 0.5)
    assert (again.facts.source_language, again.facts.target_language) == ("de", "en")
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name]), name
    assert torch.equal(model.positions, again.model.positions)


def without(name):
    return lambda folder: (folder / name).unlink()


def cut(name):
    return lambda folder: truncate(folder / name)


def config(change):
    """Change what is read from config.json."""

    def damage(folder):
        content = json.loads((folder / "config.json").read_text())
        change(content)
        (folder / "config.json").write_text(json.dumps(content))

    return damage


def number(file, tensor, value):
    """Replace the third row of a tensor."""

    def damage(folder):
        tensors = load_file(folder / file)
        tensors[tensor][3] = value
        save_file(tensors, folder / file)

    return damage


FLOATS, INT8 = "model.safetensors", "model.int8.safetensors"


@pytest.mark.parametrize(
    ("storage", "damage", "sentence"),
    [
        ("float32", cut(FLOATS), f"{FLOATS} is damaged"),
        ("float32", cut("config.json"), "not valid JSON"),
        ("float32", without("subwords.model"), r"subwords\.model does not exist"),
        (
            "float32",
            config(lambda all: all.update(encoder_ffn_dim=64, decoder_ffn_dim=64)),
            "does not fit",
        ),
        ("float32", config(lambda all: all.pop("d_model")), "is damaged: 'd_model' is missing"),
        ("float32", config(lambda all: all["scones"].update(format=2)), "has format 2"),
        (
            "float32",
            config(lambda all: all.update(vocab_size="many")),
            "'vocabulary' must be a whole number, not 'many'",
        ),
        ("float32", config(lambda all: all["scones"].update(output=3)), "'output' must be"),
        (
            "float32",
            number(FLOATS, "model.decoder.layers.1.fc1.weight", float("nan")),
            "holds a number that is not finite",
        ),
        ("int8", cut(INT8), f"{INT8} is damaged"),
        ("int8", without(INT8), f"{INT8} does not exist"),
        (
            "int8",
            number(INT8, "model.decoder.layers.0.fc1.weight.scale", float("inf")),
            "holds a number that is not finite",
        ),
        (
            "int8",
            config(lambda all: all["scones"].update(storage="int3")),
            "stored as 'int3', which this version of scones does not read",
        ),
    ],
)
def test_a_damaged_folder_is_refused(storage, damage, sentence, tmp_path):
    folder_of(small_model()).save(tmp_path / "model", storage=storage)
    config(lambda all: all["scones"].pop("digests"))(tmp_path / "model")  # as in earlier versions
    damage(tmp_path / "model")
    with pytest.raises(SconesError, match=sentence):
        ModelFolder.load(tmp_path / "model")


def flip(name):
    """Change a bit in the middle, after which the file is as well-formed as before."""
    return lambda folder: flip_a_bit(folder / name)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (flip(FLOATS), f"{FLOATS} is damaged: it is not what was written there"),
        (flip("subwords.model"), "it is not the model's vocabulary"),
        (config(lambda all: all.update(activation_function="gelu")), "activation_function 'gelu'"),
        (config(lambda all: all.update(decoder_attention_heads=2)), "decoder_attention_heads 2"),
        (
            config(lambda all: all.update(encoder_attention_heads=2, decoder_attention_heads=2)),
            "its sizes are not those that were written there",
        ),
        (config(lambda all: all["scones"].update(digests=[])), "its digests are none"),
        (config(lambda all: all.update(encoder_layers=2**31 - 1)), "must be at most 1,000"),
        (config(lambda all: all.update(max_position_embeddings=2**30)), "must be at most 65,536"),
        (config(lambda all: all["scones"].update(source_language="\ud800")), "not valid JSON"),
    ],
)
def test_damage_that_leaves_a_folder_well_formed_is_noticed(damage, sentence, tmp_path):
    folder_of(small_model()).save(tmp_path / "model")
    ModelFolder.load(tmp_path / "model")
    damage(tmp_path / "model")
    for _ in range(2):  # not the first time alone
        with pytest.raises(SconesError, match=sentence):
            ModelFolder.load(tmp_path / "model")


def test_weights_are_read_once_more_when_they_have_changed_or_when_asked(tmp_path, monkeypatch):
    from scones import cache

    read = []
    monkeypatch.setattr(cache, "file_digest", lambda path: read.append(path.name) or digest(path))
    monkeypatch.setattr(cache, "_SETTLED", 0)
    folder_of(small_model()).save(tmp_path / "model")
    for _ in range(3):
        ModelFolder.load(tmp_path / "model")
    assert read == [FLOATS]
    ModelFolder.load(tmp_path / "model", verify=True)
    os.utime(tmp_path / "model" / FLOATS)  # the time of change is not the time that can be set
    ModelFolder.load(tmp_path / "model")
    assert read == [FLOATS] * 3
    monkeypatch.setenv("SCONES_CACHE", "/dev/null")  # a cache that cannot be written costs time
    for _ in range(2):
        ModelFolder.load(tmp_path / "model")
    assert read == [FLOATS] * 5


def test_a_model_that_is_replaced_file_by_file_is_whole_at_every_moment(tmp_path, monkeypatch):
    """A run saves so; whoever is killed between two files leaves a folder that can be opened."""
    from scones.model import folder

    folder_of(small_model()).save(tmp_path / "model")
    later = folder_of(small_model(seed=2))
    monkeypatch.setattr(folder, "model_card", lambda *_, **__: 1 / 0)  # behind the weights
    with pytest.raises(ZeroDivisionError):
        later.write_into(tmp_path / "model")
    found = ModelFolder.load(tmp_path / "model").model.state_dict()
    for name, tensor in later.model.state_dict().items():
        assert torch.equal(found[name], tensor), name


def test_what_a_folder_says_is_kept_as_it_was_said(tmp_path):
    section = {
        "format": 1,
        "output": {"layer": "softmax"},
        "source_language": "de",
        "target_language": "en",
        "steps": 3,
        "commit": None,
        "scones_version": "0.1.0",
        "scores": {},
        "brewed": "for four minutes",  # by a version to come
    }
    facts = ModelFacts.from_json(section)
    assert (facts.steps, facts.licence, facts.others) == (3, None, {"brewed": "for four minutes"})
    assert json.dumps(facts.to_json()) == json.dumps(section)
    assert "commit" not in replace(facts, scones_version=None).to_json()
    model = small_model()
    ModelFolder(model, b"pieces", facts).save(tmp_path / "model")
    assert read_facts(tmp_path / "model") == facts
