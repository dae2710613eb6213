import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from scones.errors import SconesError
from scones.model.config import ModelConfig
from scones.model.folder import ModelFacts, ModelFolder
from scones.model.transformer import Transformer

HUGGING_FACE = """
import sys, torch
sys.modules["scones"] = None  # opening the folder must not need it
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM
model, report = AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1], output_loading_info=True)
problems = {name: sorted(keys) for name, keys in report.items() if keys}
assert not problems, problems
batch = load_file(sys.argv[2])
with torch.no_grad():
    logits = model.eval()(
        input_ids=batch["source"],
        attention_mask=batch["source"] != 0,
        decoder_input_ids=batch["target"],
    ).logits
save_file({"logits": logits}, sys.argv[3])
"""


def small_model(tied: bool = True, vocabulary: int = 50) -> Transformer:
    torch.manual_seed(3)
    model = Transformer(
        ModelConfig(
            vocabulary=vocabulary,
            encoder_layers=2,
            decoder_layers=3,
            size=32,
            heads=4,
            feed_forward=48,
            dropout=0.1,
            attention_dropout=0.1,
            tied_embeddings=tied,
            max_length=64,
        )
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def folder_of(model: Transformer) -> ModelFolder:
    facts = ModelFacts({"layer": "scones", "alpha": 0.5}, "de", "en")
    return ModelFolder(model, b"pieces", facts)


@pytest.mark.parametrize("tied", [True, False])
def test_hugging_face_gives_the_same_logits_without_scones(tied: bool, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    model = small_model(tied)
    folder_of(model).save(tmp_path / "model")
    source = torch.randint(2, 50, (4, 9))
    source[1, 5:] = 0
    target = torch.randint(2, 50, (4, 7))
    target[:, 0] = 0
    save_file({"source": source, "target": target}, tmp_path / "batch")
    command = [sys.executable, "-c", HUGGING_FACE, "model", "batch", "logits"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    theirs = load_file(tmp_path / "logits")["logits"]
    with torch.no_grad():
        ours = model.logits(model(source, target))
    assert ours.abs().max() > 1
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)


@pytest.mark.parametrize("tied", [True, False])
def test_a_saved_model_is_the_model(tied: bool, tmp_path: Path) -> None:
    model = small_model(tied)
    folder_of(model).save(tmp_path / "model")
    again = ModelFolder.load(tmp_path / "model")
    assert again.model.config == model.config
    assert (again.subwords, again.facts.output["alpha"]) == (b"pieces", 0.5)
    assert (again.facts.source_language, again.facts.target_language) == ("de", "en")
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name]), name
    assert torch.equal(model.positions, again.model.positions)


def test_a_folder_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(SconesError, match="exists already"):
        folder_of(small_model()).save(tmp_path / "model")
    assert list((tmp_path / "model").iterdir()) == []


def damage_nothing_there(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def damage_weights_cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def damage_weights_missing(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def damage_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def damage_sizes(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["encoder_ffn_dim"] = 64
    (folder / "config.json").write_text(json.dumps(config))


def damage_types(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["vocab_size"] = "many"
    (folder / "config.json").write_text(json.dumps(config))


def damage_output(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["scones"]["output"] = 3
    (folder / "config.json").write_text(json.dumps(config))


def damage_numbers(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    tensors["model.decoder.layers.1.fc1.weight"][3, 5] = float("nan")
    save_file(tensors, folder / "model.safetensors")


def damage_subwords(folder: Path) -> None:
    (folder / "subwords.model").unlink()


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (damage_nothing_there, "no config.json"),
        (damage_weights_cut, "damaged"),
        (damage_weights_missing, "incomplete"),
        (damage_config, "not valid JSON"),
        (damage_sizes, "does not fit"),
        (damage_types, "'vocabulary' must be a whole number, not 'many'"),
        (damage_output, "output layer"),
        (damage_numbers, "not finite"),
        (damage_subwords, "incomplete"),
    ],
)
def test_a_damaged_folder_is_refused(damage, sentence: str, tmp_path: Path) -> None:
    folder_of(small_model()).save(tmp_path / "model")
    damage(tmp_path / "model")
    with pytest.raises(SconesError, match=sentence):
        ModelFolder.load(tmp_path / "model")


def test_a_model_of_another_maker_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "pegasus"}')
    with pytest.raises(SconesError, match="not a SCONES model"):
        ModelFolder.load(tmp_path)
    with pytest.raises(SconesError, match="does not exist"):
        ModelFolder.load(tmp_path / "nowhere")


def test_the_card_is_a_table_that_a_signature_does_not_break() -> None:
    from scones.model.card import model_card

    folder = folder_of(small_model())
    scores = {"bleu": 12.3456, "signature": "nrefs:1|case:mixed"}
    card = model_card(replace(folder.facts, scores=scores), folder.model.config)
    assert "| dev bleu | 12.346 |" in card
    assert r"| dev signature | `nrefs:1\|case:mixed` |" in card
    assert "de → en" in card
