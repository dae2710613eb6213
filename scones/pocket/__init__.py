"""Pocket models: small models that come with the package and are opened by name.

Each lies here in a folder of its own name, `pocket-de-en` for German to English, as
`scones export --to pocket` writes it; its README.md is its model card.
"""

from __future__ import annotations

from pathlib import Path

from scones.errors import SconesError

FOLDER = Path(__file__).parent


def pocket_models() -> list[str]:
    """Give the names of the models that come with the package."""
    return sorted(path.parent.name for path in FOLDER.glob("*/config.json"))


def find_model(name: str | Path) -> Path:
    """Give the folder of a model: the one that is called so, or else the pocket model."""
    folder = Path(name)
    if folder.is_dir():
        return folder
    names = pocket_models()
    if str(name) in names:
        return FOLDER / name
    missing = f"The model folder {name} does not exist"
    if len(folder.parts) != 1:  # a path, not a name
        raise SconesError(f"{missing}.")
    if not names:
        raise SconesError(f"{missing}, and this copy of scones brings no pocket models.")
    raise SconesError(f"{missing}; the models that come with scones are {' and '.join(names)}.")
