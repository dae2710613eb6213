"""Engines: what searches for translations, PyTorch or CTranslate2 or each for what it does best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

import torch

from scones.bridges.ctranslate2 import CTranslate2Searcher
from scones.errors import SconesError
from scones.model.folder import ModelFolder
from scones.model.packing import packed
from scones.model.transformer import Transformer
from scones.outputs import output_layer
from scones.search.corpus import SearchOptions, search_corpus
from scones.search.shortlist import Shortlist
from scones.search.stepping import Hypothesis

if TYPE_CHECKING:
    from scones.search.slots import SlotSearcher

Engine = Literal["auto", "torch", "ctranslate2"]


class Searcher(Protocol):
    """An engine with a model: the ids of sentences in, hypotheses out."""

    @property
    def tells_scores(self) -> bool:
        """Whether it can give the log-probability of every token."""

    def search(
        self, sources: Sequence[Sequence[int]], options: SearchOptions
    ) -> list[list[Hypothesis]]:
        """Give up to n_best hypotheses for each source; no ids hold the end of sentence."""


def searcher_for(
    folder: ModelFolder,
    engine: Engine,
    shortlist: Shortlist | None = None,
    precision: torch.dtype = torch.float32,
) -> Searcher:
    """Give a model to an engine, and a shortlist to PyTorch, which alone can use one."""
    weights = folder.model.output_bias
    fits = weights.device.type == "cpu" and weights.dtype == torch.float32
    if engine == "ctranslate2" and not fits:
        raise SconesError(
            "CTranslate2 runs on a CPU in float32 here; use the device 'cpu' and the precision "
            "'float32', or the engine 'torch'."
        )
    if engine == "ctranslate2" and shortlist is not None:
        raise SconesError("CTranslate2 takes no shortlist; use the engine 'auto' or 'torch'.")
    if engine == "ctranslate2":
        return CTranslate2Searcher.of(folder)
    if shortlist is not None:
        return TorchSearcher(folder, shortlist, precision)
    if engine == "auto" and fits:
        return AutoSearcher(folder)
    return TorchSearcher(folder, precision=precision)


@dataclass(frozen=True)
class TorchSearcher:
    """PyTorch, which can do all there is."""

    folder: ModelFolder
    shortlist: Shortlist | None = None
    precision: torch.dtype = torch.float32
    """Of the products, where a GPU's kernels make them; else the model is as it is."""
    tells_scores: ClassVar[bool] = True

    def search(
        self, sources: Sequence[Sequence[int]], options: SearchOptions
    ) -> list[list[Hypothesis]]:
        """Search in slots on a GPU, and in batches of like lengths elsewhere."""
        if self._slots is not None:
            return self._slots.search(sources, options)
        output = output_layer(self.folder.output)
        return search_corpus(self._model, output, sources, options, self.shortlist)

    @cached_property
    def _slots(self) -> SlotSearcher | None:
        if self.shortlist is not None or not self.folder.model.has_kernels:
            return None
        from scones.search.slots import slot_searcher

        output = output_layer(self.folder.output)
        return slot_searcher(self.folder.model, output, self.precision)

    @cached_property
    def _model(self) -> Transformer:
        return packed(self.folder.model)


@dataclass(frozen=True)
class AutoSearcher:
    """CTranslate2 for what it does sooner, greedy search without scores; PyTorch for the rest."""

    folder: ModelFolder
    tells_scores: ClassVar[bool] = True

    def search(
        self, sources: Sequence[Sequence[int]], options: SearchOptions
    ) -> list[list[Hypothesis]]:
        """Search with the one or the other."""
        plain = options.search == "greedy" and not options.scores
        return (self._fastest if plain else self._torch).search(sources, options)

    @cached_property
    def _torch(self) -> Searcher:
        return TorchSearcher(self.folder)

    @cached_property
    def _fastest(self) -> Searcher:
        try:
            return CTranslate2Searcher.of(self.folder)
        except (SconesError, OSError):  # not installed, or no room to convert
            return self._torch
