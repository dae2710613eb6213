"""A model laid out for translating on a GPU computes what the model itself computes."""

import pytest
import torch
from kernel_device import DEVICE

from scones.kernels import PackedTokens, Spans
from scones.model.config import ModelConfig
from scones.model.gpu import Inference, Rows, Sources, _Head
from scones.model.transformer import Transformer
from scones.text import END, PAD

VOCABULARY, SIZE = 50, 32
SENTENCES = [[5, 6, 7], [8, 9, 10, 11, 12, 13], [4], list(range(3, 43))]


@pytest.fixture(params=[True, False], ids=["tied", "untied"], scope="module")
def model(request):
    """One whose biases are not zero either, and whose decoder is not as deep as its encoder."""
    config = ModelConfig(
        VOCABULARY, 1, 2, SIZE, 2, 64, 0.1, 0.1, tied_embeddings=request.param, max_length=64
    )
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = Transformer(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model.to(DEVICE)


def packed(sentences):
    lengths = [len(sentence) + 1 for sentence in sentences]
    starts = torch.tensor([0, *lengths], device=DEVICE).cumsum(0).int()
    ids = torch.tensor([token for s in sentences for token in (*s, END)], device=DEVICE)
    places = torch.cat([torch.arange(length) for length in lengths]).to(DEVICE)
    return PackedTokens(ids, places, Spans(starts, max(lengths)))


def encoded(inference, sentences):
    """Encode into the middle of a pool that is larger than it need be."""
    source, before = packed(sentences), 3
    rows = len(source.ids_N)
    layers = range(inference.config.decoder_layers)
    pool = [torch.full((rows + 9, 2 * SIZE), float("nan"), device=DEVICE) for _ in layers]
    inference.encode(source, [layer[before : before + rows] for layer in pool])
    starts, lengths = source.spans.starts[:-1] + before, source.spans.starts.diff()
    return Sources(pool, starts.int(), lengths.int())


def alone(sentence):
    return torch.tensor([[*sentence, END]], device=DEVICE)


@torch.inference_mode()
def test_sources_are_encoded_to_the_models_keys_and_values(model):
    sources = encoded(Inference(model, torch.float32), SENTENCES)
    for index, sentence in enumerate(SENTENCES):
        start, length = int(sources.starts_N[index]), int(sources.lengths_N[index])
        assert length == len(sentence) + 1
        state = model.start(alone(sentence))
        for cache, pool in zip(state.parts[0].layers, sources.layers_S2D, strict=True):
            keys, values = pool[start : start + length].view(length, 2, 2, -1).unbind(1)
            for have, want in ((keys, cache.cross_keys), (values, cache.cross_values)):
                torch.testing.assert_close(have.transpose(0, 1), want[0], rtol=1e-4, atol=1e-4)
    assert all(layer[:3].isnan().all() for layer in sources.layers_S2D)


@torch.inference_mode()
def test_steps_are_the_models_steps_wherever_rows_are(model):
    """Every row begins at another step, and writes tokens of its own."""
    inference, steps, delays = Inference(model, torch.float32), 4, [0, 2, 2, 1]
    sources = encoded(inference, SENTENCES)
    generator = torch.Generator().manual_seed(2)
    fed = torch.randint(2, VOCABULARY, (len(SENTENCES), steps), generator=generator).to(DEVICE)
    fed[:, 0] = PAD
    wanted = []
    for sentence, tokens in zip(SENTENCES, fed, strict=True):
        state = model.start(alone(sentence))
        wanted.append([model.step(state, token.view(1))[0] for token in tokens])

    layers = range(model.config.decoder_layers)
    caches = [torch.full((4, 16, 2 * SIZE), float("nan"), device=DEVICE) for _ in layers]
    sentences = torch.arange(4, device=DEVICE)
    for step in range(steps + max(delays)):
        places = [min(max(0, step - delay), steps - 1) for delay in delays]
        positions = torch.tensor(places, device=DEVICE)
        tokens = fed.gather(1, positions.unsqueeze(1)).squeeze(1)
        logits = inference.step(tokens, Rows(positions, sentences, caches, None), sources)
        for row, place in enumerate(places):
            torch.testing.assert_close(logits[row], wanted[row][place], rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_a_row_goes_on_from_another_one_by_its_owners(model):
    """What a hypothesis has seen stays where it was written: reordering is a list of rows."""
    inference, source, beams = Inference(model, torch.float32), [5, 9, 23, 4], 3
    sources = encoded(inference, [source])
    state = model.start(alone(source), beams)
    layers = range(model.config.decoder_layers)
    caches = [torch.zeros(beams, 16, 2 * SIZE, device=DEVICE) for _ in layers]
    owners = torch.zeros(beams, 16, dtype=torch.int32, device=DEVICE)
    sentence = torch.zeros(1, dtype=torch.long, device=DEVICE)
    generator = torch.Generator().manual_seed(3)
    tokens = torch.full((beams,), PAD, device=DEVICE)
    for position in range(4):
        positions = torch.full((beams,), position, device=DEVICE)
        wanted = model.step(state, tokens)
        owners[:, position] = torch.arange(beams, dtype=torch.int32, device=DEVICE)
        found = inference.step(tokens, Rows(positions, sentence, caches, owners), sources)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
        parents = torch.randint(0, beams, (beams,), generator=generator).to(DEVICE)
        owners = owners[parents]
        state.reorder(parents)
        tokens = torch.randint(2, VOCABULARY, (beams,), generator=generator).to(DEVICE)


def test_the_bias_of_the_output_keeps_its_digits_in_bf16():
    bias = torch.linspace(-17.77, 9.13, VOCABULARY, device=DEVICE)
    head = _Head(torch.zeros(VOCABULARY, SIZE, device=DEVICE), bias, torch.bfloat16)
    columns = head._weight[:, SIZE:].double().sum(dim=1)
    torch.testing.assert_close(columns, bias.double(), rtol=1e-6, atol=1e-6)
