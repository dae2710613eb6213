"""Search on a GPU: sentences come and go in slots, and the host only watches.

A slot holds one sentence and its hypotheses. As soon as a sentence is done, the next one that waits
takes its slot, decided on the device itself; so the products always have as many rows as there is
work for. One step, from tokens to tokens, is captured as a CUDA graph and replayed until all
sentences are done. Keys and values of sources lie in one pool, those of hypotheses stay in the row
that wrote them: a hypothesis that changes its row takes along a list of owners, not the cache.

Shape letters: R rows (slots × beams), A slots, k beams, N sentences of a load, T steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate, chain

import numpy as np
import torch
from torch import Tensor

from scones.hardware import spare_memory
from scones.kernels import PackedTokens, packed_tokens
from scones.kernels.decoding import advance
from scones.model.gpu import Inference, Rows, Sources
from scones.model.transformer import Transformer
from scones.outputs import OutputLayer
from scones.search.beam import Candidates, Finished, History, read_out
from scones.search.searcher import (
    Hypothesis,
    SearchOptions,
    chunks,
    hypothesis,
    length_limit,
    longest_first,
)
from scones.text import END, PAD

_MOST_SLOTS, _MOST_ROWS = 512, 1024
"""More make a step longer without making it more efficient."""
_MOST_SOURCE_TOKENS = 2**16
"""Of a load: all its sentences are encoded before the first is translated."""
_MOST_HISTORY = 2**26
"""Hypotheses' tokens of a load that beam search keeps."""
ENCODED_TOGETHER = 2**15
_STEPS_UNSEEN = 4
"""Steps between two looks at whether all is done."""


@dataclass(frozen=True)
class Room:
    """The sizes of everything, rounded up, so that the same room serves many loads."""

    slots: int
    beams: int
    sentences: int
    source_tokens: int
    steps: int


class Slots(ABC):
    """A room with a step that can be replayed."""

    def __init__(self, model: Inference, output: OutputLayer, room: Room) -> None:
        self.model = model
        self.output = output
        self.room = room
        config, device = model.config, model.device
        width = 2 * config.size
        rows = room.slots * room.beams
        layers = range(config.decoder_layers)
        # One sentence more than there can be stands for "none".
        starts_N, lengths_N, self.limits_N = (
            torch.zeros(room.sentences + 1, dtype=torch.int32, device=device) for _ in range(3)
        )
        self.sources = Sources(
            [self._empty(room.source_tokens, width) for _ in layers],
            starts_N,
            lengths_N,
        )
        self.tokens_R = torch.zeros(rows, dtype=torch.long, device=device)
        self.positions_R = torch.zeros(rows, dtype=torch.long, device=device)
        self.sentences_A = torch.zeros(room.slots, dtype=torch.long, device=device)
        owners_RT = None
        if room.beams > 1:
            owners_RT = torch.zeros(rows, room.steps, dtype=torch.int32, device=device)
        caches = [self._empty(rows, room.steps, width) for _ in layers]
        self.rows = Rows(self.positions_R, self.sentences_A, caches, owners_RT)
        self.counts = torch.zeros(3, dtype=torch.long, device=device)
        """The sentence that enters next, how many there are, how many are done."""
        self._graph: torch.cuda.CUDAGraph | None = None

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=self.model.precision, device=self.model.device)

    @abstractmethod
    def _step(self) -> None:
        """Make one step of all rows, on the device alone."""

    @abstractmethod
    def _begin(self) -> None:
        """Make ready what a search writes into."""

    @abstractmethod
    def _results(self, limits: list[int]) -> list[list[Hypothesis]]:
        """Read the translations."""

    @torch.inference_mode()
    def search(self, sources: Sequence[Sequence[int]], limits: list[int]) -> list[list[Hypothesis]]:
        """Translate sentences that fit into the room; `limits` bounds each translation's tokens."""
        if self._graph is None and self.model.device.type == "cuda":
            self._graph = self._captured()
        self._load(sources, limits)
        done = 0
        while done < len(sources):
            for _ in range(_STEPS_UNSEEN):
                if self._graph is None:
                    self._step()
                else:
                    self._graph.replay()
            done = int(self.counts[2])
        return self._results(limits)

    def _captured(self) -> torch.cuda.CUDAGraph:
        self._load([[END]], [1])
        aside = _stream_aside(self.model.device)
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # kernels are compiled and libraries opened before
            for _ in range(2):
                self._step()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=aside):
            self._step()
        return graph

    def _load(self, sources: Sequence[Sequence[int]], limits: list[int]) -> None:
        """Encode sentences, and let the first of them enter."""
        count, none = len(sources), self.room.sentences
        lengths = [len(source) + 1 for source in sources]
        starts = [0, *accumulate(lengths)]
        device = self.model.device
        self.sources.lengths_N.zero_()
        for place, numbers in (
            (self.sources.starts_N, starts[:-1]),
            (self.sources.lengths_N, lengths),
            (self.limits_N, limits),
        ):
            place[:count] = torch.tensor(numbers, dtype=torch.int32, device=device)
        most = min(ENCODED_TOGETHER, self.room.source_tokens)
        encode_in_runs(self.model, sources, self.sources.layers_S2D, most)
        slots = torch.arange(self.room.slots, device=device)
        self.sentences_A.copy_(torch.where(slots < count, slots, none))
        self.counts.copy_(torch.tensor([min(count, self.room.slots), count, 0]))
        self.tokens_R.fill_(PAD)
        self.positions_R.zero_()
        self._begin()


