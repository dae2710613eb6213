"""A synthetic language: real source sentences, with targets that IBM Model 3 sampled for them.

    language.json       what it was sampled with, and how many sentences came of it
    store/              training and development set
    test.source.txt     the test set; sentences whose sampled translation is empty are left out
    test.target.txt

The folder is there whole or not at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from scones.errors import SconesError
from scones.files import new_folder, read_json, write_file, write_json
from scones.text.reading import read_texts
from scones.text.store import TokenStore

TEST_SEED = 1
"""Added to the seed of a language for the test set: it is no translation seen in training."""


@dataclass(frozen=True)
class LanguageSettings:
    """What decides a language but its temperature."""

    store: Path
    """Where the sources come from; only needed where something has to be sampled, and so is:"""
    model: Path
    """The IBM Model 3."""
    sources: Sequence[str]
    """Of the test set."""
    seed: int
    pairs: int | None
    """Take only so many training pairs, the first ones."""

    def at(self, temperature: float) -> dict[str, Any]:
        """Say what a language is made with; None stands for what is not there to be asked."""
        return {
            "temperature": temperature,
            "seed": self.seed,
            "pairs": self.pairs,
            "test set": _digest("\n".join(self.sources).encode()),
            **self._digests,
        }

    @cached_property
    def _digests(self) -> dict[str, str | None]:
        return {
            "store": TokenStore.open(self.store).digest if self.store.exists() else None,
            "IBM Model 3": _folder_digest(self.model) if self.model.exists() else None,
        }


@dataclass(frozen=True)
class Language:
    """A sampled language on disk."""

    folder: Path
    facts: dict[str, Any]

    @property
    def store(self) -> Path:
        """Its training and development set."""
        return self.folder / "store"

    @property
    def source(self) -> Path:
        """The test set's source text."""
        return self.folder / "test.source.txt"

    @property
    def reference(self) -> Path:
        """What was sampled for it."""
        return self.folder / "test.target.txt"

    def references(self, sentences: int) -> list[str]:
        """Give the first references."""
        return read_texts(self.reference)[:sentences]


def find_language(folder: Path, made_with: dict[str, Any]) -> Language | None:
    """Open a language that was sampled already; one made with something else is refused."""
    if not folder.exists():
        return None
    facts = read_json(folder / "language.json")
    for name, ours in made_with.items():
        theirs = facts["made_with"].get(name)
        if theirs != ours and (ours is not None or name == "pairs"):
            raise SconesError(
                f"{folder} was sampled with {name} {_shown(theirs)}, not {_shown(ours)}; give the "
                "same again, choose another folder, or remove it."
            )
    return Language(folder, facts)


def sample_language(folder: Path, settings: LanguageSettings, temperature: float) -> Language:
    """Sample training, development and test set at a temperature."""
    from scones.ibm3.parameters import Parameters
    from scones.ibm3.sampling import Sampler, sample_store

    parameters = Parameters.load(settings.model)
    made_with = settings.at(temperature)
    with new_folder(folder) as new:
        sampler = Sampler(parameters, temperature, settings.seed)
        report = sample_store(settings.store, sampler, new / "store", pairs=settings.pairs)
        sampler = Sampler(parameters, temperature, settings.seed + TEST_SEED)
        sampled = [_line(text) for text in sampler.sample_texts(settings.sources)]
        kept = [pair for pair in zip(settings.sources, sampled, strict=True) if pair[1]]
        if not kept:
            raise SconesError(
                f"No sentence of the test set has a translation at temperature {temperature}; give "
                "another test set, or fit the model to more text."
            )
        for side, texts in zip(("source", "target"), zip(*kept, strict=True), strict=True):
            write_file(new / f"test.{side}.txt", "".join(f"{text}\n" for text in texts))
        store = TokenStore.open(new / "store")
        facts = {
            "made_with": made_with,
            "data_digest": store.digest,
            "training_pairs": len(store.split("train")),
            "test_sentences": len(kept),
            "empty_test_references": len(sampled) - len(kept),
            "sampling": report["splits"],
        }
        write_json(new / "language.json", facts)
    return Language(folder, facts)


def _line(text: str) -> str:
    """Take out what pieces can spell in bytes and a text file cannot hold."""
    return " ".join(text.replace("\0", " ").split())


def _folder_digest(folder: Path) -> str:
    """Give a digest of the files of a folder."""
    parts = []
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        with path.open("rb") as file:
            parts.append(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}")
    return _digest("\n".join(parts).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _shown(value: Any) -> str:
    return "unlimited" if value is None else str(value)
