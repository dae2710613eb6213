"""The other direction of a store: source and target exchanged, nothing cleaned or split again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from scones.errors import SconesError
from scones.files import new_folder, read_json, write_json
from scones.text.store import SIDES, TokenStore, data_digest, data_files

_OTHER = {"source": "target", "target": "source"}


def reverse_store(store: Path, folder: Path, *, overwrite: bool = False) -> dict[str, Any]:
    """Make the store `folder` of the other direction; gives what stands in its store.json.

    Its files are those of `store` under exchanged names, linked where the disk allows that, so that
    they take no room; it does not depend on `store` afterwards.
    """
    store, folder = Path(store), Path(folder)
    digest = TokenStore.open(store).digest
    if folder.resolve() == store.resolve():
        raise SconesError(f"{folder} cannot be its own reverse; give another name to the new one.")
    if overwrite and folder.exists() and not (folder / "store.json").exists():
        raise SconesError(f"{folder} is not a store; --overwrite replaces nothing but a store.")
    facts: dict[str, Any] = _exchanged(read_json(store / "store.json"))
    with new_folder(folder, overwrite=overwrite) as hidden:
        names = data_files(facts["splits"])
        for name in names:
            _link(store / _exchanged_name(name), hidden / name)
        facts |= {"digest": data_digest(hidden, names), "reversed_from": digest}
        if (store / "report.json").exists():
            # Its times were spent on the store that was prepared.
            report = _exchanged(read_json(store / "report.json")) | {"stages": []}
            changed = {"digest": facts["digest"], "reversed_from": digest}
            write_json(hidden / "report.json", report | changed)
        write_json(hidden / "store.json", facts)
    return facts


def _exchanged(value: Any) -> Any:
    """Exchange the keys that speak of source and target, at every depth."""
    if isinstance(value, list):
        return [_exchanged(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: _exchanged(value[_exchanged_name(name, value)]) for name in value}


def _exchanged_name(name: str, known: Any = None) -> str:
    """Name the other side; a key without a counterpart in `known` stays as it is."""
    for side in SIDES:
        if side in name:
            other = name.replace(side, _OTHER[side])
            return other if known is None or other in known else name
    return name


def _link(path: Path, new: Path) -> None:
    try:
        os.link(path, new)
    except OSError:  # another disk, or one that knows no links
        shutil.copyfile(path, new)
