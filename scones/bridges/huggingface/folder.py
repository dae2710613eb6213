"""Opening a converted model that was saved with `save_pretrained`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError

from scones.bridges.huggingface.bias import bias_place, trainable_bias
from scones.errors import SconesError
from scones.files import read_json

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")


def load_converted(folder: Path | str) -> PreTrainedModel:
    """Open the folder of a converted model, with its output bias in place and trainable.

    Marian, BART, mBART and Pegasus models open with plain `from_pretrained` as well. Of T5 and
    M2M100 models that would drop the bias, which those classes do not know. Weights are read from
    safetensors only: other files could run code.
    """
    folder = Path(folder)
    class_name = _class_name(folder)
    if not any((folder / name).is_file() for name in _WEIGHTS):
        raise SconesError(
            f"{folder} has no {_WEIGHTS[0]}; other weight files could run code and are not read."
        )
    try:
        import transformers
    except ImportError:
        raise SconesError(
            "Hugging Face models need transformers: pip install 'scones[huggingface]'."
        ) from None
    plain_class = getattr(transformers, class_name)
    try:
        model, report = _with_bias(plain_class).from_pretrained(
            folder, use_safetensors=True, output_loading_info=True
        )
    except (SafetensorError, OSError, RuntimeError) as problem:
        raise SconesError(f"The weights in {folder} are damaged: {problem}.") from None
    if missing := sorted(report["missing_keys"]):
        raise SconesError(f"The weights in {folder} are incomplete: {missing[0]} is missing.")
    model.__class__ = plain_class  # nothing differs any more but the constructor
    return model


def _class_name(folder: Path) -> str:
    config = read_json(folder / "config.json")
    if not isinstance(config, dict) or not isinstance(config.get("scones"), dict):
        raise SconesError(
            f"{folder} is not a converted model: its config.json has no 'scones' section."
        )
    class_name = "".join(map(str, config.get("architectures") or ["?"]))
    bias_place(class_name)  # refuses what is not known, before anything is imported by its name
    return class_name


def _with_bias(plain_class: type[PreTrainedModel]) -> type[PreTrainedModel]:
    """Make the class whose models have an output bias from the start, so that it is loaded."""

    def start(self: PreTrainedModel, config: PreTrainedConfig) -> None:
        plain_class.__init__(self, config)
        trainable_bias(self)

    return type(plain_class.__name__, (plain_class,), {"__init__": start})
