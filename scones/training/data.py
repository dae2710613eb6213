"""Batches for training: the same ones for the same seed, from any position on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from scones.errors import SconesError
from scones.ids import END, PAD
from scones.kernels import IGNORED
from scones.model.spans import PackedTokens, Spans
from scones.model.transformer import Transformer
from scones.outputs import OutputLayer
from scones.text.batches import pad_batch, plan_batches
from scones.text.store import ParallelTokens, Sentences


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
class Batch(ABC):
    """Sentence pairs as tensors, in one of two layouts. Only real target tokens are predicted."""

    targets_N: Tensor
    """The tokens to predict."""
    weights_N: Tensor | None
    """The weight of each in the loss; None where all are 1."""
    tokens: int
    """Target tokens, ends of sentence included, those of other processes' shares too."""
    total: float
    """The sum of the weights, likewise."""

    @abstractmethod
    def hidden(self, model: Transformer) -> Tensor:
        """Give the hidden states (N, D) that predict the targets."""

    def pinned(self) -> Self:
        """Copy the tensors to memory that a GPU can read while it computes."""
        return _with_tensors(self, Tensor.pin_memory)

    def to(self, device: torch.device) -> Self:
        """Copy the tensors to a device; from pinned memory the copy is not waited for."""
        return _with_tensors(self, lambda tensor: tensor.to(device, non_blocking=True))

    def copy(self) -> Self:
        """Copy the tensors to where they are."""
        return _with_tensors(self, torch.clone)

    def fill_from(self, other: Self) -> None:
        """Copy another batch of the same shape into the tensors of this one."""
        for place, tensor in zip(_tensors(self), _tensors(other), strict=True):
            place.copy_(tensor, non_blocking=True)


@dataclass(frozen=True)
class PaddedBatch(Batch):
    """Sentences side by side, the shorter ones filled up: what CPUs compute."""

    source_BS: Tensor
    inputs_BT: Tensor
    """What the decoder is fed: the target, one later, behind the start token."""
    real_N: Tensor
    """The places in the flattened (B·T) target that hold a token."""

    def hidden(self, model: Transformer) -> Tensor:
        """Give the hidden states of the real places."""
        hidden_BTD = model(self.source_BS, self.inputs_BT)
        return hidden_BTD.flatten(0, 1).index_select(0, self.real_N)


