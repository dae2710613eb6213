"""Outputs: the seam between a Transformer's hidden states and its probabilities."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any

from scones.errors import SconesError
from scones.options import from_section
from scones.outputs.base import OutputLayer

__all__ = ["OutputLayer", "output_layer"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")


def output_layer(settings: Mapping[str, Any], place: str = "output") -> OutputLayer:
    """Make the output layer that `settings` describe: {"layer": its name, its own options}."""
    name = settings.get("layer", "scones")
    if not isinstance(name, str) or name not in OutputLayer.known:
        known = ", ".join(sorted(OutputLayer.known))
        raise SconesError(f"{place}: the output layer '{name}' is not known; there are {known}.")
    options = {key: value for key, value in settings.items() if key != "layer"}
    return from_section(OutputLayer.known[name], options, place)
