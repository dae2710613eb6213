"""SCONES: translation models that can say that more than one answer is right.

    import scones
    translator = scones.load("pocket-de-en")  # comes along; or the folder of a model of yours
    print(translator.translate(["Guten Morgen."])[0][0].text)
    for found in translator.translate(["Es tut mir leid."], search="all")[0]:
        print(found.probability, found.text)

`translate(…, split=True)` takes texts of several sentences, `score` tells how probable a given
translation is, and `help(scones.Translator)` the rest; `scones --help` shows the commands. The
losses are for models of your own: `scones.scones_loss(logits, targets, alpha=0.5)`.
"""

# The names below are the public surface. They are imported when first used, so that `import scones`
# and `scones --help` cost nothing.

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from scones.errors import SconesError
from scones.hardware import wait_briefly
from scones.version import __version__

if TYPE_CHECKING:
    from scones.outputs import Labels
    from scones.outputs.fused import fused_cross_entropy, fused_scones_loss, sharded_scones_loss
    from scones.outputs.loss import scones_loss
    from scones.search.positions import Position
    from scones.search.translations import Translation
    from scones.translator import Translator, load

wait_briefly()  # before anything imports PyTorch

__all__ = [
    "Labels",
    "Position",
    "SconesError",
    "Translation",
    "Translator",
    "__version__",
    "fused_cross_entropy",
    "fused_scones_loss",
    "load",
    "scones_loss",
    "sharded_scones_loss",
]

_HOMES = {
    "Labels": "scones.outputs",
    "Position": "scones.search.positions",
    "Translation": "scones.search.translations",
    "Translator": "scones.translator",
    "fused_cross_entropy": "scones.outputs.fused",
    "fused_scones_loss": "scones.outputs.fused",
    "load": "scones.translator",
    "scones_loss": "scones.outputs.loss",
    "sharded_scones_loss": "scones.outputs.fused",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'scones' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
