"""Prefixes in a pool are scored as a model scores them one after another."""

from math import log

import pytest
import torch
from kernel_device import DEVICE, make_usable

from scones.model.config import ModelConfig
from scones.model.transformer import Transformer, encoding_once, prepacked, source_mask
from scones.outputs.scones import Scones
from scones.outputs.softmax import Softmax
from scones.search.engine import padded, search_corpus, searcher
from scones.search.exact import exact_search, expander_for
from scones.search.frontier import ExactOptions, PooledTransformer, Prefixes, Tree
from scones.search.gpu import PooledInference
from scones.search.searcher import SearchOptions
from scones.text import END, PAD

SOURCES = [[5, 9, 7], [3], [8, 8, 4, 6, 2, 9, 9]]


@pytest.fixture
def model():
    torch.manual_seed(4)
    model = Transformer(ModelConfig(20, 2, 2, 32, 2, 64, 0.0, 0.0, max_length=40)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.to(DEVICE)


def wanted(model, source, prefix):
    state = model.start(padded([source], DEVICE))
    for token in [PAD, *prefix]:
        logits = model.step(state, torch.tensor([token], device=DEVICE))
    return logits[0]


@pytest.mark.parametrize("kind", [PooledTransformer, PooledInference])
@torch.inference_mode()
def test_every_prefix_gets_its_own_logits(model, kind, monkeypatch):
    """A tree grows at random places, in rows that are used again and again."""
    if kind is PooledInference:
        make_usable(monkeypatch)
        expander = PooledInference(model, torch.float32)
    else:
        expander = PooledTransformer(model)
    expander.open(SOURCES, 30)
    tree = Tree(30, 8, DEVICE)
    generator = torch.Generator().manual_seed(1)
    known = {}
    waiting = Prefixes.roots(len(SOURCES), PAD, DEVICE)
    for _ in range(6):
        rows = tree.add(waiting)
        depths = tree.depths_P[rows]
        longest = int(depths.max()) + 1
        logits = expander.expand(
            waiting.tokens.long(), tree.paths_PT[rows, :longest], depths, waiting.sentences.long()
        )
        for row, place in zip(rows.tolist(), range(len(waiting)), strict=True):
            sentence, token = int(waiting.sentences[place]), int(waiting.tokens[place])
            parent = int(waiting.parents[place])
            prefix = [] if parent < 0 else [*known[parent][1], token]
            known[row] = (sentence, prefix)
            exact = wanted(model, SOURCES[sentence], prefix)
            torch.testing.assert_close(logits[place], exact, rtol=1e-4, atol=1e-4)
        shallow = [row for row in known if len(known[row][1]) < 7]
        chosen = torch.randint(0, len(shallow), (5,), generator=generator)
        parents = torch.tensor([shallow[n] for n in chosen.tolist()], dtype=torch.int32)
        waiting = Prefixes(
            torch.zeros(5, dtype=torch.float64, device=DEVICE),
            torch.zeros(5, device=DEVICE),
            torch.randint(2, 20, (5,), generator=generator).int().to(DEVICE),
            parents.to(DEVICE),
            torch.tensor([known[row][0] for row in parents.tolist()]).int().to(DEVICE),
        )
        tree.collect(waiting)
        kept = {row for parent in parents.tolist() for row in tree.paths_PT[parent].tolist()}
        known = {row: about for row, about in known.items() if row in kept}


@pytest.mark.parametrize("layer", [Scones(), Softmax()], ids=["scones", "softmax"])
def test_the_mode_of_a_transformer_beats_every_beam(model, layer):
    with torch.no_grad():
        model.output_bias[1] += 3.0
    limits = [6, 5, 6]
    beams = [
        [max((h.log_prob or 0.0) for h in found) for found in
         search_corpus(model, layer, SOURCES, SearchOptions("beam", size, size))]
        for size in (1, 64)
    ]  # fmt: skip
    first = search_corpus(model, layer, SOURCES, SearchOptions("beam", 2))
    expander = expander_for(model, torch.float32)
    results = dict(
        exact_search(expander, layer, SOURCES, limits, first, ExactOptions(max_states=50_000))
    )
    for number, result in results.items():
        assert result.certificate.number_format == "float32"
        best = result.hypotheses[0].log_prob
        if len(result.hypotheses[0].tokens) < limits[number] and result.certificate.proved:
            assert best >= beams[0][number] - 1e-4
            assert best >= beams[1][number] - 1e-4
        terms = result.hypotheses[0].token_log_probs
        assert sum(terms) == pytest.approx(best, abs=1e-5)


@pytest.mark.skipif(DEVICE.type != "cpu", reason="prepacked weights are for a CPU")
@torch.inference_mode()
def test_all_translations_are_found_in_the_arithmetic_that_ran(model):
    """Brute force over the logits of an encoder that rounds and of the decoder beside it."""
    model.output_bias[1] += 3.0
    encoded = []

    def rounded(source_BS):
        encoded.append(len(source_BS))
        ids_BS = torch.from_numpy(source_BS)
        memory_BSD = model.encode(ids_BS, source_mask(ids_BS))
        return ((memory_BSD * 16).round() / 16).numpy()

    packed = prepacked(model, rounded)
    layer, limit, threshold = Scones(), 3, 0.02
    with encoding_once(packed):
        first = searcher(packed, layer).search(SOURCES, SearchOptions("beam"))
        expander = expander_for(packed, torch.float32)
        options = ExactOptions(threshold=threshold)
        limits = [limit] * len(SOURCES)
        results = dict(exact_search(expander, layer, SOURCES, limits, first, options))
    assert sum(encoded) == len(SOURCES)  # once, for the beam and for this
    for number, source in enumerate(SOURCES):
        certificate = results[number].certificate
        assert certificate.arithmetic == packed.arithmetic
        assert certificate.arithmetic.startswith("int8 encoder, ")
        scores = brute_force_of(packed, layer, source, limit)
        found = {one.tokens for one in results[number].hypotheses}
        slack = certificate.tolerance
        assert found >= {ids for ids, score in scores.items() if score > log(threshold) + slack}
        assert found <= {ids for ids, score in scores.items() if score > log(threshold) - slack}
        assert len(found) > 1


def brute_force_of(model, layer, source, limit):
    """Score all translations of at most `limit` tokens, the end among them, one after another."""
    scores = {}
    level = {(): 0.0}
    for length in range(limit):
        longer = {}
        for prefix, score in level.items():
            terms = layer.log_scores(wanted(model, source, list(prefix)).unsqueeze(0))[0].tolist()
            scores[prefix] = score + terms[END]
            others = (token for token in range(len(terms)) if token != END)
            if length + 1 < limit:
                longer |= {(*prefix, token): score + terms[token] for token in others}
        level = longer
    return scores
