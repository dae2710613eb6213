"""The front door: load, translate, score."""

import math
import random
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import scones
from scones import SconesError, Translation
from scones.files import read_json, write_json
from scones.model.folder import ModelFolder
from scones.search.frontier import ExactOptions
from scones.search.searcher import Hypothesis
from scones.search.translations import ExactTranslations
from scones.text import END

SEARCHES = [{}, {"search": "beam", "beam_size": 3, "n_best": 3}]


@pytest.fixture(scope="module", params=["scones", "softmax"])
def translator(request, tiny_models):
    return scones.load(tiny_models / request.param, device="cpu")


@pytest.fixture
def sentences(tea_pairs):
    return [source for source, _ in tea_pairs[:16]]


def same(left, right):
    """Say whether two results have the same translations and, but for rounding, scores."""
    return [[(one.tokens, one.text, one.finished) for one in found] for found in left] == [
        [(one.tokens, one.text, one.finished) for one in found] for found in right
    ] and all(
        one.log_prob == pytest.approx(other.log_prob, abs=1e-4)
        for found, others in zip(left, right, strict=True)
        for one, other in zip(found, others, strict=True)
    )


def test_every_sentence_gets_a_list_of_translations(translator, sentences):
    found = translator.translate(sentences)
    plain = translator.translate(sentences, scores=False)
    assert [len(translations) for translations in found] == [1] * len(sentences)
    assert len({best.text for (best,) in found}) > 8  # they do depend on the source
    assert any(best.finished for (best,) in found)
    for (best,), (unscored,) in zip(found, plain, strict=True):
        assert unscored == replace(best, log_prob=None, token_log_probs=None)
        assert best.text == "".join(best.tokens).replace("▁", " ").strip()
        assert len(best.token_log_probs) == len(best.tokens) + best.finished
        if best.finished:
            assert best.log_prob == pytest.approx(math.fsum(best.token_log_probs))
            assert best.probability == pytest.approx(math.exp(best.log_prob))
    assert unscored.probability is None
    assert translator.translate([]) == []


@pytest.mark.parametrize("options", SEARCHES, ids=["greedy", "beam"])
def test_a_sentence_does_not_feel_its_neighbours(translator, sentences, options):
    together = translator.translate(sentences, **options)
    alone = [translator.translate([sentence], **options)[0] for sentence in sentences]
    assert same(together, alone)
    for max_tokens in (1, 60):
        assert same(translator.translate(sentences, max_tokens=max_tokens, **options), together)
    order = random.Random(4).sample(range(len(sentences)), len(sentences))
    shuffled = translator.translate([sentences[index] for index in order], **options)
    assert same(shuffled, [together[index] for index in order])


def test_an_empty_sentence_gets_an_empty_translation(translator, sentences):
    for options in SEARCHES:
        found = translator.translate(["", sentences[0], " \t"], **options)
        assert found[0] == found[2] == [Translation("", (), None, None)]
        assert same(found[1:2], translator.translate(sentences[:1], **options))
    nothing = ExactTranslations([Translation("", (), None, None)], None)
    assert list(translator.exact(["", "  "])) == [(0, nothing), (1, nothing)]


def test_a_sentence_beyond_the_limit(translator, sentences, caplog):
    limit = translator.model.config.max_length - 1
    long = " ".join(["Tee"] * 200)
    texts = [sentences[0], long]
    with pytest.raises(SconesError, match=f"Sentence 2 has .* pieces and the model takes {limit};"):
        translator.translate(texts)
    assert caplog.messages == []
    skipped = translator.translate(texts, too_long="skip")
    assert skipped[1] == [Translation("", (), None, None)]
    cut = translator.translate(texts, too_long="cut", first_number=41)
    kept = translator.subwords.decode([translator.subwords.encode([long])[0][:limit]])[0]
    assert same(cut, translator.translate([sentences[0], kept]))
    first, second = [said for said in caplog.messages if "has" in said]
    assert first.startswith("Sentence 2 has")
    assert first.endswith("it is skipped.")
    assert second.startswith("Sentence 42 has")
    assert second.endswith("it is cut.")


def test_a_translation_that_was_cut_has_no_probability(tiny_model, tmp_path, caplog):
    folder = ModelFolder.load(tiny_model)
    with torch.no_grad():
        folder.model.output_bias[END] = -50.0
    folder.save(tmp_path / "endless")
    translator = scones.load(tmp_path / "endless", "cpu")
    for options in [*SEARCHES, {"search": "exact", "max_seconds": 1e-9}]:
        caplog.clear()
        found = translator.translate(["Tee", "Sahne"], first_number=7, end_circles=False, **options)
        for number, (cut,) in enumerate(found, start=7):
            assert (cut.finished, cut.log_prob, cut.probability) == (False, None, None)
            limit = len(cut.tokens)
            assert len(cut.token_log_probs) == limit
            said = f"Sentence {number}: its translation was cut at the limit of {limit} pieces."
            assert caplog.messages.count(said) == 1