@cache
def _stream_aside(device: torch.device) -> torch.cuda.Stream:
    """Give the one stream to capture in: libraries keep memory for every stream that they see."""
    return torch.cuda.Stream(device)


class GreedySlots(Slots):
    """Slots of one row, each of which takes its best token."""

    def __init__(
        self, model: Inference, output: OutputLayer, room: Room, scores: bool = True
    ) -> None:
        super().__init__(model, output, room)
        shape = (room.sentences + 1, room.steps)
        self.written_NT = torch.zeros(shape, dtype=torch.long, device=model.device)
        self.scores_NT = torch.zeros(shape if scores else (1, 1), device=model.device)
        self.scores = scores

    def _begin(self) -> None:
        pass  # only what has been written is read

    def _step(self) -> None:
        logits_RV = self.model.step(self.tokens_R, self.rows, self.sources)
        chosen_R = self.output.best_token(logits_RV)
        scores_R = self.output.scores_of(logits_RV, chosen_R) if self.scores else None
        advance(
            chosen_R,
            scores_R,
            self.tokens_R,
            self.positions_R,
            self.sentences_A,
            self.limits_N,
            self.written_NT,
            self.scores_NT,
            self.counts,
            END,
            PAD,
        )

    def _results(self, limits: list[int]) -> list[list[Hypothesis]]:
        longest = max(limits)
        written = self.written_NT[: len(limits), :longest].int().cpu().numpy()
        ends = np.where(written == END, np.arange(longest), longest).min(axis=1, initial=longest)
        lengths = np.minimum(ends + 1, limits).tolist()  # with the end of sentence, if there is one
        scores = [None] * len(limits)
        if self.scores:
            terms = self.scores_NT[: len(limits), :longest].double().cpu().numpy()
            scores = [row[:length].tolist() for row, length in zip(terms, lengths, strict=True)]
        rows = zip(written, lengths, scores, limits, strict=True)
        return [
            [hypothesis(row[:length].tolist(), terms, limit)] for row, length, terms, limit in rows
        ]


