from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from huggingface_models import CLASSES, batch, labelled, tiny

from scones.bridges.huggingface import convert, scones_search, trainable_bias
from scones.errors import SconesError
from scones.outputs import output_layer
from scones.search.beam import beam_search
from scones.search.greedy import greedy_search

LENGTHS = [7, 3, 5, 1, 6]
LIMIT = 12


@dataclass
class WholePrefix:
    """A stepper for one sentence, and its state: no cache, every step reads the whole prefix."""

    model: Any
    prompt: list[int]
    banned: tuple[int, ...] = ()

    def start(self, source_BS, beams=1):
        self.source = source_BS.repeat(beams, 1)
        self.prefix = torch.tensor([self.prompt]).repeat(beams, 1)
        self.started = False
        return self

    def step(self, state, tokens_N):
        if self.started:
            self.prefix = torch.cat([self.prefix, tokens_N[:, None]], dim=1)
        self.started = True
        logits_NV = self.model(
            input_ids=self.source, decoder_input_ids=self.prefix, use_cache=False
        ).logits[:, -1]
        logits_NV[:, list(self.banned)] = float("-inf")
        return logits_NV

    def reorder(self, rows_N):
        self.prefix = self.prefix[rows_N]

    def keep(self, sentences_B):
        """There is but one."""


def converted(name):
    return copy.deepcopy(lively(name))


@cache
def lively(name):
    """Make a converted model with which some sentences end sooner and some later."""
    for seed in range(10):
        model = tiny(name, seed)
        convert(model, [labelled([6, 4], model)])
        for _ in range(10):
            with torch.no_grad():
                trainable_bias(model).view(-1)[model.config.eos_token_id] += 0.4
            inputs = batch(LENGTHS, model)
            lengths = (
                {len(best[0].tokens) for best in expected(model, inputs, beams)} for beams in (1, 4)
            )
            if all(len(different) > 1 for different in lengths):
                return model
    raise AssertionError(f"no lively {name}")


def expected(model, inputs, beams, limit=LIMIT, penalty=0.0, prompt=(), banned=()):
    """Our own search, sentence by sentence."""
    start = model.generation_config.decoder_start_token_id
    stepper = WholePrefix(model, [start, *prompt], banned)
    output, end = output_layer(model.config.scones["output"]), model.config.eos_token_id
    found = []
    for row, mask in zip(inputs["input_ids"], inputs["attention_mask"], strict=True):
        source, limits = row[mask.bool()][None], torch.tensor([limit])
        if beams == 1:
            found.append(greedy_search(stepper, output, source, limits, True, end))
        else:
            found += beam_search(stepper, output, source, limits, beams, beams, penalty, end)
    return found


def generate(model, inputs, beams, **options):
    if "max_length" not in options:
        options.setdefault("max_new_tokens", LIMIT)
    return model.generate(
        **inputs,
        num_beams=beams,
        num_return_sequences=beams,
        custom_generate=scones_search,
        return_dict_in_generate=True,
        **options,
    )


def same(model, found, wanted, beams, prompt=1, penalty=0.0):
    end, pad = model.config.eos_token_id, model.config.pad_token_id
    rows, scores = found.sequences.tolist(), found.sequences_scores.tolist()
    assert len(rows) == len(scores) == len(wanted) * beams
    for sentence, hypotheses in enumerate(wanted):
        for rank in range(beams):
            row, score = rows[sentence * beams + rank], scores[sentence * beams + rank]
            if rank >= len(hypotheses):
                assert score == float("-inf")
                continue
            hypothesis = hypotheses[rank]
            tokens = [*hypothesis.tokens, *([end] if hypothesis.finished else [])]
            assert row[prompt:] == tokens + [pad] * (len(row) - prompt - len(tokens))
            assert score == pytest.approx(hypothesis.log_prob / len(tokens) ** penalty, abs=1e-4)


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("name", CLASSES)
def test_the_search_is_ours_on_the_same_logits_whatever_stands_beside_a_sentence(name, beams):
    model = converted(name)
    inputs = batch(LENGTHS, model)
    same(model, generate(model, inputs, beams), expected(model, inputs, beams), beams)


