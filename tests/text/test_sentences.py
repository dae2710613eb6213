"""Where a text is cut into sentences, and above all where not."""

import sys

import pytest

from scones.errors import SconesError
from scones.text.sentences import split_sentences

pytest.importorskip("sentencex")

TEXTS = {  # by language; " | " stands where a text should be cut
    "de": [
        "Guten Tag. | Wie geht es Ihnen? | Gut!",
        "Er kam am 3. Mai, z. B. um 5 Uhr. | Danach ging er.",
        "Das ist im 19. Jahrhundert so gewesen. | Dann nicht mehr.",
        "Für den 1. FC Köln war es das 350. Spiel. | Es war 2018. | Dann nicht mehr.",
        "Dr. Müller, d. h. der Arzt, wiegt ca. 80 kg. | Das ist viel.",
        "„Ich komme.“ | Er ging. | „Komm!“, sagte er.",
        'Sie sagte: "Das war\'s dann." | Er nickte."',
        "Mehr auf www.Beispiel.de oder im Heft. | Bitte lesen.",
        "Nur eine Zeile ohne Punkt",
        "  Erst das.  | \tDann das.  ",
        "Das eine.\n\n | Das andere.\n",
    ],
    "en": [
        "The U.S. President left at 5 p.m. sharp. | It rained.",
        "Mr. Hart met Ms. Schroeder, e.g. on Monday. | They spoke.",
        '"Why?" she asked. | Nobody knew.',
    ],
}


@pytest.mark.parametrize(("language", "marked"), [(one, t) for one in TEXTS for t in TEXTS[one]])
def test_sentences_end_where_they_should(language, marked):
    parts = split_sentences(marked.replace("| ", ""), language)
    assert "".join(parts) == marked.replace("| ", "")
    assert [part.strip() for part in parts] == [part.strip() for part in marked.split("|")]


def test_blank_text_has_no_sentences_and_an_unknown_language_no_error():
    assert split_sentences("", "de") == split_sentences(" \n ", "de") == []
    assert len(split_sentences("One. Two.", "a language")) == 2


def test_without_sentencex_there_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with pytest.raises(SconesError, match="needs sentencex; install it, or give --no-split"):
        split_sentences("Tee.", "de")
