"""Hugging Face models: softmax models become SCONES models, are trained and searched there.

from scones.bridges import huggingface

huggingface.convert(model, batches, alpha=0.5)                # shifts the output bias
Trainer(model, …, compute_loss_func=huggingface.trainer_loss(alpha=0.5)).train()
model.generate(**inputs, num_beams=4, custom_generate=huggingface.scones_search)
model.save_pretrained(folder)
huggingface.load_converted(folder)
"""

from scones.bridges.huggingface.bias import trainable_bias
from scones.bridges.huggingface.conversion import Conversion, Shift, convert
from scones.bridges.huggingface.folder import load_converted
from scones.bridges.huggingface.loss import trainer_loss
from scones.bridges.huggingface.search import scones_search

__all__ = [
    "Conversion",
    "Shift",
    "convert",
    "load_converted",
    "scones_search",
    "trainable_bias",
    "trainer_loss",
]