class BeamSlots(Slots):
    """Slots of several rows, the beam of one sentence."""

    def __init__(
        self,
        model: Inference,
        output: OutputLayer,
        room: Room,
        n_best: int,
        length_penalty: float,
    ) -> None:
        super().__init__(model, output, room)
        self.length_penalty = length_penalty
        device = model.device
        self.finished = Finished.empty(room.sentences + 1, n_best, device)
        self.history = History.empty(room.sentences + 1, room.beams, room.steps, device)
        self.fresh_k = torch.full((room.beams,), float("-inf"), dtype=torch.float64, device=device)
        self.fresh_k[0] = 0.0  # at first all rows of a sentence are the same: one of them counts
        self.scores_Ak = self.fresh_k.repeat(room.slots, 1)
        self.rows_R = torch.arange(room.slots * room.beams, dtype=torch.int32, device=device)

    def _begin(self) -> None:
        self.scores_Ak.copy_(self.fresh_k.expand_as(self.scores_Ak))
        self.finished.ranks.fill_(float("-inf"))

    def _step(self) -> None:
        beams, sentences_A = self.room.beams, self.sentences_A
        positions_A = self.positions_R.view(-1, beams)[:, 0].clone()
        owners_RT = self.rows.owners_RT
        if owners_RT is not None:
            owners_RT.scatter_(1, self.positions_R.unsqueeze(1), self.rows_R.unsqueeze(1))
        logits_RV = self.model.step(self.tokens_R, self.rows, self.sources)
        candidates = Candidates.of(self.output, logits_RV, self.scores_Ak, END)
        self.finished.offer(sentences_A, positions_A, candidates, beams, self.length_penalty)
        chosen = candidates.going_on(beams)
        self.history.write(sentences_A, positions_A, chosen)
        if owners_RT is not None:
            owners_RT.copy_(owners_RT.index_select(0, chosen.rows()))

        limits_A = self.limits_N[sentences_A]
        busy_A = sentences_A < self.room.sentences
        done_A = self.finished.decided(sentences_A, chosen.totals, limits_A, self.length_penalty)
        done_A = busy_A & (done_A | (limits_A <= positions_A + 1))
        goes_on_A = busy_A & ~done_A
        enters_A = self.counts[0] + done_A.cumsum(0) - 1
        enters_A = torch.where(enters_A < self.counts[1], enters_A, self.room.sentences)
        goes_on_A1 = goes_on_A.unsqueeze(1)
        self.scores_Ak.copy_(torch.where(goes_on_A1, chosen.totals, self.fresh_k))
        self.tokens_R.copy_(torch.where(goes_on_A1, chosen.tokens, PAD).flatten())
        positions_A = torch.where(goes_on_A, positions_A + 1, 0)
        self.positions_R.copy_(positions_A.unsqueeze(1).expand(-1, beams).flatten())
        leaving = done_A.sum()
        self.counts[0] += leaving
        self.counts[2] += leaving
        sentences_A.copy_(torch.where(done_A, enters_A, sentences_A))

    def _results(self, limits: list[int]) -> list[list[Hypothesis]]:
        return read_out(
            self.history.of(len(limits), max(limits)),
            self.finished.of(len(limits)),
            torch.tensor(limits),
        )


def loads(
    lengths: Sequence[int],
    limits: Sequence[int],
    beams: int,
    most_tokens: int = _MOST_SOURCE_TOKENS,
) -> Iterator[list[int]]:
    """Divide sentences into loads, the longest first, since the short ones fill the gaps."""
    return chunks(
        longest_first(lengths),
        (lambda _, index: lengths[index], most_tokens),
        (lambda first, _: beams * limits[first], _MOST_HISTORY),
    )


