"""Our searches on Hugging Face models, by way of `model.generate(custom_generate=…)`.

    model.generate(**inputs, num_beams=4, custom_generate=scones_search)

transformers prepares everything (encoder, prompt, limits, banned and forced tokens) and calls
`scones_search`, which shows the model to our greedy or beam search. A converted model is searched
with its sigmoids, any other with softmax.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from scones.bridges.huggingface.stepping import HuggingFaceStepper
from scones.errors import SconesError
from scones.outputs import OutputLayer, output_layer
from scones.outputs.softmax import Softmax
from scones.search.beam import beam_search
from scones.search.greedy import greedy_search
from scones.search.stepping import Hypothesis

if TYPE_CHECKING:
    from transformers import (
        GenerationConfig,
        LogitsProcessorList,
        PreTrainedModel,
        StoppingCriteriaList,
    )
    from transformers.generation.utils import GenerateBeamEncoderDecoderOutput


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
    end = only_id(generation_config.eos_token_id, "eos_token_id")
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
    """Give the output layer that the model's configuration names; softmax where it names none."""
    section = getattr(model.config, "scones", None)
    return output_layer(section["output"]) if section else Softmax()


def only_id(ids: int | Sequence[int] | None, name: str) -> int:
    """Take the one id out of what transformers allows to be an id, a list or nothing."""
    if isinstance(ids, int):
        return ids
    if ids is None or len(ids) != 1:
        raise SconesError(f"{name} is {ids}, but this search needs exactly one token there.")
    return ids[0]


def _forced_tokens(config: GenerationConfig) -> dict[int, int]:
    """Give the tokens that have to follow prefixes of certain lengths."""
    forced = {}
    if config.forced_bos_token_id is not None:
        forced[1] = config.forced_bos_token_id
    if config.forced_eos_token_id is not None:
        forced[config.max_length - 1] = only_id(config.forced_eos_token_id, "forced_eos_token_id")
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
    for criterion in criteria:
        if not isinstance(
            criterion, (stopping_criteria.MaxLengthCriteria, stopping_criteria.EosTokenCriteria)
        ):
            raise SconesError(f"scones_search cannot stop by {type(criterion).__name__}.")
    # Sentences that are done leave the batch, so that a row's number says nothing.
    for processor in processors:
        if isinstance(
            processor,
            (
                logits_process.PrefixConstrainedLogitsProcessor,
                logits_process.EncoderNoRepeatNGramLogitsProcessor,
                logits_process.EncoderRepetitionPenaltyLogitsProcessor,
            ),
        ):
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
    """Give what the translations were ranked by; -inf for one that was not found."""
    ranks = []
    for hypotheses in found:
        for hypothesis in hypotheses:
            length = len(hypothesis.tokens) + hypothesis.finished
            ranks.append((hypothesis.log_prob or 0.0) / length**penalty)
        ranks += [float("-inf")] * (wanted - len(hypotheses))
    return torch.tensor(ranks)
