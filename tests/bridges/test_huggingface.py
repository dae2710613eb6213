import json
import os

import pytest
import torch
from huggingface_models import CLASSES, WITH_BUFFER, labelled, tiny
from safetensors.torch import load_file, save_file
from torch import nn

from scones import scones_loss
from scones.bridges.huggingface import convert, load_converted, trainable_bias, trainer_loss
from scones.errors import SconesError

WEIGHTS = "model.safetensors"


def real_logits(model, batches):
    """Give logits and labels at the positions that count, in float64."""
    with torch.no_grad():
        logits = [model(**batch).logits[batch["labels"] != -100] for batch in batches]
    labels = [batch["labels"][batch["labels"] != -100] for batch in batches]
    return torch.cat(logits).double(), torch.cat(labels)


@pytest.mark.parametrize("name", CLASSES)
def test_the_mean_log_sum_exp_is_subtracted(name):
    model = tiny(name)
    batches = [labelled([6, 2, 4], model), labelled([5], model, seed=7)]
    before, labels = real_logits(model, batches)
    done = convert(model, batches)
    normalisers = before.logsumexp(dim=1)
    assert done.tokens == 17
    assert done.normaliser == pytest.approx(float(normalisers.mean()), abs=1e-5)
    assert done.deviation == pytest.approx(float(normalisers.std(correction=0)), abs=1e-5)
    assert done.shift == pytest.approx(-done.normaliser)
    after, _ = real_logits(model, batches)
    assert torch.allclose(after, before + done.shift, atol=1e-5)
    gold = before.gather(1, labels[:, None]).squeeze(1)
    softmax, scones = (gold - normalisers).exp(), torch.sigmoid(gold + done.shift)
    assert done.softmax_gold == pytest.approx(float(softmax.mean()), abs=1e-5)
    assert done.scones_gold == pytest.approx(float(scones.mean()), abs=1e-5)
    assert done.difference == pytest.approx(float((softmax - scones).abs().mean()), abs=1e-5)


@pytest.mark.parametrize(("alpha", "smoothing"), [(0.2, 0.0), (1.0, 0.0), (0.5, 0.01)])
def test_no_other_constant_has_a_smaller_loss(alpha, smoothing):
    model = tiny("bart")
    batches = [labelled([6, 2, 4], model)]
    convert(model, batches, alpha, smoothing, shift="least_loss")
    logits, labels = real_logits(model, batches)

    def loss(constant):
        return float(scones_loss(logits + constant, labels, alpha, smoothing, ignore_index=-1))

    assert loss(0.0) < min(loss(0.05), loss(-0.05))


def test_a_banned_token_does_not_count():
    model = tiny("marian")
    model.generation_config.bad_words_ids = [[39], [3, 4]]
    with torch.no_grad():
        model.final_logits_bias[0, 39] = 50.0
    batches = [labelled([6, 2, 4], model)]
    before, _ = real_logits(model, batches)
    done = convert(model, batches)
    before[:, 39] = float("-inf")
    assert done.normaliser == pytest.approx(float(before.logsumexp(dim=1).mean()), abs=1e-5)
    assert abs(done.shift) < 20


@pytest.mark.parametrize("name", CLASSES)
def test_a_saved_model_opens_with_the_same_logits(name, tmp_path):
    from transformers import AutoModelForSeq2SeqLM

    model = tiny(name)
    batches = [labelled([6, 2, 4], model)]
    plain_logits, _ = real_logits(model, batches)
    done = convert(model, batches, alpha=0.7)
    with torch.no_grad():
        trainable_bias(model).view(-1)[5] += 1.0
    expected, _ = real_logits(model, batches)
    model.save_pretrained(tmp_path)

    loaded = load_converted(tmp_path)
    assert type(loaded) is type(model)
    logits, _ = real_logits(loaded.eval(), batches)
    assert torch.equal(logits, expected)
    bias = trainable_bias(loaded)
    assert bias.requires_grad
    assert any(parameter is bias for parameter in loaded.parameters())
    assert loaded.lm_head.weight is loaded.get_input_embeddings().weight
    section = json.loads((tmp_path / "config.json").read_text())["scones"]
    assert section["output"] == {"layer": "scones", "alpha": 0.7, "label_smoothing": 0.0}
    assert section["conversion"]["shift"] == done.shift

    plain = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    logits, _ = real_logits(plain, batches)
    if name in WITH_BUFFER:
        assert section["bias"] == "final_logits_bias"
        assert torch.equal(logits, expected)
        assert isinstance(trainable_bias(plain), nn.Parameter)
        assert torch.equal(real_logits(plain, batches)[0], expected)
    else:
        assert section["bias"] == "lm_head.bias"
        assert torch.allclose(logits, plain_logits)


