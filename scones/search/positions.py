"""What a model holds right at each position of a given translation (docs/confidence.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

# Named in types alone: translations are told about without PyTorch.
if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from scones.outputs import OutputLayer
    from scones.text.subwords import Subwords


CANDIDATE = 0.1
"""A candidate for the next token is at least this share as probable as the best one."""


@dataclass(frozen=True)
class Position:
    """One position of a translation, as the model sees it."""

    piece: str
    log_prob: float
    ambiguity: float
    """How many next tokens are right there, if any is."""
    doubt: float
    """How probable it is that none is."""
    alternatives: tuple[tuple[str, float], ...]
    """Other pieces and their probabilities, the best first."""


_MOST = 20
"""Alternatives; where a model knows nothing, its whole vocabulary may be near the best."""


def of_candidates(chances: NDArray[np.float32]) -> tuple[float, float]:
    """Ambiguity and doubt of a position, from the probabilities of its candidates."""
    ambiguity = chances.sum() ** 2 / (chances**2).sum()
    return float(ambiguity), float(np.prod(1 - chances))


def measures(
    output: OutputLayer, logits_NV: Tensor, targets_N: Tensor
) -> list[tuple[float, float, float]]:
    """The target's log-probability at each position, the ambiguity and the doubt there."""
    return _measures(output.log_scores(logits_NV), targets_N)


def _measures(scores_NV: Tensor, targets_N: Tensor) -> list[tuple[float, float, float]]:
    chances_NV = scores_NV.exp()
    least_N1 = CANDIDATE * chances_NV.amax(dim=-1, keepdim=True)
    chances_NV = chances_NV.where(chances_NV >= least_N1, 0)
    ambiguity_N = chances_NV.sum(dim=-1) ** 2 / (chances_NV**2).sum(dim=-1)
    doubt_N = (1 - chances_NV).prod(dim=-1)
    terms_N = scores_NV.gather(-1, targets_N.unsqueeze(-1)).squeeze(-1)
    columns = (terms_N, ambiguity_N, doubt_N)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def positions(
    output: OutputLayer, subwords: Subwords, share: float, logits_NV: Tensor, targets_N: Tensor
) -> list[Position]:
    """Read positions off logits; alternatives have at least this `share` of the best's chance."""
    scores_NV = output.log_scores(logits_NV)
    numbers = _measures(scores_NV, targets_N)
    least_N1 = scores_NV.amax(dim=-1, keepdim=True) + math.log(share)
    scores_NV = scores_NV.scatter(-1, targets_N.unsqueeze(-1), -math.inf)
    scores_Nm, tokens_Nm = scores_NV.topk(min(_MOST, scores_NV.size(-1)), dim=-1)
    counts = (scores_Nm >= least_N1).sum(dim=-1).tolist()
    rows = zip(counts, tokens_Nm.tolist(), scores_Nm.exp().tolist(), strict=True)
    others = [
        tuple(zip(subwords.pieces(tokens[:count]), chances[:count], strict=True))
        for count, tokens, chances in rows
    ]
    pieces = subwords.pieces(targets_N.tolist())
    return [
        Position(piece, *three, more)
        for piece, three, more in zip(pieces, numbers, others, strict=True)
    ]
