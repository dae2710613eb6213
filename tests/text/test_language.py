import pytest

from scones.errors import SconesError
from scones.text.cleaning import LanguageIdentifier, check_language

TEXTS = {
    "de": "Der Tee steht auf dem Tisch, und die Gäste warten schon im Garten auf uns.",
    "fi": "Teekannu on pöydällä, ja vieraat odottavat meitä jo puutarhassa kukkien keskellä.",
    "lt": "Arbatinukas stovi ant stalo, o svečiai jau laukia mūsų sode prie gėlių.",
    "en": "The teapot is on the table, and the guests are already waiting for us outside.",
    "fr": "La théière est sur la table, et les invités nous attendent déjà dans le jardin.",
    "nl": "De theepot staat op tafel en de gasten wachten al op ons in de tuin.",
    "ru": "Чайник стоит на столе, а гости уже ждут нас в саду.",
}


@pytest.fixture(scope="module")
def identifier():
    return LanguageIdentifier()


@pytest.mark.parametrize("written_in", TEXTS)
def test_a_sentence_is_accepted_in_its_own_language_only(identifier, written_in):
    accepted = {code for code in TEXTS if identifier.accepts(TEXTS[written_in], code)}
    assert accepted == {written_in}


@pytest.mark.parametrize("text", ["", "3.14", "+++ 2 × 2 = 4 +++", "OK", "Tom", "☕ 12:30"])
def test_what_has_next_to_no_letters_is_accepted_in_any_language(identifier, text):
    assert all(identifier.accepts(text, code) for code in TEXTS)


@pytest.mark.parametrize(
    ("text", "language"),
    [("Tom died.", "en"), ("Tom kniete.", "de"), ("Toolbars", "en"), ("Myyntimäärä", "fi")],
)
def test_short_right_lines_are_not_lost(identifier, text, language):
    assert identifier.accepts(text, language)


def test_capitals_make_no_difference(identifier):
    assert identifier.accepts(TEXTS["de"].upper(), "de")
    assert not identifier.accepts(TEXTS["de"].upper(), "en")


def test_the_end_of_a_long_line_does_not_count(identifier):
    assert identifier.accepts(2 * TEXTS["de"] + 20 * TEXTS["fr"], "de")


def test_languages_are_two_letter_codes(identifier):
    assert identifier.languages() >= {"de", "fi", "lt", "en", "zh", "ja", "hi"}
    assert {len(code) for code in identifier.languages()} == {2}


def test_an_unknown_code_is_refused_and_near_ones_are_named():
    check_language("lt")
    with pytest.raises(SconesError, match=r"'deu' is not a language.*\bde\b"):
        check_language("deu")
    with pytest.raises(SconesError, match="ISO 639-1"):
        check_language("")