def test_a_model_in_several_files_opens_too(tmp_path):
    model = tiny("m2m100")
    batches = [labelled([6, 2, 4], model)]
    convert(model, batches)
    model.save_pretrained(tmp_path, max_shard_size="10KB")
    assert not (tmp_path / "model.safetensors").exists()
    # None of these is followed: they would lead transformers to other code and other weights.
    config(attn_implementation="some/kernel", quantization_config={"quant_method": "?"})(tmp_path)
    config(auto_map={"AutoModel": "evil.Model"}, transformers_weights="../a.safetensors")(tmp_path)
    expected, _ = real_logits(model, batches)
    assert torch.equal(real_logits(load_converted(tmp_path).eval(), batches)[0], expected)


def test_what_cannot_be_converted_is_refused():
    with pytest.raises(SconesError, match="class Linear cannot be converted; MarianMTModel"):
        convert(nn.Linear(1, 1), [])
    model = tiny("marian").train()
    sources = {"input_ids": torch.ones(1, 2, dtype=torch.long)}
    with pytest.raises(SconesError, match="no labels"):
        convert(model, [sources])
    with pytest.raises(SconesError, match="no target token"):
        convert(model, [{**sources, "labels": torch.full((1, 2), -100)}])
    with pytest.raises(SconesError, match="alpha must be above 0"):
        convert(model, [labelled([3], model)], alpha=0.0)
    with pytest.raises(SconesError, match="shift='mean' is not known"):
        convert(model, [labelled([3], model)], shift="mean")
    assert not isinstance(model.final_logits_bias, nn.Parameter)
    assert model.training  # as it was
    convert(model, [labelled([3], model)])
    assert model.training
    with pytest.raises(SconesError, match="already"):
        convert(model, [labelled([3], model)])


def test_a_softmax_model_folder_of_ours_can_be_converted(tiny_models):
    from transformers import AutoModelForSeq2SeqLM

    model = AutoModelForSeq2SeqLM.from_pretrained(tiny_models / "softmax")
    languages = model.config.scones["source_language"], model.config.scones["target_language"]
    convert(model, [labelled([3], model)], alpha=0.3)
    section = model.config.scones
    assert section["output"]["alpha"] == 0.3
    assert (section["source_language"], section["target_language"]) == languages
    with pytest.raises(SconesError, match="already"):
        convert(load_converted(tiny_models / "scones"), [labelled([3], model)])


def pickled(folder):
    torch.save(load_file(folder / WEIGHTS), folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()


def config(**changes):
    def damage(folder):
        content = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**content, **changes}))

    return damage


def without_bias(folder):
    tensors = load_file(folder / WEIGHTS)
    del tensors["lm_head.bias"]
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})


def index(name):
    """Let an index say that the weights are in a file of that name."""

    def damage(folder):
        outside = (folder / WEIGHTS).rename(folder.parent / "outside.safetensors")
        (folder / "link.safetensors").symlink_to(outside)
        (folder / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": {"shared": name}}))

    return damage


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (pickled, "could run code"),
        (index("evil.bin"), r"evil\.bin is no safetensors file in .* could run code"),
        (index("../outside.safetensors"), "could run code"),
        (index("link.safetensors"), "could run code"),
        (config(num_layers=2**31), "more layers than there are weights"),
        (config(architectures=5), "class 5 cannot be converted"),
        (without_bias, r"incomplete: lm_head\.bias is missing"),
        (lambda folder: os.truncate(folder / WEIGHTS, 100), "are damaged"),
        (config(scones=None), "no 'scones' section"),
        (config(architectures=["os"]), "class os cannot be converted"),
        (config(architectures=None), "cannot be converted"),
    ],
)
def test_other_folders_are_refused(damage, reason, tmp_path):
    model = tiny("t5")
    convert(model, [labelled([3], model)])
    model.save_pretrained(tmp_path / "model")
    damage(tmp_path / "model")
    with pytest.raises(SconesError, match=reason):
        load_converted(tmp_path / "model")


# Training.


def logits_and_labels():
    torch.manual_seed(0)
    labels = torch.tensor([[3, 4, 0, -100], [2, -100, -100, -100]])
    return {"logits": torch.randn(2, 4, 6)}, labels


def test_the_loss_is_the_mean_over_real_labels_or_those_of_the_whole_step():
    outputs, labels = logits_and_labels()
    logits, real = outputs["logits"].requires_grad_(), labels != -100
    expected = scones_loss(logits[real], labels[real], 0.3, 0.1, ignore_index=-1)
    (slope,) = torch.autograd.grad(expected, logits)
    loss = trainer_loss(0.3, 0.1)
    for items, part in ((None, 1.0), (8, 0.5), (torch.tensor(8), 0.5)):  # four labels are real
        found = loss(outputs, labels, num_items_in_batch=items)
        assert torch.allclose(found, part * expected)
        assert torch.allclose(torch.autograd.grad(found, logits)[0], part * slope)


def test_labels_that_the_decoder_did_not_read_are_refused():
    outputs, labels = logits_and_labels()
    with pytest.raises(SconesError, match=r"DataCollatorForSeq2Seq\(tokenizer, model=model\)"):
        trainer_loss()(outputs, labels[:, :3])
    with pytest.raises(SconesError, match="alpha must be above 0"):
        trainer_loss(alpha=-1.0)
