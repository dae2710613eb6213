import random

import pytest

from scones.errors import SconesError
from scones.text.subwords import Subwords


def _lines(count=400):
    choose = random.Random(3)
    words = ["".join(choose.choices("abcdefghijklmno", k=choose.randint(2, 8))) for _ in range(150)]
    return [" ".join(choose.choices(words, k=7)) for _ in range(count)]


@pytest.fixture(scope="module")
def subwords():
    return Subwords.train(_lines(), pieces=400)


def test_special_ids_come_first_and_the_size_is_exact(subwords):
    assert len(subwords) == 400
    assert subwords.pieces([0, 1, 2]) == ["<pad>", "</s>", "<unk>"]


def test_text_comes_back_even_with_characters_never_seen(subwords):
    texts = ["abc def", "Größe 日本 😀", ""]
    ids = subwords.encode(texts)
    assert subwords.decode(ids) == texts
    assert not {0, 1, 2} & {i for row in ids for i in row}
    assert subwords.decode([[*ids[0], 1, 0, 0]]) == texts[:1]  # end and padding leave no trace


def test_training_is_deterministic_and_silent(subwords, tmp_path, capfd):
    again = Subwords.train(iter(_lines()), pieces=400)
    assert capfd.readouterr() == ("", "")
    assert again.model == subwords.model
    again.save(tmp_path / "subwords.model")
    loaded = Subwords.load(tmp_path / "subwords.model")
    assert loaded.digest == again.digest == subwords.digest
    assert loaded.encode(["abc"]) == subwords.encode(["abc"])


def test_a_small_text_gives_as_many_pieces_as_it_has():
    most = Subwords.train(iter(_lines()), pieces=32_000)
    assert 400 < len(most) < 1_000
    assert Subwords.train(_lines(), pieces=len(most)).model == most.model


@pytest.mark.parametrize(
    ("lines", "pieces", "message"),
    [(_lines(), 100, r"ask for at least 27\d"), ([], 300, "no text")],
)
def test_what_cannot_be_learned_is_refused(lines, pieces, message):
    with pytest.raises(SconesError, match=message):
        Subwords.train(lines, pieces=pieces)


@pytest.mark.parametrize("keep", [0, 3000, -1])
def test_a_damaged_model_is_refused(subwords, tmp_path, keep):
    path = tmp_path / "broken.model"
    path.write_bytes(subwords.model[:keep])
    with pytest.raises(SconesError, match=r"broken\.model"):
        Subwords.load(path)


def test_what_is_no_model_of_ours_is_refused(tmp_path):
    from sentencepiece import SentencePieceTrainer

    SentencePieceTrainer.train(
        sentence_iterator=iter(_lines()),
        model_prefix=str(tmp_path / "other"),
        vocab_size=100,
        minloglevel=2,
    )
    with pytest.raises(SconesError, match="has pad -1, end of sentence 2 and unknown 0"):
        Subwords.load(tmp_path / "other.model")
    with pytest.raises(SconesError, match="does not exist"):
        Subwords.load(tmp_path / "none.model")
    with pytest.raises(SconesError, match="is not a regular file"):
        Subwords.load(tmp_path)


def test_half_a_character_is_named(subwords):
    with pytest.raises(SconesError, match="Text 2 holds half a character"):
        subwords.encode(["fine", "half \ud800"])
