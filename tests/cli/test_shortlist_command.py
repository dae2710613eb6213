"""`scones shortlist`, and `scones translate --shortlist`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from running import Done

Scones = Callable[..., Done]
Refused = Callable[..., None]
SMALL = ("--per-token", "20", "--frequent", "10")


def test_a_shortlist_is_made_and_used(
    tiny_store: Path,
    tiny_model: Path,
    tea_pairs: list[tuple[str, str]],
    tmp_path: Path,
    scones: Scones,
) -> None:
    path = tmp_path / "new" / "de-en.shortlist"
    done = scones("shortlist", tiny_store, path, *SMALL)
    assert (done.code, done.err) == (0, "")
    assert re.fullmatch(
        rf"{path}: 500 pieces, 0\.0 MB\. A sentence of the development set has \d+ pieces on its "
        r"list, and 9\d\.\d% of its translation's are among them\.\n",
        done.out,
    )
    text = "".join(f"{source}\n" for source, _ in tea_pairs[:5])
    lines = [
        scones("translate", tiny_model, "--device", "cpu", *flags, stdin=text).out.splitlines()
        for flags in ((), ("--shortlist", path), ("--shortlist", path, "--max-tokens", "1"))
    ]
    assert [len(found) for found in lines] == [5, 5, 5]
    assert lines[0] != lines[1] == lines[2]


def test_as_json(tiny_store: Path, tmp_path: Path, scones: Scones) -> None:
    done = scones("shortlist", tiny_store, tmp_path / "list", *SMALL, "--json")
    facts = json.loads(done.out)
    assert facts["vocabulary"] == 500
    assert facts["bytes"] == (tmp_path / "list").stat().st_size
    assert 0.9 < facts["coverage"]["tokens"] < 1


def test_mistakes(tiny_store: Path, tiny_model: Path, tmp_path: Path, refused: Refused) -> None:
    there = tmp_path / "there"
    there.write_text("mine")
    refused("shortlist", tiny_store, there, said="there exists already; .*--overwrite")
    refused("shortlist", tiny_store, tmp_path, said="is a folder; name a file in it")
    refused("shortlist", tmp_path, tmp_path / "list", said="is not a store")
    new = tmp_path / "new" / "list"
    refused("shortlist", tiny_store, new, "--per-token", "0", said="per_token must be at least 1")
    refused("translate", tiny_model, "--shortlist", there, said="damaged or is no shortlist")