@pytest.mark.parametrize("name", CLASSES)
def test_softmax_greedy_is_transformers_own(name):
    model = converted(name)
    del model.config.scones
    inputs = batch(LENGTHS, model)
    options = {"max_new_tokens": LIMIT, "num_beams": 1, "do_sample": False}
    ours = model.generate(**inputs, **options, custom_generate=scones_search)
    assert ours.tolist() == model.generate(**inputs, **options).tolist()


@pytest.mark.parametrize("beams", [1, 4])
def test_a_forced_first_token_is_certain(beams):
    model = converted("m2m100")
    inputs = batch(LENGTHS, model)
    found = generate(model, inputs, beams, forced_bos_token_id=7)
    assert (found.sequences[found.sequences_scores > float("-inf")][:, 1] == 7).all()
    wanted = expected(model, inputs, beams, LIMIT - 1, prompt=(7,))
    same(model, found, wanted, beams, prompt=2)


def test_a_forced_end_ends_at_the_limit():
    model = converted("bart")
    with torch.no_grad():
        trainable_bias(model)[0, model.config.eos_token_id] = -30.0
    inputs = batch(LENGTHS, model)
    free = generate(model, inputs, 1, max_length=6)
    forced = generate(model, inputs, 1, max_length=6, forced_eos_token_id=2)
    assert forced.sequences[:, :5].tolist() == free.sequences[:, :5].tolist()
    assert (forced.sequences[:, 5] == 2).all()
    shorter = generate(model, inputs, 1, max_length=5)
    assert torch.allclose(forced.sequences_scores, shorter.sequences_scores, atol=1e-5)


@pytest.mark.parametrize("beams", [1, 4])
def test_banned_tokens_are_never_taken(beams):
    model = converted("marian")
    pad = model.config.pad_token_id
    with torch.no_grad():
        trainable_bias(model)[0, pad] += 20.0
    inputs = batch(LENGTHS, model)
    wanted = expected(model, inputs, beams, banned=(pad, 5))
    found = generate(model, inputs, beams, bad_words_ids=[[pad], [5]])
    same(model, found, wanted, beams)


def test_the_length_penalty_is_that_of_the_call():
    model = converted("marian")
    inputs = batch(LENGTHS, model)
    vanilla = generate(model, inputs, 4)
    model.generation_config.length_penalty = 2.0
    assert generate(model, inputs, 4).sequences.tolist() == vanilla.sequences.tolist()
    found = generate(model, inputs, 4, length_penalty=1.0)
    assert found.sequences.tolist() != vanilla.sequences.tolist()
    wanted = expected(model, inputs, 4, penalty=1.0)
    same(model, found, wanted, 4, penalty=1.0)
    with pytest.raises(SconesError, match="length_penalty must be at least 0"):
        generate(model, inputs, 4, length_penalty=-1.0)


def test_max_length_counts_the_prompt_and_max_new_tokens_does_not():
    model = converted("t5")
    with torch.no_grad():
        trainable_bias(model)[1] = -30.0
    inputs = batch(LENGTHS, model)
    assert generate(model, inputs, 2, max_length=6).sequences.shape == (10, 6)
    assert generate(model, inputs, 2, max_new_tokens=6).sequences.shape == (10, 7)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"do_sample": True, "num_beams": 1}, "greedy or beam search, not sample"),
        ({"eos_token_id": [0, 1]}, "exactly one token"),
        ({"max_time": 5.0}, "cannot stop by MaxTimeCriteria"),
        ({"prefix_allowed_tokens_fn": lambda row, ids: [5, 6]}, "PrefixConstrained"),
    ],
)
def test_what_it_cannot_do_is_refused(options, reason):
    model = converted("marian")
    with pytest.raises(SconesError, match=reason):
        model.generate(
            **batch([3], model),
            **{"num_beams": 2, "max_new_tokens": 4, **options},
            custom_generate=scones_search,
        )