@dataclass(frozen=True)
class PackedBatch(Batch):
    """Sentences one behind another: nothing is computed for padding, but kernels are needed."""

    source: PackedTokens
    inputs: PackedTokens

    def hidden(self, model: Transformer) -> Tensor:
        """Give the hidden states of all places."""
        return model.forward_packed(self.source, self.inputs)

    @property
    def shape(self) -> tuple[int, ...]:
        """What has to be equal in batches of which one can take another's place."""
        sides = (self.source, self.inputs)
        return tuple(
            size
            for side in sides
            for size in (side.ids_N.numel(), side.spans.starts.numel(), side.spans.longest)
        )

    def settled(self, grain: int) -> PackedBatch:
        """Fill it up with sentences of no weight, to multiples of `grain` tokens.

        So a corpus makes batches of few shapes, and what a GPU does for one can be repeated.
        """
        sides = (self.source, self.inputs)
        longest = [max(16, _power_of_two(side.spans.longest)) for side in sides]
        # A filler has at least one token on either side, and is no longer than the sentences.
        least = max(1, 2 * grain // min(longest))
        gaps = [least + -(side.ids_N.numel() + least) % grain for side in sides]
        fillers = max(-(-gap // most) for gap, most in zip(gaps, longest, strict=True))
        sentences = _power_of_two(self.source.spans.starts.numel() - 1 + fillers)
        source, inputs = (
            _filled(side, gap, fillers, sentences, most)
            for side, gap, most in zip(sides, gaps, longest, strict=True)
        )
        targets_N = functional.pad(self.targets_N, (0, gaps[1]), value=IGNORED)
        weights_N = self.weights_N
        if weights_N is not None:
            weights_N = functional.pad(weights_N, (0, gaps[1]))
        return replace(self, source=source, inputs=inputs, targets_N=targets_N, weights_N=weights_N)


def _filled(
    tokens: PackedTokens, gap: int, fillers: int, sentences: int, longest: int
) -> PackedTokens:
    """Append `gap` tokens as sentences of about equal length, and empty ones up to a number."""
    starts = tokens.spans.starts
    ends = starts[-1] + gap * torch.arange(1, fillers + 1) // fillers
    empty = ends[-1].expand(sentences + 1 - len(starts) - fillers)
    starts = torch.cat([starts, ends, empty]).to(starts.dtype)
    ids_N, places_N = (
        functional.pad(numbers, (0, gap), value=PAD) for numbers in (tokens.ids_N, tokens.places_N)
    )
    return PackedTokens(ids_N, places_N, Spans(starts, longest))


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def _with_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Give a copy of a dataclass, and of those in it, with every tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changed = {
        field.name: _with_tensors(getattr(value, field.name), change) for field in fields(value)
    }
    return replace(value, **changed)


def _tensors(value: Any) -> Iterator[Tensor]:
    """Give the tensors of a dataclass, and of those in it."""
    if isinstance(value, Tensor):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from _tensors(getattr(value, field.name))


def make_batch(
    tokens: ParallelTokens, indices: np.ndarray, by_sentence: bool, share: Share = WHOLE
) -> PaddedBatch:
    """Make the batch of some pairs; `by_sentence` weighs tokens so that sentences count equally."""
    mine, facts = _portion(tokens, indices, by_sentence, share)
    source, target = pad_batch(tokens, mine)
    inputs = np.full_like(target, PAD)
    inputs[:, 1:] = target[:, :-1]
    flat = target.reshape(-1)
    real = np.flatnonzero(flat != PAD)
    return PaddedBatch(
        targets_N=torch.from_numpy(flat[real]),
        source_BS=torch.from_numpy(source),
        inputs_BT=torch.from_numpy(inputs),
        real_N=torch.from_numpy(real),
        **facts,
    )


def make_packed_batch(
    tokens: ParallelTokens, indices: np.ndarray, by_sentence: bool, share: Share = WHOLE
) -> PackedBatch:
    """Make the same batch without padding."""
    mine, facts = _portion(tokens, indices, by_sentence, share)
    source = _pack(tokens.sources, mine)
    target = _pack(tokens.targets, mine)
    inputs_N = target.ids_N.roll(1)
    inputs_N[target.spans.starts[:-1].long()] = PAD
    return PackedBatch(
        targets_N=target.ids_N, source=source, inputs=replace(target, ids_N=inputs_N), **facts
    )


def _pack(sentences: Sentences, indices: np.ndarray) -> PackedTokens:
    """Put sentences, each ended, one behind another."""
    ids, lengths = sentences.gather(indices)
    starts = np.concatenate([[0], np.cumsum(lengths + 1)])
    places = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths + 1)
    ended = np.full(starts[-1], END, dtype=np.int64)
    ended[places < np.repeat(lengths, lengths + 1)] = ids
    spans = Spans(torch.from_numpy(starts.astype(np.int32)), int(lengths.max()) + 1)
    return PackedTokens(torch.from_numpy(ended), torch.from_numpy(places), spans)


def _portion(
    tokens: ParallelTokens, indices: np.ndarray, by_sentence: bool, share: Share
) -> tuple[np.ndarray, dict[str, Any]]:
    """Give a process's pairs of a batch, and the facts of the batch that no layout changes."""
    whole = int(tokens.targets.lengths_of(indices).sum()) + len(indices)
    mine = indices[share.process :: share.processes]
    idle = len(mine) == 0  # every process has to have something to compute, if only with no weight
    mine = indices[:1] if idle else mine
    weights = None
    if by_sentence or idle:
        lengths = tokens.targets.lengths_of(mine) + 1
        each = np.zeros(len(lengths)) if idle else 1 / lengths
        weights = torch.from_numpy(np.repeat(each, lengths).astype(np.float32))
    total = float(len(indices) if by_sentence else whole)
    return mine, {"weights_N": weights, "tokens": whole, "total": total}


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
    packed: bool = False,
    grain: int | None = None,
) -> Iterator[tuple[Batch, Position]]:
    """Give a process's share of batches without end from `start` on, with the position behind.

    The batches do not depend on the number of processes: a run may go on with another one.
    Packed ones are settled to multiples of `grain` tokens, where it is given.
    """

    def make(pairs: np.ndarray) -> Batch:
        if not packed:
            return make_batch(tokens, pairs, by_sentence, share)
        batch = make_packed_batch(tokens, pairs, by_sentence, share)
        return batch if grain is None else batch.settled(grain)

    epoch, first = start.epoch, start.batch
    while True:
        plan = plan_batches(
            tokens.source_lengths, tokens.target_lengths, max_tokens, seed=seed, epoch=epoch
        )
        for index in range(first, len(plan)):
            batch = make(plan[index])
            last = index + 1 == len(plan)
            yield batch, Position(epoch + 1, 0) if last else Position(epoch, index + 1)
        epoch, first = epoch + 1, 0


# What training differentiates: the model with its loss behind it.


class Objective(nn.Module):
    """The model with its loss behind it: what is differentiated."""

    def __init__(self, model: Transformer, output: OutputLayer, precision: torch.dtype) -> None:
        super().__init__()
        self.model = model
        self.output = output
        self.precision = precision
        self.packed = model.has_kernels
        """Whether batches should be without padding."""

    def forward(self, batch: Batch) -> Tensor:
        """Give the summed loss of the batch."""
        device = self.model.device
        if self.packed:
            self.model.noise.draw(device)
        with torch.autocast(device.type, self.precision, enabled=self.precision != torch.float32):
            return self.output.loss(
                batch.hidden(self.model),
                self.model.output_weight,
                self.model.output_bias,
                batch.targets_N,
                batch.weights_N,
            )
