"""A tiny vocabulary, store and pair of models, made once for the whole test run.

They are read-only: a test that damages one copies it first.
"""

import pytest
from hypothesis import settings

settings.register_profile("any machine", deadline=None)  # a busy one is slow, not wrong
settings.load_profile("any machine")

PAIRS = 400
PIECES = 500
MAX_LENGTH = 64
END_BIAS = 0.5  # translations end sooner or later, and before the length limit


@pytest.fixture(scope="session", autouse=True)
def no_users_cache(tmp_path_factory):
    """A cache folder for the test run alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCONES_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def tea_pairs():
    """German sentences of the built-in corpus, each with one English translation."""
    from scones.text.creamtea import CreamTea

    examples = CreamTea.load().sample(PAIRS, seed=5)
    return [(example.source, example.references[0]) for example in examples]


@pytest.fixture(scope="session")
def tiny_subwords(tea_pairs):
    from scones.text.subwords import Subwords

    return Subwords.train((text for pair in tea_pairs for text in pair), PIECES).model


@pytest.fixture(scope="session")
def tiny_store(tea_pairs, tiny_subwords, tmp_path_factory):
    """A store of all pairs but the last twenty, which are its development set."""
    from scones.files import new_folder
    from scones.text.store import StoreWriter
    from scones.text.subwords import Subwords

    folder = tmp_path_factory.mktemp("store") / "store"
    subwords = Subwords(tiny_subwords)
    sources, targets = (list(texts) for texts in zip(*tea_pairs, strict=True))
    with new_folder(folder) as hidden, StoreWriter(hidden, subwords, "de", "en") as writer:
        writer.append("train", subwords.encode(sources[:-20]), subwords.encode(targets[:-20]))
        writer.append_dev(sources[-20:], targets[-20:])
        writer.finish()
    return folder


@pytest.fixture(scope="session")
def tiny_models(tiny_subwords, tmp_path_factory):
    """A folder with two model folders of random weights: `scones` and `softmax`."""
    folder = tmp_path_factory.mktemp("models")
    for seed, layer in enumerate(("scones", "softmax")):
        _save_random_model(folder / layer, layer, tiny_subwords, seed)
    return folder


@pytest.fixture(scope="session")
def tiny_model(tiny_models):
    """A model folder of random weights with the SCONES output layer."""
    return tiny_models / "scones"


def _save_random_model(folder, layer, subwords, seed):
    import torch

    from scones.model.config import ModelConfig
    from scones.model.folder import ModelFacts, ModelFolder
    from scones.model.transformer import Transformer
    from scones.outputs import output_layer
    from scones.text import END, UNKNOWN

    config = ModelConfig(
        vocabulary=PIECES,
        encoder_layers=1,
        decoder_layers=1,
        size=32,
        heads=2,
        feed_forward=64,
        dropout=0.1,
        attention_dropout=0.1,
        tied_embeddings=False,  # else a random model says one word for ever
        max_length=MAX_LENGTH,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Transformer(config)
        with torch.no_grad():
            for parameter in model.parameters():
                # Larger than at the start of training, so that the output depends on the input;
                # biases stay small, since they would make it say the same everywhere.
                if parameter.ndim > 1:
                    parameter.add_(0.3 * torch.randn_like(parameter))
            model.output_bias.fill_(-3.0)
            model.output_bias[: UNKNOWN + 1 + 256] = -30.0  # no padding, no bytes: words alone
            model.output_bias[END] = END_BIAS
    output = output_layer({"layer": layer}).to_config()
    facts = ModelFacts(output, "de", "en", steps=7, seed=seed, scores={"bleu": 12.5})
    ModelFolder(model.eval(), subwords, facts).save(folder)
