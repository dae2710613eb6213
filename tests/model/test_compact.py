"""Models stored as int8: how far weights move, what is refused, and the way there and back."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from scones.errors import SconesError
from scones.model.card import check_metadata
from scones.model.folder import ModelFolder, from_int8, store_again, to_int8

PATH = Path("model.int8.safetensors")
NAME = "model.encoder.layers.0.fc1.weight"
INT8 = "model.int8.safetensors"


def there_and_back(matrix):
    stored = {name: one.numpy() for name, one in to_int8({NAME: matrix}).items()}
    return torch.from_numpy(from_int8(stored, PATH)[NAME])


@settings(max_examples=50)
@given(
    st.integers(1, 7),
    st.integers(1, 40),
    st.sampled_from([1e-20, 1e-3, 1.0, 1e4]),
    st.integers(0, 2**31),
)
def test_no_weight_moves_by_more_than_half_a_step(rows, columns, size, seed):
    matrix = size * torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    largest_R1 = matrix.abs().amax(1, keepdim=True)
    error = (there_and_back(matrix) - matrix).abs()
    assert (error <= largest_R1 / 254 * (1 + 1e-5)).all()


def test_matrices_take_a_byte_a_weight_and_a_scale_a_row():
    matrix = torch.tensor([[-127.0, 0, 3], [0, 0, 0], [0.5, -1.5, 63.5]])
    assert torch.equal(there_and_back(matrix), matrix)  # whole steps and zeros
    bias = torch.randn(1, 9)  # Pegasus keeps its output bias in two dimensions
    stored = to_int8({NAME: matrix, "final_logits_bias": bias})
    assert {name: (tensor.dtype, *tensor.shape) for name, tensor in stored.items()} == {
        NAME: (torch.int8, 3, 3),
        f"{NAME}.scale": (torch.float32, 3),
        "final_logits_bias": (torch.float32, 1, 9),
    }
    assert torch.equal(stored["final_logits_bias"], bias)
    for scale in ({}, {f"{NAME}.scale": np.ones(5)}):
        with pytest.raises(SconesError, match=f"{INT8} is damaged: {NAME} has no scale for each"):
            from_int8({NAME: stored[NAME].numpy(), **scale}, PATH)


@pytest.fixture
def small(tiny_model, tmp_path):
    store_again(tiny_model, tmp_path / "small", "int8")
    return tmp_path / "small"


def test_a_folder_in_a_quarter_of_the_room(tiny_model, tmp_path):
    small = tmp_path / "small"
    report = store_again(tiny_model, small, "int8")
    files = ["README.md", "config.json", INT8, "subwords.model"]
    assert sorted(path.name for path in small.iterdir()) == files
    assert json.loads((small / "config.json").read_text())["scones"]["storage"] == "int8"
    model = ModelFolder.load(tiny_model)
    parameters = sum(parameter.numel() for parameter in model.model.parameters())
    assert (small / INT8).stat().st_size < 1.35 * parameters  # in so small a model scales count
    again = ModelFolder.load(small)
    assert again.subwords == model.subwords
    assert again.facts == model.facts
    errors = []
    for name, tensor in model.model.state_dict().items():
        kept = again.model.state_dict()[name]
        errors.append((kept - tensor).abs())
        assert kept.dtype == torch.float32
        assert tensor.ndim > 1 or torch.equal(kept, tensor)
    assert report.largest_error == max(error.max().item() for error in errors) > 0
    assert report.bytes == sum(path.stat().st_size for path in small.iterdir())


def test_the_way_back_is_a_hugging_face_folder(tiny_model, small, tmp_path):
    assert store_again(small, tmp_path / "full", "float32").largest_error == 0
    names = sorted(path.name for path in (tmp_path / "full").iterdir())
    assert names == sorted(path.name for path in tiny_model.iterdir())
    config, before = (
        json.loads((folder / "config.json").read_text())
        for folder in (tmp_path / "full", tiny_model)
    )
    for one in (config, before):
        assert one["scones"]["digests"].pop("model.safetensors")
    assert config == before
    weights = load_file(tmp_path / "full" / "model.safetensors")
    original = load_file(tiny_model / "model.safetensors")
    assert {n: w.shape for n, w in weights.items()} == {n: w.shape for n, w in original.items()}
    # From there on nothing is lost any more.
    store_again(tmp_path / "full", tmp_path / "small again", "int8")
    again = load_file(tmp_path / "small again" / INT8)
    for name, tensor in load_file(small / INT8).items():
        torch.testing.assert_close(again[name], tensor, rtol=1e-6, atol=0)


def test_nothing_that_somebody_needs_is_replaced(tiny_model, small):
    before = (small / INT8).read_bytes()
    with pytest.raises(SconesError, match="is the model itself"):
        store_again(small, small, "float32", overwrite=True)
    (small / "training").mkdir()
    with pytest.raises(SconesError, match="holds 'training', which is no part of a model folder"):
        store_again(tiny_model, small, "int8", overwrite=True)
    assert (small / INT8).read_bytes() == before
    (small / "training").rmdir()
    store_again(tiny_model, small, "int8", {"name": "tea"}, overwrite=True)
    assert ModelFolder.load(small).facts.name == "tea"


TOLD = {
    "name": "pocket-tea",
    "licence": "Apache-2.0",
    "data": {"menus": {"pairs": 1234, "licence": "CC0 | public domain"}},
    "tests": {"tea/test": {"sentences": 20, "BLEU": 12.345}, "jam/test": {"BLEU": 9.0}},
    "signature": "nrefs:1|case:mixed",
    "limits": ["Knows tea alone."],
}


def test_a_card_tells_data_scores_and_limits(tiny_model, tmp_path):
    model = ModelFolder.load(tiny_model)
    scores = {"bleu": 12.3456, "signature": "nrefs:1|case:mixed"}
    replace(model, facts=replace(model.facts, scores=scores)).save(tmp_path / "model")
    store_again(tmp_path / "model", tmp_path / "tea", "int8", check_metadata(TOLD, "card.json"))
    card = (tmp_path / "tea" / "README.md").read_text()
    for line in (
        "# pocket-tea: de → en, scones",
        r"| menus | 1,234 | CC0 \| public domain |",
        "| jam/test |  | 9.0 |",
        "Signature: `nrefs:1|case:mixed`",
        "- Knows tea alone.",
        r"| dev signature | `nrefs:1\|case:mixed` |",
        'translator = scones.load("pocket-tea")',
    ):
        assert f"\n{line}\n" in card, card
    assert "AutoTokenizer" not in card
    store_again(tmp_path / "tea", tmp_path / "full", "float32")
    card = (tmp_path / "full" / "README.md").read_text()
    assert "- Knows tea alone." in card
    assert "pocket-tea" not in card  # a copy is not what goes by that name


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ([], r"card\.json must hold an object with name, licence, data, tests, signature, limits"),
        ({"date": 3, "name": 4}, "'date' is not known; 'name' must be a text"),
        ({"data": {"menus": 3}}, "'data' must be an object of objects"),
    ],
)
def test_what_a_card_cannot_tell_is_refused(told, sentence):
    with pytest.raises(SconesError, match=sentence):
        check_metadata(told, "card.json")
