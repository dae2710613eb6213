"""Cream tea: the built-in German–English corpus, written by a small grammar.

The grammar (`lexicon.toml`, `sentences.toml`) knows every valid translation of every sentence it
can say, so that a model's answers can be judged right or wrong, and counted.
"""

from __future__ import annotations

from scones.text.creamtea.corpus import CreamTea, Example, splits, write_corpus

__all__ = ["CreamTea", "Example", "splits", "write_corpus"]
