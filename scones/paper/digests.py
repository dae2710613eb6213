"""Short digests by which results say what they were made of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from scones.errors import SconesError
from scones.model.folder import SUBWORDS, read_model_config, weights_file
from scones.pocket import find_model


def texts_digest(texts: Sequence[str]) -> str:
    """Give the digest of sentences."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def model_digest(folder: Path) -> str:
    """Give the digest of all that decides what a model says: weights, pieces, output layer."""
    folder = find_model(folder)
    output = json.dumps(read_model_config(folder)["scones"]["output"], sort_keys=True)
    digest = hashlib.sha256(output.encode())
    for path in (weights_file(folder), folder / SUBWORDS):
        try:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except FileNotFoundError:
            raise SconesError(f"{path} does not exist; the model is incomplete.") from None
    return digest.hexdigest()[:16]
