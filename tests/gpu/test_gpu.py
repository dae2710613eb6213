"""What can only be seen on a GPU; skipped where there is none."""

import pytest
import torch

from scones.model.config import ModelConfig, ModelOptions
from scones.model.transformer import Transformer
from scones.outputs.fused import fused_scones_loss
from scones.outputs.loss import scones_loss
from scones.outputs.scones import Scones
from scones.outputs.softmax import Softmax
from scones.search.beam import beam_search
from scones.search.greedy import greedy_search
from scones.text.creamtea import splits
from scones.text.store import StoreWriter
from scones.text.subwords import Subwords
from scones.training.loop import train
from scones.training.options import Experiment, TrainOptions

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
LAYERS = [Softmax(), Scones()]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_and_its_gradient_are_right_on_the_gpu(smoothing):
    torch.manual_seed(1)
    logits = (200 * torch.rand(64, 1000, device="cuda") - 100).requires_grad_()
    targets = torch.randint(0, 1000, (64,), device="cuda")
    loss = scones_loss(logits, targets, 0.5, smoothing)
    loss.backward()
    exact = logits.detach().double().cpu().requires_grad_()
    reference = scones_loss(exact, targets.cpu(), 0.5, smoothing)
    reference.backward()
    assert loss.item() == pytest.approx(reference.item(), rel=1e-5)
    error = (logits.grad.double().cpu() - exact.grad).abs().max() / exact.grad.abs().max()
    assert error < 1e-5


def test_the_fused_loss_in_bf16_is_near_float64():
    torch.manual_seed(2)
    hidden = torch.randn(512, 128, device="cuda", requires_grad=True)
    weight = (torch.randn(3000, 128, device="cuda") * 0.1).requires_grad_()
    bias = torch.full((3000,), -7.0, device="cuda", requires_grad=True)
    targets = torch.randint(1, 3000, (512,), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = fused_scones_loss(hidden, weight, bias, targets)
    loss.backward()
    inputs = [tensor.detach().double().requires_grad_() for tensor in (hidden, weight, bias)]
    reference = scones_loss(inputs[0] @ inputs[1].T + inputs[2], targets)
    reference.backward()
    assert loss.item() == pytest.approx(reference.item(), rel=2e-3)
    for ours, exact in zip((hidden, weight, bias), inputs, strict=True):
        assert (ours.grad - exact.grad).norm() / exact.grad.norm() < 1e-2


@pytest.mark.parametrize("output", LAYERS, ids=lambda output: output.name)
def test_search_on_the_gpu_gives_the_cpus_tokens(output):
    torch.manual_seed(3)
    model = Transformer(ModelConfig(60, 2, 2, 64, 4, 128, 0.0, 0.0, max_length=64)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
        model.output_bias[1] += 5
    source = torch.randint(2, 60, (16, 12))
    for row in range(16):
        source[row, 4 + row // 2 :] = 0
    limits = torch.full((16,), 20)
    on_cpu = [h.tokens for h in greedy_search(model, output, source, limits)]
    beam_on_cpu = [[h.tokens for h in n] for n in beam_search(model, output, source, limits, 4, 4)]
    model.cuda()
    source, limits = source.cuda(), limits.cuda()
    assert [h.tokens for h in greedy_search(model, output, source, limits)] == on_cpu
    found = beam_search(model, output, source, limits, 4, 4)
    assert [[h.tokens for h in n] for n in found] == beam_on_cpu


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    pairs, dev, _ = splits(400, 20, 1, seed=1)
    subwords = Subwords.train([text for pair in pairs for text in pair], pieces=350)
    folder = tmp_path_factory.mktemp("store")
    with StoreWriter(folder, subwords, "de", "en") as writer:
        writer.append(
            "train",
            subwords.encode([source for source, _ in pairs]),
            subwords.encode([target for _, target in pairs]),
        )
        writer.append_dev([e.source for e in dev], [e.references[0] for e in dev])
        writer.finish()
    return folder


@pytest.mark.parametrize("output", LAYERS, ids=lambda output: output.name)
def test_training_in_bf16_learns_and_resumes(output, store, tmp_path):
    from safetensors.torch import load_file

    def run(folder, steps):
        options = TrainOptions(
            max_steps=steps,
            max_tokens=1024,
            warmup_steps=10,
            validate_every=30,
            checkpoint_every=15,
            log_every=5,
            device="cuda",
        )
        model = ModelOptions(preset="tiny", layers=1)
        train(Experiment(model, output, options), store, tmp_path / folder, quiet=True)

    run("straight", 30)
    run("resumed", 15)
    run("resumed", 30)
    weights = [
        load_file(tmp_path / name / "last" / "model.safetensors")
        for name in ("straight", "resumed")
    ]
    for name, tensor in weights[0].items():
        torch.testing.assert_close(tensor, weights[1][name], atol=2e-2, rtol=2e-2, msg=name)
    log = (tmp_path / "straight" / "training" / "log.jsonl").read_text().splitlines()
    import json

    losses = [event["loss"] for line in log if (event := json.loads(line))["event"] == "train"]
    assert losses[-1] < 0.8 * losses[0]