def room_for(
    model: Inference,
    lengths: Sequence[int],
    limits: Sequence[int],
    beams: int,
    most_slots: int,
    memory: int,
) -> Room:
    """Choose a room for a load: as many slots as `memory`, in bytes, and the work allow."""
    steps = max(128, _power_of_2(max(limits)))
    row = steps * _bytes_a_token(model)
    most = min(most_slots, _MOST_SLOTS, _MOST_ROWS // beams, memory // (row * beams))
    slots = min(_power_of_2(len(lengths)), max(1, most))
    source_tokens = max(1024, _power_of_2(sum(lengths)))
    return Room(slots, beams, max(64, _power_of_2(len(lengths))), source_tokens, steps)


def _bytes_a_token(model: Inference) -> int:
    """The memory that keys and values of a token take."""
    return 2 * model.config.size * model.config.decoder_layers * model.precision.itemsize


def _power_of_2(number: int) -> int:
    return 1 << (number - 1).bit_length()


def encode_in_runs(
    model: Inference, sources: Sequence[Sequence[int]], layers_S2D: list[Tensor], most: int
) -> None:
    """Encode sentences one behind another, at most so many tokens at once."""
    end = 0
    for run in chunks(range(len(sources)), (lambda _, index: len(sources[index]) + 1, most)):
        packed = packed_sources([sources[index] for index in run], model.device)
        begin, end = end, end + len(packed.ids_N)
        model.encode(packed, [layer[begin:end] for layer in layers_S2D])


def packed_sources(sources: Sequence[Sequence[int]], device: torch.device) -> PackedTokens:
    """Put sentences, each ended, one behind another."""
    lengths = np.array([len(source) for source in sources])
    ids = np.fromiter(chain.from_iterable(sources), np.int64, int(lengths.sum()))
    return packed_tokens(ids, lengths).to(device)


class SlotSearcher:
    """Translates any number of sentences with one model; rooms are kept for the next call."""

    _MOST_ROOMS = 4

    def __init__(self, model: Inference, output: OutputLayer) -> None:
        self.model = model
        self.output = output
        self._rooms: dict[tuple[Room, SearchOptions], Slots] = {}
        self._memory = 2**62
        if model.device.type == "cuda":
            self._memory = spare_memory(model.device) // self._MOST_ROOMS

    def search(
        self, sources: Sequence[Sequence[int]], options: SearchOptions
    ) -> list[list[Hypothesis]]:
        """Give up to n_best hypotheses for each source; no ids hold the end of sentence."""
        results: list[list[Hypothesis]] = [[] for _ in sources]
        lengths = [len(source) + 1 for source in sources]
        limits = [length_limit(length, self.model.config.max_length) for length in lengths]
        memory, most_tokens = self._memory, _MOST_SOURCE_TOKENS
        if options.max_memory is not None:
            # A quarter each: sources, slots, what is computed, what lies idle between blocks.
            memory = min(memory, options.max_memory // 4)
            most_tokens = min(most_tokens, max(1, memory // _bytes_a_token(self.model)))
            most_tokens = _power_of_2(most_tokens + 1) // 2  # a room's are rounded up
        for load in loads(lengths, limits, options.beams, most_tokens):
            load_lengths = [lengths[index] for index in load]
            load_limits = [limits[index] for index in load]
            most = len(load)
            if options.max_tokens is not None:
                most = max(1, options.max_tokens // (options.beams * load_lengths[0]))
            room = room_for(self.model, load_lengths, load_limits, options.beams, most, memory)
            kind = replace(options, max_tokens=None, max_memory=None)
            if options.max_memory is not None and (room, kind) not in self._rooms:
                self._forget()  # the memory is for one room
            slots = self._slots(room, kind)
            found = slots.search([sources[index] for index in load], load_limits)
            for index, hypotheses in zip(load, found, strict=True):
                results[index] = hypotheses
        if options.max_memory is not None:
            self._forget()
        return results

    def _forget(self) -> None:
        """Give back the memory of all rooms."""
        self._rooms.clear()
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()

    def _slots(self, room: Room, options: SearchOptions) -> Slots:
        key = (room, options)
        slots = self._rooms.pop(key, None)
        if slots is None:
            while len(self._rooms) >= self._MOST_ROOMS:
                del self._rooms[next(iter(self._rooms))]
            if options.search == "beam":
                slots = BeamSlots(
                    self.model, self.output, room, options.n_best, options.length_penalty
                )
            else:
                slots = GreedySlots(self.model, self.output, room, options.scores)
        self._rooms[key] = slots  # the last one used is the last to go
        return slots


def slot_searcher(model: Transformer, output: OutputLayer, precision: torch.dtype) -> SlotSearcher:
    """Make ready to search with a model's weights as they are now."""
    return SlotSearcher(Inference(model, precision), output)


class PooledInference:
    """A Transformer on a GPU: attention follows each prefix' path through the pool."""

    def __init__(self, model: Transformer, precision: torch.dtype) -> None:
        self._model = Inference(model, precision)
        self.device = model.device
        self.precision = precision
        config = model.config
        self.vocabulary = config.vocabulary
        self._layers, self._width = config.decoder_layers, 2 * config.size
        self.bytes_a_row = _bytes_a_token(self._model)
        self._pools_P12D: list[Tensor] = []
        self._sources: Sources | None = None

    @torch.inference_mode()
    def open(self, sources: Sequence[Sequence[int]], rows: int) -> None:
        """Encode sentences and make room for so many prefixes."""
        lengths = [len(source) + 1 for source in sources]
        starts = [0, *accumulate(lengths)]
        self._pools_P12D, self._sources = [], None  # before anything new takes its place
        self._pools_P12D = [self._empty(rows, 1) for _ in range(self._layers)]
        memories = [self._empty(starts[-1]) for _ in range(self._layers)]
        # To encode a token takes about as much memory as a prefix.
        encode_in_runs(self._model, sources, memories, min(ENCODED_TOGETHER, rows))
        starts_N, lengths_N = (
            torch.tensor(numbers, dtype=torch.int32, device=self.device)
            for numbers in (starts[:-1], lengths)
        )
        self._sources = Sources(memories, starts_N, lengths_N)

    def expand(
        self, tokens_R: Tensor, paths_RT: Tensor, depths_R: Tensor, sentences_R: Tensor
    ) -> Tensor:
        """Feed a token to each prefix and give the logits (R, V) of the next."""
        assert self._sources is not None
        # The kernels look for position t of owner o in row o + t, as pools have one position a row.
        owners_RT = paths_RT - torch.arange(paths_RT.size(1), dtype=torch.int32, device=self.device)
        rows = Rows(depths_R.long(), sentences_R, self._pools_P12D, owners_RT)
        return self._model.step(tokens_R, rows, self._sources)

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(*shape, self._width, dtype=self.precision, device=self.device)
