"""Hugging Face models: softmax models become SCONES models, are trained and searched there.

from scones.bridges import huggingface

huggingface.convert(model, batches, alpha=0.5)                # shifts the output bias
Trainer(model, …, compute_loss_func=huggingface.trainer_loss(alpha=0.5)).train()
model.generate(**inputs, num_beams=4, custom_generate=huggingface.scones_search)
model.save_pretrained(folder)
huggingface.load_converted(folder)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from scones.bridges.huggingface_search import output_of, scones_search
from scones.errors import SconesError, optional_import
from scones.files import read_json
from scones.outputs import Reduction, check_numbers
from scones.outputs.loss import scones_loss
from scones.outputs.scones import Scones

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

__all__ = [
    "Conversion",
    "Shift",
    "convert",
    "load_converted",
    "scones_search",
    "trainable_bias",
    "trainer_loss",
]


# The output bias of Hugging Face models: where each class keeps it, and how it is trained.

FINAL_LOGITS_BIAS = "final_logits_bias"
LM_HEAD_BIAS = "lm_head.bias"

_BIAS_NAMES = {
    "MarianMTModel": FINAL_LOGITS_BIAS,
    "BartForConditionalGeneration": FINAL_LOGITS_BIAS,
    "MBartForConditionalGeneration": FINAL_LOGITS_BIAS,
    "PegasusForConditionalGeneration": FINAL_LOGITS_BIAS,
    "M2M100ForConditionalGeneration": LM_HEAD_BIAS,
    "T5ForConditionalGeneration": LM_HEAD_BIAS,
    "MT5ForConditionalGeneration": LM_HEAD_BIAS,
}
"""The classes that can be converted (NLLB models are of the class M2M100), and where each has its
bias. transformers knows the first name itself; the second is ours, in classes that have none."""


def _bias_name(class_name: str) -> str:
    """The name under which a class keeps its output bias; other classes are refused."""
    if class_name not in _BIAS_NAMES:
        known = ", ".join(_BIAS_NAMES)
        raise SconesError(f"Models of the class {class_name} cannot be converted; {known} can.")
    return _BIAS_NAMES[class_name]


def trainable_bias(model: PreTrainedModel) -> nn.Parameter:
    """The output bias as a parameter, made one where it is not: then Trainer trains it.

    The bias of Marian, BART, mBART and Pegasus is a buffer in transformers, which no optimiser
    sees; it keeps its name, so that a saved model opens anywhere. T5 and M2M100 have no bias and
    get one of zeros. The logits stay as they are.
    """
    if _bias_name(type(model).__name__) == FINAL_LOGITS_BIAS:
        bias = model.final_logits_bias
        if not isinstance(bias, nn.Parameter):
            del model.final_logits_bias
            model.final_logits_bias = nn.Parameter(bias.detach().clone())
        return model.final_logits_bias
    if model.lm_head.bias is None:
        weight = model.lm_head.weight
        zeros = torch.zeros(weight.size(0), dtype=weight.dtype, device=weight.device)
        model.lm_head.bias = nn.Parameter(zeros)
    if not hasattr(model, "prepare_decoder_input_ids_from_labels"):
        _teach_decoder_inputs(model)
    return model.lm_head.bias


def _teach_decoder_inputs(model: PreTrainedModel) -> None:
    """Give M2M100 what the other classes have, and what `DataCollatorForSeq2Seq` asks them for."""
    from transformers.models.m2m_100.modeling_m2m_100 import shift_tokens_right

    config = model.config

    def shifted(labels: Tensor) -> Tensor:
        return shift_tokens_right(labels, config.pad_token_id, config.decoder_start_token_id)

    model.prepare_decoder_input_ids_from_labels = shifted


# The SCONES loss for Hugging Face's Trainer.

IGNORED = -100
"""The label that Hugging Face gives to positions that do not count."""


def trainer_loss(alpha: float = 0.5, label_smoothing: float = 0.0) -> Callable[..., Tensor]:
    """Make the SCONES loss that `Trainer(compute_loss_func=…)` wants.

    Labels of -100 do not count. Trainer says how many labels all the batches of a step have, so
    that accumulated gradients are those of one large batch.

    Trainer takes the labels away before it calls the model: the collator has to make the
    decoder's inputs, as `DataCollatorForSeq2Seq(tokenizer, model=model)` does.
    """
    check_numbers(label_smoothing, alpha)

    def loss(
        outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        logits = outputs["logits"]
        if labels is None or logits.shape[:-1] != labels.shape:
            shape = None if labels is None else tuple(labels.shape)
            raise SconesError(
                f"The logits have the shape {tuple(logits.shape)} and the labels {shape}: the "
                "decoder did not read the labels; use DataCollatorForSeq2Seq(tokenizer, "
                "model=model), which makes decoder_input_ids from them."
            )
        reduction: Reduction = "mean" if num_items_in_batch is None else "sum"
        losses = scones_loss(
            logits, labels.to(logits.device), alpha, label_smoothing, IGNORED, reduction
        )
        return losses if num_items_in_batch is None else losses / num_items_in_batch

    return loss


# Turning a softmax model into a SCONES model: one number, added to the output bias.
#
# Softmax does not feel a constant added to all logits, so the logits of a softmax model float; its
# probabilities are p = exp(z - n), where n, the log-sum-exp of the logits, is another number at
# every position. SCONES has no normaliser. Two constants can take its place:
#
# - "normaliser", the default: minus the mean of n. Then σ(z) is p / (1 + p) wherever n is at its
#   mean: nearly p for improbable tokens, and 1/2 for certain ones. Beam search right after the
#   shift is about as good as it was.
# - "least_loss": the constant at which the SCONES loss of the data is least. It is larger, for
#   certain tokens are to be near 1, and by -ln α: the best probability of a token that is the
#   reference p of the time has the odds p / (α(1 - p)). Fine-tuning starts nearer to its end, but
#   until then beam search is worse.
#
# Greedy search feels neither. Fine-tuning with `trainer_loss` does the rest.

Shift = Literal["least_loss", "normaliser"]


@dataclass(frozen=True)
class Conversion:
    """What was measured at the target tokens of the data, and what was done."""

    tokens: int
    """Target tokens that were looked at."""
    normaliser: float
    """The mean of the logits' log-sum-exp."""
    deviation: float
    """Its standard deviation."""
    shift: float
    """What was added to the output bias."""
    softmax_gold: float
    """The mean probability of the gold token before, under softmax."""
    scones_gold: float
    """The mean probability of the gold token now, one sigmoid per token."""
    difference: float
    """The mean distance of the two."""


