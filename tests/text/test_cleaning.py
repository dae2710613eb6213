import pickle
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scones.errors import SconesError
from scones.text import cleaning
from scones.text.cleaning import (
    REASONS,
    Cleaner,
    CleaningConfig,
    CleaningReport,
    check_language,
    is_plausible,
    languages,
    text_digest,
)
from scones.text.reading import MAX_LINE_BYTES, NOT_TWO_COLUMNS

TEXTS = {
    "de": "Der Tee steht auf dem Tisch, und die Gäste warten schon im Garten auf uns.",
    "fi": "Teekannu on pöydällä, ja vieraat odottavat meitä jo puutarhassa kukkien keskellä.",
    "lt": "Arbatinukas stovi ant stalo, o svečiai jau laukia mūsų sode prie gėlių.",
    "en": "The teapot is on the table, and the guests are already waiting for us outside.",
    "fr": "La théière est sur la table, et les invités nous attendent déjà dans le jardin.",
    "nl": "De theepot staat op tafel en de gasten wachten al op ons in de tuin.",
    "ru": "Чайник стоит на столе, а гости уже ждут нас в саду.",
}
CHINESE = "茶在桌子上，客人们已经在花园里等着我们了，请快一点过来吧。"
NO_SLACK = {"ratio_slack": 0, "max_ratio": 2}


def plain(held_out=frozenset(), **limits):
    """A cleaner that does not ask for the language."""
    config = CleaningConfig(identify_language=False, **limits)
    return Cleaner(config, "de", "en", held_out)


def reason(cleaner, source, target="a cup"):
    as_bytes = [text.encode() if isinstance(text, str) else text for text in (source, target)]
    return cleaner.check(*as_bytes).reason


@pytest.mark.parametrize(
    ("expected", "source", "target"),
    [
        ("columns", b"a\tb\tc", NOT_TWO_COLUMNS),
        ("encoding", b"K\xe4nnchen", b"pot"),
        ("encoding", b"Tasse", b"\xed\xa0\x80"),  # half of a surrogate pair
        ("control", b"Tas\0se", b"cup"),
        ("control", b"Tasse", "cup \ufffd".encode()),
        ("control", "Tasse \ue000".encode(), b"cup"),
        ("control", "Tasse\x85".encode(), b"cup"),
        ("empty", b"", b"cup"),
        ("empty", b"Tasse", " \u200b\u00a0\r".encode()),
        ("long", b"x" * (MAX_LINE_BYTES + 1), b"cup"),
        ("long", b"Tasse", b"cup " * 201),
        ("long", b"x" * 1501, b"y" * 1501),
        ("ratio", b"Tasse", b"cup and saucer " * 10),
        ("copy", b"tea  time", b"tea time\r"),
        (None, b"Tasse", b"cup"),
        (None, b"cup " * 200, b"cup. " * 200),
        (None, b"Ja.", b"Yes, that is right."),
    ],
)
def test_the_reason_of_a_pair(expected, source, target):
    assert reason(plain(), source, target) == expected
    assert expected is None or expected in REASONS


@pytest.mark.parametrize(
    ("expected", "limits", "source", "target"),
    [
        ("short", {"min_words": 2}, "eine Tasse", "cup"),
        (None, {"min_words": 2}, "eine Tasse", "a cup"),
        (None, {"drop_copies": False}, "Ada Lovelace", "Ada Lovelace"),
        (None, NO_SLACK, CHINESE, TEXTS["en"]),  # dense scripts say more in a character
        ("ratio", NO_SLACK, CHINESE, 3 * TEXTS["en"]),
    ],
)
def test_the_limits_can_be_changed(expected, limits, source, target):
    assert reason(plain(**limits), source, target) == expected


def test_a_kept_text_is_normalised_but_not_rewritten():
    source = "\u3000Zu\u00adcker \u00a0 und\u2028Milch\ufeff \t½ ﬁn\r"
    verdict = plain().check(source.encode(), "Sugar\u200e and  milk ½ می\u200cخواهم".encode())
    assert verdict.source == "Zucker und Milch ½ ﬁn"
    assert verdict.target == "Sugar and milk ½ می\u200cخواهم"


def test_equal_pairs_have_equal_digests_and_others_do_not():
    cleaner = plain()
    digest = cleaner.check(b"zwei Tassen", b"two cups").digest
    assert len(digest) == 16
    assert cleaner.check(b" zwei  Tassen", b"two cups\r").digest == digest
    assert cleaner.check(b"zwei", b"Tassen two cups").digest != digest
    assert cleaner.check(b"two cups", b"zwei Tassen").digest != digest


def test_held_out_texts_are_dropped_on_either_side():
    cleaner = plain(frozenset([text_digest("Zwei  Tassen\u00a0Tee.")]))
    assert reason(cleaner, "Zwei Tassen Tee.", "Two cups.") == "held out"
    assert reason(cleaner, "Kaksi kuppia.", " Zwei Tassen Tee. ") == "held out"
    assert reason(cleaner, "Zwei Tassen.", "Two cups.") is None