CIRCLES = "Sentence 7: its translation ran in circles and was ended where they begin."


@pytest.fixture(scope="module", params=["scones", "softmax"])
def circling(request, tiny_models, tmp_path_factory):
    """A model that says one word for ever, and the word."""
    folder = ModelFolder.load(tiny_models / request.param)
    subwords = folder.vocabulary
    words = [piece[1:] for piece in subwords.pieces() if piece.startswith("▁")]
    word = next(word for word in words if len(word) > 3 and len(subwords.encode([word])[0]) == 1)
    with torch.no_grad():
        folder.model.output_bias[subwords.encode([word])[0][0]] = 30.0
        folder.model.output_bias[END] = -20.0  # no beam ends it either
    folder.save(place := tmp_path_factory.mktemp("circling") / "model")
    return scones.load(place, "cpu"), word


@pytest.mark.parametrize("options", SEARCHES, ids=["greedy", "beam"])
def test_what_runs_in_circles_ends_where_they_begin(circling, caplog, options):
    translator, word = circling
    ((one,),) = translator.translate(["Tee mit Sahne"], first_number=7, **options)
    assert caplog.messages == [CIRCLES]
    assert (one.text, one.tokens, one.finished) == (word, (f"▁{word}",), True)
    ((first, last),) = translator.score_tokens([("Tee mit Sahne", word)])
    assert one.token_log_probs == pytest.approx((first, last), abs=1e-5)
    assert one.log_prob == pytest.approx(first + last, abs=1e-5)
    plain = translator.translate(["Tee mit Sahne"], scores=False, **options)
    assert plain == [[one if options else replace(one, log_prob=None, token_log_probs=None)]]
    ((sure,),) = translator.translate(["Tee mit Sahne"], confidence=True, **options)
    assert sure == replace(one, ambiguity=sure.ambiguity, doubt=sure.doubt)
    assert sure.doubt is not None
    ((as_found,),) = translator.translate(["Tee mit Sahne"], end_circles=False, **options)
    assert as_found.text.startswith(f"{word} {word} {word} ")
    assert (as_found.finished, as_found.log_prob) == (False, None)
    ((begun,),) = translator.translate(["Tee"], prefix=f"{word} {word} {word}", **options)
    assert (begun.text, begun.finished) == (f"{word} {word} {word}", True)


def test_without_scores_the_end_of_circles_costs_nothing(circling, monkeypatch):
    translator, word = circling
    monkeypatch.setattr(translator, "_read", None)
    found = translator.translate(["Tee", "Sahne. Tee."], scores=False, split=True)
    assert [one.text for (one,) in found] == [word, f"{word} {word}"]
    assert {(one.log_prob, one.finished) for (one,) in found} == {(None, True)}


def test_circles_end_in_the_places_where_they_are(tiny_model, sentences, caplog):
    """A stub gives what was cut in circles, what was cut elsewhere, what ended, several of one."""
    translator = scones.load(tiny_model, "cpu")
    words = translator.subwords.encode(sentences)
    cut, far, ended = (
        Hypothesis(tuple(ids), -1.0, (-1.0,), finished)
        for ids, finished in ((words[0] * 9, False), (words[1], False), (words[2], True))
    )
    wide = [cut, ended, replace(cut, tokens=cut.tokens[:-2])]

    class Stub:
        def search(self, sources, options):
            return [[far], [ended], [cut], list(wide)][: len(sources)]

    translator._searcher = Stub()
    found = translator.translate(sentences[:4], first_number=5)
    # A circle may be cut open anywhere within the words: the first of them may come first again.
    once = "".join(found[2][0].tokens).replace("▁", " ").strip()
    assert [[one.text for one in several] for several in found] == [
        [sentences[1]],
        [sentences[2]],
        [once],
        [once, sentences[2]],
    ]
    assert once == sentences[0]
    assert [one.finished for several in found for one in several] == [False, True, True, True, True]
    assert found[0][0].log_prob is None
    assert found[2][0].log_prob == pytest.approx(
        translator.score([(sentences[2], once)])[0], abs=1e-5
    )
    assert [said for said in caplog.messages if "cut" in said] == [
        f"Sentence 5: its translation was cut at the limit of {len(words[1])} pieces."
    ]
    assert CIRCLES in caplog.messages


