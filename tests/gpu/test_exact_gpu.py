"""Exact search on a GPU finds what it finds on a CPU."""

import pytest
import torch

import scones
from scones.model.config import ModelOptions
from scones.model.transformer import Transformer
from scones.outputs import output_layer
from scones.search.frontier import ExactOptions
from scones.search.searcher import SearchOptions, length_limit

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("layer", ["scones", "softmax"])
@pytest.mark.parametrize("width", [1, 64, 2048])
def test_the_same_results_as_on_a_cpu(tiny_models, tea_pairs, layer, width):
    sentences = [source for source, _ in tea_pairs[:8]]
    options = ExactOptions(n_best=2, max_states=400, width=width)

    def results(device):
        found = dict(scones.load(tiny_models / layer, device=device).exact(sentences, options))
        return [found[index] for index in range(len(sentences))]

    for ours, theirs in zip(results("cuda"), results("cpu"), strict=True):
        assert ours.certificate.empty_log_prob == pytest.approx(
            theirs.certificate.empty_log_prob, abs=1e-3
        )
        if ours.certificate.proved and theirs.certificate.proved:
            assert ours.translations[0].log_prob == pytest.approx(
                theirs.translations[0].log_prob, abs=1e-3
            )
        assert ours.certificate.states <= 400


def test_beams_of_a_thousand(tiny_models, tea_pairs):
    sentences = [source for source, _ in tea_pairs[:4]]
    translator = scones.load(tiny_models / "scones", device="cuda")
    wide = translator.translate(sentences, search="beam", beam_size=1000, length_penalty=0.0)
    narrow = translator.translate(sentences, search="beam", beam_size=4, length_penalty=0.0)
    for (one, *_), (other, *_) in zip(wide, narrow, strict=True):
        assert not other.finished or (one.log_prob or 0.0) >= (other.log_prob or 0.0) - 1e-3


def test_a_limit_of_memory_is_kept():
    """A model of the paper's size, untrained, which makes every sentence a hard one."""
    # Not at the top: kernels are interpreted elsewhere, which is decided before they are imported.
    from scones.search.exact import exact_search, expander_for
    from scones.search.gpu import slot_searcher

    gigabyte = 10**9
    torch.manual_seed(1)
    model = Transformer(ModelOptions("paper").build(vocabulary=32_000)).cuda().eval()
    output = output_layer({"layer": "scones", "alpha": 0.5})
    sources = [[5 + i % 1000] * (5 + i % 80) for i in range(1000)]
    limits = [length_limit(len(source) + 1, 1024) for source in sources]
    searcher = slot_searcher(model, output, torch.float32)
    expander = expander_for(model, torch.float32)
    limited = SearchOptions("beam", 4, max_memory=gigabyte)
    searcher.search([[5, 6]], limited)  # what libraries take for themselves
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved(), torch.cuda.memory_allocated()

    def taken():
        """Give how much more was reserved, and how much of it in use, at most since last asked."""
        most = torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        return [now - then for now, then in zip(most, before, strict=True)]

    torch.cuda.reset_peak_memory_stats()
    first = searcher.search(sources, limited)
    beams = taken()
    options = ExactOptions(max_memory=gigabyte, max_seconds=10)
    found = list(exact_search(expander, output, sources, limits, first, options))
    exact = taken()
    assert len(found) == len(sources)
    assert max(beams[0], exact[0]) <= gigabyte, f"reserved and used: {beams} and {exact} bytes"
