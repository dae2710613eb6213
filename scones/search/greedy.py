"""Greedy search: the best next token, again and again, on raw logits."""

from __future__ import annotations

import torch
from torch import Tensor

from scones.ids import END, PAD
from scones.outputs import OutputLayer
from scones.search.stepping import Hypothesis, Stepper, hypothesis, should_leave


@torch.inference_mode()
def greedy_search(
    model: Stepper,
    output: OutputLayer,
    source_BS: Tensor,
    limits_B: Tensor,
    scores: bool = True,
    end: int = END,
) -> list[Hypothesis]:
    """Translate a batch greedily; `limits_B` is each sentence's longest translation in tokens.

    Neither softmax nor sigmoid changes the order of the logits, so no activation is computed at
    all unless `scores` asks for log-probabilities. `end` is the model's id of the end of sentence.
    """
    sentences, longest = source_BS.size(0), int(limits_B.max())
    device = source_BS.device
    state = model.start(source_BS)
    chosen_BT = torch.full((sentences, longest), PAD, device=device)
    scores_BT = torch.zeros(sentences, longest, device=device) if scores else None
    active_A = torch.arange(sentences, device=device)
    done_A = torch.zeros(sentences, dtype=torch.bool, device=device)
    tokens_A = chosen_BT.new_full((sentences,), PAD)
    for position in range(longest):
        logits_AV = model.step(state, tokens_A)
        tokens_A = output.best_token(logits_AV)
        # What a finished row still writes here is cut off at its first end of sentence below.
        chosen_BT[active_A, position] = tokens_A
        if scores_BT is not None:
            scores_BT[active_A, position] = output.scores_of(logits_AV, tokens_A)
        done_A |= (tokens_A == end) | (limits_B[active_A] <= position + 1)
        if should_leave(int(done_A.sum()), done_A.numel()):
            staying = (~done_A).nonzero().squeeze(1)
            if staying.numel() == 0:
                break
            state.keep(staying)
            active_A, tokens_A, done_A = active_A[staying], tokens_A[staying], done_A[staying]
    log_probs = scores_BT.double().tolist() if scores_BT is not None else [None] * sentences
    rows = zip(chosen_BT.tolist(), log_probs, limits_B.tolist(), strict=True)
    return [hypothesis(ids, terms, limit, end) for ids, terms, limit in rows]
