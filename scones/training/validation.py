"""The development set: its loss, and the BLEU of greedy search on it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from scones.evaluation.metrics import bleu
from scones.model.transformer import Transformer
from scones.outputs import OutputLayer
from scones.search.corpus import SearchOptions, batches_by_length, search_corpus
from scones.text.store import TokenStore
from scones.training.data import make_batch

_GREEDY = SearchOptions(search="greedy", scores=False)


@dataclass(frozen=True)
class Validation:
    """How a model does on the development set."""

    loss: float
    bleu: float
    length_ratio: float
    signature: str


@torch.inference_mode()
def validate(
    model: Transformer, output: OutputLayer, store: TokenStore, sentences: int | None
) -> Validation | None:
    """Evaluate on the first `sentences` of the store's development set; None where it has none."""
    texts = store.dev_texts
    if texts is None:
        return None
    references = texts[1][:sentences]
    tokens = store.split("dev")
    training = model.training
    model.eval()
    total = count = 0.0
    lengths = (tokens.target_lengths[: len(references)] + 1).tolist()
    for indices in batches_by_length(lengths, 4096):
        batch = make_batch(tokens, np.array(indices), by_sentence=False).to(model.device)
        hidden_ND = batch.hidden(model)
        total += float(
            output.loss(hidden_ND, model.output_weight, model.output_bias, batch.targets_N)
        )
        count += batch.total
    sources = [tokens.source(index).tolist() for index in range(len(references))]
    found = search_corpus(model, output, sources, _GREEDY)
    hypotheses = store.subwords.decode([best[0].tokens for best in found])
    score = bleu(hypotheses, [references])
    model.train(training)
    return Validation(
        total / max(count, 1), score.value, score.length_ratio or 0.0, score.signature
    )
