"""Batches for training: the same ones for the same seed, from any position on.

What stands here is what every device runs: sentences side by side, padded. Batches without padding,
which need kernels, are in `training.gpu`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from scones.errors import SconesError
from scones.hardware import gpu_path
from scones.model.folder import ModelFolder
from scones.model.transformer import Transformer
from scones.outputs import Labels, OutputLayer
from scones.text import PAD
from scones.text.batches import pad_batch, plan_batches
from scones.text.store import ParallelTokens, TokenStore
from scones.training.labels import LabelledTokens


@dataclass(frozen=True)
class Position:
    """Which batch comes next; with the seed, all that a resumed run has to know of the data."""

    epoch: int = 0
    batch: int = 0


@dataclass(frozen=True)
class Shard:
    """The part of every batch that is one rank's: every n-th pair."""

    rank: int
    world_size: int


WHOLE = Shard(0, 1)


@dataclass(frozen=True)
class Batch(ABC):
    """Sentence pairs as tensors, in one of two layouts. Only real target tokens are predicted."""

    targets_N: Tensor
    """The tokens to predict."""
    weights_N: Tensor | None
    """The weight of each in the loss; None where all are 1."""
    tokens: int
    """Target tokens, ends of sentence included, those of other ranks' shards too."""
    total: float
    """The sum of the weights, likewise."""
    labels: Labels | None = field(default=None, kw_only=True)
    """What is known of other tokens than the targets, where anything is.

    Rows beyond the targets are those of sentences that have no targets of their own.
    """

    @abstractmethod
    def hidden(self, model: Transformer) -> Tensor:
        """The hidden states (N, D) that predict the targets."""

    def pinned(self) -> Self:
        """Copy the tensors to memory that a GPU can read while it computes."""
        return _map_tensors(self, Tensor.pin_memory)

    def to(self, device: torch.device) -> Self:
        """Copy the tensors to a device; from pinned memory the copy is not waited for."""
        # On the way back it has to be: the host could read what has not arrived.
        ahead = device.type != "cpu"
        return _map_tensors(self, lambda tensor: tensor.to(device, non_blocking=ahead))

    def copy(self) -> Self:
        """Copy the tensors to where they are."""
        return _map_tensors(self, torch.clone)


@dataclass(frozen=True)
class PaddedBatch(Batch):
    """Sentences side by side, the shorter ones filled up: what CPUs compute."""

    source_BS: Tensor
    inputs_BT: Tensor
    """What the decoder is fed: the target, one later, behind the start token."""
    real_N: Tensor
    """The indices in the flattened (B·T) target that hold a token."""

    def hidden(self, model: Transformer) -> Tensor:
        hidden_BTD = model(self.source_BS, self.inputs_BT)
        # Padding is dropped before the output layer: that is the widest product of all.
        return hidden_BTD.flatten(0, 1).index_select(0, self.real_N)


def _map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Copy a dataclass, and those in it, with every tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changed = {each.name: _map_tensors(getattr(value, each.name), change) for each in fields(value)}
    return replace(value, **changed)


def make_batch(
    tokens: ParallelTokens, indices: np.ndarray, by_sentence: bool, shard: Shard = WHOLE
) -> PaddedBatch:
    """Make the batch of some pairs; `by_sentence` weighs tokens so that sentences count equally."""
    tokens, mine, predicted, facts = shard_of_batch(tokens, indices, by_sentence, shard)
    source, target = pad_batch(tokens, mine)
    # Teacher forcing: token t is predicted from those before it, the first from the start token,
    # which is the padding's id.
    inputs = np.full_like(target, PAD)
    inputs[:, 1:] = target[:, :-1]
    flat = target.reshape(-1)
    real = np.flatnonzero(flat != PAD)
    return PaddedBatch(
        targets_N=torch.from_numpy(flat[real[:predicted]]),
        source_BS=torch.from_numpy(source),
        inputs_BT=torch.from_numpy(inputs),
        real_N=torch.from_numpy(real),
        **facts,
    )


