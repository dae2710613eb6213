"""A Hugging Face encoder-decoder as our searches see models: a `Stepper`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import EncoderDecoderCache, LogitsProcessorList, PreTrainedModel

_CERTAIN = 1e4
"""A logit whose probability is 1, under softmax and under a sigmoid."""


@dataclass
class HuggingFaceState:
    """A batch in the middle of being decoded."""

    beams: int
    prefix_NT: Tensor
    """All tokens so far."""
    memory_NSD: Tensor
    """What the encoder made of the source."""
    mask_NS: Tensor | None
    cache: EncoderDecoderCache
    started: bool = False

    def reorder(self, rows_N: Tensor) -> None:
        """Let row i continue what row rows[i] has seen; their source sentence is the same."""
        self.prefix_NT = self.prefix_NT[rows_N]
        self.cache.self_attention_cache.reorder_cache(rows_N)

    def keep(self, sentences_B: Tensor) -> None:
        """Drop all sentences but these."""
        beams = torch.arange(self.beams, device=sentences_B.device)
        rows_N = (sentences_B[:, None] * self.beams + beams).flatten()
        self.prefix_NT = self.prefix_NT[rows_N]
        self.memory_NSD = self.memory_NSD[rows_N]
        self.mask_NS = None if self.mask_NS is None else self.mask_NS[rows_N]
        self.cache.batch_select_indices(rows_N)


@dataclass
class HuggingFaceStepper:
    """A model with the sentences that it is to translate, already encoded, one row a beam."""

    model: PreTrainedModel
    prompt_NP: Tensor
    """What the decoder begins with."""
    memory_NSD: Tensor
    mask_NS: Tensor | None
    processors: LogitsProcessorList
    """What bans and changes logits, given the prefix."""
    forced: Mapping[int, int]
    """Tokens that have to follow prefixes of certain lengths; they count as certain."""

    def start(self, source_BS: Tensor, beams: int = 1) -> HuggingFaceState:
        """Open a state; the rows are there already, `beams` for every source sentence."""
        from transformers import DynamicCache, EncoderDecoderCache

        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        return HuggingFaceState(beams, self.prompt_NP, self.memory_NSD, self.mask_NS, cache)

    def step(self, state: HuggingFaceState, tokens_N: Tensor) -> Tensor:
        """Feed one token a row (at first the prompt instead) and give the logits of the next."""
        from transformers.modeling_outputs import BaseModelOutput

        fed_NT = state.prefix_NT
        if state.started:
            fed_NT = tokens_N.unsqueeze(1)
            state.prefix_NT = torch.cat([state.prefix_NT, fed_NT], dim=1)
        state.started = True
        outputs = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=state.memory_NSD),
            attention_mask=state.mask_NS,
            decoder_input_ids=fed_NT,
            past_key_values=state.cache,
            use_cache=True,
        )
        logits_NV = self.processors(state.prefix_NT, outputs.logits[:, -1].float())
        forced = self.forced.get(state.prefix_NT.size(1))
        if forced is not None:
            logits_NV = torch.full_like(logits_NV, float("-inf"))
            logits_NV[:, forced] = _CERTAIN
        return logits_NV