def test_segmentations_of_one_text_are_one_translation(monkeypatch):
    translator = scones.load("pocket-en-de", "cpu")
    searches = [
        {"search": "all", "threshold": 0.01},
        {"search": "beam", "beam_size": 60, "n_best": 60},
    ]

    def found():
        return [translator.translate(["Can I pay by card?"], **search)[0] for search in searches]

    merged = found()
    with monkeypatch.context() as patch:
        patch.setattr(translator.subwords, "decode", lambda ids: [str(one) for one in ids])
        apart = found()
    for translations, segmentations in zip(merged, apart, strict=True):
        same_text = {}
        for one in segmentations:
            text = "".join(one.tokens).replace("▁", " ").strip()
            same_text.setdefault(text, []).append(one)
        assert len(same_text) < len(segmentations)
        assert translations == [
            replace(several[0], text=text, segmentations=len(several))
            for text, several in same_text.items()
        ]
    # As many of the best as there are above the threshold are the same.
    options = ExactOptions(len(merged[0]))
    ((_, exact),) = translator.exact(["Can I pay by card?"], options)
    assert same([exact.translations], merged[:1])
    assert exact.certificate.proved
    lattice = exact.lattice.to_json()
    assert lattice["translations"] == len(merged[0])
    assert lattice["segmentations"] == sum(one.segmentations for one in exact.translations)


@pytest.mark.parametrize("options", [{}, {"search": "beam"}, {"scores": False}])
def test_a_text_is_put_together_from_its_sentences(translator, sentences, options):
    pytest.importorskip("sentencex")
    one, two, three = (f"{text.rstrip('.!?')}." for text in sentences[:3])
    texts = [f"  {one} \t{two}\n\n{three} ", " ", two]
    (whole,), (nothing,), (single,) = translator.translate(texts, **options, split=True)
    parts = [found[0] for found in translator.translate([one, two, three], **options)]
    first, second, third = (part.text for part in parts)
    assert whole.text == f"  {first} \t{second}\n\n{third} "
    assert nothing == Translation("", (), None, None)
    assert same([[single]], [[parts[1]]])
    assert whole.finished == all(part.finished for part in parts)
    if options.get("scores", True):
        terms = [term for part in parts for term in part.token_log_probs]
        assert whole.token_log_probs == pytest.approx(terms, abs=1e-4)
        assert len(whole.tokens) == len(terms) - parts[-1].finished
    if whole.log_prob is not None:
        assert whole.log_prob == pytest.approx(sum(part.log_prob for part in parts), abs=1e-4)


def test_a_sentence_that_is_too_long_is_named_by_its_text(translator):
    pytest.importorskip("sentencex")
    with pytest.raises(SconesError, match="Sentence 8 has"):
        translator.translate(["Ja. Ja.", f"Ja. {'Tee ' * 900}"], split=True, first_number=7)


def test_a_translator_shows_what_it_is(translator):
    layer = type(translator.output).__name__
    assert re.fullmatch(
        rf"<scones.Translator {layer.lower()}: de → en, {layer}\(.*\), 500 pieces, 1\+1 layers of "
        r"\d+>",
        repr(translator),
    )


def test_the_longest_sentence_that_fits_is_taken(translator):
    limit = translator.model.config.max_length - 1
    (piece,) = {ids[0] for ids in translator.subwords.encode(["Tee Tee"])}
    text = translator.subwords.decode([[piece] * limit])[0]
    assert len(translator.subwords.encode([text])[0]) == limit
    assert len(translator.translate([text])) == 1
    assert len(translator.score([(text, text)])) == 1


def test_the_score_of_a_translation_is_the_one_that_search_gave_it(translator, sentences):
    compared = 0
    for source, (best,) in zip(sentences, translator.translate(sentences), strict=True):
        ids = translator.subwords.encode([best.text])[0]
        if not best.finished or translator.subwords.pieces(ids) != [*best.tokens]:
            continue  # cut off, or the same text in other pieces
        compared += 1
        (terms,) = translator.score_tokens([(source, best.text)])
        assert terms == pytest.approx([*best.token_log_probs], abs=1e-5)
        assert translator.score([(source, best.text)]) == [pytest.approx(math.fsum(terms))]
    assert compared > 2