def shard_of_batch(
    tokens: ParallelTokens, indices: np.ndarray, by_sentence: bool, shard: Shard
) -> tuple[ParallelTokens, np.ndarray, int, dict[str, Any]]:
    """One rank's pairs of a batch, how many tokens are predicted, and what no layout changes.

    Behind the pairs of the batch stand those that only labels are for.
    """
    whole = int(tokens.targets.lengths_of(indices).sum()) + len(indices)
    mine = indices[shard.rank :: shard.world_size]
    # A rank without a pair would not join in the gradients' all-reduce, and the others would wait
    # for ever: it computes one pair with no weight.
    idle = len(mine) == 0
    mine = indices[:1] if idle else mine
    predicted = int(tokens.targets.lengths_of(mine).sum()) + len(mine)
    labels = None
    if isinstance(tokens, LabelledTokens):
        tokens, mine, labels = tokens.told(mine, int(indices.sum()))
    weights = None
    if by_sentence or idle:
        lengths = tokens.targets.lengths_of(mine) + 1
        each = np.zeros(len(lengths)) if idle else 1 / lengths
        weights = torch.from_numpy(np.repeat(each, lengths).astype(np.float32))
    total = float(len(indices) if by_sentence else whole)
    facts = {"weights_N": weights, "tokens": whole, "total": total, "labels": labels}
    return tokens, mine, predicted, facts


MakeBatch = Callable[[ParallelTokens, np.ndarray, bool, Shard], Batch]
Batches = Generator[tuple[Batch, Position], None, None]
"""Batches, each with the position behind it."""


def training_batches(
    tokens: ParallelTokens,
    max_tokens: int,
    seed: int,
    by_sentence: bool,
    start: Position,
    shard: Shard = WHOLE,
    make: MakeBatch = make_batch,
) -> Batches:
    """One rank's shards of batches, without end from `start` on, each with the position behind it.

    The batches do not depend on the number of ranks: a run may go on with another one.
    """
    epoch, first = start.epoch, start.batch
    while True:
        # An epoch's plan follows from its seed and number alone, so nothing of it is stored.
        lengths = (tokens.sources.lengths, tokens.targets.lengths)
        drawn = None
        if isinstance(tokens, LabelledTokens) and tokens.references is not None:
            drawn = tokens.references.epoch(seed, epoch)
            lengths = (lengths[0][drawn], lengths[1][drawn])
        plan = plan_batches(*lengths, max_tokens, seed=seed, epoch=epoch)
        for index in range(first, len(plan)):
            pairs = plan[index] if drawn is None else drawn[plan[index]]
            batch = make(tokens, pairs, by_sentence, shard)
            last = index + 1 == len(plan)
            yield batch, Position(epoch + 1, 0) if last else Position(epoch, index + 1)
        epoch, first = epoch + 1, 0


def model_for(store: TokenStore, path: Path) -> ModelFolder:
    """Open a model folder that has to have the vocabulary of a store."""
    found = ModelFolder.load(path)
    if found.subwords != store.subwords.model:
        raise SconesError(
            f"{path} has another vocabulary than {store.path}; "
            f"prepare the store with --like {path}."
        )
    return found


class LossModule(nn.Module):
    """The model with its loss behind it: what is differentiated.

    One module, because DistributedDataParallel averages the gradients of what it wraps, and it only
    sees calls of its `forward`.
    """

    def __init__(self, model: Transformer, output: OutputLayer, precision: torch.dtype) -> None:
        super().__init__()
        self.model = model
        self.output = output
        self.precision = precision
        self.packed = gpu_path(model)
        """Whether batches should be without padding."""

    def forward(self, batch: Batch) -> Tensor:
        """The summed loss of the batch."""
        device = self.model.device
        if self.packed:
            self.model.noise.draw(device)
        with torch.autocast(device.type, self.precision, enabled=self.precision != torch.float32):
            table = (self.model.output_weight, self.model.output_bias)
            hidden_ND = batch.hidden(self.model)
            labels, weights_N = batch.labels, batch.weights_N
            if labels is None:
                return self.output.loss(hidden_ND, *table, batch.targets_N, weights_N)
            told = self.output.label_loss(hidden_ND, *table, labels, weights_N)
            own = slice(len(batch.targets_N))
            own_N = None if weights_N is None else weights_N[own]
            return told + self.output.loss(hidden_ND[own], *table, batch.targets_N, own_N)
