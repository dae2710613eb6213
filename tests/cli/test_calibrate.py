"""`scones calibrate`, and what scores and translations tell of a calibrated model."""

import json
import shutil

import pytest

import scones as package
from scones.files import read_json
from scones.model.folder import POCKET, read_facts


def lines_of(texts):
    return "".join(f"{text}\n" for text in texts)


@pytest.fixture(scope="module")
def texts(tmp_path_factory, tea_pairs):
    """A development set: sources, and references of which every third is of another sentence."""
    folder = tmp_path_factory.mktemp("dev")
    pairs = list(dict(tea_pairs).items())[:260]
    sources = [source for source, _ in pairs]
    found = package.load("pocket-de-en", "cpu").translate(sources)
    targets = [best.text if index % 3 else "no" for index, (best,) in enumerate(found)]
    (folder / "de").write_text(lines_of(sources))
    (folder / "en").write_text(lines_of(targets))
    (folder / "ratings").write_text(lines_of([90 if index % 3 else 5 for index in range(260)]))
    return folder


@pytest.fixture
def model(tmp_path):
    shutil.copytree(POCKET / "pocket-de-en", tmp_path / "model")
    config = read_json(tmp_path / "model" / "config.json")
    config["scones"].pop("confidence", None)
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    return tmp_path / "model"


def test_a_model_is_calibrated_checked_and_tells_of_it(model, texts, scones):
    words = ["calibrate", model, "--source", texts / "de", "--device", "cpu", "--json"]
    done = json.loads(scones(*words, "-r", texts / "en", "--threshold", 0.25).out)
    assert read_facts(model).confidence == done["calibration"]
    (told,) = done["sets"].values()
    assert told["sentences"] == 260
    assert told["base_rate"] == pytest.approx(2 / 3, abs=0.01)
    assert "chrF2 of at least 60|nrefs:1" in done["calibration"]["acceptable"]
    before = (model / "config.json").read_bytes()
    again = json.loads(scones(*words, "-r", texts / "en", "--check").out)
    assert again["sets"] == done["sets"]
    assert (model / "config.json").read_bytes() == before

    translator = package.load(model, "cpu")
    for search in ("greedy", "beam"):  # read with the logits, and in a second pass
        ((found, *_),) = translator.translate(["Guten Morgen."], search, confidence=True)
        assert 0 <= found.confidence <= 1
        assert found.ambiguity >= 1
        assert 0 <= found.doubt <= 1
    ((plain,),) = translator.translate(["Guten Morgen."])
    assert plain.confidence is plain.ambiguity is None
    assert translator.likely == 0.25

    shown = scones("score", model, texts / "de", texts / "en", "--confidence").out.splitlines()
    scored = scones("score", model, texts / "de", texts / "en").out.splitlines()
    log_probs, confidences = zip(*(map(float, line.split("\t")) for line in shown), strict=True)
    assert log_probs == pytest.approx([float(line) for line in scored], abs=0.05)  # other batches
    assert all(0 <= one <= 1 for one in confidences)


def test_ratings_of_given_translations_will_do(model, texts, scones):
    words = ["calibrate", model, "--source", texts / "de", "--translation", texts / "en"]
    done = scones(*words, "--ratings", texts / "ratings", "--acceptable", 50)
    assert "acceptable: rating of at least 50" in done.out
    # A reference of another sentence is easily told from a translation.
    assert read_facts(model).confidence["base_rate"] == pytest.approx(2 / 3, abs=0.01)


def test_what_is_not_sure_enough_is_left_empty_and_said(scones, caplog):
    words = ["translate", "pocket-de-en", "--device", "cpu"]
    text = "Guten Morgen.\n\nquietschbunte Zwölfkampfunschärfen ver\n"
    done = scones(*words, "--min-confidence", 0.5, stdin=text)
    assert done.out == "Good morning.\n\n\n"
    (said,) = caplog.messages
    assert said.startswith("Line 3: its confidence is 0.")
    as_json = scones(*words, "--min-confidence", 0.5, "--json", stdin=text).out.splitlines()
    kept = [json.loads(line)["translations"] for line in as_json]
    assert [len(found) for found in kept] == [1, 1, 0]
    assert kept[0][0]["confidence"] >= 0.5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("translate {bare} --min-confidence 0.5", "is not calibrated; fit its confidence by"),
        ("score {bare} {de} {en} --confidence", "is not calibrated; fit its confidence by"),
        ("calibrate {bare} --source {de} -r {en} --check", "is not calibrated; leave out --check"),
        ("calibrate {bare} --source {de}", "Give --reference once for every --source"),
        ("calibrate {bare} --source {de} --ratings {en}", "Give --translation and --ratings once"),
        ("calibrate {bare} --source {de} --translation {en} --ratings {en}", "is not a number"),
        ("calibrate {bare} --source {de} -r {en} --acceptable 101", "too few to fit a confidence"),
    ],
)
def test_mistakes_are_said(model, texts, refused, words, said):
    files = {"bare": str(model), "de": str(texts / "de"), "en": str(texts / "en")}
    refused(*[word.format(**files) for word in words.split()], said=said)
