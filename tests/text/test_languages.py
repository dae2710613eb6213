import pytest

from scones.text.creamtea import CreamTea
from scones.text.languages import other_language


@pytest.fixture(scope="module")
def examples():
    return CreamTea.load().sample(500, seed=3)


def test_no_sentence_in_the_right_language_is_taken_for_another(examples):
    assert not {other_language(example.source, "de") for example in examples} - {None}
    targets = [target for example in examples for target in example.references]
    assert not {other_language(target, "en") for target in targets} - {None}


def test_a_text_in_the_wrong_language_is_noticed(examples):
    assert other_language("\n".join(example.source for example in examples[:20]), "en") == "de"
    assert (
        other_language("\n".join(example.references[0] for example in examples[:20]), "de") == "en"
    )
    assert other_language("Wie geht es dir heute?", "en") == "de"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "42",
        "Guten Morgen!",
        "Karl von und zu Berg",
        "MIT, MIT, MIT",
        "He said: Es ist mir egal.",
    ],
)
def test_what_is_unclear_is_left_alone(text):
    assert other_language(text, "en") is None


def test_of_languages_whose_words_are_not_known_nothing_is_said():
    assert other_language("There is tea for you and for them.", "fi") is None
