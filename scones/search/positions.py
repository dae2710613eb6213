"""What a model holds right at each position of a given translation (docs/confidence.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

# Named in types alone: translations are told about without PyTorch.
if TYPE_CHECKING:
    from torch import Tensor

    from scones.outputs import OutputLayer
    from scones.text.subwords import Subwords


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


def positions(
    output: OutputLayer, subwords: Subwords, share: float, logits_NV: Tensor, targets_N: Tensor
) -> list[Position]:
    """Read positions off logits; alternatives have at least this `share` of the best's chance."""
    scores_NV = output.log_scores(logits_NV)
    best_N1, targets_N1 = scores_NV.amax(dim=-1, keepdim=True), targets_N.unsqueeze(-1)
    terms_N = scores_NV.gather(-1, targets_N1).squeeze(-1)
    ambiguity_N = (scores_NV - best_N1).exp().sum(dim=-1)
    doubt_N = -best_N1.squeeze(-1).expm1()
    scores_NV = scores_NV.scatter(-1, targets_N1, -math.inf)
    scores_Nm, tokens_Nm = scores_NV.topk(min(_MOST, scores_NV.size(-1)), dim=-1)
    counts = (scores_Nm >= best_N1 + math.log(share)).sum(dim=-1).tolist()
    rows = zip(counts, tokens_Nm.tolist(), scores_Nm.exp().tolist(), strict=True)
    others = [
        tuple(zip(subwords.pieces(tokens[:count]), probabilities[:count], strict=True))
        for count, tokens, probabilities in rows
    ]
    return [
        Position(piece, term, ambiguity, doubt, more)
        for piece, term, ambiguity, doubt, more in zip(
            subwords.pieces(targets_N.tolist()),
            terms_N.tolist(),
            ambiguity_N.tolist(),
            doubt_N.tolist(),
            others,
            strict=True,
        )
    ]
