import pytest
import torch

from scones.errors import SconesError
from scones.model.config import ModelConfig, ModelOptions
from scones.model.transformer import Transformer


@pytest.fixture
def model():
    torch.manual_seed(1)
    return Transformer(ModelConfig(30, 2, 2, 32, 4, 64, 0.1, 0.1, max_length=80)).eval()


def test_cached_logits_equal_uncached(model):
    source = torch.randint(2, 30, (3, 8))
    source[2, 5:] = 0
    target = torch.randint(2, 30, (3, 70))  # longer than one chunk of the cache
    with torch.no_grad():
        whole = model.logits(model(source, target))
        state = model.start(source)
        steps = torch.stack([model.step(state, target[:, t]) for t in range(70)], dim=1)
    torch.testing.assert_close(steps, whole, atol=1e-5, rtol=0)


def test_the_paper_preset_has_table_1s_sizes():
    config = ModelOptions(preset="paper").build(32_000)
    assert (config.encoder_layers, config.decoder_layers) == (6, 6)
    assert (config.size, config.heads, config.feed_forward) == (512, 8, 2048)
    assert (config.dropout, config.attention_dropout) == (0.1, 0.1)
    with torch.device("meta"):
        tied = Transformer(config)
        untied = Transformer(ModelOptions(preset="paper", tied_embeddings=False).build(32_000))
    count = [sum(p.numel() for p in model.parameters()) / 1e6 for model in (tied, untied)]
    assert count == pytest.approx([60.5, 93.3], abs=0.3)


def test_all_problems_of_a_configuration_are_said_at_once():
    with pytest.raises(SconesError) as caught:
        ModelOptions(preset="tiny", size=100, heads=3, dropout=1.5).build(0)
    for word in ("vocabulary", "size", "dropout"):
        assert word in str(caught.value)
