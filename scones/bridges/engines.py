"""Which engine searches with a model: PyTorch, CTranslate2, or either as it suits."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from scones.errors import SconesError
from scones.hardware import is_cpu
from scones.model.folder import ModelFolder, OpenedFolder
from scones.search.searcher import Hypothesis, Searcher, SearchOptions, Sources

# PyTorch, and whatever imports it, is imported where it is used: a model that CTranslate2 runs
# starts, and translates, without it.
if TYPE_CHECKING:
    import torch

    from scones.model.transformer import Transformer
    from scones.search.shortlist import Shortlist

Engine = Literal["auto", "torch", "ctranslate2"]
Precision = Literal["auto", "float32", "bf16"]


@dataclass(frozen=True)
class Weights:
    """The weights of a model folder as PyTorch has them, read when they are first needed."""

    opened: OpenedFolder
    device: str
    precision: Literal["float32", "bf16"]
    int8_on_cpu: bool = False
    """Whether a CPU may compute less exactly: weights and nobody ask for more."""

    @cached_property
    def folder(self) -> ModelFolder:
        from scones.hardware import choose_device, gpu_path

        folder = ModelFolder.load(self.opened, choose_device(self.device))
        if not gpu_path(folder.model):  # a GPU's kernels have a copy in this format instead
            folder.model.to(self.dtype)
        return folder

    @cached_property
    def fastest(self) -> Transformer:
        """The model as it searches and scores: on a CPU prepacked, maybe less exact."""
        from scones.model.transformer import prepacked

        model, encode = self.folder.model, None
        if self.int8_on_cpu and is_cpu(self.device):
            from scones.bridges.ctranslate2 import encoder_of

            with suppress(OSError):  # no room to convert
                encode = encoder_of(self.opened)
        return prepacked(model, encode)

    @property
    def dtype(self) -> torch.dtype:
        import torch

        return torch.bfloat16 if self.precision == "bf16" else torch.float32


def choose_searcher(
    weights: Weights, precision: Precision, engine: Engine, shortlist: str | Path | None
) -> Searcher:
    """Choose between PyTorch and CTranslate2, here and nowhere else."""
    fits = precision != "bf16" and shortlist is None and engine != "torch"
    fits = fits and is_cpu(weights.device)
    in_int8 = fits and weights.int8_on_cpu
    if engine == "ctranslate2":
        if shortlist is not None:
            raise SconesError("CTranslate2 takes no shortlist; use the engine 'auto' or 'torch'.")
        if not fits:
            raise SconesError(
                "CTranslate2 runs on a CPU in float32 or int8 here; use the device 'cpu' and no "
                "precision 'bf16', or the engine 'torch'."
            )
        return _by_ctranslate2(weights.opened, in_int8)
    if not in_int8 or not weights.opened.config.digests:
        _ = weights.folder  # whatever is damaged is said now
    listed = None
    if shortlist is not None:
        from scones.search.shortlist import Shortlist

        listed = Shortlist.load(Path(shortlist), weights.opened.subwords)
    return AutoSearcher(weights, listed, fits, in_int8)


def _by_ctranslate2(opened: OpenedFolder, in_int8: bool) -> Searcher:
    # Imported here, so that PyTorch alone does not have to know of the bridge.
    from scones.bridges.ctranslate2 import CTranslate2Searcher

    return CTranslate2Searcher.of(opened, "int8" if in_int8 else "float32")


@dataclass(frozen=True)
class AutoSearcher:
    """CTranslate2 for greedy search, if `in_int8`, or it `fits` and no scores are asked for.

    PyTorch for all the rest. Each is made ready when it is first needed: either takes time, and a
    copy of the weights.
    """

    weights: Weights
    shortlist: Shortlist | None = None
    fits: bool = True
    in_int8: bool = False

    def search(self, sources: Sources, options: SearchOptions) -> list[list[Hypothesis]]:
        fast = self.in_int8 or (self.fits and not options.scores)
        chosen = self._fastest if fast and options.search == "greedy" else self._torch
        return chosen.search(sources, options)

    @cached_property
    def _torch(self) -> Searcher:
        from scones.search.engine import searcher

        model, output = self.weights.fastest, self.weights.opened.output
        return searcher(model, output, self.weights.dtype, self.shortlist)

    @cached_property
    def _fastest(self) -> Searcher:
        try:
            return _by_ctranslate2(self.weights.opened, self.in_int8)
        except OSError:  # no room to convert
            return self._torch
