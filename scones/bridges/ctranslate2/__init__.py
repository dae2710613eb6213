"""CTranslate2: models that run there, and the engine that runs them for us.

CTranslate2 takes the arg max of raw logits in greedy search, which is right for every output
layer, and applies a softmax in beam search, which is right for softmax models alone.
"""

from scones.bridges.ctranslate2.convert import QUANTIZATIONS
from scones.bridges.ctranslate2.exported import Exported, export, is_export, open_export
from scones.bridges.ctranslate2.searcher import CTranslate2Searcher

__all__ = [
    "QUANTIZATIONS",
    "CTranslate2Searcher",
    "Exported",
    "export",
    "is_export",
    "open_export",
]
