"""The tables of GIZA++: read the right way round, refused where they do not fit."""

import pytest
from generative import position_probs
from ibm3_toys import GIZA, translation_row

from scones.errors import SconesError
from scones.ibm3.giza import Vocabulary, import_tables
from scones.ibm3.options import Cut
from scones.ibm3.parameters import ANY
from scones.text.subwords import Subwords


@pytest.fixture
def folder(tmp_path):
    for name, content in GIZA.items():
        (tmp_path / name).write_text(content)
    return tmp_path


def read(folder, subwords=None, cut=None):
    return import_tables(folder / "run", folder / "de.vcb", folder / "en.vcb", subwords, cut)[0]


def row(parameters, word):
    return translation_row(parameters, [*parameters.source_words, "NULL"].index(word))


def test_everything_is_the_right_way_round(folder):
    parameters = read(folder)
    assert parameters.source_words == ["UNK", "das", "Haus", "nie"]
    assert parameters.target_words == ["the", "house", "home", "of"]
    assert row(parameters, "das") == pytest.approx({"the": 0.9, "of": 0.1})
    assert row(parameters, "Haus") == pytest.approx({"house": 0.75, "home": 0.25})
    assert row(parameters, "NULL") == {"of": 1.0}
    assert row(parameters, "nie") == {}
    assert parameters.fertilities.tolist() == [[0, 0, 0], [0.25, 0.75, 0], [0, 0.5, 0.5], [0, 0, 0]]
    assert parameters.p1 == 0.125


def test_positions_of_any_source_length_or_of_each(folder):
    """One l in the whole file stands for all: GIZA leaves it out of its tables."""
    table = read(folder).distortions
    assert table.begins.shape[0] == ANY + 1
    for length in (2, 5, 100):
        assert position_probs(table, 1, length, 3) == pytest.approx([0, 0, 1])
        assert position_probs(table, 2, length, 3) == pytest.approx([0.8, 0.2, 0])
    assert position_probs(table, 1, 7, 1).tolist() == [1.0]
    # And with different ones, rows of their own.
    (folder / "run.d3.final").write_text("2 1 1 2 1\n1 1 2 2 0.7\n2 1 2 2 0.3\n1 2 2 2 1\n")
    table = read(folder).distortions
    assert position_probs(table, 1, 1, 2).tolist() == [0.0, 1.0]
    assert position_probs(table, 1, 2, 2) == pytest.approx([0.7, 0.3])
    assert position_probs(table, 2, 2, 2).tolist() == [1.0, 0.0]


def test_counts_and_pruning(folder):
    parameters, counts = import_tables(
        folder / "run", folder / "de.vcb", folder / "en.vcb", cut=Cut(threshold=0.2)
    )
    assert counts.tolist() == [0, 50, 30, 0]
    assert row(parameters, "das") == {"the": 1.0}
    assert parameters.facts["lost"]["t"] == pytest.approx(0.1 * 50 / 80)


def test_words_that_are_pieces_get_their_numbers(folder, tiny_subwords):
    subwords = Subwords(tiny_subwords)
    pieces = subwords.pieces(range(len(subwords)))
    first, second = pieces[280], pieces[290]
    (folder / "de.vcb").write_text(f"1 UNK 0\n2 {second} 9\n3 {first} 8\n")
    (folder / "en.vcb").write_text(
        f"2 {first} 9\n3 {second} 8\n4 {pieces[299]} 1\n5 {pieces[5]} 1\n"
    )
    parameters = read(folder, subwords)
    assert parameters.source_words == parameters.target_words == pieces
    assert row(parameters, second) == pytest.approx({first: 0.9, pieces[5]: 0.1})
    assert parameters.subwords is subwords
    (folder / "de.vcb").write_text("2 Haustür 9\n3 x 8\n")
    with pytest.raises(SconesError, match=r"de\.vcb, line 1 has the word 'Haustür', no piece of"):
        read(folder, subwords)


def test_a_word_with_a_wide_space_is_one_word(tmp_path):
    (tmp_path / "a.vcb").write_text("2 a\u00a0b 3\n")
    assert Vocabulary.read(tmp_path / "a.vcb").words == ["a\u00a0b"]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("run.t3.final", "2 2 0.9\n2 x 0.1\n", "line 2 has 'x' where a number of 0 or more is due"),
        ("run.t3.final", "2 2 0.9\n2 2\n", "line 2 has 2 columns instead of 3"),
        ("run.t3.final", "2 2 nan\n", "line 1 has 'nan' where a number of 0 or more is due"),
        ("run.t3.final", "", "is empty"),
        ("run.t3.final", "2 2 1\n9 2 1\n", "line 2 has the number 9, which is no word of"),
        ("run.t3.final", "2 2 1\n3 2 1\n2 3 0.5\n", "has probabilities that sum to 1.5"),
        ("run.n3.final", "2 0.5 0.5\n3 0.5 0.5 0\n", "line 2 has 4 columns instead of 3"),
        ("run.d3.final", "4 1 100 3 1\n", "puts a word at place 4 of 3, from the one at 1 of 100"),
        ("run.d3.final", "1 1 100 3000000 1\n", "it should hold j, i, l, m up to 2,000 and"),
        ("run.d3.final", "1 1 9 3 1\n1 1 8 3 1\n2 1 8 3 1\n", "has probabilities that sum to 2"),
        ("run.p0_3.final", "1.5\n", "line 1 holds 1.5, which is no probability above 0"),
        ("run.p0_3.final", "0.5\n0.5\n", "holds 2 numbers instead of one, p0"),
        ("de.vcb", "2 das 5\nzwei Haus 5\n", "line 2 is not a number, a word and a count"),
        ("de.vcb", "2 das 5\n2 Haus 5\n", "line 2 has the number 2, which is taken"),
        ("de.vcb", f"{1 << 70} das 5\n", "which is taken or no number of a word"),
    ],
)
def test_files_that_do_not_fit(folder, name, content, sentence):
    (folder / name).write_text(content)
    with pytest.raises(SconesError) as problem:
        read(folder)
    message = str(problem.value)
    assert message.startswith(str(folder / name))
    assert sentence in message
    assert message.count(". ") == 0  # one sentence
    assert message.endswith(".")


@pytest.mark.parametrize("name", sorted(GIZA))
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(SconesError, match=rf"{name} does not exist"):
        read(folder)


def test_exchanged_vocabularies_are_noticed(folder):
    with pytest.raises(SconesError, match=r"no word of .*de\.vcb; give the vocabularies"):
        import_tables(folder / "run", folder / "en.vcb", folder / "de.vcb")
