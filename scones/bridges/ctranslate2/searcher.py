"""Search by CTranslate2: the ids of sentences in, hypotheses out, as everywhere in the house."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from scones.bridges.ctranslate2.convert import convert, library, pieces_of
from scones.errors import SconesError
from scones.model.folder import ModelFolder
from scones.outputs import OutputLayer, output_layer
from scones.search.corpus import SearchOptions, batches_by_length, length_limit
from scones.search.stepping import Hypothesis, hypothesis

# Larger batches are no faster on a CPU, and leave some of its cores without work at the end.
_BATCH_TOKENS = 1024


class CTranslate2Searcher:
    """Greedy search on a CPU; for softmax models also beam search. Made from a converted folder."""

    tells_scores: ClassVar[bool] = False

    def __init__(self, place: Path, folder: ModelFolder) -> None:
        """Open a converted model; `folder` tells what it is, and may be without weights."""
        self._pieces = pieces_of(folder)
        self._ids = {piece: number for number, piece in enumerate(self._pieces)}
        self._is_softmax = _is_softmax(output_layer(folder.output))
        self._max_length = folder.model.config.max_length
        self._threads = torch.get_num_threads()
        try:
            self._translator = library().Translator(
                str(place),
                inter_threads=self._threads,  # a batch for each core beats all cores for one batch
                intra_threads=1,
                max_queued_batches=self._threads,  # Ctrl-C has to wait for them
            )
        except (RuntimeError, ValueError) as problem:
            raise SconesError(f"CTranslate2 cannot open {place}: {problem}.") from None
        torch.set_num_threads(self._threads)  # opening a model there leaves PyTorch one thread

    @classmethod
    def of(cls, folder: ModelFolder) -> CTranslate2Searcher:
        """Convert a model; what lies on the disk for that moment is gone afterwards."""
        library()
        with tempfile.TemporaryDirectory(prefix="scones-") as place:
            convert(folder, Path(place))
            return cls(Path(place), folder)

    def search(
        self, sources: Sequence[Sequence[int]], options: SearchOptions
    ) -> list[list[Hypothesis]]:
        """Translate sentences given as ids (no end of sentence); up to n_best for each."""
        self._refuse(options)
        lengths = [len(source) + 1 for source in sources]
        limits = [length_limit(length, self._max_length) for length in lengths]
        share = -(-sum(lengths) // self._threads)
        most = min(_BATCH_TOKENS, share)
        if options.max_tokens is not None:
            most = min(most, options.max_tokens // options.beams)
        running = []
        for batch in batches_by_length(lengths, most):
            limit = max(limits[index] for index in batch)
            running.append(
                (batch, self._start([sources[index] for index in batch], limit, options))
            )
        results: list[list[Hypothesis]] = [[] for _ in sources]
        for batch, answers in running:
            for index, answer in zip(batch, answers, strict=True):
                results[index] = self._hypotheses(answer.result(), limits[index], options)
        return results

    def logits(self, source: Sequence[int]) -> tuple[list[int], Any]:
        """Give the greedy translation, end of sentence included, and its logits (T, V)."""
        limit = length_limit(len(source) + 1, self._max_length)
        (answer,) = self._translator.translate_batch(
            self._as_pieces([source]),
            **_GREEDY,
            max_decoding_length=limit,
            return_logits_vocab=True,
        )
        tokens = [self._ids[piece] for piece in answer.hypotheses[0]]
        return tokens, np.stack([np.array(step) for step in answer.logits[0]])

    def _refuse(self, options: SearchOptions) -> None:
        if options.search == "beam" and not self._is_softmax:
            raise SconesError(
                "CTranslate2's beam search applies a softmax, for which this model was not "
                "trained; use greedy search, or the engine 'torch' with the model folder."
            )
        if options.scores:
            raise SconesError(
                "CTranslate2 tells no probabilities of tokens; ask for no scores (no --json), "
                "or use the engine 'torch' with the model folder."
            )

    def _start(
        self, sources: Sequence[Sequence[int]], limit: int, options: SearchOptions
    ) -> list[Any]:
        search = dict(_GREEDY)
        if options.search == "beam":
            search |= {
                "beam_size": options.beam_size,
                "num_hypotheses": options.n_best,
                "length_penalty": options.length_penalty,
                "return_scores": True,
            }
        answers: list[Any] = self._translator.translate_batch(
            self._as_pieces(sources), **search, max_decoding_length=limit, asynchronous=True
        )
        return answers

    def _as_pieces(self, sources: Sequence[Sequence[int]]) -> list[list[str]]:
        return [[self._pieces[number] for number in source] for source in sources]

    def _hypotheses(self, answer: Any, limit: int, options: SearchOptions) -> list[Hypothesis]:
        # CTranslate2 has one length limit for a batch. Greedy search, cut at a sentence's own
        # limit, gives what the sentence would get alone.
        found = [
            hypothesis([self._ids[piece] for piece in pieces], None, limit)
            for pieces in answer.hypotheses
        ]
        if options.length_penalty or not answer.scores:
            return found
        return [
            replace(one, log_prob=score) if one.finished else one
            for one, score in zip(found, answer.scores, strict=True)
        ]


_GREEDY: dict[str, Any] = {
    "beam_size": 1,
    "min_decoding_length": 0,
    "max_input_length": 0,
    "return_end_token": True,
}


def _is_softmax(output: OutputLayer) -> bool:
    """Ask the output layer itself whether its scores are those of a softmax."""
    logits_NV = torch.tensor([[0.0, 1.0, 3.0]])
    return torch.allclose(output.log_scores(logits_NV), logits_NV.log_softmax(dim=-1))