def test_the_language_of_each_side_is_checked():
    cleaner = Cleaner(CleaningConfig(), "de", "en")
    german, english = TEXTS["de"], TEXTS["en"]
    assert reason(cleaner, german, english) is None
    assert reason(cleaner, english, german) == "language (source)"
    assert reason(cleaner, german, german + "!") == "language (target)"


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_get_a_verdict_and_what_is_kept_stays_kept(source, target):
    cleaner = plain()
    verdict = cleaner.check(source, target)
    if verdict.reason is None:
        again = cleaner.check(verdict.source.encode(), verdict.target.encode())
        assert again == verdict
        assert "\n" not in verdict.source + verdict.target
    else:
        assert verdict.reason in REASONS


@given(st.text(max_size=40))
def test_any_text_can_be_identified(text):
    cleaner = Cleaner(CleaningConfig(), "de", "en")
    verdict = cleaner.check(text.encode(errors="surrogatepass"), b"tea")
    assert verdict.reason is None or verdict.reason in REASONS


def filled(*pairs, first_line=1):
    cleaner, report = plain(), CleaningReport()
    for line, (source, target) in enumerate(pairs, start=first_line):
        report.add(line, cleaner.check(source, target).reason, source, target)
    return report


GOOD, BROKEN, EMPTY = (b"Tee", b"tea"), (b"T\xe4e", b"tea"), (b"Tee", b"")


def test_without_py3langid_there_is_a_sentence(monkeypatch):
    cleaning._model.cache_clear()
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    with pytest.raises(SconesError, match="needs py3langid; install it, or give --any-language"):
        languages()


def test_a_report_counts_and_shows_three_examples_a_reason():
    report = filled(GOOD, *[EMPTY] * 5, (b"x" * MAX_LINE_BYTES + b"x", b"tea"), BROKEN)
    assert (report.total, report.kept) == (8, 1)
    assert report.counts == {"empty": 5, "long": 1, "encoding": 1}
    assert report.examples["encoding"] == [(8, "T\\xe4e", "tea")]
    assert [example.line for example in report.examples["empty"]] == [2, 3, 4]
    assert len(report.examples["long"][0].source) == 80


def test_reports_of_parts_merge_to_the_report_of_the_whole():
    pairs = [GOOD, BROKEN, EMPTY, EMPTY, BROKEN, EMPTY, EMPTY]
    merged = filled(*pairs[3:], first_line=4)
    merged.merge(pickle.loads(pickle.dumps(filled(*pairs[:3]))))
    assert merged == filled(*pairs)


def test_a_file_in_another_encoding_is_refused_by_place():
    source, target = Path("train.de"), Path("train.en")
    filled(*[GOOD] * 9, BROKEN).check_encoding(source, target)
    report = filled(*[GOOD] * 8, BROKEN, (b"Tee", b"te\0a"))
    with pytest.raises(SconesError, match=r"train\.de .* line 9 \(source: byte 2 is 0xE4\).*iconv"):
        report.check_encoding(source, target)
    with pytest.raises(SconesError, match=r"train\.en .* line 1 \(target: byte 3 is 0x00\)"):
        filled((b"Tee", b"te\0a")).check_encoding(source, target)
    with pytest.raises(SconesError, match=r"both\.tsv .* line 1 \(target: "):
        filled((b"Tee", b"te\0a")).check_encoding(Path("both.tsv"))


def test_a_corpus_of_which_nothing_is_left_is_refused_with_the_main_reason():
    filled(GOOD, EMPTY).check_kept(Path("train.tsv"))
    with pytest.raises(SconesError, match=r"train\.tsv .* 2 of 3 pairs were dropped for 'empty'"):
        filled(EMPTY, EMPTY, BROKEN).check_kept(Path("train.tsv"))


@pytest.mark.parametrize("written_in", TEXTS)
def test_a_sentence_is_accepted_in_its_own_language_only(written_in):
    for text in (TEXTS[written_in], TEXTS[written_in].upper()):
        assert {code for code in TEXTS if is_plausible(text, code)} == {written_in}


@pytest.mark.parametrize(
    ("codes", "texts"),
    [
        # What has next to no letters is accepted in any language.
        (TEXTS, ["", "3.14", "+++ 2 × 2 = 4 +++", "OK", "Tom", "☕ 12:30"]),
        (["en"], ["Tom died.", "Toolbars"]),
        (["fi"], ["Myyntimäärä"]),
        (["de"], ["Tom kniete.", 2 * TEXTS["de"] + 20 * TEXTS["fr"]]),  # the end is not looked at
    ],
)
def test_what_is_short_or_mixed_is_not_lost(codes, texts):
    assert all(is_plausible(text, code) for text in texts for code in codes)


def test_an_unknown_code_is_refused_and_near_ones_are_named():
    assert languages() >= {"de", "fi", "lt", "en", "zh", "ja", "hi"}
    check_language("lt")
    with pytest.raises(SconesError, match=r"'deu' is not a language.*\bde\b"):
        check_language("deu")
    with pytest.raises(SconesError, match="ISO 639-1"):
        check_language("")