def convert(
    model: PreTrainedModel,
    batches: Iterable[Mapping[str, Tensor]],
    alpha: float = 0.5,
    label_smoothing: float = 0.0,
    shift: Shift = "normaliser",
) -> Conversion:
    """Turn a softmax model into a SCONES model, in place, by shifting its output bias.

    `batches` are what Trainer would feed the model: tensors by name, with `labels` in which -100
    does not count; a few hundred sentences are enough. `alpha` and `label_smoothing` are those
    that the model will be fine-tuned with. What was measured is returned and goes, with the
    output layer, into the model's config.json under "scones".
    """
    output = Scones(alpha, label_smoothing)
    bias_name = _bias_name(type(model).__name__)
    section = getattr(model.config, "scones", None) or {}
    if not output_of(model).is_softmax:
        raise SconesError("The model has a SCONES output layer already; it cannot be converted.")
    if shift not in get_args(Shift):
        raise SconesError(f"shift={shift!r} is not known; use 'least_loss' or 'normaliser'.")
    training = model.training
    try:
        logits = _measure(model.eval(), batches)
    finally:
        model.train(training)
    normalisers_N, gold_N = torch.cat(logits.normalisers), torch.cat(logits.gold)
    constant = -float(normalisers_N.mean())
    if shift == "least_loss":
        constant = logits.least_loss_shift(output)
    softmax_N = (gold_N - normalisers_N).exp()
    scones_N = torch.sigmoid(gold_N + constant)
    done = Conversion(
        tokens=gold_N.numel(),
        normaliser=float(normalisers_N.mean()),
        deviation=float(normalisers_N.std(correction=0)),
        shift=constant,
        softmax_gold=float(softmax_N.mean()),
        scones_gold=float(scones_N.mean()),
        difference=float((softmax_N - scones_N).abs().mean()),
    )
    with torch.no_grad():
        trainable_bias(model).add_(constant)
    model.config.scones = {
        **section,
        "output": output.to_config(),
        "bias": bias_name,
        "conversion": asdict(done),
    }
    return done


@dataclass
class _Logits:
    """What has to be known of the logits at the target tokens of the data."""

    normalisers: list[Tensor] = field(default_factory=list)
    """Their log-sum-exp."""
    gold: list[Tensor] = field(default_factory=list)
    """Those of the gold tokens."""
    others: Tensor = field(default_factory=lambda: torch.zeros(_BINS, dtype=torch.float64))
    """How many of the others lie in each bin; all of them would fill the memory."""

    def add(self, logits_NV: Tensor, gold_N: Tensor, banned: list[int]) -> None:
        """Take in the logits of some positions; those of banned tokens do not count."""
        index_N1 = gold_N.unsqueeze(1)
        self.gold.append(logits_NV.gather(1, index_N1).squeeze(1).double().cpu())
        logits_NV[:, banned] = float("-inf")
        self.normalisers.append(logits_NV.logsumexp(dim=1).double().cpu())
        logits_NV.scatter_(1, index_N1, float("-inf"))
        self.others += logits_NV.histc(_BINS, -_WIDEST, _WIDEST).double().cpu()

    def least_loss_shift(self, output: Scones) -> float:
        """Find the constant at which the SCONES loss is least: where its derivative is 0."""
        gold_N = torch.cat(self.gold)
        filled = self.others.nonzero().squeeze(1)
        width = 2 * _WIDEST / _BINS
        others_n, counts_n = (filled + 0.5) * width - _WIDEST, self.others[filled]
        low, high = -2 * _WIDEST, 2 * _WIDEST
        while high - low > 1e-4:
            middle = (low + high) / 2
            pull = (torch.sigmoid(-gold_N - middle) - output.label_smoothing).sum()
            push = (counts_n * (torch.sigmoid(others_n + middle) - output.label_smoothing)).sum()
            if output.alpha * push > pull:
                high = middle
            else:
                low = middle
        return high


