"""The folder of parameters: what is saved is what is loaded, and nothing damaged is."""

import json
from dataclasses import replace

import numpy as np
import pytest
from generative import position_probs
from ibm3_toys import translation_row, translations

from scones.errors import SconesError
from scones.ibm3.parameters import Distortions, Parameters
from scones.text.subwords import Subwords

D = Distortions(
    np.array([[-1, 0, 1], [-1, -1, -1], [-1, -1, 3]]),
    np.array([[0, 1, 1], [0, 0, 0], [0, 0, 2]], np.int32),
    np.array([1, 0.25, 0.75, 0.5, 0.5, 0, 0], np.float32),
    0.5,
)


def parameters(**changes):
    """Two source words, three target words, positions for two lengths."""
    given = {
        "source_words": ["ja", "nein"],
        "target_words": ["yes", "no", "well"],
        "translations": translations({0: 0.75, 2: 0.25}, {1: 1.0}, {2: 1.0}),
        "fertilities": np.array([[0, 1], [0.5, 0.5]], np.float32),
        "distortions": D,
        "p1": 0.1,
        "facts": {"pairs": 7},
    }
    return Parameters(**given | changes)


def test_what_is_saved_is_loaded(tmp_path):
    made = parameters()
    made.save(tmp_path / "model")
    found = Parameters.load(tmp_path / "model")
    assert (found.source_words, found.target_words) == (made.source_words, made.target_words)
    assert (found.p1, found.facts, found.subwords) == (0.1, {"pairs": 7}, None)
    assert found.null == 2
    for word in range(3):
        assert translation_row(found, word) == translation_row(made, word)
    assert found.fertilities.tolist() == made.fertilities.tolist()
    assert position_probs(found.distortions, 1, 2, 2).tolist() == [0.5, 0.5]
    assert found.distortions.spread == 0.5
    # Arrays are mapped and not read.
    assert isinstance(found.translations.probs.base, np.memmap)
    assert not found.translations.probs.flags.writeable
    with pytest.raises(SconesError, match=r"exists already"):
        made.save(tmp_path / "model")
    replace(made, p1=0.2).save(tmp_path / "model", overwrite=True)
    assert Parameters.load(tmp_path / "model").p1 == 0.2


def test_words_may_hold_any_character_but_a_line_end(tmp_path):
    words = ["a\u2028b", "\u00a0", "\x85"]
    parameters(target_words=words).save(tmp_path / "model")
    assert Parameters.load(tmp_path / "model").target_words == words


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"source_words": ["ja"]}, "t has another number of source words"),
        ({"target_words": ["yes", "no"]}, "t names target words that there are not"),
        ({"fertilities": np.ones((3, 2), np.float32)}, "n has another number of source words"),
        ({"fertilities": np.full((2, 2), -1.0, np.float32)}, "n holds numbers that are no"),
        ({"fertilities": np.full((2, 2), np.nan, np.float32)}, "n holds numbers that are no"),
        ({"p1": 1.0}, "p1 is 1.0"),
        ({"p1": float("nan")}, "p1 is nan"),
        ({"distortions": replace(D, probs=D.probs[:5])}, "the blocks of d do not fit its"),
        ({"distortions": replace(D, spread=1.0)}, "the spread of places is 1.0"),
    ],
)
def test_tables_that_do_not_fit(changes, problem):
    with pytest.raises(SconesError) as error:
        parameters(**changes)
    message = str(error.value)
    assert message.startswith("These tables of IBM Model 3 do not fit together: ")
    assert problem in message


def test_a_subword_model_of_another_size(tiny_subwords):
    with pytest.raises(SconesError, match="its words are not the pieces of its subword model"):
        parameters(subwords=Subwords(tiny_subwords))


NAMES = [
    "translations.begins.npy", "translations.words.npy", "translations.probs.npy",
    "fertilities.probs.npy", "distortions.begins.npy", "distortions.rows.npy",
    "distortions.probs.npy", "source.txt", "target.txt", "ibm3.json",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("damage", ["missing", "cut off", "emptied", "other bytes"])
def test_a_damaged_file(tmp_path, name, damage):
    parameters().save(tmp_path / "model")
    path = tmp_path / "model" / name
    content = path.read_bytes()
    path.unlink()
    if damage != "missing":
        damaged = {"cut off": content[:-3], "emptied": b"", "other bytes": b"\xff\xfe" * 50}
        path.write_bytes(damaged[damage])
    with pytest.raises(SconesError, match=name):
        Parameters.load(tmp_path / "model")


@pytest.mark.parametrize("entry", ["p1", "spread", "source_words", "facts", "format"])
def test_an_entry_is_missing_or_the_format_another(tmp_path, entry):
    parameters().save(tmp_path / "model")
    path = tmp_path / "model" / "ibm3.json"
    facts = json.loads(path.read_text())
    path.write_text(json.dumps({name: facts[name] for name in facts if name != entry}))
    with pytest.raises(SconesError, match=r"ibm3\.json is damaged: an entry is missing or wrong"):
        Parameters.load(tmp_path / "model")
    path.write_text(json.dumps(facts | {"format": 9}))
    with pytest.raises(SconesError, match="format 9, and this version of scones reads format 1"):
        Parameters.load(tmp_path / "model")
