from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_models import labelled, tiny
from torch import Tensor

from scones import scones_loss
from scones.bridges.huggingface import convert, trainable_bias, trainer_loss
from scones.errors import SconesError


def logits_and_labels() -> tuple[dict[str, Tensor], Tensor]:
    torch.manual_seed(0)
    labels = torch.tensor([[3, 4, 0, -100], [2, -100, -100, -100]])
    return {"logits": torch.randn(2, 4, 6)}, labels


def test_the_loss_is_the_mean_over_real_labels_or_those_of_the_whole_step() -> None:
    outputs, labels = logits_and_labels()
    logits, real = outputs["logits"].requires_grad_(), labels != -100
    expected = scones_loss(logits[real], labels[real], 0.3, 0.1, ignore_index=-1)
    (slope,) = torch.autograd.grad(expected, logits)
    loss = trainer_loss(0.3, 0.1)
    for items, part in ((None, 1.0), (8, 0.5), (torch.tensor(8), 0.5)):  # four labels are real
        found = loss(outputs, labels, num_items_in_batch=items)
        assert torch.allclose(found, part * expected)
        assert torch.allclose(torch.autograd.grad(found, logits)[0], part * slope)


def test_labels_that_the_decoder_did_not_read_are_refused() -> None:
    outputs, labels = logits_and_labels()
    with pytest.raises(SconesError, match=r"DataCollatorForSeq2Seq\(tokenizer, model=model\)"):
        trainer_loss()(outputs, labels[:, :3])
    with pytest.raises(SconesError, match="alpha must be above 0"):
        trainer_loss(alpha=-1.0)


def test_a_trainers_accumulated_gradients_are_those_of_one_large_batch(tmp_path: Path) -> None:
    from transformers import Trainer, TrainingArguments

    model = tiny("marian")
    convert(model, [labelled([5, 3], model)])
    for module in model.modules():
        if isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0
    batch = labelled([2, 3, 4, 5, 6, 7, 8, 9], model)
    batch["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(batch["labels"])
    rows = [{name: tensor[row] for name, tensor in batch.items()} for row in range(8)]

    def trained(size: int, accumulate: int) -> Any:
        ours = copy.deepcopy(model)
        arguments = TrainingArguments(
            output_dir=str(tmp_path),
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            max_steps=1,
            optim="sgd",
            learning_rate=0.1,
            max_grad_norm=0.0,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=accumulate,
        )
        Trainer(ours, arguments, train_dataset=rows, compute_loss_func=trainer_loss()).train()
        return ours

    whole, halves = trained(8, 1), trained(4, 2)
    assert not torch.equal(trainable_bias(whole), trainable_bias(model))
    for name, parameter in whole.named_parameters():
        assert torch.allclose(parameter, halves.get_parameter(name), atol=1e-6), name
