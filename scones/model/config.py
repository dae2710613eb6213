"""The sizes of a Transformer, and the presets that name common ones."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

from scones.errors import SconesError
from scones.options import REQUIRED, option, out_of_bounds

_count = partial(option, least=1, most=2**24)
_layers = partial(option, least=1, most=1000)
# A table with a row for each is computed whenever a model is opened.
_positions = partial(option, least=1, most=2**16)
_dropout = partial(option, least=0, below=1)


Activation = Literal["relu", "gelu", "swish"]


@dataclass(frozen=True)
class ModelConfig:
    """Everything that decides the shape of a Transformer, vocabulary included."""

    vocabulary: int = _count(REQUIRED, "")
    encoder_layers: int = _layers(REQUIRED, "")
    decoder_layers: int = _layers(REQUIRED, "")
    size: int = _count(REQUIRED, "")
    heads: int = _count(REQUIRED, "")
    feed_forward: int = _count(REQUIRED, "")
    dropout: float = _dropout(REQUIRED, "")
    attention_dropout: float = _dropout(REQUIRED, "")
    tied_embeddings: bool = True
    max_length: int = _positions(1024, "")
    # Models of others (`scones.bridges.marian`) may differ from ours in these two.
    post_norm: bool = False
    activation: Activation = "relu"

    def __post_init__(self) -> None:
        problems = out_of_bounds(self)
        if self.heads > 0 and self.size % (2 * self.heads):
            problems.append(f"size ({self.size}) must be a multiple of twice heads ({self.heads})")
        if problems:
            raise SconesError(f"The model cannot be built: {'; '.join(problems)}.")

    def other_shape(self, wanted: ModelConfig) -> list[str]:
        """Say in which sizes the weights of two models differ."""
        theirs = asdict(wanted)
        return [
            f"{name} {ours} where {theirs[name]} is asked for"
            for name, ours in asdict(self).items()
            if ours != theirs[name] and "dropout" not in name
        ]


def sinusoids(length: int, size: int) -> Any:
    """Sinusoidal positions as a NumPy array: all sines first, then all cosines."""
    import numpy as np

    frequencies = 10_000.0 ** (-np.arange(0, size, 2, dtype=np.float64) / size)
    angles = np.arange(length, dtype=np.float64)[:, None] * frequencies
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 2, "size": 128, "heads": 4, "feed_forward": 512},
    "small": {"layers": 4, "size": 256, "heads": 4, "feed_forward": 1024},
    "paper": {"layers": 6, "size": 512, "heads": 8, "feed_forward": 2048},
}


@dataclass(frozen=True)
class ModelOptions:
    """The `[model]` section of a recipe: a preset, and what should differ from it."""

    preset: Literal["tiny", "small", "paper"] = option(
        "small", "sizes to start from; paper: those of its Table 1", group="Model"
    )
    layers: int | None = _layers(None, "layers of the encoder and of the decoder")
    encoder_layers: int | None = _layers(None, "layers of the encoder alone")
    decoder_layers: int | None = _layers(None, "layers of the decoder alone")
    size: int | None = _count(None, "model (embedding) size")
    heads: int | None = _count(None, "attention heads")
    feed_forward: int | None = _count(None, "size of the feed-forward layers")
    dropout: float = _dropout(0.1, "dropout on embeddings and on what each block adds")
    attention_dropout: float = _dropout(0.1, "dropout on attention weights")
    tied_embeddings: bool = option(True, "one matrix for source, target and output")
    max_length: int = _positions(1024, "longest sentence in pieces, either side")

    def build(self, vocabulary: int) -> ModelConfig:
        """Resolve the preset and the changes to it into the full configuration."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        sizes = PRESETS[given.pop("preset")] | given
        layers = sizes.pop("layers")
        both = {"encoder_layers": layers, "decoder_layers": layers}
        return ModelConfig(vocabulary, **both | sizes)
