"""Make a model larger without changing what it computes, to train it further.

    python recipes/pocket/grow.py MODEL OUT --encoder-layers 12 --feed-forward 2048

New layers of the encoder stand between the old ones, are copies of the layer below, and add nothing
yet: what they write into the residual stream is multiplied by 0. New units of feed-forward layers
begin at random and add nothing either.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from scones.model.folder import ModelFolder
from scones.model.transformer import Transformer


def grown(model: Transformer, layers: int, width: int) -> Transformer:
    """Give a model with more encoder layers and wider feed-forward layers, and the same output."""
    config = replace(model.config, encoder_layers=layers, feed_forward=width)
    larger = Transformer(config)
    old = model.state_dict()
    new: dict[str, Tensor] = {}
    seen = set()
    for name, drawn in larger.state_dict().items():
        station, _, rest = name.partition(".")
        if station == "encoder":
            number, _, rest = rest.partition(".")
            below = int(number) * model.config.encoder_layers // layers
            tensor = old[f"encoder.{below}.{rest}"].clone()
            if (below, rest) in seen and (".output." in name or ".outer." in name):
                tensor.zero_()
            seen.add((below, rest))
        else:
            tensor = old[name]
        new[name] = widened(tensor, drawn, ".outer." in name)
    larger.load_state_dict(new)
    return larger


def widened(tensor: Tensor, drawn: Tensor, outer: bool) -> Tensor:
    """Put a tensor into the first places of a larger one: drawn numbers behind it, or zeros."""
    if tensor.shape == drawn.shape:
        return tensor
    larger = torch.zeros_like(drawn) if outer or drawn.ndim == 1 else drawn.clone()
    larger[tuple(map(slice, tensor.shape))] = tensor
    return larger


def main() -> None:
    """Do what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--encoder-layers", type=int, default=8)
    parser.add_argument("--feed-forward", type=int, default=1024)
    given = parser.parse_args()
    torch.manual_seed(1)
    folder = ModelFolder.load(given.model)
    folder.model = grown(folder.model, given.encoder_layers, given.feed_forward)
    folder.facts = replace(folder.facts, confidence=None, name=None)
    folder.save(given.out, overwrite=True)


if __name__ == "__main__":
    main()
