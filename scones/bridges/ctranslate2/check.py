"""Does a converted model say what the model itself says?"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from scones.bridges.ctranslate2.searcher import CTranslate2Searcher
from scones.ids import END, PAD, UNKNOWN
from scones.model.config import ModelConfig
from scones.model.folder import ModelFolder
from scones.model.transformer import Transformer
from scones.outputs import output_layer
from scones.search.corpus import SearchOptions, padded, search_corpus
from scones.search.stepping import Hypothesis

TIE = 1e-3
"""Two tokens whose logits differ by less may change places by rounding alone."""

_GREEDY = SearchOptions(scores=False)
_LOGIT_SENTENCES = 50
_RANDOM_SENTENCES, _RANDOM_PIECES = 64, 20


@dataclass(frozen=True)
class Check:
    """How the greedy translations of two engines compare."""

    sentences: int
    equal: int
    near_ties: int
    """Sentences that part where two tokens have the same logit but for rounding."""
    largest_gap: float
    """The largest difference of the logits of the two tokens where a sentence parts."""
    largest_logit_difference: float
    """Of all logits of the first sentences, between the engines."""

    @property
    def passed(self) -> bool:
        """Whether rounding explains every difference."""
        return self.equal + self.near_ties == self.sentences


def check(
    folder: ModelFolder, searcher: CTranslate2Searcher, sources: Sequence[Sequence[int]]
) -> Check:
    """Translate sources, given as ids, by PyTorch and by CTranslate2, and compare."""
    model = folder.model
    ours = search_corpus(model, output_layer(folder.output), sources, _GREEDY)
    theirs = searcher.search(sources, _GREEDY)
    gaps = [
        gap(model, source, _ids(mine), _ids(other))
        for source, (mine,), (other,) in zip(sources, ours, theirs, strict=True)
        if mine != other
    ]
    return Check(
        len(sources),
        len(sources) - len(gaps),
        sum(gap < TIE for gap in gaps),
        max(gaps, default=0.0),
        max(logit_difference(model, searcher, source) for source in sources[:_LOGIT_SENTENCES]),
    )


def random_sources(config: ModelConfig) -> list[list[int]]:
    """Make sentences of random pieces, always the same: every model can read them."""
    chance = random.Random(1)
    pieces = range(UNKNOWN + 1, config.vocabulary)
    longest = min(_RANDOM_PIECES, config.max_length - 1)
    return [chance.choices(pieces, k=chance.randint(1, longest)) for _ in range(_RANDOM_SENTENCES)]


@torch.inference_mode()
def gap(model: Transformer, source: Sequence[int], ours: list[int], theirs: list[int]) -> float:
    """Give our logit's lead over theirs where two translations of a sentence part."""
    position = next(
        index for index, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]
    )
    prefix_BT = torch.tensor([[PAD, *ours[:position]]], device=model.device)
    hidden_BTD = model(padded([source], model.device), prefix_BT)
    logits_V = model.logits(hidden_BTD[0, -1])
    return float(logits_V[ours[position]] - logits_V[theirs[position]])


@torch.inference_mode()
def logit_difference(
    model: Transformer, searcher: CTranslate2Searcher, source: Sequence[int]
) -> float:
    """Give the largest difference of any logit along CTranslate2's translation of a sentence."""
    tokens, theirs_TV = searcher.logits(source)
    inputs_BT = torch.tensor([[PAD, *tokens[:-1]]], device=model.device)
    ours_TV = model.logits(model(padded([source], model.device), inputs_BT)[0])
    return float((ours_TV.cpu() - torch.from_numpy(theirs_TV)).abs().max())


def _ids(found: Hypothesis) -> list[int]:
    return [*found.tokens, *([END] if found.finished else [])]
