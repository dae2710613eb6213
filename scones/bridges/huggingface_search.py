"""Our searches on Hugging Face models, by way of `model.generate(custom_generate=…)`.

    model.generate(**inputs, num_beams=4, custom_generate=scones_search)

transformers prepares everything (encoder, prompt, limits, banned and forced tokens) and calls
`scones_search`, which shows the model to our greedy or beam search. A converted model is searched
with its sigmoids, any other with softmax.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from scones.errors import SconesError
from scones.outputs import OutputLayer, output_layer
from scones.outputs.softmax import Softmax
from scones.search.beam import beam_search
from scones.search.greedy import greedy_search
from scones.search.searcher import Hypothesis

if TYPE_CHECKING:
    from transformers import (
        EncoderDecoderCache,
        GenerationConfig,
        LogitsProcessorList,
        PreTrainedModel,
        StoppingCriteriaList,
    )
    from transformers.generation.utils import GenerateBeamEncoderDecoderOutput

# A Hugging Face encoder-decoder as our searches see models: a `Stepper`.

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
    """A model with the sentences that it is to translate, already encoded, one row per beam."""

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
        """Feed one token per row (at first the prompt instead); the logits of the next."""
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


def scones_search(
    model: PreTrainedModel,
    input_ids: Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    length_penalty: float = 0.0,
    **model_kwargs: Any,
) -> Tensor | GenerateBeamEncoderDecoderOutput:
    """Search greedily (`num_beams` 1) or with a beam; give it to `generate` as `custom_generate`.

    Of what `generate` is told it follows num_beams, num_return_sequences, max_length or
    max_new_tokens, forced and banned tokens and other logits processors, and
    return_dict_in_generate (sequences and sequences_scores). `length_penalty` p ranks translations
    by log-probability / length**p; 0 unless the call says otherwise, whatever a stored generation
    configuration holds. Anything else that would change the result is refused.
    """
    _check(generation_config, logits_processor, stopping_criteria)
    beams, wanted = generation_config.num_beams, generation_config.num_return_sequences
    end = _only_id(generation_config.eos_token_id, "eos_token_id")
    stepper = HuggingFaceStepper(
        model,
        input_ids,
        model_kwargs["encoder_outputs"].last_hidden_state,
        model_kwargs.get("attention_mask"),
        logits_processor,
        _forced_tokens(generation_config),
    )
    prompt_BP = input_ids[::beams]
    limits_B = torch.full_like(prompt_BP[:, 0], generation_config.max_length - prompt_BP.size(1))
    with_scores = bool(generation_config.return_dict_in_generate)
    output = output_of(model)
    if beams == 1:
        single = greedy_search(stepper, output, prompt_BP, limits_B, with_scores, end)
        found = [[hypothesis] for hypothesis in single]
    else:
        found = beam_search(
            stepper, output, prompt_BP, limits_B, beams, wanted, length_penalty, end
        )
    pad = generation_config.pad_token_id
    sequences = _sequences(found, prompt_BP, wanted, end, end if pad is None else pad)
    if not with_scores:
        return sequences
    from transformers.generation.utils import GenerateBeamEncoderDecoderOutput

    scores = _ranks(found, wanted, length_penalty).to(sequences.device)
    return GenerateBeamEncoderDecoderOutput(sequences=sequences, sequences_scores=scores)


def output_of(model: PreTrainedModel) -> OutputLayer:
    """The output layer that the model's configuration names; softmax where it names none."""
    settings = (getattr(model.config, "scones", None) or {}).get("output")
    return output_layer(settings) if settings else Softmax()


def _only_id(ids: int | Sequence[int] | None, name: str) -> int:
    """Take the one id out of what transformers allows to be an id, a list or nothing."""
    if isinstance(ids, int):
        return ids
    if ids is None or len(ids) != 1:
        raise SconesError(f"{name} is {ids}, but this search needs exactly one token there.")
    return ids[0]


def _forced_tokens(config: GenerationConfig) -> dict[int, int]:
    """The tokens that have to follow prefixes of certain lengths."""
    forced = {}
    if config.forced_bos_token_id is not None:
        forced[1] = config.forced_bos_token_id
    if config.forced_eos_token_id is not None:
        forced[config.max_length - 1] = _only_id(config.forced_eos_token_id, "forced_eos_token_id")
    return forced


def _check(
    config: GenerationConfig, processors: LogitsProcessorList, criteria: StoppingCriteriaList
) -> None:
    """Refuse what would be ignored otherwise."""
    from transformers.generation import logits_process, stopping_criteria
    from transformers.generation.configuration_utils import GenerationMode

    mode = config.get_generation_mode()
    if mode not in (GenerationMode.GREEDY_SEARCH, GenerationMode.BEAM_SEARCH):
        raise SconesError(
            f"scones_search is greedy or beam search, not {mode.value}; pass do_sample=False and "
            "num_beams."
        )
    followed = (stopping_criteria.MaxLengthCriteria, stopping_criteria.EosTokenCriteria)
    for criterion in criteria:
        if not isinstance(criterion, followed):
            raise SconesError(f"scones_search cannot stop by {type(criterion).__name__}.")
    # Sentences that are done leave the batch, so that a row's number says nothing.
    by_row = (
        logits_process.PrefixConstrainedLogitsProcessor,
        logits_process.EncoderNoRepeatNGramLogitsProcessor,
        logits_process.EncoderRepetitionPenaltyLogitsProcessor,
    )
    for processor in processors:
        if isinstance(processor, by_row):
            raise SconesError(f"scones_search does not support {type(processor).__name__}.")


def _sequences(
    found: Sequence[Sequence[Hypothesis]], prompt_BP: Tensor, wanted: int, end: int, pad: int
) -> Tensor:
    """Put the translations into one tensor as `generate` does: prompt, tokens, end, padding.

    A sentence with fewer translations than wanted gets rows of padding.
    """
    rows = []
    for prompt, hypotheses in zip(prompt_BP.tolist(), found, strict=True):
        rows += [[*prompt, *h.tokens, *([end] if h.finished else [])] for h in hypotheses]
        rows += [prompt] * (wanted - len(hypotheses))
    width = max(map(len, rows))
    padded = [row + [pad] * (width - len(row)) for row in rows]
    return torch.tensor(padded, device=prompt_BP.device)


def _ranks(found: Sequence[Sequence[Hypothesis]], wanted: int, penalty: float) -> Tensor:
    """What the translations were ranked by; -inf for one that was not found."""
    ranks = []
    for hypotheses in found:
        ranks += [(h.log_prob or 0.0) / (len(h.tokens) + h.finished) ** penalty for h in hypotheses]
        ranks += [float("-inf")] * (wanted - len(hypotheses))
    return torch.tensor(ranks)
