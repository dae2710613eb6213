"""What the page offers is what the phrasebook holds now, and no model has read it."""

import json

from recipes.pocket import everyday

OFFERED = everyday.HERE.parents[1] / "scones" / "serving" / "page" / "phrases.json"


def test_the_phrases_are_those_of_the_phrasebook(tmp_path):
    everyday.page(tmp_path / "phrases.json")
    assert OFFERED.read_bytes() == (tmp_path / "phrases.json").read_bytes()
    offered = json.loads(OFFERED.read_text(encoding="utf-8"))
    assert {name: len(lines) >= 40 for name, lines in offered.items()} == {
        "de": True,
        "en": True,
        "tea": True,
    }
    read = everyday.read_blocks(everyday.HERE / "phrasebook" / "train.txt")
    for side in everyday.LANGUAGES:
        assert not {line for block in read for line in block.lines[side]} & set(offered[side])
