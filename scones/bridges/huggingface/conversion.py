"""Turning a softmax model into a SCONES model: one number, added to the output bias.

Softmax does not feel a constant added to all logits, so the logits of a softmax model float; its
probabilities are p = exp(z - n), where n, the log-sum-exp of the logits, is another number at
every position. SCONES has no normaliser. Two constants can take its place:

- "normaliser", the default: minus the mean of n. Then σ(z) is p / (1 + p) wherever n is at its
  mean: nearly p for improbable tokens, and 1/2 for certain ones. Beam search right after the shift
  is about as good as it was.
- "least_loss": the constant at which the SCONES loss of the data is least. It is larger, for
  certain tokens are to be near 1, and by -ln α: the best probability of a token that is the
  reference p of the time has the odds p / (α(1 - p)). Fine-tuning starts nearer to its end, but
  until then beam search is worse.

Greedy search feels neither. Fine-tuning with `trainer_loss` does the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from scones.bridges.huggingface.bias import bias_place, trainable_bias
from scones.bridges.huggingface.loss import IGNORED
from scones.errors import SconesError
from scones.outputs.scones import Scones

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Shift = Literal["least_loss", "normaliser"]


@dataclass(frozen=True)
class Conversion:
    """What was measured at the target tokens of the data, and what was done."""

    tokens: int
    """Target tokens that were looked at."""
    normaliser: float
    """The mean of the logits' log-sum-exp."""
    deviation: float
    """Its standard deviation."""
    shift: float
    """What was added to the output bias."""
    softmax_gold: float
    """The mean probability of the gold token before, under softmax."""
    scones_gold: float
    """The mean probability of the gold token now, one sigmoid a token."""
    difference: float
    """The mean distance of the two."""


def convert(
    model: PreTrainedModel,
    batches: Iterable[Mapping[str, Tensor]],
    alpha: float = 0.5,
    label_smoothing: float = 0.0,
    shift: Shift = "normaliser",
) -> Conversion:
    """Turn a softmax model into a SCONES model, in place, by shifting its output bias.

    `batches` are what Trainer would feed the model: tensors by name, with `labels` in which -100
    does not count; a few hundred sentences are enough. `alpha` and `label_smoothing` are those
    that the model will be fine-tuned with. What was measured is returned and goes, with the
    output layer, into the model's config.json under "scones".
    """
    output = Scones(alpha, label_smoothing)
    place = bias_place(type(model).__name__)
    section = getattr(model.config, "scones", None) or {}
    if section.get("output", {}).get("layer", "softmax") != "softmax":
        raise SconesError("The model has a SCONES output layer already; it cannot be converted.")
    if shift not in ("least_loss", "normaliser"):
        raise SconesError(f"shift={shift!r} is not known; use 'least_loss' or 'normaliser'.")
    with _without_dropout(model):
        logits = _measure(model, batches)
    normalisers_N, gold_N = torch.cat(logits.normalisers), torch.cat(logits.gold)
    constant = -float(normalisers_N.mean())
    if shift == "least_loss":
        constant = logits.least_loss_shift(output)
    softmax_N = (gold_N - normalisers_N).exp()
    scones_N = torch.sigmoid(gold_N + constant)
    done = Conversion(
        tokens=gold_N.numel(),
        normaliser=float(normalisers_N.mean()),
        deviation=float(normalisers_N.std(correction=0)),
        shift=constant,
        softmax_gold=float(softmax_N.mean()),
        scones_gold=float(scones_N.mean()),
        difference=float((softmax_N - scones_N).abs().mean()),
    )
    with torch.no_grad():
        trainable_bias(model).add_(constant)
    model.config.scones = {
        **section,
        "output": output.to_config(),
        "bias": place,
        "conversion": asdict(done),
    }
    return done


@dataclass
class _Logits:
    """What has to be known of the logits at the target tokens of the data."""

    normalisers: list[Tensor] = field(default_factory=list)
    """Their log-sum-exp."""
    gold: list[Tensor] = field(default_factory=list)
    """Those of the gold tokens."""
    others: Tensor = field(default_factory=lambda: torch.zeros(_BINS, dtype=torch.float64))
    """How many of the others lie in each bin; all of them would fill the memory."""

    def add(self, logits_NV: Tensor, gold_N: Tensor, banned: list[int]) -> None:
        """Take in the logits of some positions; those of banned tokens do not count."""
        index_N1 = gold_N.unsqueeze(1)
        self.gold.append(logits_NV.gather(1, index_N1).squeeze(1).double().cpu())
        logits_NV[:, banned] = float("-inf")
        self.normalisers.append(logits_NV.logsumexp(dim=1).double().cpu())
        logits_NV.scatter_(1, index_N1, float("-inf"))
        self.others += logits_NV.histc(_BINS, -_WIDEST, _WIDEST).double().cpu()

    def least_loss_shift(self, output: Scones) -> float:
        """Find the constant at which the SCONES loss is least, where its slope is 0."""
        gold_N = torch.cat(self.gold)
        filled = self.others.nonzero().squeeze(1)
        width = 2 * _WIDEST / _BINS
        others_n, counts_n = (filled + 0.5) * width - _WIDEST, self.others[filled]
        low, high = -2 * _WIDEST, 2 * _WIDEST
        while high - low > 1e-4:
            middle = (low + high) / 2
            pull = (torch.sigmoid(-gold_N - middle) - output.label_smoothing).sum()
            push = (counts_n * (torch.sigmoid(others_n + middle) - output.label_smoothing)).sum()
            if output.alpha * push > pull:
                high = middle
            else:
                low = middle
        return high


_WIDEST = 200.0
_BINS = 20_000


@torch.no_grad()
def _measure(model: PreTrainedModel, batches: Iterable[Mapping[str, Tensor]]) -> _Logits:
    found = _Logits()
    banned = _banned_tokens(model)
    for batch in batches:
        if "labels" not in batch:
            raise SconesError("A batch has no labels; the conversion needs target sentences.")
        tensors = {name: tensor.to(model.device) for name, tensor in batch.items()}
        real_BT = tensors["labels"] != IGNORED
        found.add(model(**tensors).logits[real_BT].float(), tensors["labels"][real_BT], banned)
    if not sum(part.numel() for part in found.gold):
        raise SconesError("The batches hold no target token; the conversion needs some.")
    return found


@contextmanager
def _without_dropout(model: PreTrainedModel) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _banned_tokens(model: PreTrainedModel) -> list[int]:
    """Give the tokens that search never takes: Marian's padding has a logit, but no meaning."""
    words = model.generation_config.bad_words_ids or []
    return [word[0] for word in words if len(word) == 1]