_WIDEST = 200.0
_BINS = 20_000


@torch.no_grad()
def _measure(model: PreTrainedModel, batches: Iterable[Mapping[str, Tensor]]) -> _Logits:
    found = _Logits()
    banned = _banned_tokens(model)
    for batch in batches:
        if "labels" not in batch:
            raise SconesError("A batch has no labels; the conversion needs target sentences.")
        tensors = {name: tensor.to(model.device) for name, tensor in batch.items()}
        real_BT = tensors["labels"] != IGNORED
        found.add(model(**tensors).logits[real_BT].float(), tensors["labels"][real_BT], banned)
    if not sum(part.numel() for part in found.gold):
        raise SconesError("The batches hold no target token; the conversion needs some.")
    return found


def _banned_tokens(model: PreTrainedModel) -> list[int]:
    """The tokens that search never takes: Marian's padding has a logit, but no meaning."""
    words = model.generation_config.bad_words_ids or []
    return [word[0] for word in words if len(word) == 1]


# Opening a converted model that was saved with `save_pretrained`.

_NOT_FOLLOWED = (
    "attn_implementation",
    "auto_map",
    "fusion_config",
    "quantization_config",
    "transformers_weights",
)
"""Keys of config.json that make transformers load other code or other files."""


def load_converted(folder: Path | str) -> PreTrainedModel:
    """Open the folder of a converted model, with its output bias in place and trainable.

    Marian, BART, mBART and Pegasus models open with plain `from_pretrained` as well. Of T5 and
    M2M100 models that would drop the bias, which those classes do not know. transformers is given
    what is read here and never sees the folder, where it would follow whatever a stranger put
    there: pickled weights, adapters, files elsewhere.
    """
    folder = Path(folder)
    config = read_json(folder / "config.json")
    if not isinstance(config, dict) or not isinstance(config.get("scones"), dict):
        raise SconesError(
            f"{folder} is not a converted model: its config.json has no 'scones' section."
        )
    class_name = str(config.get("architectures")).strip("[']")  # a list of one name
    _bias_name(class_name)  # refuses what is not known, before anything is imported by its name
    told = {name: config[name] for name in config if name[:1] != "_" and name not in _NOT_FOLLOWED}
    generation = folder / "generation_config.json"
    settings = read_json(generation) if generation.exists() else None
    transformers = optional_import(
        "transformers", "Hugging Face models need transformers: pip install 'scones[huggingface]'."
    )
    plain_class = getattr(transformers, class_name)
    try:
        weights = _weights(folder)
        if any((told[name] or 0) > len(weights) for name in told if name.endswith("layers")):
            raise ValueError("config.json has more layers than there are weights")  # takes for ever
        model, report = _with_bias(plain_class).from_pretrained(
            None,
            config=plain_class.config_class.from_dict(told),
            generation_config=settings and transformers.GenerationConfig.from_dict(settings),
            state_dict=weights,
            output_loading_info=True,
        )
    except SconesError:
        raise
    except Exception as problem:  # whatever those who read it make of a stranger's file
        raise SconesError(f"The files in {folder} are damaged: {problem}.") from None
    if missing := sorted(report["missing_keys"]):
        raise SconesError(f"The weights in {folder} are incomplete: {missing[0]} is missing.")
    model.__class__ = plain_class  # nothing differs any more but the constructor
    return model


def _weights(folder: Path) -> dict[str, Tensor]:
    """The weights by name, from safetensors files inside the folder and from nothing else."""
    names, index = ["model.safetensors"], folder / "model.safetensors.index.json"
    if index.exists() and not (folder / names[0]).exists():
        names = sorted(set(read_json(index)["weight_map"].values()))
    for path in (folder / name for name in names):
        inside = path.resolve().parent == folder.resolve()
        if not inside or not path.is_file() or path.suffix != ".safetensors":
            raise SconesError(
                f"{path} is no safetensors file in {folder}; others could run code: none is read."
            )
    return {name: one for file in names for name, one in load_file(folder / file).items()}


def _with_bias(plain_class: type[PreTrainedModel]) -> type[PreTrainedModel]:
    """Make the class whose models have an output bias from the start, so that it is loaded."""

    def start(self: PreTrainedModel, config: PreTrainedConfig) -> None:
        plain_class.__init__(self, config)
        trainable_bias(self)

    return type(plain_class.__name__, (plain_class,), {"__init__": start})
