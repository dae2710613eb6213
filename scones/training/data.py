"""Batches for training: the same ones for the same seed, from any position on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from scones.errors import SconesError
from scones.ids import PAD
from scones.text.batches import pad_batch, plan_batches
from scones.text.store import ParallelTokens


@dataclass(frozen=True)
class Position:
    """A place in the data: the batch that comes next."""

    epoch: int = 0
    batch: int = 0


@dataclass(frozen=True)
class Share:
    """The part of every batch that is one process's: every n-th pair."""

    process: int
    processes: int


WHOLE = Share(0, 1)


@dataclass(frozen=True)
class Batch:
    """Sentence pairs as tensors. Only real target tokens are predicted, padding is left out."""

    source_BS: Tensor
    inputs_BT: Tensor
    """What the decoder is fed: the target, one later, behind the start token."""
    real_N: Tensor
    """The places in the flattened (B·T) target that hold a token."""
    targets_N: Tensor
    """The tokens there."""
    weights_N: Tensor | None
    """The weight of each in the loss; None where all are 1."""
    tokens: int
    """Target tokens, ends of sentence included, those of other processes' shares too."""
    total: float
    """The sum of the weights, likewise."""

    def to(self, device: torch.device) -> Batch:
        """Copy the tensors to a device."""
        return Batch(
            self.source_BS.to(device),
            self.inputs_BT.to(device),
            self.real_N.to(device),
            self.targets_N.to(device),
            None if self.weights_N is None else self.weights_N.to(device),
            self.tokens,
            self.total,
        )


def make_batch(
    tokens: ParallelTokens, indices: np.ndarray, by_sentence: bool, share: Share = WHOLE
) -> Batch:
    """Make the batch of some pairs; `by_sentence` weighs tokens so that sentences count equally."""
    whole = int(tokens.targets.lengths_of(indices).sum()) + len(indices)
    mine = indices[share.process :: share.processes]
    idle = len(mine) == 0  # every process has to have something to compute, if only with no weight
    source, target = pad_batch(tokens, indices[:1] if idle else mine)
    inputs = np.full_like(target, PAD)
    inputs[:, 1:] = target[:, :-1]
    flat = target.reshape(-1)
    real = np.flatnonzero(flat != PAD)
    weights = None
    if by_sentence or idle:
        lengths = (target != PAD).sum(axis=1)
        each = np.zeros(len(lengths)) if idle else 1 / lengths
        weights = torch.from_numpy(np.repeat(each, lengths).astype(np.float32))
    return Batch(
        torch.from_numpy(source),
        torch.from_numpy(inputs),
        torch.from_numpy(real),
        torch.from_numpy(flat[real]),
        weights,
        whole,
        float(len(indices) if by_sentence else whole),
    )


def check_lengths(tokens: ParallelTokens, limits: dict[str, int], place: str) -> None:
    """Refuse a split with a sentence longer than one of the named limits."""
    longest = 1 + max(
        int(lengths.max(initial=0)) for lengths in (tokens.source_lengths, tokens.target_lengths)
    )
    for name, limit in limits.items():
        if longest > limit:
            raise SconesError(
                f"{place} has a sentence of {longest} tokens (end of sentence included), but "
                f"{name} is {limit}; make it larger, or leave such sentences out."
            )


def training_batches(
    tokens: ParallelTokens,
    max_tokens: int,
    seed: int,
    by_sentence: bool,
    start: Position,
    share: Share = WHOLE,
) -> Iterator[tuple[Batch, Position]]:
    """Give a process's share of batches without end from `start` on, with the position behind.

    The batches do not depend on the number of processes: a run may go on with another one.
    """
    epoch, first = start.epoch, start.batch
    while True:
        plan = plan_batches(
            tokens.source_lengths, tokens.target_lengths, max_tokens, seed=seed, epoch=epoch
        )
        for index in range(first, len(plan)):
            batch = make_batch(tokens, plan[index], by_sentence, share)
            last = index + 1 == len(plan)
            yield batch, Position(epoch + 1, 0) if last else Position(epoch, index + 1)
        epoch, first = epoch + 1, 0