def test_scores_do_not_feel_their_neighbours(translator, tea_pairs):
    pairs = [*tea_pairs[:20], ("Tee", ""), ("", "tea")]
    together = translator.score(pairs)
    assert all(log_prob < 0 for log_prob in together)
    assert [translator.score([pair])[0] for pair in pairs] == pytest.approx(together, abs=1e-4)
    assert translator.score(pairs, max_tokens=70) == pytest.approx(together, abs=1e-4)
    assert translator.score([]) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"search": "exhaustive"}, "search 'exhaustive' is not known; use one of greedy, beam"),
        ({"n_best": 2}, "Greedy search gives one translation"),
        ({"search": "beam", "n_best": 5}, "n_best must be at most beam_size, 4, not 5"),
        ({"search": "beam", "beam_size": 0}, "beam_size must be at least 1, not 0"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"too_long": "shorten"}, "too_long 'shorten' is not known"),
        ({"search": "all", "threshold": 0}, "threshold must be above 0, not 0"),
        ({"split": True, "search": "all"}, "leave out split=True"),
        ({"split": True, "search": "beam", "n_best": 2}, "leave out split=True"),
    ],
)
def test_a_wrong_option_is_refused(translator, options, said):
    with pytest.raises(SconesError, match=said):
        translator.translate(["Tee"], **options)


def test_what_is_not_a_list_of_strings_is_refused(translator):
    with pytest.raises(SconesError, match="a list of sentences, not one string"):
        translator.translate("Guten Tag.")
    with pytest.raises(SconesError, match="Text 2 is 7, which is not a string"):
        translator.translate(["Tee", 7])
    for pairs in (["Tee", "tea"], ["ab"], [("Tee", "tea", "cup of tea")], "ab"):
        with pytest.raises(SconesError, match="Give pairs of a source and a target"):
            translator.score(pairs)
    with pytest.raises(SconesError, match=r"Source 1 has .* pieces"):
        translator.score([("Tee " * 200, "tea")])
    with pytest.raises(SconesError, match=r"Target 1 has .* pieces"):
        translator.score([("Tee", "tea " * 200)])


def test_load_refuses_what_it_cannot_use(tiny_model, tmp_path):
    from scones.text.subwords import Subwords

    with pytest.raises(SconesError, match="precision 'int8' is not known"):
        scones.load(tiny_model, precision="int8")
    with pytest.raises(SconesError, match="device 'abacus' is not known"):
        scones.load(tiny_model, device="abacus")
    model = Path(shutil.copytree(tiny_model, tmp_path / "model"))
    Subwords.train(["the pieces of another vocabulary"] * 3, 277).save(model / "subwords.model")
    with pytest.raises(SconesError, match=r"subwords.model is damaged: it is not the model's voc"):
        scones.load(model, "cpu")
    config = read_json(model / "config.json")
    del config["scones"]["digests"]  # earlier versions wrote none
    write_json(model / "config.json", config)
    with pytest.raises(SconesError, match=r"subwords.model has 277 pieces and .* says 500"):
        scones.load(model, "cpu")


def test_bf16_scores_are_near(tiny_model, tea_pairs):
    exact = scones.load(str(tiny_model), "cpu").score(tea_pairs[:5])
    rough = scones.load(tiny_model, "cpu", precision="bf16").score(tea_pairs[:5])
    assert rough != exact
    assert rough == pytest.approx(exact, rel=0.05)


def test_translate_takes_exact_and_all(translator, sentences):
    found = translator.translate(sentences[:3], "exact", n_best=2, max_states=100)
    assert all(1 <= len(one) <= 2 for one in found)
    assert all(one[0].log_prob == max(t.log_prob or -1e9 for t in one) for one in found)
    several = translator.translate(sentences[:3], "all", threshold=1e-30, max_states=300)
    log_probs = [one.log_prob or 0.0 for found in several for one in found]
    assert len(log_probs) > len(several) == 3
    assert min(log_probs) >= math.log(1e-30)
    with pytest.raises(SconesError, match="leave out length_penalty"):
        translator.translate(sentences[:1], "exact", length_penalty=1.0)


def test_exact_search_begins_from_what_is_known(tiny_model):
    """Stopped at once, it gives the best that was known before, whoever found it."""
    translator = scones.load(tiny_model, "cpu")
    ((other,),) = translator.translate(["Guten Tag."], search="beam")
    # As if a wide beam had found what nothing else finds.
    pieces = tuple(translator.subwords.pieces([50, 60, 70]))
    known = replace(other, tokens=pieces, log_prob=-0.01)
    cut = replace(other, log_prob=None)
    options = ExactOptions(max_states=1)
    ((_, found),) = translator.exact(["Tee"], options, known=[[cut, known]])
    assert (found.translations[0].tokens, found.translations[0].log_prob) == (pieces, -0.01)
    assert found.certificate.beam_log_prob != -0.01  # that is of the beam that came first
